"""Decisions that take longer than their time box: they leave no trace, others go on, and later they are made."""

from __future__ import annotations

from random import Random

import pytest

from bursar.control.admission import ObjectChange, known_kinds
from bursar.control.controller import Controller
from bursar.control.pacing import FIRST, LONGEST, PutOff, topic_of
from bursar.control.queue import Queue
from bursar.engine.charging import Core
from bursar.engine.decide import decide, decide_in_time, group, group_in_time
from bursar.engine.decision import Decision
from bursar.engine.engine import Engine
from bursar.engine.time_box import PUT_OFF, TimeBox
from bursar.engine.what_if import Assumption, Outlook
from bursar.ledger.claims import Claim, ClaimSpec
from bursar.objects.kinds import POD
from bursar.objects.manifests import Document
from bursar.policies.plugin import Plugin, Registry
from bursar.policies.policy import QuotaPolicy
from bursar.policies.results import Refusal
from bursar.sim.rehearsal import rehearse
from tests.at_rest import decidable
from tests.builders import node, pod
from tests.control.test_random_worlds import perform
from tests.control.test_settling import SilentPorts
from tests.sim.steps import TestBed
from tests.worlds import World

CUTS = 25
KINDS = known_kinds(Registry())


class StepBox(TimeBox):
    """Over after some steps."""

    def __init__(self, steps: int) -> None:
        super().__init__(every=1)
        self.left = steps

    def over(self) -> bool:
        self.left -= 1
        return self.left < 0


class CutDecisions(Assumption):
    """The claims of an entry are decided, after attempts that were cut after one step, two steps and so on."""

    def __init__(self, uids: list[str], cuts: int) -> None:
        self.uids = uids
        self.cuts = cuts
        self.made = 0

    def run(self, core: Core, at: int, outlook: Outlook) -> None:
        claims = [core.ledger.state.claims[uid] for uid in self.uids]
        for steps in range(self.cuts):
            core.time.box = StepBox(steps)
            mark = core.tx.savepoint()
            one = len(claims) == 1
            decisions = [decide_in_time(core, claims[0], at)] if one else group_in_time(core, claims, at)
            core.time.box = TimeBox()
            if decisions[0].reason != PUT_OFF:
                core.tx.rollback_to(mark)
                break
            assert core.tx.savepoint() == mark
            self.made += 1
        for decision in [decide(core, claims[0], at)] if len(claims) == 1 else group(core, claims, at):
            outlook.add(core, decision)


def plain(decisions: list[Decision]) -> list[object]:
    return [(one.uid, one.outcome, one.place, one.victims, [r.sentence() for r in one.refusals]) for one in decisions]


@pytest.mark.parametrize("seed", [2, 4, 5, 7, 9, 11])
def test_a_decision_that_is_cut_anywhere_leaves_no_trace(seed: int) -> None:
    world, bed = World(Random(seed)), TestBed()
    for manifest in world.objects():
        bed.give(manifest)
    cuts = 0
    for _ in range(25):
        perform(bed, world.move())
        for claims in decidable(bed.controller.queue):
            uids = [claim.uid for claim in claims]
            cut = CutDecisions(uids, CUTS)
            digest = bed.engine.digest
            after_cuts = bed.engine.what_if([cut], 0).decisions
            assert plain(after_cuts) == plain(bed.engine.what_if([CutDecisions(uids, 0)], 0).decisions)
            assert bed.engine.digest == digest
            cuts += cut.made
    assert cuts > 0


# The loop


class SlowLook(QuotaPolicy):
    """Refuses nothing; looking at a claim of the namespace ``slow`` takes time."""

    def __init__(self, ports: SilentPorts) -> None:
        super().__init__("slow-look")
        self.ports = ports

    def bind(self, claim: Claim, place: str) -> Refusal | None:
        if claim.namespace == "slow":
            self.ports.time += 40
        return None


def gang(namespace: str, name: str, size: int) -> list[dict[str, object]]:
    labels = {"bursar.dev/group": name, "bursar.dev/group-size": str(size)}
    return [pod(f"{name}-{number}", namespace, {"cpu": 1}, labels=labels) for number in range(size)]


