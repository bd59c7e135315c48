"""Preemption on full nodes against the reference model, which tries every set of victims on every node."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from bursar.policies.elastic.settings import ELASTIC_QUOTA, quota_id
from tests.policies.elastic.reference_model import Pod, Quota, ReferenceModel
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
        """One more pod; returns the number of its victims, which are those of the reference model."""
        rng = self.rng
        wants = {name: amount for name in DIMENSIONS if (amount := rng.randint(0, 4))}
        pod = Pod(f"p{number:03}", rng.choice([*TEAMS, "free"]), wants, rng.randint(0, 2), number)
        self.reference.bounded = self.world.policy.book.options.borrowing == "min"
        expected = self.plan(pod)
        decision = self.world.decide(claim_of(pod.uid, pod.namespace, wants, pod.priority, pod.created))
        assert (list(decision.victims) if decision.admitted else None) == expected, pod
        if decision.admitted:
            assert self.fits(pod, decision.place, self.without(decision.victims))
            self.reference.pods = self.without(decision.victims) | {pod.uid: pod}
            self.places[pod.uid] = decision.place
        self.world.leave()
        return len(decision.victims)

    def without(self, victims: Iterable[str]) -> dict[str, Pod]:
        return {uid: other for uid, other in self.reference.pods.items() if uid not in victims}

    def plan(self, pod: Pod) -> list[str] | None:
        """The victims of the least harmful plan over all nodes; [] if none are needed, None if there is no plan."""
        if any(self.fits(pod, node, self.reference.pods) for node in self.rooms):
            return []
        roomy = [node for node in self.rooms if self.has_room(pod, node, self.reference.pods)]
        plans = [
            (self.harm(pod, node, victims), victims)
            for node in roomy or self.rooms
            if (victims := self.least(pod, node))
        ]
        return min(plans)[1] if plans else None

    def harm(self, pod: Pod, node: str, victims: list[str]) -> tuple[object, ...]:
        hit = [self.reference.pods[uid] for uid in victims]
        worst = max(self.rank(pod, victim, node) for victim in hit)
        oldest = min(victim.created for victim in hit)
        priorities = [victim.priority for victim in hit]
        return (worst, max(priorities), len(hit), sum(priorities), -oldest, node)

    def rank(self, pod: Pod, victim: Pod, node: str) -> int:
        own, theirs = self.reference.quota_of(pod.namespace), self.reference.quota_of(victim.namespace)
        if own is None or theirs is None:
            return 0
        return self.reference.classes(theirs, self.reference.pods | {pod.uid: pod})[victim.uid]

    def least(self, pod: Pod, node: str) -> list[str] | None:
        """The least important legal set that makes room on the node, of all subsets of those that may go."""
        if pod.namespace == "free":
            lower = [other for other in self.reference.pods.values() if other.priority < pod.priority]
            candidates = sorted(lower, key=lambda other: (other.priority, -other.created))
        else:
            candidates = self.reference.candidates(pod)
        own = self.reference.quota_of(pod.namespace)
        useful = [
            other
            for other in candidates
            if self.places[other.uid] == node
            or self.reference.short(pod)
            or (own is not None and self.reference.quota_of(other.namespace) == own)  # so that it ends within min
        ]
        if not self.fits(pod, node, self.without([other.uid for other in useful])):
            return None
        for number in range(1, 1 << len(useful)):
            victims = [other for at, other in enumerate(useful) if number >> at & 1]
            if self.fits(pod, node, self.without([v.uid for v in victims])) and self.legal(pod, node, victims):
                return [victim.uid for victim in victims]
        return None

    def legal(self, pod: Pod, node: str, victims: list[Pod]) -> bool:
        if pod.namespace == "free":
            return True
        there = {what for what in DIMENSIONS if not self.has_room(pod, node, self.reference.pods, what)}
        self.reference.elsewhere = there & set(pod.wants)
        found = self.reference.legal(pod, victims)
        self.reference.elsewhere = set()
        return found

    def has_room(self, pod: Pod, node: str, pods: dict[str, Pod], only: str = "") -> bool:
        there = [p for uid, p in pods.items() if self.places[uid] == node]
        asked = {what: amount for what, amount in pod.wants.items() if only in {"", what}}
        return all(sum(p.wants.get(w, 0) for p in there) + amount <= self.rooms[node][w] for w, amount in asked.items())

    def fits(self, pod: Pod, node: str, pods: dict[str, Pod]) -> bool:
        return self.has_room(pod, node, pods) and not self.reference.shortage(pod, pods)[0]


@pytest.mark.parametrize("seed", range(40))
def test_victims_on_nodes_are_the_least_of_all_legal_sets(seed: int) -> None:
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
