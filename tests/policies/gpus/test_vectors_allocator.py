"""The vectors of the allocator (notes 5.4), as the rulings have them. A22 to A24, A30 and A31 are out of scope."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bursar.engine.decision import HOLDING
from bursar.engine.session import EngineError
from bursar.engine.what_if import Adjust
from bursar.ledger.claims import ClaimSpec
from bursar.objects.core import PodSpec
from bursar.objects.pods import node_needs
from bursar.policies.gpus.fleet import COMPACT, LOW_LOAD, NODE_COMPACT
from bursar.policies.gpus.settings import HostBody
from bursar.resources import dimension
from bursar.selectors import NodeNeeds, NodeTerm, Requirement
from tests.policies.gpus.world import GI, World, marks, worker

A100 = "NVIDIA A100"


def fixture() -> World:
    """node-1: g1, g2 (20 of 100 taken), g5, g6; node-2: g3 of another pool; node-3: g4, which does not run yet."""
    found = World()
    found.mode(COMPACT, 50)
    for name in ("g1", "g2", "g5", "g6"):
        found.gpu(name, "node-1", 100, "32Gi" if name == "g2" else "16Gi", pool="pool", model=A100)
    found.gpu("g3", "node-2", 120, "24Gi", pool="other-pool", model=A100)
    found.gpu("g4", "node-3", 150, "48Gi", pool="pool", model="NVIDIA H100", usable=False)
    return found


def test_a1_one_gpu() -> None:
    found = fixture()
    assert found.alloc((50, "8Gi"), uid="w", gpupool="pool").place == "node-1"
    (gpu,) = found.on("w")
    assert found.free(gpu) == ("50", "24Gi" if gpu == "g2" else "8Gi")


@pytest.mark.parametrize("oversell", [None, (50, 70, 500)])
def test_a1_what_is_left_of_the_node_and_of_what_it_promises(oversell: tuple[int, int, int] | None) -> None:
    """node-1 is the only node of the pool whose GPUs run, so the pool's figures are the node's."""
    found = fixture()
    found.pool("pool", COMPACT, oversell=oversell)
    found.host("node-1", HostBody(memory=256 * GI, disk=1024 * GI))
    before = found.pool_status()["pool"]
    assert found.alloc((50, "8Gi"), gpupool="pool").admitted
    after = found.pool_status()["pool"]
    for kind in ("available", "virtualAvailable"):
        assert taken(before, after, kind + "TFlops", "tflops") == 50_000
        assert taken(before, after, kind + "VRAM", "vram") == 8 * GI
    for kind in ("total", "virtual"):
        assert [before[kind + name] for name in ("TFlops", "VRAM")] == [
            after[kind + name] for name in ("TFlops", "VRAM")
        ]


def taken(before: dict[str, Any], after: dict[str, Any], field: str, name: str) -> int:
    return dimension(name).parse(before[field]) - dimension(name).parse(after[field])


def test_a2_two_gpus_of_one_node() -> None:
    found = fixture()
    assert found.alloc((20, "4Gi"), 2, "w", gpupool="pool").admitted
    assert len(set(found.on("w"))) == 2


@pytest.mark.parametrize(
    ("request_", "count", "more"),
    [
        ((10, "2Gi"), 10, {"gpupool": "pool"}),
        ((200, "64Gi"), 1, {"gpupool": "pool"}),
        ((10, "2Gi"), 1, {"gpupool": "unknown"}),
        ((10, "2Gi"), 1, {"gpupool": "pool", "gpu_model": "NonExistentModel"}),
    ],
)
def test_a3_what_no_gpu_can_do(request_: tuple[int, str], count: int, more: dict[str, str]) -> None:
    found = fixture()
    decision = found.decide(marks(request_, None, count, **more))
    assert not decision.admitted
    assert not decision.place


def test_a4_by_model() -> None:
    found = fixture()
    assert found.alloc((50, "8Gi"), uid="w", gpu_model=A100).admitted
    assert found.on("w")[0] != "g4"


def test_a5_deallocation_restores_exactly() -> None:
    found = fixture()
    before = found.engine.digest
    found.engine.submit(found.claim({}, "open the namespace"))
    found.alloc((30, "6Gi"), uid="w")
    found.engine.release("w")
    assert [found.free(name) for name in ("g1", "g2")] == [("100", "16Gi"), ("100", "32Gi")]
    assert before != found.engine.digest  # the namespace has an account now, and another claim waits


def test_a6_a_gpu_that_is_gone_does_not_keep_the_others() -> None:
    found = fixture()
    found.alloc((30, "6Gi"), 2, "w", gpu_indices="", gpu_model=A100)
    gone, kept = found.on("w")
    found.no_gpu(gone)
    assert f"gpus/{gone}" in found.engine.state.accounts
    found.engine.release("w")
    assert found.free(kept)[0] == "100"
    assert f"gpus/{gone}" not in found.engine.state.accounts


def test_a7_an_adjustment_that_the_gpu_cannot_hold() -> None:
    found = fixture()
    found.alloc((50, "10Gi"), uid="w", gpupool="pool")
    outlook = found.engine.what_if([Adjust("w", ClaimSpec(annotations=marks((300, "30Gi"), gpupool="pool")))])
    (refusal,) = outlook.decisions[0].refusals
    assert (refusal.reason, refusal.requested, refusal.used, refusal.limit) == ("gpus.room.tflops", "300", "0", "100")
    assert found.free(found.on("w")[0])[0] == "50"


def test_a9_gpus_come_and_go() -> None:
    found = fixture()
    found.gpu("new", "node-9", 10, "1Gi")
    assert found.alloc((5, "1Gi"), uid="w", gpu_model="").admitted
    assert "node-9" in found.gpus.index.sync().spans
    found.no_gpu("new")
    assert "node-9" not in found.gpus.index.sync().spans
    assert found.gpus.index.sync().spans.keys() == {"node-1", "node-2", "node-3"}


def test_a10_the_last_worker_of_a_gpu_that_was_removed() -> None:
    found = World()
    found.gpu("only", "n1", 10, 10)
    found.alloc((5, 5), uid="w")
    found.no_gpu("only")
    found.engine.release("w")
    assert "gpus/only" not in found.engine.state.accounts
    assert not found.gpus.inventory.by_node


def preempting(*residents: tuple[str, int, str]) -> World:
    """Two GPUs of 100/16Gi on n1 and workers of priority 0 that fill them."""
    found = World()
    found.gpu("g1", "n1", 100, "16Gi")
    found.gpu("g2", "n1", 100, "16Gi")
    for uid, tflops, vram in residents:
        assert found.alloc((tflops, vram), uid=uid).admitted
    return found


def test_a11_room_on_two_gpus() -> None:
    found = preempting(("a", 90, "15Gi"), ("b", 50, "10Gi"))
    decision = found.alloc((30, "8Gi"), 2, "w", priority=1)
    assert (decision.outcome, sorted(decision.victims)) == (HOLDING, ["a", "b"])
    assert found.on("w") == ["g1", "g2"]


def test_a12_the_room_of_a_victim() -> None:
    found = preempting(("a", 70, "15Gi"), ("b", 70, "15Gi"))
    decision = found.alloc((50, "10Gi"), uid="w", priority=1)
    assert decision.victims == ("b",)
    assert found.free(found.on("w")[0]) == ("50", "6Gi")


def test_a13_victims_are_of_the_node_that_is_taken() -> None:
    found = preempting(("a", 70, "15Gi"), ("b", 70, "15Gi"))
    found.gpu("g3", "n2", 100, "16Gi")
    found.alloc((90, "15Gi"), uid="c", priority=1)
    decision = found.alloc((50, "10Gi"), uid="w", priority=2)
    assert (decision.place, decision.victims) == ("n1", ("b",))


def test_preemption_never_takes_equals() -> None:
    found = preempting(("a", 70, "15Gi"), ("b", 70, "15Gi"))
    assert found.alloc((50, "10Gi")).reason == "gpus.full"


@pytest.mark.parametrize(
    ("request_", "count", "used"),
    [
        pytest.param(("500m", "1Gi"), 1, ("500m", 2**30), id="A14 one"),
        pytest.param(("250m", "1Gi"), 2, ("500m", 2 * 2**30), id="A14 two"),
        pytest.param((50, "10Gi"), 2, ("100", 20 * 2**30), id="A15 two"),
        pytest.param((30, "6Gi"), 3, ("90", 18 * 2**30), id="A15 three"),
    ],
)
def test_totals(request_: tuple[int | str, str], count: int, used: tuple[str, int]) -> None:
    found = fixture()
    assert found.alloc(request_, count, gpupool="pool").admitted
    assert found.used()[:2] == used


def scored(mode: str) -> World:
    """The worked example of the notes: available of capacity, by filling each GPU to what is used of it."""
    found = World()
    rows = {
        "g11": ("node-1", 10, 20, 40, 80),
        "g12": ("node-1", 12, 20, 42, 80),
        "g13": ("node-1", 14, 20, 44, 80),
        "g21": ("node-2", 20, 25, 80, 100),
        "g22": ("node-2", 18, 25, 75, 100),
        "g31": ("node-3", 30, 40, 100, 120),
    }
    for index, (name, (node, tflops, cap_tflops, vram, cap_vram)) in enumerate(rows.items()):
        found.gpu(name, node, cap_tflops, cap_vram, index=index, model=name)
        assert found.alloc((cap_tflops - tflops, cap_vram - vram), gpu_model=name).admitted
    found.mode(mode, 50)
    return found


@pytest.mark.parametrize(
    ("mode", "count", "gpus"),
    [
        pytest.param(LOW_LOAD, 2, ["g21", "g22"], id="A16: by ruling the node score is a mean, so node-2 wins"),
        pytest.param(LOW_LOAD, 3, ["g11", "g12", "g13"], id="A16 low load 3"),
        pytest.param(LOW_LOAD, 4, [], id="A16 low load 4"),
        pytest.param(COMPACT, 2, ["g11", "g12"], id="A16 compact 2"),
        pytest.param(COMPACT, 3, ["g11", "g12", "g13"], id="A16 compact 3"),
        pytest.param(COMPACT, 4, [], id="A16 compact 4"),
        pytest.param(NODE_COMPACT, 2, ["g12", "g13"], id="fullest node, emptiest GPUs"),
        pytest.param(LOW_LOAD, 1, ["g31"], id="low load 1"),
    ],
)
def test_a16_placement_modes(mode: str, count: int, gpus: list[str]) -> None:
    found = scored(mode)
    decision = found.alloc((1, 1), count, "w")
    assert decision.admitted == bool(gpus)
    assert (found.on("w") if gpus else []) == gpus


def test_a16_the_points_of_the_worked_example() -> None:
    found = scored(COMPACT)
    fleet = found.gpus.index.sync()
    assert [fleet.free_points(at) for at in range(6)] == [50, 56, 63, 80, 74, 79]
    assert [fleet.used_points(at) for at in range(6)] == [50, 44, 38, 20, 27, 21]


@pytest.mark.parametrize(("isolation", "gpu"), [("hard", "hard-used"), ("shared", "hard-idle")])
def test_a17_isolation(isolation: str, gpu: str) -> None:
    found = World()
    found.gpu("hard-used", "node-used", 100, "24Gi", isolation="hard")
    found.alloc((50, "12Gi"), isolation="hard")
    found.gpu("hard-idle", "node-used", 100, "24Gi", isolation="hard")
    for name in ("shared-1", "shared-2"):
        found.gpu(name, "node-idle", 100, "24Gi", isolation="shared")
    found.mode(COMPACT, 50)
    assert found.alloc((10, "1Gi"), uid="w", isolation=isolation).admitted
    assert found.on("w") == [gpu]


def statuses(found: World) -> dict[str, object]:
    outputs = found.engine.outputs(0)
    return {o.key: (o.value or {}).get("available") for o in outputs if o.kind == "GPU.tensor-fusion.ai"}


@pytest.mark.parametrize(
    ("capacity", "available"),
    [((71, "24Gi"), ("41", "14Gi")), ((30, "10Gi"), ("0", "0")), ((20, "100Gi"), ("0", "90Gi"))],
)
def test_a18_available_stays_between_nothing_and_the_capacity(
    capacity: tuple[int, str], available: tuple[str, str]
) -> None:
    found = World()
    found.gpu("g1", "n1", 71, "24Gi")
    found.alloc((30, "10Gi"))
    found.gpu("g1", "n1", *capacity)
    assert statuses(found)["g1"] == dict(zip(("tflops", "vram"), available, strict=True))


def test_a19_a_capacity_that_becomes_known_later() -> None:
    found = World()
    found.gpu("g1", "n1", 71, "24Gi")
    found.gpu("g2", "n2", 71, "24Gi")
    for request, gpu in (((20, "8Gi"), "g1"), ((10, "4Gi"), "g1"), ((30, "8Gi"), "g2")):
        needs = NodeNeeds({}, node_name="n1" if gpu == "g1" else "n2")
        claim = found.claim(marks(request, gpu_ids=gpu), needs=needs)
        found.engine.submit(claim)
        found.engine.place(claim.uid, needs.node_name, forced=True)
    found.gpu("g1", "n1", 0, 0)
    found.gpu("g1", "n1", 71, "24Gi")
    assert found.free("g1") == ("41", "12Gi")
    assert found.free("g2") == ("41", "16Gi")


def test_a21_a_worker_that_never_started_gives_everything_back() -> None:
    found = World()
    found.gpu("g1", "n1", 100, "24Gi")
    found.alloc((30, "8Gi"), uid="w")
    assert found.free("g1") == ("70", "16Gi")
    found.engine.release("w")
    assert found.free("g1") == ("100", "24Gi")
    assert statuses(found)["g1"] == {"tflops": "100", "vram": "24Gi"}
    with pytest.raises(EngineError):
        found.engine.release("w")


def test_a25_a_whole_gpu() -> None:
    found = World()
    found.gpu("g1", "n1", 100, "24Gi")
    assert found.alloc((1, "1Gi"), uid="w", isolation="shared").admitted
    assert found.free("g1") == ("0", "0")
    assert found.used()[:2] == ("100", 24 * 2**30)
    assert not found.alloc((1, "1Gi"), isolation="shared").admitted
    found.engine.release("w")
    assert found.free("g1") == ("100", "24Gi")


def test_a25_only_an_idle_gpu_is_taken_whole() -> None:
    found = World()
    found.gpu("g1", "n1", 100, "24Gi", index=0)
    found.gpu("g2", "n1", 100, "24Gi", index=1)
    found.alloc((1, "1Gi"), gpu_indices="0")
    assert found.candidates(marks(isolation="shared")) == ["g2"]
    assert found.decide(marks(isolation="shared"), "w").admitted
    assert found.on("w") == ["g2"]


def test_a25_preempting_one_slice_of_a_busy_gpu_is_not_enough() -> None:
    found = World()
    found.gpu("g1", "n1", 100, "24Gi")
    found.alloc((10, "1Gi"), uid="low")
    found.alloc((10, "1Gi"), uid="high", priority=5)
    assert not found.decide(marks(isolation="shared"), priority=3).admitted
    assert found.decide(marks(isolation="shared"), priority=9).victims == ("low", "high")


def test_a25_preempting_a_whole_gpu_restores_it_whole() -> None:
    found = World()
    found.gpu("g1", "n1", 100, "24Gi")
    found.decide(marks(isolation="shared"), "low")
    assert found.alloc((60, "20Gi"), uid="w", priority=1).victims == ("low",)
    assert found.free("g1") == ("40", "4Gi")


def filtered() -> World:
    found = World()
    found.gpu("g1", "n1", 10, "40Gi", index=0, model="A100")
    found.gpu("g2", "n1", 5, "20Gi", index=1)
    found.gpu("g3", "n1", 20, "80Gi", index=2)
    found.gpu("g4", "n1", 3, "24Gi", index=3)
    return found


def test_a26_filters() -> None:
    found = filtered()
    assert found.candidates(marks((8, "30Gi"))) == ["g1", "g3"]
    assert found.candidates(marks((1, "1Gi"), None, 2, gpu_indices="2,3")) == ["g3", "g4"]
    found.gpu("g3", "n1", 20, "80Gi", index=2, usable=False)
    assert found.candidates(marks((0, 0))) == ["g1", "g2", "g4"]
    assert found.candidates(marks((8, "30Gi"))) == ["g1"]


@pytest.mark.parametrize(("count", "nodes"), [(1, ["a", "b", "c"]), (2, ["a", "b"]), (3, [])])
def test_a27_all_gpus_of_a_worker_are_on_one_node(count: int, nodes: list[str]) -> None:
    """GPUs that are on no node are not in the inventory at all; a count of 0 is refused as unreadable."""
    found = World()
    for name, node in (("1", "a"), ("2", "a"), ("3", "b"), ("4", "b"), ("5", "c")):
        found.gpu(f"g{name}", node, 10, 10)
    assert found.open_nodes(marks((1, 1), None, count)) == nodes


def test_a28_required_node_affinity() -> None:
    found = World()
    found.node("n1", {"gpu": "a100"})
    found.node("n2", {"gpu": "v100"})
    found.gpu("g1", "n1", 10, 10)
    found.gpu("g2", "n2", 10, 10)
    terms = (NodeTerm((Requirement("gpu", "In", ("v100",)),)),)
    claim = found.claim(marks((1, 1)), "w", needs=NodeNeeds({}, terms))
    assert found.engine.decide(claim).place == "n2"


@pytest.mark.parametrize(
    ("required", "places"),
    [
        pytest.param(None, ["n1", "n2"], id="A28 preferred only"),
        pytest.param(["a100", "v100"], ["n1", "n2"], id="A28 required and preferred"),
        pytest.param(["v100"], ["n2"], id="A28 required is kept beside preferred"),
    ],
)
@pytest.mark.parametrize("zone", ["n1", "n2"])
def test_a28_preferred_node_affinity_keeps_every_node(required: list[str] | None, places: list[str], zone: str) -> None:
    """Preferred terms only order the candidates of the original's filter, and its scores order them anew. By ruling
    the placement mode decides over the node on every path, and ties go by name: a preference never shows, whichever
    node it is for, and never takes a node away.
    """
    found = World()
    for name, model in (("n1", "a100"), ("n2", "v100")):
        found.node(name, {"gpu": model, "zone": name})
        found.gpu(f"g-{name}", name, 10, 10)
    affinity: dict[str, Any] = {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}}
        ]
    }
    if required is not None:
        wanted = {"matchExpressions": [{"key": "gpu", "operator": "In", "values": required}]}
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [wanted]}
    spec = {"containers": [{"name": "main"}], "affinity": {"nodeAffinity": affinity}}
    needs = node_needs(msgspec.convert(spec, PodSpec))
    given = [found.engine.decide(found.claim(marks((6, 6)), needs=needs)).place for _ in range(2)]
    assert [place for place in given if place] == places


def test_a29_percent_of_a_gpu() -> None:
    found = World()
    found.gpu("g1", "n1", 1000, "20Gi", model="small")
    found.gpu("g2", "n1", 2000, "40Gi", model="big")
    assert found.decide(marks(compute_percent_request="10", vram_request="2Gi", gpu_model="small")).admitted
    assert found.free("g1") == ("900", "18Gi")
    assert found.alloc((300, "5Gi"), gpu_model="big").admitted
    assert found.decide(marks(compute_percent_request="15", vram_request="3Gi", gpu_model="big")).admitted
    assert found.free("g2") == ("1400", "32Gi")


def test_a29_different_percents_on_different_gpus() -> None:
    found = World()
    found.gpu("g1", "n1", 1000, "20Gi", model="small")
    found.gpu("g2", "n1", 2000, "40Gi", model="big")
    found.decide(marks(compute_percent_request="20", vram_request="4Gi", gpu_model="small"))
    found.decide(marks(compute_percent_request="10", vram_request="6Gi", gpu_model="big"))
    assert (found.free("g1"), found.free("g2")) == (("800", "16Gi"), ("1800", "34Gi"))


def test_a29_percent_on_unequal_gpus_of_one_worker() -> None:
    found = World()
    found.gpu("g1", "n1", 1000, "20Gi")
    found.gpu("g2", "n1", 2000, "40Gi")
    assert found.decide(marks(compute_percent_request="10", vram_request="2Gi", gpu_count="2")).admitted
    assert found.free("g1") == ("900", "18Gi")
    assert found.free("g2") == ("1800", "38Gi")
    assert found.used()[:2] == ("300", 4 * 2**30)


@pytest.mark.parametrize(
    ("request_", "count", "nodes"),
    [
        ((100, "10Gi"), 1, ["node-a", "node-b"]),
        ((2000, "10Gi"), 1, ["node-b"]),
        ((100, "10Gi"), 2, ["node-b"]),
        ((2000, "80Gi"), 1, []),
        ((100, "10Gi"), 3, []),
    ],
)
def test_a32_nodes_that_are_open(request_: tuple[int, str], count: int, nodes: list[str]) -> None:
    found = World()
    found.gpu("a1", "node-a", 1000, "40Gi")
    found.gpu("b1", "node-b", 2000, "60Gi")
    found.gpu("b2", "node-b", 2000, "60Gi")
    found.gpu("plugin", "node-b", 9000, "90Gi", plugin=True)
    assert found.open_nodes(marks(request_, None, count)) == nodes


def test_a32_node_scores() -> None:
    found = World()
    found.gpu("a1", "node-a", 1000, 1000)
    found.gpu("b1", "node-b", 1000, 1000)
    probe = found.claim(marks((1, 1)), "probe")
    found.alloc((100, 100), uid="w")
    ranks = [0, 0]
    found.gpus.rank(probe, bytearray(b"\x01\x01"), ranks)
    assert ranks == [90_000_000, 100_000_000]  # 100 points minus the score, in millionths: the lowest is the best
    assert found.alloc((1, 1)).place == "node-a"


def test_whole_workers_are_read_as_whole() -> None:
    assert worker(marks(isolation="shared")).whole
    assert worker(marks(dedicated_gpu="true", gpu_model="A100")).whole
