"""The wake index against a reference model that tries everybody again after every change: both must end the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bursar.control.wakeups import Wakeups
from bursar.ledger.claims import Claim
from bursar.ledger.journal import Record
from bursar.objects.decode import ManifestError
from tests.builders import disruption_budget, node, pod
from tests.sim.purse import registry
from tests.sim.steps import TestBed

NAMES = ("p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7")
NAMESPACES = ("red", "blue")
GPU = "nvidia.com/gpu"


class RestlessWatch(Wakeups):
    """Wakes everybody at every commit that changed anything."""

    def committed(self, record: Record) -> None:
        super().committed(record)
        if record.changes:
            self.queue.wake_all()


def restless() -> TestBed:
    """Every pod is a class of its own there."""
    bed = TestBed(registry=registry())
    watch = RestlessWatch(bed.controller.queue, bed.engine.policies)
    bed.controller.queue._history = _itself
    bed.controller._watch = bed.controller._actor._watch = watch
    bed.engine.listener = watch
    return bed


def _itself(claim: Claim) -> object:
    return claim.uid


def purse(namespace: str, gpus: int) -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": "purse"}
    return {"apiVersion": "test.dev/v1", "kind": "Purse", "metadata": metadata, "spec": {"max": {GPU: gpus}}}


pods = st.builds(
    lambda name, namespace, gpus, priority, labels, leaves, zone: pod(
        name,
        namespace,
        {GPU: gpus},
        labels=labels,
        annotations={"sim.bursar.dev/leaves-after": leaves} if leaves else {},
        priority=priority,
        nodeSelector={"zone": zone} if zone else {},
    ),
    st.sampled_from(NAMES),
    st.sampled_from(NAMESPACES),
    st.integers(1, 4),
    st.integers(0, 3),
    st.sampled_from([{}, {"app": "web"}, {"bursar.dev/preemptible": "false"}, {"test.dev/paid": "in-advance"}]),
    st.sampled_from(["", "", "2s"]),
    st.sampled_from(["", "", "a", "b"]),
)
grouped = st.builds(
    lambda name, gpus, size: pod(
        name, "red", {GPU: gpus}, labels={"bursar.dev/group": "g", "bursar.dev/group-size": str(size)}
    ),
    st.sampled_from(NAMES),
    st.integers(1, 2),
    st.integers(1, 3),
)
nodes = st.builds(
    lambda name, gpus, zone: node(name, {GPU: gpus}, labels={"zone": zone}),
    st.sampled_from(["n1", "n2"]),
    st.integers(0, 6),
    st.sampled_from(["a", "b"]),
)
budgets = st.builds(
    lambda number: disruption_budget("b", "red", {"app": "web"}, minAvailable=number), st.integers(0, 2)
)
purses = st.builds(purse, st.sampled_from(NAMESPACES), st.integers(0, 6))
references = st.builds("Pod/{}/{}".format, st.sampled_from(NAMESPACES), st.sampled_from(NAMES))
steps = st.one_of(
    st.tuples(st.just("give"), pods),
    st.tuples(st.just("give"), pods),
    st.tuples(st.just("give"), st.one_of(grouped, nodes, budgets, purses)),
    st.tuples(st.just("take"), references),
    st.tuples(st.just("finish"), references),
    st.tuples(st.just("advance"), st.integers(1, 3)),
)


def perform(bed: TestBed, step: tuple[str, Any]) -> str:
    """Do a step; what it was refused with, if it was."""
    action, what = step
    try:
        if action == "give":
            bed.give(what)
        elif action == "take":
            bed.take(what)
        elif action == "finish":
            bed.finish([what.removeprefix("Pod/")])
        else:
            bed.advance(what * 1000)
    except ManifestError as error:
        return str(error)
    return ""


def places(bed: TestBed) -> dict[str, tuple[str, str]]:
    """What became of each pod. Why one waits is as of its last try, which the reference model made later."""
    return {key: (bed.see(key).phase, bed.see(key).node) for key in bed.pods()}


@settings(max_examples=150)
@given(st.lists(steps, min_size=5, max_size=40))
def test_waking_only_whom_it_may_help_ends_like_trying_everybody(script: list[tuple[str, Any]]) -> None:
    indexed, naive = TestBed(registry=registry()), restless()
    for bed in (indexed, naive):
        bed.give(node("n1", {GPU: 4}, labels={"zone": "a"}), node("n2", {GPU: 3}, labels={"zone": "b"}))
        bed.give(disruption_budget("b", "red", {"app": "web"}, minAvailable=1), purse("red", 5))
    for step in script:
        assert perform(indexed, step) == perform(naive, step)
        assert places(indexed) == places(naive)
    assert indexed.engine.digest == naive.engine.digest
