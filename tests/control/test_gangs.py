"""Groups in the whole loop: they start together, and nobody of them keeps a place for himself."""

from __future__ import annotations

from typing import Any

from bursar.control.admission import ObjectChange, known_kinds
from bursar.control.controller import Controller
from bursar.engine.engine import Engine
from bursar.ledger.claims import HELD, PENDING, RESERVED
from bursar.objects.manifests import Document
from tests.builders import node, pod
from tests.control.test_settling import SilentPorts
from tests.sim.purse import registry
from tests.sim.steps import TestBed

GPU = "nvidia.com/gpu"
SLOW = {"sim.bursar.dev/leaves-after": "10s"}


def member(name: str, size: int = 2, priority: int = 5, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    labels = {"bursar.dev/group": "g", "bursar.dev/group-size": str(size)}
    return pod(name, "a", {GPU: 1}, labels=labels, priority=priority, **more)


def half_held() -> TestBed:
    """A group one of whose members has room, while somebody has to leave for the other one."""
    bed = TestBed(node("n1", {GPU: 2}), registry=registry())
    bed.give(pod("low", "b", {GPU: 1}, annotations=SLOW))
    bed.give(member("m1"), member("m2"))
    assert (state(bed, "a/m1"), state(bed, "a/m2")) == (RESERVED, HELD)
    return bed


def state(bed: TestBed, key: str) -> int:
    claim = bed.controller.claim(key)
    assert claim is not None
    return claim.state


def phases(bed: TestBed, *names: str) -> list[str]:
    return [bed.see(f"a/{name}").phase for name in names]


def test_nobody_starts_while_others_have_to_leave_for_another_one() -> None:
    bed = half_held()
    assert phases(bed, "m1", "m2") == ["Pending", "Pending"]
    assert (bed.see("a/m1").reason, bed.see("a/m1").message) == ("control.leaving", "starts when b/low left")
    bed.advance(10_000)
    assert phases(bed, "m1", "m2") == ["Running", "Running"]


def test_nobody_keeps_a_place_when_another_one_is_gone() -> None:
    bed = half_held()
    bed.take("Pod/a/m2")
    assert state(bed, "a/m1") == PENDING
    assert bed.see("a/m1").reason == "control.group-incomplete"
    bed.give(member("m3"))
    bed.advance(10_000)
    assert phases(bed, "m1", "m3") == ["Running", "Running"]


def test_nobody_keeps_a_place_when_another_one_loses_its_own() -> None:
    """Nor does anybody have to leave who was never told to start: it waits again."""
    bed = half_held()
    bed.give(pod("urgent", "b", {GPU: 1}, priority=9))
    assert (state(bed, "a/m1"), state(bed, "a/m2")) == (PENDING, PENDING)
    bed.advance(10_000)
    assert phases(bed, "m1", "m2") == ["Pending", "Pending"]
    assert bed.see("b/urgent").phase == "Running"
    bed.finish(["b/urgent"])
    assert phases(bed, "m1", "m2") == ["Running", "Running"]


def test_one_that_finds_room_elsewhere_leaves_the_others_their_places() -> None:
    bed = half_held()
    second = bed.controller.claim("a/m2")
    assert second is not None
    bed.engine.give_up(second.uid)
    bed.give(node("n1", {GPU: 1}), node("n2", {GPU: 1}))
    assert phases(bed, "m1", "m2") == ["Running", "Running"]
    assert (bed.see("a/m1").node, bed.see("a/m2").node) == ("n1", "n2")


def test_who_waits_for_the_others_while_its_node_goes_finds_another_one() -> None:
    bed = TestBed(node("n1", {GPU: 1}, labels={"zone": "a"}), node("n2", {GPU: 1}), registry=registry())
    bed.give(pod("low", "b", {GPU: 1}, annotations=SLOW, nodeName="n2"))
    bed.give(member("m1"), member("m2"))
    first = bed.controller.claim("a/m1")
    assert first is not None
    assert (first.state, first.place) == (RESERVED, "n1")
    bed.give(node("n1", {GPU: 1}, labels={"zone": "b"}))
    assert (first.state, first.place) == (RESERVED, "n1"), "it changed, and does as well as before"
    bed.take("Node/n1")
    assert (state(bed, "a/m1"), state(bed, "a/m2")) == (PENDING, PENDING)
    bed.give(node("n3", {GPU: 1}))
    bed.advance(10_000)
    assert phases(bed, "m1", "m2") == ["Running", "Running"]


def test_who_joins_a_group_that_runs_starts_by_itself() -> None:
    bed = TestBed(node("n1", {GPU: 3}), registry=registry())
    bed.give(pod("low", "b", {GPU: 1}, annotations=SLOW))
    bed.give(member("m1"), member("m2"))
    bed.finish(["a/m2"])
    bed.give(member("m3"), member("m4"))
    assert phases(bed, "m1", "m3", "m4") == ["Running", "Running", "Pending"]
    bed.advance(10_000)
    assert phases(bed, "m4") == ["Running"]


def test_a_member_that_is_there_already_lets_others_join() -> None:
    bed = TestBed(node("n1", {GPU: 2}), registry=registry())
    bed.give(member("m1", size=3, nodeName="n1"))
    bed.give(member("m2", size=3))
    assert phases(bed, "m1", "m2") == ["Running", "Running"]


def test_a_revoked_member_is_none_that_others_join_after_a_restart_either() -> None:
    """Its eviction was asked for, and nothing was heard of it yet."""
    known, ports = registry(), SilentPorts()
    kinds = known_kinds(known)

    def changes(*manifests: dict[str, Any]) -> list[ObjectChange]:
        given = [kinds.read(Document("", 0, one)) for one in manifests]
        return [ObjectChange(one.kind, one.key, one) for one in given]

    def started(loop: Controller) -> set[str]:
        gang = loop.queue.group("a/g")
        assert gang is not None
        return gang.started

    def purse(most: int) -> dict[str, Any]:
        metadata = {"namespace": "a", "name": "p"}
        return {"apiVersion": "test.dev/v1", "kind": "Purse", "metadata": metadata, "spec": {"max": {GPU: most}}}

    options = {"apiVersion": "bursar.dev/v1alpha1", "kind": "Configuration", "metadata": {"name": "default"}}
    loop = Controller(Engine(known.policies()), known, ports)
    loop.apply(changes(node("n1", {GPU: 2}), purse(2), options | {"spec": {"purse": {"takeBack": True}}}))
    loop.apply(changes(member("m1"), member("m2")))
    loop.settle()
    for uid in started(loop):
        loop.running(uid)
    assert len(started(loop)) == 2
    loop.apply(changes(purse(1)))
    loop.settle()
    assert len(started(loop)) == 1
    again = Controller(Engine(known.policies()), known, ports)
    again.engine.replay(loop.engine.journal.take())
    again.resume([], [(claim.key, uid) for uid, claim in loop.engine.state.claims.items()])
    assert started(again) == started(loop)
