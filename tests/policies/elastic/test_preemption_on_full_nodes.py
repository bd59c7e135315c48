"""Preemption on full nodes against the reference model: every victim may be displaced, and none without need."""

from __future__ import annotations

from random import Random

import pytest

from bursar.policies.elastic.settings import ELASTIC_QUOTA, quota_id
from tests.policies.elastic.reference_model import BEYOND, IN, WITHIN, Pod, Quota, ReferenceModel
from tests.policies.elastic.world import World, claim_of

DIMENSIONS = ("example.com/x", "memory")
TEAMS = ("a", "b", "c")


class Contest:
    """Three quotas that list everything, a namespace without quota, two or three small nodes."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.world = World(borrowing=rng.choice(["min", "capacity"]), placed=True)
        self.reference = ReferenceModel()
        self.places: dict[str, str] = {}
        self.rooms = {f"m{n}": {name: rng.randint(2, 7) for name in DIMENSIONS} for n in range(rng.randint(2, 3))}
        for node, room in self.rooms.items():
            self.world.node(node, room)
        for team in TEAMS:
            least = {name: rng.randint(0, 5) for name in DIMENSIONS}
            self.world.quota(team, least)
            self.reference.quotas[quota_id(ELASTIC_QUOTA, f"{team}/quota")] = Quota((team,), least, {})

    def ask(self, number: int) -> int:
        """One more pod; returns the number of its victims, each of which is checked."""
        rng = self.rng
        wants = {name: amount for name in DIMENSIONS if (amount := rng.randint(0, 4))}
        pod = Pod(f"p{number:03}", rng.choice([*TEAMS, "free"]), wants, rng.randint(0, 2), number)
        decision = self.world.decide(claim_of(pod.uid, pod.namespace, wants, pod.priority, pod.created))
        if decision.admitted:
            for uid in decision.victims:
                assert self.may_displace(pod, self.reference.pods[uid]), (pod, self.reference.pods[uid])
            left = {uid: p for uid, p in self.reference.pods.items() if uid not in decision.victims}
            for uid in decision.victims:
                assert not self.fits(pod, decision.place, left | {uid: self.reference.pods[uid]})
            self.reference.pods = left | {pod.uid: pod}
            self.places[pod.uid] = decision.place
        self.world.leave()
        return len(decision.victims)

    def may_displace(self, pod: Pod, victim: Pod) -> bool:
        """The rights of the pod, whatever is short."""
        own, theirs = self.reference.quota_of(pod.namespace), self.reference.quota_of(victim.namespace)
        if own is None:
            return victim.priority < pod.priority
        if theirs is None:
            return False
        then = self.reference.pods | {pod.uid: pod}
        rank, other = self.reference.classes(own, then)[pod.uid], self.reference.classes(theirs, then)[victim.uid]
        if own == theirs:
            return victim.priority < pod.priority and other <= rank
        least, share = self.reference.quotas[own].min, self.reference.share(own, then)
        within_min = all(self.reference.used(own, what, then) <= least[what] for what in pod.wants)
        within_share = all(self.reference.used(own, what, then) <= share[what] for what in pod.wants)
        theirs_share = self.reference.share(theirs, then)
        exceeds = any(self.reference.used(theirs, what, then) > theirs_share[what] for what in DIMENSIONS)
        claims = rank == IN and within_min and other < IN
        return claims or (rank >= WITHIN and within_share and other == BEYOND and exceeds)

    def fits(self, pod: Pod, node: str, pods: dict[str, Pod]) -> bool:
        there = [p for uid, p in pods.items() if self.places[uid] == node]
        for what, amount in pod.wants.items():
            if sum(p.wants.get(what, 0) for p in there) + amount > self.rooms[node][what]:
                return False
        bounded = self.world.policy.book.options.borrowing == "min"
        self.reference.bounded = bounded
        return not self.reference.shortage(pod, pods)[0]


@pytest.mark.parametrize("seed", range(40))
def test_victims_on_nodes_are_lawful_and_needed(seed: int) -> None:
    contest = Contest(Random(seed))
    for number in range(40):
        contest.ask(number)
        if contest.rng.random() < 0.15 and contest.reference.pods:
            uid = contest.rng.choice(sorted(contest.reference.pods))
            contest.world.engine.release(uid)
            del contest.reference.pods[uid]


def test_there_are_victims_to_judge() -> None:
    taken = 0
    for seed in range(40):
        contest = Contest(Random(seed))
        taken += sum(contest.ask(number) for number in range(40))
    assert taken > 100
