"""Elastic quotas, slow and obviously right: dictionaries and loops straight from the rules, nothing kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

Amounts = dict[str, int]
IN, WITHIN, BEYOND = 2, 1, 0


@dataclass
class Quota:
    namespaces: tuple[str, ...]
    min: Amounts
    max: Amounts


@dataclass
class Pod:
    uid: str
    namespace: str
    wants: Amounts
    priority: int = 0
    created: int = 0
    preemptible: bool = True


@dataclass
class ReferenceModel:
    """``pods`` are those that count. ``displaced`` holds (winner, loser)."""

    quotas: dict[str, Quota] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    displaced: set[tuple[str, str]] = field(default_factory=set)
    bounded: bool = True
    by_priority: bool = True
    elsewhere: set[str] = field(default_factory=set)  # what the claim is short of beside its quotas: on a node

    # Sums

    def quota_of(self, namespace: str) -> str | None:
        return next((name for name, quota in self.quotas.items() if namespace in quota.namespaces), None)

    def members(self, name: str, pods: dict[str, Pod]) -> list[Pod]:
        return [pod for pod in pods.values() if pod.namespace in self.quotas[name].namespaces]

    def used(self, name: str, what: str, pods: dict[str, Pod], firm: bool = False) -> int:
        return sum(p.wants.get(what, 0) for p in self.members(name, pods) if not (firm and p.preemptible))

    def listing(self, what: str) -> list[str]:
        return [name for name, quota in self.quotas.items() if what in quota.min]

    def total_min(self, what: str) -> int:
        return sum(self.quotas[name].min[what] for name in self.listing(what))

    def total_used(self, what: str, pods: dict[str, Pod]) -> int:
        return sum(self.used(name, what, pods) for name in self.listing(what))

    def pool(self, what: str, pods: dict[str, Pod]) -> int:
        return sum(max(0, self.quotas[n].min[what] - self.used(n, what, pods)) for n in self.listing(what))

    def share(self, name: str, pods: dict[str, Pod]) -> Amounts:
        least = self.quotas[name].min
        return {
            what: amount + (self.pool(what, pods) * amount // self.total_min(what) if self.total_min(what) else 0)
            for what, amount in least.items()
        }

    # Classes

    def line(self, name: str, pods: dict[str, Pod]) -> list[Pod]:
        least = self.quotas[name].min

        def key(pod: Pod) -> tuple[object, ...]:
            asked = {what: amount for what, amount in pod.wants.items() if what in least and amount}
            endless = any(least[what] == 0 for what in asked)
            largest = max((Fraction(a, least[what]) for what, a in asked.items() if least[what]), default=Fraction(0))
            amounts = [pod.wants.get(what, 0) for what in sorted({"cpu", "example.com/x", "memory"})]
            rank = -pod.priority if self.by_priority else 0
            return (pod.preemptible, rank, pod.created, endless, largest, amounts, pod.namespace, pod.uid)

        return sorted(self.members(name, pods), key=key)

    def taken(self, name: str, caps: Amounts, pods: dict[str, Pod]) -> set[str]:
        sums = dict.fromkeys(caps, 0)
        found: set[str] = set()
        for pod in self.line(name, pods):
            asked = {what: amount for what, amount in pod.wants.items() if what in caps and amount}
            if all(sums[what] + amount <= caps[what] for what, amount in asked.items()):
                found.add(pod.uid)
                for what, amount in asked.items():
                    sums[what] += amount
        return found

    def classes(self, name: str, pods: dict[str, Pod]) -> dict[str, int]:
        inside = self.taken(name, self.quotas[name].min, pods)
        sharing = self.taken(name, self.share(name, pods), pods)
        return {
            p.uid: IN if p.uid in inside else WITHIN if p.uid in sharing else BEYOND for p in self.members(name, pods)
        }

    # Decisions

    def shortage(self, pod: Pod, pods: dict[str, Pod]) -> tuple[str, list[str]]:
        """The first rule that refuses the pod, and what it is short of."""
        return next(((rule, short) for rule, short in self.shortages(pod, pods).items() if short), ("", []))

    def shortages(self, pod: Pod, pods: dict[str, Pod]) -> dict[str, list[str]]:
        name = self.quota_of(pod.namespace)
        if name is None:
            return {}
        quota, asked = self.quotas[name], [what for what, amount in sorted(pod.wants.items()) if amount]
        return {
            "max": [w for w in asked if w in quota.max and self.used(name, w, pods) + pod.wants[w] > quota.max[w]],
            "total": [
                w
                for w in asked
                if self.bounded and w in quota.min and self.total_used(w, pods) + pod.wants[w] > self.total_min(w)
            ],
            "min": [
                w
                for w in asked
                if not pod.preemptible and w in quota.min
                if self.used(name, w, pods, firm=True) + pod.wants[w] > quota.min[w]
            ],
        }

    def barred(self, claimant: str, victim: str) -> bool:
        reached, todo = {claimant}, [claimant]
        while todo:
            loser = todo.pop()
            for winner in [w for w, other in self.displaced if other == loser]:
                if winner not in reached:
                    reached.add(winner)
                    todo.append(winner)
        return victim in reached - {claimant}

    def rights(self, pod: Pod) -> tuple[int, Amounts, Amounts]:
        """Its class, and what its quota may end with at min and at its share, as if it were in and nobody evicted."""
        then = self.pods | {pod.uid: pod}
        own = self.quota_of(pod.namespace)
        assert own is not None
        return self.classes(own, then)[pod.uid], self.quotas[own].min, self.share(own, then)

    def candidates(self, pod: Pod) -> list[Pod]:
        """Whom it may have to displace in any way, in order."""
        then = self.pods | {pod.uid: pod}
        own = self.quota_of(pod.namespace)
        rank = self.rights(pod)[0]
        found: list[tuple[object, ...]] = []
        for name in self.quotas:
            classes = self.classes(name, then)
            for place, victim in enumerate(self.line(name, then)):
                theirs = classes[victim.uid]
                may = (victim.priority < pod.priority and theirs <= rank) if name == own else theirs < IN
                if may and victim.preemptible and victim.uid != pod.uid and not self.barred(pod.uid, victim.uid):
                    found.append((theirs, victim.priority, -victim.created, name, -place, victim))
        return [entry[-1] for entry in sorted(found, key=lambda e: e[:-1])]  # type: ignore[misc]

    def legal(self, pod: Pod, victims: list[Pod]) -> bool:
        """Whether the set may leave for the pod. Only the sums that quotas end with are those without the set."""
        then = self.pods | {pod.uid: pod}
        left = {uid: other for uid, other in then.items() if other not in victims}
        own = self.quota_of(pod.namespace)
        assert own is not None
        rank, least, share = self.rights(pod)
        asked = [what for what, amount in pod.wants.items() if amount and what in least]
        others = [victim for victim in victims if self.quota_of(victim.namespace) != own]
        if not others:
            return True
        if rank == IN and all(self.used(own, what, left) <= least[what] for what in asked):
            return True
        if rank < WITHIN or any(self.used(own, what, left) > share[what] for what in asked):
            return False
        return all(self.beyond(pod, victim, then) for victim in others) and self.keeps_floors(others, then, left)

    def beyond(self, pod: Pod, victim: Pod, then: dict[str, Pod]) -> bool:
        """Whether it is beyond the share of a quota that uses more than that of what is short."""
        name = self.quota_of(victim.namespace)
        assert name is not None
        share = self.share(name, then)
        short = self.short(pod)
        exceeds = any(what in share and self.used(name, what, then) > share[what] for what in short)
        return exceeds and self.classes(name, then)[victim.uid] == BEYOND

    def keeps_floors(self, victims: list[Pod], then: dict[str, Pod], left: dict[str, Pod]) -> bool:
        for name in {self.quota_of(victim.namespace) for victim in victims}:
            assert name is not None
            for what, floor in self.quotas[name].min.items():
                if self.used(name, what, left) < floor <= self.used(name, what, then):
                    return False
        return True

    def short(self, pod: Pod) -> set[str]:
        """All that it is short of, by any rule."""
        return self.elsewhere | {what for short in self.shortages(pod, self.pods).values() for what in short}

    def plan(self, pod: Pod) -> list[str] | None:
        """The least important set by whose leaving the pod fits, of all subsets in order; None: there is none."""
        candidates = self.candidates(pod)
        if self.shortage(pod, {uid: p for uid, p in self.pods.items() if p not in candidates})[0]:
            return None
        for number in range(1, 1 << len(candidates)):
            victims = [one for at, one in enumerate(candidates) if number >> at & 1]
            left = {uid: other for uid, other in self.pods.items() if other not in victims}
            if not self.shortage(pod, left)[0] and self.legal(pod, victims):
                return [victim.uid for victim in victims]
        return None

    def decide(self, pod: Pod) -> list[str] | None:
        """The victims (none where it simply fits), or None: it waits."""
        rule, _ = self.shortage(pod, self.pods)
        if rule and self.never(pod):
            return None
        victims = self.plan(pod) if rule else []
        if victims is not None:
            for uid in victims:
                del self.pods[uid]
                self.displaced.add((pod.uid, uid))
            self.pods[pod.uid] = pod
        return victims

    def never(self, pod: Pod) -> bool:
        """A rule that an empty cluster would refuse it by."""
        return bool(self.shortage(pod, {})[0])

    def gone(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self.displaced = {pair for pair in self.displaced if uid not in pair}
