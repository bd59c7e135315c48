"""What is rehearsed is what happens, and leaves no trace."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from bursar.objects.decode import ManifestError
from bursar.objects.manifests import Document
from bursar.server.types import TrialRow, WhatIf
from bursar.server.what_if import what_if
from bursar.sim.rehearsal import rehearse
from tests.builders import Manifest, node, pod
from tests.control.test_random_worlds import perform
from tests.sim.steps import TestBed
from tests.worlds import World, elastic_quota

CPU = "cpu"
SLOW = {"sim.bursar.dev/leaves-after": "30s"}


def documents(*manifests: Manifest) -> list[Document]:
    return [Document("", number, body) for number, body in enumerate(manifests)]


def asked(bed: TestBed, *pods: Manifest) -> tuple[dict[str, TrialRow], WhatIf]:
    found = what_if(bed, documents(*pods))
    return {row.pod: row for row in found.pods}, found


def cpu(name: str, namespace: str, amount: int, **more: Any) -> Manifest:  # noqa: ANN401
    return pod(name, namespace, {CPU: amount}, **more)


class TestWhatIf:
    def test_pods_that_come_together_are_decided_together(self) -> None:
        bed = TestBed(node("n1", {CPU: 2}), elastic_quota("a", {CPU: 2}), elastic_quota("b", {CPU: 0}))
        rows, found = asked(bed, cpu("x", "b", 1, priority=100), cpu("y", "a", 2))
        assert list(rows) == ["b/x", "a/y"]
        assert (rows["b/x"].verdict, rows["b/x"].reason) == ("evicted", "engine.preempted")
        assert rows["b/x"].message == "gave its place to a/y"
        assert (rows["a/y"].verdict, rows["a/y"].node, rows["a/y"].victims) == ("after-evictions", "n1", ["b/x"])
        assert found.evicted == ["b/x"]

    def test_a_pod_that_is_only_held_loses_its_hold_and_is_not_evicted(self) -> None:
        bed = TestBed(node("n1", {CPU: 4}))
        bed.give(cpu("v", "a", 3, annotations=SLOW))
        bed.give(cpu("h", "a", 4, priority=100))
        assert bed.see("a/h").message == "held on n1 until a/v left"
        rows, found = asked(bed, cpu("p", "a", 1, priority=200))
        assert (rows["a/p"].verdict, rows["a/p"].victims) == ("now", [])
        assert (found.evicted, found.waits) == ([], ["a/h"])
        assert bed.see("a/h").message == "held on n1 until a/v left"

    def test_others_that_wait_take_part(self) -> None:
        """The victim leaves more room than is needed, and another one that waits gets the rest."""
        bed = TestBed(node("n1", {CPU: 4}))
        bed.give(cpu("large", "a", 4))
        bed.give(cpu("small", "a", 1))
        rows, found = asked(bed, cpu("p", "a", 3, priority=9))
        assert (rows["a/p"].verdict, rows["a/p"].victims) == ("after-evictions", ["a/large"])
        assert (found.starts, found.held, found.waits) == (["a/small"], [], [])

    def test_a_hold_is_said_in_names(self) -> None:
        bed = TestBed(node("n1", {CPU: 4}))
        bed.give(cpu("large", "a", 4, annotations=SLOW))
        bed.give(cpu("small", "a", 1))
        rows, found = asked(bed, cpu("p", "a", 3, priority=9))
        assert (rows["a/p"].verdict, rows["a/p"].message) == ("after-evictions", "held on n1 until a/large left")
        assert (found.starts, found.held) == ([], ["a/small"])

    def test_a_gang_is_tried_as_a_whole(self) -> None:
        marks = {"bursar.dev/group": "g", "bursar.dev/group-size": "2"}
        bed = TestBed(node("n1", {CPU: 3}))
        whole, _ = asked(bed, cpu("m1", "a", 1, labels=marks), cpu("m2", "a", 2, labels=marks))
        assert [row.verdict for row in whole.values()] == ["now", "now"]
        large, _ = asked(bed, cpu("m1", "a", 2, labels=marks), cpu("m2", "a", 2, labels=marks))
        assert [row.verdict for row in large.values()] == ["queued", "queued"]
        part, _ = asked(bed, cpu("m1", "a", 1, labels=marks))
        assert (part["a/m1"].reason, part["a/m1"].message) == (
            "control.group-incomplete",
            "1 of 2 members of a/g are here",
        )
        bed.give(cpu("m1", "a", 1, labels=marks))
        joined, found = asked(bed, cpu("m2", "a", 2, labels=marks))
        assert (joined["a/m2"].verdict, found.starts) == ("now", ["a/m1"])

    def test_only_new_pods_are_tried(self) -> None:
        bed = TestBed(node("n1", {CPU: 1}), cpu("p", "a", 1))
        with pytest.raises(ManifestError, match="Pod a/p: exists already: only new pods can be tried"):
            asked(bed, cpu("p", "a", 1))
        with pytest.raises(ManifestError, match="Node n2: is no pod: only new pods can be tried"):
            asked(bed, node("n2", {CPU: 1}))

    def test_in_a_copy_of_a_live_cluster_no_victim_leaves_at_once(self) -> None:
        bed = TestBed(node("n1", {CPU: 1}), cpu("low", "a", 1))
        bed.staging.keeps_ages = True
        rows, _ = asked(bed, cpu("p", "a", 1, priority=9))
        assert (rows["a/p"].verdict, rows["a/p"].message) == ("after-evictions", "held on n1 until a/low left")


def trace(bed: TestBed) -> object:
    """All that a rehearsal might have changed."""
    engine, queue = bed.engine, bed.controller.queue
    return (
        engine.digest,
        engine.version,
        engine.state.plain(),
        len(engine.journal.records),
        {claim.uid: claim.decision for claim in engine.state.claims.values()},
        {key: (pod.phase, pod.node, pod.evicted, pod.due) for key, pod in bed.pod_states.items()},
        bed.objects.version,
        len(bed.happenings),
        [claim.uid for claim in queue.waiting()],
        engine.listener,
    )


@pytest.mark.parametrize("seed", range(6))
def test_a_rehearsal_before_every_step_changes_nothing(seed: int) -> None:
    rehearsing, plain = TestBed(), TestBed()
    world, tried = World(Random(seed)), World(Random(seed + 1000))
    for manifest in world.objects():
        rehearsing.give(manifest)
        plain.give(manifest)
    for number in range(40):
        before = trace(rehearsing)
        strangers = [{**one, "metadata": {**one["metadata"], "name": f"s{number}"}} for one in tried.new_pods()[:1]]
        what_if(rehearsing, documents(*strangers))
        assert trace(rehearsing) == before
        move = world.move()
        assert perform(rehearsing, move) == perform(plain, move)
        assert rehearsing.engine.digest == plain.engine.digest
    assert rehearsing.phases() == plain.phases()


def test_a_rehearsal_that_fails_leaves_no_trace() -> None:
    bed = TestBed(node("n1", {CPU: 2}), cpu("p", "a", 2), cpu("waits", "a", 1))
    before = trace(bed)

    def fail() -> None:
        with rehearse(bed) as trial:
            trial.delete([trial.kinds.reference("Pod/a/p")])
            assert trial.doing("a/p") is None
            assert trial.pods() == ["a/waits"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert trace(bed) == before


def test_one_rehearsal_at_a_time() -> None:
    bed = TestBed()
    with rehearse(bed), pytest.raises(RuntimeError, match="a rehearsal is under way already"), rehearse(bed):
        pass
    bed.give(node("n1", {CPU: 1}), cpu("p", "a", 1))
    assert bed.see("a/p").phase == "Running"
