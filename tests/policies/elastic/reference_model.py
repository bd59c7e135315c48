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
        name = self.quota_of(pod.namespace)
        if name is None:
            return "", []
        quota, asked = self.quotas[name], [what for what, amount in sorted(pod.wants.items()) if amount]
        rules = {
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
        return next(((rule, short) for rule, short in rules.items() if short), ("", []))

    def barred(self, claimant: str, victim: str) -> bool:
        reached, todo = {claimant}, [claimant]
        while todo:
            loser = todo.pop()
            for winner in [w for w, other in self.displaced if other == loser]:
                if winner not in reached:
                    reached.add(winner)
                    todo.append(winner)
        return victim in reached - {claimant}

    def candidates(self, pod: Pod, rule: str, short: list[str]) -> list[Pod]:
        """Whom the pod may displace, in order; as if it were admitted and nobody evicted."""
        then = self.pods | {pod.uid: pod}
        own = self.quota_of(pod.namespace)
        assert own is not None
        rank = self.classes(own, then)[pod.uid]
        least, share = self.quotas[own].min, self.share(own, then)
        asked = [what for what, amount in pod.wants.items() if amount and what in least]
        claims_min = rank == IN and all(self.used(own, w, then) <= least[w] for w in asked)
        claims_share = rank >= WITHIN and all(self.used(own, w, then) <= share[w] for w in asked)
        found: list[tuple[object, ...]] = []
        for name, quota in self.quotas.items():
            classes, shares = self.classes(name, then), self.share(name, then)
            exceeds = any(w in shares and self.used(name, w, then) > shares[w] for w in short)
            for place, victim in enumerate(self.line(name, then)):
                theirs = classes[victim.uid]
                if name == own:
                    touches = any(victim.wants.get(w, 0) for w in short)
                    may = victim.priority < pod.priority and theirs <= rank
                else:
                    touches = rule == "total" and any(victim.wants.get(w, 0) and w in quota.min for w in short)
                    may = (claims_min and theirs < IN) or (claims_share and theirs == BEYOND and exceeds)
                if touches and may and victim.uid != pod.uid:
                    found.append((theirs, victim.priority, -victim.created, name, -place, victim))
        return [entry[-1] for entry in sorted(found, key=lambda e: e[:-1])]  # type: ignore[misc]

    def plan(self, pod: Pod) -> list[str] | None:
        """The victims by whose leaving the pod fits; None: there are none that do."""
        left = dict(self.pods)
        chosen: list[str] = []
        while True:
            rule, short = self.shortage(pod, left)
            if not rule:
                break
            free = [
                v
                for v in (self.candidates(pod, rule, short) if rule != "min" else [])
                if v.uid in left and v.preemptible and not self.barred(pod.uid, v.uid)
            ]
            if not free:
                return None
            chosen.append(free[0].uid)
            del left[free[0].uid]
        for uid in list(reversed(chosen)):
            if not self.shortage(pod, left | {uid: self.pods[uid]})[0]:
                left[uid] = self.pods[uid]
                chosen.remove(uid)
        return chosen if self.keeps_floors(pod, chosen, left) else None

    def keeps_floors(self, pod: Pod, victims: list[str], left: dict[str, Pod]) -> bool:
        own = self.quota_of(pod.namespace)
        assert own is not None
        then = self.pods | {pod.uid: pod}
        least = self.quotas[own].min
        asked = [what for what, amount in pod.wants.items() if amount and what in least]
        if self.classes(own, then)[pod.uid] == IN and all(self.used(own, w, then) <= least[w] for w in asked):
            return True
        for name in {self.quota_of(self.pods[uid].namespace) for uid in victims} - {own, None}:
            assert name is not None
            for what, floor in self.quotas[name].min.items():
                if self.used(name, what, left) < floor <= self.used(name, what, self.pods):
                    return False
        return True

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
