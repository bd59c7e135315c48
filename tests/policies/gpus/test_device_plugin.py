"""The two sets of a node: GPUs for fractions, and those that the device plugin hands out whole."""

from __future__ import annotations

from bursar.engine.decision import Decision
from bursar.ledger.claims import Claim
from bursar.policies.gpus.plugin import GpuPins
from bursar.policies.gpus.settings import HostBody, Offer
from bursar.policies.nodes.policy import KIND as NODE
from bursar.policies.nodes.rules import NodeBody
from bursar.selectors import NodeNeeds
from tests.amounts import parse_limits
from tests.policies.gpus.world import GI, World, host, marks

GPU = "nvidia.com/gpu"
A10 = (125_000, 24 * GI)
FULL = f"gpus.plugin.{GPU}"


def derived(count: int = 8, fractions: int = 4) -> World:
    """A node whose device plugin serves all its GPUs."""
    found = World()
    found.node("n1", gpus=count)
    found.host("n1", host(count, "A10", fractions=fractions, usual=A10))
    return found


def objects(count: int = 4) -> World:
    """A node of GPU objects that all are for fractions, and a device plugin that serves them."""
    found = World()
    found.node("n1", gpus=count)
    found.host("n1", host(count))
    for index in range(count):
        found.gpu(f"g{index}", "n1", 100, "16Gi", index=index)
    return found


def whole(found: World, uid: str, count: int = 1, annotations: dict[str, str] | None = None) -> Decision:
    return found.engine.decide(found.claim(annotations or {}, uid, requests={GPU: count}))


def seen(found: World, uid: str, count: int = 1) -> None:
    """A pod that another scheduler bound."""
    claim: Claim = found.claim({}, uid, requests={GPU: count}, needs=NodeNeeds({}, node_name="n1"))
    found.engine.submit(claim)
    found.engine.place(uid, "n1", forced=True)


def limit(found: World, resource: str = GPU) -> int:
    return found.engine.state.accounts["gpus/plugin/n1"].limits.cap(resource)


def events(found: World) -> list[tuple[str, str]]:
    outputs = [output for output in found.engine.outputs(0) if output.part == "event"]
    return [(output.key, str((output.value or {})["reason"])) for output in outputs]


def test_pods_beyond_the_set_wait_and_their_reason_names_it() -> None:
    found = derived()
    assert [whole(found, f"p{i}").reason for i in range(5)] == ["", "", "", "", FULL]
    lines = "\n".join(found.engine.explain("p4").lines())
    assert "0 of 1 nodes with GPUs for fractions have whole ones for it" in lines
    assert FULL in lines


def test_a_pod_that_no_set_could_ever_take_is_told_so() -> None:
    assert whole(derived(), "big", 5).reason == "gpus.none"


def test_what_comes_all_the_same_shrinks_the_free_fractions_and_is_reported() -> None:
    found = derived()
    found.alloc((10, "1Gi"), uid="w", gpu_indices="3")
    for i in range(4):
        whole(found, f"p{i}")
    assert events(found) == [("n1", "gpus.unsafe-split")]
    seen(found, "stranger", 2)
    assert limit(found) == 6
    assert found.candidates(marks((1, "1Gi"))) == ["n1:0", "n1:3"]
    assert events(found) == [("n1", "gpus.plugin-overused")]
    found.engine.release("p0")
    assert found.candidates(marks((1, "1Gi"))) == ["n1:0", "n1:1", "n1:3"]
    assert whole(found, "p4").reason == FULL
    found.engine.release("stranger")
    assert found.candidates(marks((1, "1Gi"))) == ["n1:0", "n1:1", "n1:2", "n1:3"]
    assert limit(found) == 4
    assert found.engine.decide(found.engine.claim("p4")).admitted
    assert events(found) == []


def test_what_no_free_gpu_can_make_up_for_is_taken_as_soon_as_one_is_free() -> None:
    found = derived(2, 1)
    found.alloc((10, "1Gi"), uid="w")
    seen(found, "stranger", 2)
    assert limit(found) == 1
    found.engine.release("w")
    assert limit(found) == 2
    assert found.alloc((10, "1Gi"), uid="v").reason == "gpus.none"
    found.engine.release("stranger")
    assert found.engine.decide(found.engine.claim("v")).admitted