def controller(ports: SilentPorts) -> Controller:
    registry = Registry([Plugin("slow-look", 1, lambda: SlowLook(ports))])
    return Controller(Engine(registry.policies()), registry, ports)


def give(loop: Controller, *manifests: dict[str, object]) -> None:
    changes = []
    for one in manifests:
        typed = KINDS.read(Document("", 0, one))
        changes.append(ObjectChange(POD, typed.key, typed))
    loop.apply(changes)


def started(ports: SilentPorts) -> list[str]:
    return [row[1] for row in ports.told if row[0] == "start"]


def test_others_are_decided_while_a_long_decision_is_put_off_and_it_is_made_in_the_end() -> None:
    ports = SilentPorts()
    loop = controller(ports)
    give(loop, *gang("slow", "large", 60))
    loop.settle()
    assert started(ports) == []
    assert {row[3] for row in ports.told if row[0] == "Pod"} == {"engine.put-off"}
    give(loop, pod("quick", "other", {"cpu": 1}), pod("quick", "slow", {"cpu": 1}))
    loop.settle()
    assert started(ports) == ["other/quick"]
    for _ in range(200):
        ports.time += 1_000
        loop.settle()
    assert len(started(ports)) == 62


def test_a_pod_that_goes_while_it_is_put_off_is_forgotten() -> None:
    ports = SilentPorts()
    loop = controller(ports)
    members = gang("slow", "large", 60)
    give(loop, *members)
    loop.settle()
    for one in members:
        metadata = one["metadata"]
        assert isinstance(metadata, dict)
        loop.gone(f"{metadata['namespace']}/{metadata['name']}")
    ports.time += 1_000_000
    loop.settle()
    assert not loop._put_off._due
    assert not loop._put_off._tried


def test_a_trial_long_after_the_last_decision_is_not_cut() -> None:
    bed = TestBed(node("n1", {"cpu": 100}), pod("first", "a", {"cpu": 1}))
    bed.advance(60_000)
    with rehearse(bed) as trial:
        keys = trial.try_pods([Document("", 0, body) for body in gang("a", "large", 40)])
        assert {trial.controller.reason(uid) for uid in bed.engine.state.claims} == {("", "")}
    assert len(keys) == 40


# When


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def claim(uid: str, namespace: str = "a") -> Claim:
    return Claim(uid, ClaimSpec(), 0, namespace, uid)


def cut(found: PutOff, clock: Clock, one: Claim) -> None:
    """The decision takes all the time that it has."""
    assert found.begin(one)
    began = clock.now
    while not found.box.over():
        clock.now += 1
    assert found.topics(one, began, [PUT_OFF]) == [topic_of(one.uid)]


def test_each_attempt_gets_twice_the_time_up_to_the_longest() -> None:
    clock = Clock()
    found, took = PutOff(clock), []
    for _ in range(5):
        clock.now += 10**9
        began = clock.now
        cut(found, clock, claim("p"))
        took.append(clock.now - began)
    assert took == [FIRST, 2 * FIRST, LONGEST, LONGEST, LONGEST]


def test_one_namespace_takes_a_sixth_of_the_time_however_many_pods_it_has() -> None:
    clock = Clock()
    found, busy = PutOff(clock), 0
    for number in range(10_000):
        if found.begin(claim(f"p{number}")):
            began = clock.now
            clock.now += FIRST
            found.topics(claim(f"p{number}"), began, [PUT_OFF])
            busy += FIRST
        clock.now += 10
    assert 6 * busy <= clock.now + 6 * FIRST
    assert found.begin(claim("q", "b"))


def test_a_pod_that_was_put_off_is_woken_when_its_time_has_come() -> None:
    clock = Clock()
    found, queue = PutOff(clock), Queue()
    one = claim("p")
    queue.add(one)
    assert queue.next() == [one]
    cut(found, clock, one)
    queue.wait(one, [topic_of("p")], never=False)
    found.wake(queue)
    assert queue.next() is None
    clock.now += 11 * FIRST
    found.wake(queue)
    assert queue.next() == [one]
