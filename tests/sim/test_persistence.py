"""A cluster that is stopped at rest and started again is the same cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from bursar.control import actions as outside
from bursar.control.admission import known_kinds
from bursar.policies.plugin import default_registry
from bursar.sim import runner
from bursar.sim.cluster import Cluster
from bursar.sim.persistence import same
from bursar.sim.scenario import Scenario, load_scenarios
from tests.builders import node, pod
from tests.sim.steps import TestBed
from tests.sim.tape import Tape

ROOT = Path(__file__).resolve().parents[2]
KINDS = known_kinds(default_registry())
SCENARIOS = load_scenarios([ROOT / "examples", ROOT / "tests" / "scenarios"], KINDS)

# Since when a quota is over-used is not remembered, so its grace begins anew after a restart.
TIMES_OVER_USE = {"a lent min is taken back by revocation"}

ACTED = {outside.ADMITTED, outside.HELD, outside.EVICTED}


def manifests(cluster: Cluster) -> dict[str, object]:
    return {
        f"{kind} {stored.key}": stored.manifest()
        for kind in cluster.objects.kinds()
        for stored in cluster.objects.all(kind)
    }


def assert_same(new: Cluster, old: Cluster) -> None:
    assert new.engine.digest == old.engine.digest
    assert new.engine.version == old.engine.version
    assert new.engine.state.plain() == old.engine.state.plain()
    assert manifests(new) == manifests(old)
    assert timers(new) == timers(old)
    assert pods(new) == pods(old)


def timers(cluster: Cluster) -> dict[str, int | None]:
    """Of pods only: since when a policy sees over-use is not kept, its delay begins anew after a restart."""
    return {key: pod.due for key in cluster.pods() if (pod := cluster.doing(key)) is not None}


def pods(cluster: Cluster) -> list[tuple[str, str, str, str]]:
    """Without the sentences: a refusal that differs in its numbers only is not worth a record."""
    seen = [cluster.pod(key) for key in cluster.pods()]
    return [(pod.key, pod.phase, pod.node, pod.reason) for pod in seen if pod is not None]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_restart_after_every_step_changes_nothing(scenario: Scenario) -> None:
    cluster, tape = Cluster(), Tape()
    for step in scenario.steps:
        failure = list(runner._run(cluster, step))
        if scenario.name not in TIMES_OVER_USE:
            assert failure == []
        old, cluster = cluster, tape.restart(cluster)
        assert_same(cluster, old)
        digest, objects = cluster.engine.digest, manifests(cluster)
        cluster.settle()
        assert cluster.engine.digest == digest
        assert manifests(cluster) == objects
        assert [seen[:3] for seen in pods(cluster)] == [seen[:3] for seen in pods(old)]
        # Whoever waits is tried again, and may meanwhile wait for another reason than when it was last tried.
        assert {event.kind for event in cluster.events if event.reason in ACTED} == set()


@pytest.mark.parametrize("asked", [3, 9])
def test_a_pod_that_asks_for_something_else_while_it_waits_still_says_why(asked: int) -> None:
    cluster, tape = TestBed(node("n1", {"cpu": 2})), Tape()
    cluster.give(pod("runs", "a", {"cpu": 2}), pod("waits", "a", {"cpu": 1}))
    cluster.give(pod("waits", "a", {"cpu": asked}, labels={"team": "x"}))
    assert cluster.see("a/waits").reason == "nodes.none"
    assert pods(tape.restart(cluster)) == pods(cluster)
    cluster.give(pod("waits", "a", {"cpu": 2}))
    assert cluster.see("a/waits").reason == "nodes.full"
    assert pods(tape.restart(cluster)) == pods(cluster)


def test_a_pod_that_was_relabelled_while_it_waits_still_says_why() -> None:
    cluster, tape = TestBed(node("n1", {"cpu": 2})), Tape()
    cluster.give(pod("runs", "a", {"cpu": 2}), pod("waits", "a", {"cpu": 1}))
    cluster.give(pod("waits", "a", {"cpu": 1}, labels={"team": "x"}))
    assert cluster.see("a/waits").reason == "nodes.full"
    assert pods(tape.restart(cluster)) == pods(cluster)


STATUS = {"used": {"cpu": "12"}, "conditions": [{"type": "Ready", "since": "monday"}, {"type": "Full"}]}


@pytest.mark.parametrize(
    "said",
    [
        {"conditions": [{"type": "Ready", "since": "monday"}, {"type": "Full"}], "used": {"cpu": "12"}},
        {"used": {"cpu": "12", "memory": "1"}, "conditions": [{"type": "Ready"}]},
        {"used": {"cpu": "12"}, "conditions": [{"type": "Ready"}, {"type": "Full"}, {"type": "Empty"}]},
        {"used": "12", "conditions": {}},
        {"used": {"cpu": 12}},
        None,
    ],
)
def test_taking_what_is_the_same_from_other_data_changes_nothing(said: object) -> None:
    assert json.dumps(same(json.loads(json.dumps(STATUS)), said)) == json.dumps(STATUS)


@pytest.mark.parametrize(("kept", "said"), [(1, True), ([0], [False]), ({"a": 1}, {"a": True}), ([1], (1,))])
def test_equal_is_not_the_same_if_it_is_written_otherwise(kept: object, said: object) -> None:
    assert json.dumps(same(kept, said)) == json.dumps(kept)


def test_what_is_the_same_is_once_in_memory() -> None:
    kept, said = json.loads(json.dumps(STATUS)), json.loads(json.dumps(STATUS))
    assert same(kept, said) is said


def test_what_is_the_same_in_parts_is_once_in_memory_in_parts() -> None:
    kept, said = json.loads(json.dumps(STATUS)), json.loads(json.dumps(STATUS))
    said["conditions"][0]["since"] = "tuesday"
    found = cast("dict[str, Any]", same(kept, said))
    assert found["used"] is said["used"]
    assert found["conditions"][0]["type"] is said["conditions"][0]["type"]
    assert found["conditions"][1] is said["conditions"][1]
