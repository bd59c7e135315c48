"""The policy among the others: in an engine with undo and replay, and in the embedded cluster."""

from __future__ import annotations

import pytest

from bursar.engine.engine import Engine
from bursar.ledger.claims import RUNNING
from bursar.objects.decode import ManifestError
from bursar.policies.plugin import default_registry
from bursar.policies.results import Setting
from tests.builders import Manifest, node, pod
from tests.policies.crossquota.world import GPU, arguments, claim
from tests.policies.nodes import world as nodes_world
from tests.sim.steps import TestBed


def configuration(**given: object) -> Manifest:
    section = arguments(**given)
    spec = {"crossquota": section}
    return {"apiVersion": "bursar.dev/v1alpha1", "kind": "Configuration", "metadata": {"name": "default"}, "spec": spec}


def gpu_node(name: str, **annotations: str) -> Manifest:
    made = node(name, {"cpu": 16, "memory": "64Gi", GPU: 4})
    marks = {f"volcano.sh/crossquota-{key.replace('_', '-')}": value for key, value in annotations.items()}
    return made | {"metadata": made["metadata"] | {"annotations": marks}}


def test_a_waiting_pod_is_woken_by_the_release_of_quota() -> None:
    bed = TestBed(configuration(quota__cpu=4), gpu_node("g"))
    bed.give(pod("a", requests={"cpu": 3}), pod("b", requests={"cpu": 2}), pod("gpu", requests={"cpu": 9, GPU: 1}))
    assert bed.phases() == {"default/a": "Running", "default/b": "Pending", "default/gpu": "Running"}
    assert bed.see("default/b").reason == "crossquota.quota.cpu"
    bed.take("Pod/default/a")
    assert bed.see("default/b").phase == "Running"


def test_a_gpu_that_is_taken_frees_its_reserve_for_who_waits() -> None:
    bed = TestBed(configuration(**{"reserve-per-gpu__cpu": 3}), gpu_node("g"))
    bed.give(pod("a", requests={"cpu": 5}))
    assert bed.see("default/a").reason == "crossquota.reserve.cpu"
    bed.give(pod("gpu", requests={"cpu": 1, GPU: 1}))
    assert bed.see("default/a").phase == "Running"


def test_a_pod_of_higher_priority_displaces_cpu_pods_within_the_quota() -> None:
    bed = TestBed(configuration(quota__cpu=4), gpu_node("g"))
    bed.give(pod("low", requests={"cpu": 3}), pod("gpu", requests={"cpu": 1, GPU: 1}))
    bed.give(pod("high", requests={"cpu": 2}, priority=10))
    assert bed.phases() == {"default/low": "Evicted", "default/gpu": "Running", "default/high": "Running"}


def test_a_victim_that_takes_its_time_is_waited_for() -> None:
    bed = TestBed(configuration(quota__cpu=4), gpu_node("g"))
    bed.give(pod("low", requests={"cpu": 3}, annotations={"sim.bursar.dev/leaves-after": "30s"}))
    bed.give(pod("high", requests={"cpu": 2}, priority=10))
    assert bed.phases() == {"default/low": "Terminating", "default/high": "Pending"}
    bed.advance(30_000)
    assert bed.phases() == {"default/low": "Evicted", "default/high": "Running"}


def test_nodes_without_a_gpu_are_taken_first() -> None:
    bed = TestBed(configuration(quota__cpu=4), gpu_node("a-gpu"), node("z-cpu", {"cpu": 2}))
    bed.give(pod("one", requests={"cpu": 2}), pod("two", requests={"cpu": 2}))
    assert [bed.see(f"default/{name}").node for name in ("one", "two")] == ["z-cpu", "a-gpu"]


