"""What the vectors do not say: GPUs that stay with their worker, the two sets of a node, records on pods, threads."""

from __future__ import annotations

from threading import Thread

import pytest

from bursar.engine.decision import HOLDING
from bursar.ledger.claims import RUNNING
from bursar.policies.gpus.fleet import COMPACT, ScoringOptions
from bursar.policies.gpus.settings import OPTIONS as OPTIONS_KIND
from bursar.policies.gpus.settings import GpuOptionsBody
from bursar.policies.results import SettingError
from bursar.selectors import NodeNeeds
from tests.policies.gpus.world import GI, NS, World, host, marks, total

ROUNDS = 100  # of each thread; run by hand with more: ``python -m tests.policies.gpus.test_policy 1000``
THREADS = 16


def two_gpus() -> World:
    found = World()
    found.gpu("g1", "n1", 100, "16Gi", index=0)
    found.gpu("g2", "n1", 100, "16Gi", index=1)
    return found


# A worker keeps its GPUs


def test_a_worker_keeps_its_gpu_when_it_is_seen_with_its_record() -> None:
    found = two_gpus()
    found.alloc((10, "1Gi"), uid="w")
    assert found.on("w") == ["g1"]
    assert found.adjust("w", marks((10, "1Gi"), gpu_ids="g1")).admitted
    assert found.adjust("w", marks((90, "1Gi"), gpu_ids="g1")).admitted
    assert found.on("w") == ["g1"]


def test_a_worker_cannot_change_its_number_of_gpus() -> None:
    found = two_gpus()
    found.alloc((10, "1Gi"), uid="w")
    assert found.adjust("w", marks((10, "1Gi"), None, 2)).reason == "gpus.fixed"
    assert found.used()[4] == 1


def test_a_gpu_that_stops_running_keeps_its_worker_and_gets_no_other() -> None:
    found = two_gpus()
    found.alloc((10, "1Gi"), uid="w")
    found.gpu("g1", "n1", 100, "16Gi", index=0, usable=False)
    assert found.on("w") == ["g1"]
    found.alloc((10, "1Gi"), uid="v")
    assert found.on("v") == ["g2"]


def test_growing_capacity_changes_what_a_percentage_takes() -> None:
    found = two_gpus()
    found.decide(marks(compute_percent_request="50", vram_request="1Gi"), "w")
    assert found.used()[0] == "50"
    found.gpu("g1", "n1", 300, "16Gi", index=0)
    assert found.used()[0] == "150"
    assert found.free("g1")[0] == "150"


def test_a_gpu_of_a_leaving_worker_is_held_until_it_is_gone() -> None:
    found = World()
    found.gpu("g1", "n1", 100, "16Gi")
    found.alloc((80, "8Gi"), uid="low")
    found.engine.observe("low", RUNNING)
    decision = found.alloc((80, "8Gi"), uid="high", priority=1)
    assert (decision.outcome, decision.victims) == (HOLDING, ("low",))
    assert found.engine.state.accounts["gpus/g1"].busy.amount("tflops") == 160_000
    found.engine.release("low")
    assert found.engine.claim("high").waits_for == ()
    assert found.engine.state.accounts["gpus/g1"].busy.amount("tflops") == 80_000


def test_one_victim_pays_for_quota_and_gpu() -> None:
    found = World()
    found.gpu("g1", "n1", 100, "16Gi")
    found.quota(total(100, "16Gi", 9))
    found.alloc((60, "1Gi"), uid="same-namespace")
    found.alloc((40, "1Gi"), uid="other", namespace="other")
    assert found.alloc((60, "1Gi"), priority=1).victims == ("same-namespace",)


# The record on a pod


def place_as_fact(found: World, uid: str, node: str, ids: str, request: tuple[int, str] = (10, "1Gi")) -> None:
    claim = found.claim(marks(request, gpu_ids=ids), uid, needs=NodeNeeds({}, node_name=node))
    found.engine.submit(claim)
    found.engine.place(uid, node, forced=True)


def test_the_record_of_a_bound_pod_is_taken_as_it_is() -> None:
    found = two_gpus()
    place_as_fact(found, "w", "n1", "g2")
    place_as_fact(found, "v", "n1", "g2", (200, "1Gi"))
    assert found.on("w") == found.on("v") == ["g2"]
    assert found.free("g2") == ("-110", "14Gi")
    assert found.alloc((10, "1Gi"), uid="x").admitted
    assert found.on("x") == ["g1"]


def test_a_record_of_a_gpu_that_is_not_known_yet_waits_for_it() -> None:
    found = two_gpus()
    place_as_fact(found, "w", "n1", "g3")
    assert found.on("w") == []
    assert found.used()[4] == 1
    found.gpu("g3", "n1", 100, "16Gi")
    assert found.on("w") == ["g3"]
    assert found.free("g3") == ("90", "15Gi")


def test_a_pod_without_a_node_may_not_record_its_way_onto_a_busy_gpu() -> None:
    found = two_gpus()
    found.alloc((95, "1Gi"), uid="busy")
    assert found.decide(marks((10, "1Gi"), gpu_ids="g1"), "w").admitted
    assert found.on("w") == ["g2"]