def test_undo_and_replay_have_the_same_sets() -> None:
    found = derived()
    seen(found, "stranger", 6)
    again = found.replayed()
    assert again.candidates(marks((1, "1Gi"))) == found.candidates(marks((1, "1Gi"))) == ["n1:0", "n1:1"]
    again.engine.release("stranger")
    assert again.candidates(marks((1, "1Gi"))) == ["n1:0", "n1:1", "n1:2", "n1:3"]


def test_failed_gpus_leave_fewer_whole_ones_first_seen_by_those_that_run() -> None:
    found = derived()
    for i in range(4):
        whole(found, f"p{i}")
    found.host("n1", host(5, "A10", fractions=4, usual=A10, served=8))
    assert found.candidates(marks((1, "1Gi"))) == ["n1:0"]


def test_replicas_are_units_of_their_cards() -> None:
    found = World()
    found.node("n1", gpus=16)
    offer = Offer(GPU, 16, 16, "A10", 0, A10, replicas=4)
    found.host("n1", HostBody((offer,), fractions=1))
    assert limit(found) == 12
    assert found.candidates(marks((125, "1Gi"))) == ["n1:0"]
    assert whole(found, "p", 12).admitted
    assert whole(found, "q", 1).reason == FULL


def test_a_renamed_resource_is_the_plugins_too() -> None:
    found = World()
    found.set(NODE, "n1", NodeBody(parse_limits({"nvidia.com/gpu.shared": 8})))
    found.host("n1", HostBody((Offer("nvidia.com/gpu.shared", 8, 8, "A10", 0, A10, replicas=4),), fractions=1))
    assert limit(found, "nvidia.com/gpu.shared") == 4
    claims = [found.claim({}, f"p{i}", requests={"nvidia.com/gpu.shared": 4}) for i in range(2)]
    assert [found.engine.decide(claim).reason for claim in claims] == ["", "gpus.plugin.nvidia.com/gpu.shared"]


def test_a_node_of_gpu_objects_without_workers_takes_the_plugins_pods() -> None:
    found = objects()
    assert whole(found, "p").admitted
    assert found.candidates(marks((1, "1Gi"))) == []  # which of them it has is not known yet
    found.gpu("g2", "n1", 100, "16Gi", index=2, plugin=True)
    assert found.candidates(marks((1, "1Gi"))) == ["g0", "g1", "g3"]
    assert limit(found) == 4
    found.alloc((10, "1Gi"), uid="w")
    assert limit(found) == 1
    assert whole(found, "q").reason == FULL
    found.engine.release("w")
    assert found.engine.decide(found.engine.claim("q")).admitted


def test_a_worker_that_requests_whole_gpus_too_counts_in_both_sets() -> None:
    found = derived(3, 2)
    assert whole(found, "both", 1, marks((10, "1Gi"))).admitted
    assert found.on("both") == ["n1:0", "plugin/n1"]
    assert whole(found, "p").reason == FULL
    told = [o.value for o in found.engine.outputs(0) if o.kind == "Pod" and o.part == "annotations"]
    assert told == [{"tensor-fusion.ai/gpu-ids": "n1:0"}]
    found.engine.release("both")
    assert found.engine.decide(found.engine.claim("p")).admitted


def test_a_node_that_gives_up_fractions_limits_nothing_any_more() -> None:
    found = derived(3, 2)
    whole(found, "p")
    found.host("n1", host(3, "A10", usual=A10))
    assert whole(found, "q", 2).admitted
    found.engine.release("p")
    found.engine.release("q")
    assert "gpus/plugin/n1" not in found.engine.state.accounts


def test_an_equal_node_changes_nothing() -> None:
    found = derived()
    found.candidates(marks((1, "1Gi")))
    fleet = found.gpus.index.sync()
    before = (fleet.epoch, len(fleet.log), found.engine.version)
    found.host("n1", host(8, "A10", fractions=4, usual=A10))
    fleet = found.gpus.index.sync()
    assert (fleet.epoch, len(fleet.log)) == before[:2]


def test_pods_with_whole_gpus_are_pinned_where_some_node_hands_out_fractions() -> None:
    found = derived()
    found.node("whole", gpus=8)
    found.host("whole", host(8, "A10", usual=A10))
    rules = GpuPins(found.gpus)
    claim = found.claim({}, "p", requests={GPU: 8})
    assert found.engine.decide(claim).place == "whole"
    assert rules.pins(claim)
    other = found.claim({}, "cpu", requests={"cpu": 1})
    found.engine.decide(other)
    assert not rules.pins(other)
    found.host("n1", host(8, "A10", usual=A10))
    assert not rules.pins(claim)