def test_daemon_set_pods_are_exempt() -> None:
    bed = TestBed(configuration(quota__cpu=1), gpu_node("g"))
    agent = pod("agent", requests={"cpu": 4})
    agent["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "agents", "uid": "u", "controller": True}]
    bed.give(agent, pod("own", requests={"cpu": 1}))
    assert set(bed.phases().values()) == {"Running"}


def test_a_bad_annotation_is_an_event_on_the_node_and_the_next_level_applies() -> None:
    bed = TestBed(configuration(quota__cpu=4), gpu_node("g", cpu="lots"))
    told = [(event.kind, event.key, event.type, event.reason) for event in bed.events]
    assert told == [("Node", "g", "Warning", "crossquota.annotation")]
    bed.give(pod("a", requests={"cpu": 5}))
    assert bed.see("default/a").reason == "crossquota.quota.cpu"


def test_a_bad_argument_refuses_the_configuration_and_the_old_one_stays() -> None:
    bed = TestBed(configuration(quota__cpu=4), gpu_node("g"))
    with pytest.raises(ManifestError, match=r"Configuration default: spec\.crossquota\.quota\.cpu: 'lots'"):
        bed.give(configuration(quota__cpu="lots"))
    bed.give(pod("a", requests={"cpu": 5}))
    assert bed.see("default/a").reason == "crossquota.quota.cpu"


def test_removing_the_configuration_lifts_the_quota() -> None:
    bed = TestBed(configuration(quota__cpu=1), gpu_node("g"))
    bed.give(pod("a", requests={"cpu": 5}))
    bed.take("Configuration/default")
    assert bed.see("default/a").phase == "Running"


def test_gpu_nodes_carry_the_label() -> None:
    bed = TestBed(configuration(), gpu_node("g"), node("c", {"cpu": 1}))
    assert bed.whole("Node/g")["metadata"]["labels"] == {"bursar.dev/gpu-node": "true"}
    assert "bursar.dev/gpu-node" not in bed.whole("Node/c")["metadata"].get("labels", {})


def test_explain_shows_quota_use_and_source_of_each_node() -> None:
    bed = TestBed(configuration(quota__cpu=4), gpu_node("g"), gpu_node("h", cpu="2"))
    bed.give(pod("a", requests={"cpu": 5}))
    found = bed.explain("default/a")
    assert found is not None
    text = "\n".join(found.lines())
    assert "crossquota/g: cpu 5 wanted, 0 of 4 in use (argument quota.cpu)" in text
    assert "crossquota/h: cpu 5 wanted, 0 of 2 in use (annotation volcano.sh/crossquota-cpu)" in text


def _settings() -> list[Setting]:
    from bursar.policies.crossquota.arguments import read_arguments
    from tests.policies.crossquota.world import body

    listed: dict[str, object] = {"cpu": 16, GPU: 4}
    given = arguments(quota__cpu=4) | {"reserve-per-gpu.cpu": 1}
    return [
        Setting("crossquota.Arguments", "default", read_arguments(given)),
        Setting("nodes.Node", "g", nodes_world.body(listed)),
        Setting("crossquota.Node", "g", body(listed)),
    ]


def test_undo_and_replay_leave_the_very_same_state() -> None:
    engine = Engine(default_registry().policies())
    engine.configure(_settings())
    before = engine.state.plain(), engine.digest
    engine.what_if([], pending=True)
    assert (engine.state.plain(), engine.digest) == before
    for uid, requests in (("a", {"cpu": 2}), ("b", {"cpu": 2}), ("c", {"cpu": 1}), ("g", {"cpu": 1, GPU: 2})):
        engine.decide(claim(uid, dict(requests)))
    engine.observe("a", RUNNING)
    engine.decide(claim("high", {"cpu": 3}, priority=5))
    engine.configure([_settings()[0]])
    lines = engine.journal.take()
    copy = Engine(default_registry().policies())
    copy.replay(lines)
    assert copy.state.plain() == engine.state.plain()
    assert copy.digest == engine.digest
    asked = claim("next", {"cpu": 1}, priority=9)
    assert copy.decide(claim("next", {"cpu": 1}, priority=9)).record()[1:4] == engine.decide(asked).record()[1:4]


@pytest.mark.parametrize(("strategy", "expected"), [("most-allocated", "a"), ("least-allocated", "b")])
def test_no_preference_of_another_policy_outweighs_the_score(strategy: str, expected: str) -> None:
    """The scores differ by less than a tenth of a point, and the other node has far more room."""
    nodes = [node(name, {"cpu": 128, "memory": "64Gi", GPU: 8}, labels={"name": name}) for name in "ab"]
    bed = TestBed(configuration(), *nodes)
    bed.give(pod("gpu", requests={"cpu": 120, "memory": "64Gi", GPU: 8}, nodeSelector={"name": "a"}))
    bed.give(pod("first", requests={"cpu": 1}, nodeSelector={"name": "a"}))
    marks = {"volcano.sh/crossquota-scoring-strategy": strategy}
    bed.give(pod("second", requests={"cpu": 1}, annotations=marks))
    assert bed.see("default/second").node == expected