# What is told to the outside


def told_annotations(found: World, key: str) -> dict[str, object]:
    told: dict[str, object] = {}
    for output in found.engine.outputs(0):
        if (output.kind, output.key, output.part) == ("Pod", key, "annotations"):
            told |= output.value or {}
    return {name.removeprefix("tensor-fusion.ai/"): value for name, value in told.items()}


def test_gpu_ids_are_written_once_and_taken_back() -> None:
    found = two_gpus()
    found.alloc((10, "1Gi"), 2, "w")
    assert told_annotations(found, f"{NS}/w") == {"gpu-ids": "g1,g2"}
    assert told_annotations(found, f"{NS}/w") == {}


def test_a_worker_that_has_to_wait_again_loses_its_record() -> None:
    found = World()
    found.gpu("g1", "n1", 100, "16Gi")
    found.alloc((80, "8Gi"), uid="running")
    found.engine.observe("running", RUNNING)
    found.alloc((80, "8Gi"), uid="held", priority=1)
    assert told_annotations(found, f"{NS}/held") == {"gpu-ids": "g1"}
    found.alloc((80, "8Gi"), uid="first", priority=2)
    assert told_annotations(found, f"{NS}/held") == {"gpu-ids": None}


def test_what_the_pod_says_already_is_not_written_again() -> None:
    found = two_gpus()
    place_as_fact(found, "w", "n1", "g2")
    assert told_annotations(found, f"{NS}/w") == {}


def test_containers_and_the_hard_limit() -> None:
    found = two_gpus()
    found.decide(
        marks((10, 1), (33, 1), 2, isolation="hard", container_gpu_count='{"b":1,"a":1}'),
        "w",
    )
    assert told_annotations(found, f"{NS}/w") == {
        "gpu-ids": "g1,g2",
        "container-gpus": '{"a":["g1"],"b":["g2"]}',
        "effective-hard-sm-percent": "33",
    }


# The device plugin's set


def plugin_pod(found: World, uid: str, count: int = 1, priority: int = 0) -> str:
    return found.engine.decide(found.claim({}, uid, requests={"nvidia.com/gpu": count}, priority=priority)).reason


def divided() -> World:
    """A node with three GPUs of which the plugin has one."""
    found = World()
    found.node("n1", gpus=3)
    for index, plugin in enumerate((False, False, True)):
        found.gpu(f"g{index}", "n1", 100, "16Gi", index=index, plugin=plugin)
    return found


def test_the_plugin_gets_its_own_gpus_only() -> None:
    found = divided()
    assert plugin_pod(found, "p1") == ""
    assert plugin_pod(found, "p2") == "gpus.plugin.nvidia.com/gpu"
    assert found.candidates(marks((1, 1))) == ["g0", "g1"]


def test_a_node_without_fractions_leaves_all_to_the_plugin() -> None:
    found = World()
    found.node("n1", gpus=2)
    found.gpu("g0", "n1", 100, "16Gi", plugin=True)
    assert [plugin_pod(found, uid) for uid in ("p1", "p2")] == ["", ""]


def test_a_gpu_changes_sides_when_its_last_worker_left() -> None:
    found = divided()
    found.alloc((10, 1), uid="w", gpu_indices="1")
    found.gpu("g1", "n1", 100, "16Gi", index=1, plugin=True)
    assert plugin_pod(found, "p1") == ""
    assert plugin_pod(found, "p2") == "gpus.plugin.nvidia.com/gpu"
    found.engine.release("w")
    assert found.engine.decide(found.engine.claim("p2")).admitted


def test_pods_of_the_plugin_that_run_already_are_counted() -> None:
    found = World()
    found.node("n1", gpus=2)
    assert plugin_pod(found, "p1") == ""
    found.gpu("g0", "n1", 100, "16Gi", index=0)
    found.gpu("g1", "n1", 100, "16Gi", index=1, plugin=True)
    assert plugin_pod(found, "p2") == "gpus.plugin.nvidia.com/gpu"
    assert plugin_pod(found, "p3", priority=1) == ""


# GPUs that are derived from their node


def test_derived_gpus_give_way_to_objects() -> None:
    found = World()
    found.node("n1", gpus=2)
    found.host("n1", host(2, "NVIDIA-L40S", 48 * GI, 2, usual=(362_000, 0)))
    assert found.candidates(marks((362, "48Gi"))) == ["n1:0", "n1:1"]
    found.gpu("g0", "n1", 10, 10)
    assert found.candidates(marks((1, 1))) == ["g0"]
    found.no_gpu("g0")
    assert found.candidates(marks((1, 1))) == ["n1:0", "n1:1"]
    found.host("n1", None)
    assert found.candidates(marks((1, 1))) == []


def test_an_unknown_model_has_no_tflops_to_give_in_percent() -> None:
    found = World()
    found.node("n1")
    found.host("n1", host(1, "Mystery", 8 * GI, 1))
    in_percent = found.decide(marks(compute_percent_request="10"))
    assert in_percent.reason == "limits.capacity"
    assert "Mystery" in in_percent.refusals[0].note
    in_tflops = found.decide(marks((10, "1Gi")), "w")
    assert in_tflops.reason == "gpus.capacity"
    assert "of model Mystery" in in_tflops.refusals[0].note
    assert "1 GPU [gpus.capacity]" in "\n".join(found.engine.explain("w").lines())
    found.engine.release("w")
    assert found.decide(marks(vram_request="1Gi")).admitted
    models = {"Mystery": (50_000, 0)}
    found.set(OPTIONS_KIND, "default", GpuOptionsBody(ScoringOptions(), False, models))
    assert found.decide(marks(compute_percent_request="10")).admitted


def test_configured_fractions_of_all_nodes() -> None:
    found = World()
    found.node("n1")
    found.host("n1", host(2, "Tesla-T4", 16 * GI, usual=(65_000, 0)))
    assert found.candidates(marks((1, 1))) == []
    found.set(OPTIONS_KIND, "default", GpuOptionsBody(ScoringOptions(COMPACT), True))
    assert found.candidates(marks((65, 1))) == ["n1:0", "n1:1"]


def test_a_gpu_object_must_not_be_called_like_a_derived_one() -> None:
    found = World()
    with pytest.raises(SettingError, match="must not contain a colon"):
        found.gpu("n1:0", "n1", 10, 10)


# Why not


def test_why_no_gpu_takes_a_worker() -> None:
    found = two_gpus()
    found.gpu("g3", "n2", 100, "16Gi", plugin=True)
    found.gpu("g4", "n3", 100, "16Gi", usable=False)
    found.alloc((95, 1), uid="a")
    found.alloc((95, 1), uid="b")
    found.alloc((10, 1), uid="w")
    lines = found.engine.explain("w").lines()
    assert lines[0] == f"FAIL {NS}/w is pending: no node has a GPU with room for it now"
    text = "\n".join(lines)
    for expected in (
        "2 GPUs [gpus.room.tflops]",
        "1 GPU [gpus.plugin]",
        "1 GPU [gpus.phase]",
        "no node has 1 GPU for it",
    ):
        assert expected in text


@pytest.mark.parametrize(
    ("more", "reason"),
    [({"gpu_model": "H100"}, "gpus.model"), ({"gpupool": "p"}, "gpus.pool"), ({"vendor": "AMD"}, "gpus.suitable")],
)
def test_why_a_gpu_does_not_suit(more: dict[str, str], reason: str) -> None:
    found = two_gpus()
    assert found.decide(marks((1, 1), **more), "w").reason == "gpus.none"
    assert f"2 GPUs [{reason}]" in "\n".join(found.engine.explain("w").lines())


def test_an_unreadable_worker_explains_itself() -> None:
    found = two_gpus()
    found.decide(marks((1, 1), gpu_indices="x"), "w")
    assert "annotation tensor-fusion.ai/gpu-indices" in "\n".join(found.engine.explain("w").lines())


# Threads


def hammer(rounds: int) -> tuple[int, int, World]:
    """Allocate and release from many threads; returns how many were admitted, and the most that was ever in use."""
    found = World()
    for index in range(8):
        found.gpu(f"g{index}", "n1", 100, "16Gi", index=index)
    found.quota(total(100, "16Gi", 10))
    account = found.engine.state.accounts[f"limits/{NS}"]
    admitted = [0] * THREADS
    most = [0] * THREADS

    def work(thread: int) -> None:
        for number in range(1, rounds + 1):
            uid = f"{thread}-{number}"
            claim = found.claim(marks((7, "1Gi"), None, 1 + number % 3), uid)
            decision = found.engine.decide(claim)
            with found.engine.lock:
                most[thread] = max(most[thread], account.used.amount("requests.tflops"))
            admitted[thread] += decision.admitted
            found.engine.release(uid)

    threads = [Thread(target=work, args=(thread,)) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(admitted), max(most), found


def test_threads_never_pass_the_quota_and_end_at_zero() -> None:
    admitted, most, found = hammer(ROUNDS)
    assert admitted > THREADS
    assert 0 < most <= 100_000
    assert found.used() == ("0", 0, "0", 0, 0)
    assert {found.free(f"g{index}") for index in range(8)} == {("100", "16Gi")}


if __name__ == "__main__":
    import sys

    count, peak, _ = hammer(int(sys.argv[1]))
    sys.stdout.write(f"{count} admitted, at most {peak / 1000} of 100 tflops in use\n")


def test_a_worker_that_is_found_on_a_gpu_that_was_lost_keeps_the_others() -> None:
    world = World()
    world.gpu("g1", "n1", 100, "10Gi", index=0)
    ids = {"tensor-fusion.ai/gpu-ids": "g1,g2"}
    one = world.claim(marks((40, "4Gi"), None, 2) | ids, "w", needs=NodeNeeds({}, node_name="n1"))
    world.engine.submit(one)
    world.engine.place("w", "n1", forced=True)
    assert world.on("w") == ["g1"]
    assert world.free("g1")[0] == "60"
    world.gpu("g2", "n1", 100, "10Gi", index=1)
    assert world.on("w") == ["g1", "g2"]
    assert world.free("g2")[0] == "60"
