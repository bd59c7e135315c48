"""Revokes claims of a quota that has used more than its runtime for too long.

A quota is over-used in a resource while it uses more than the larger of its runtime and its min in effect. Runtimes of
siblings never add up to more than that of their parent, and own pods of a parent are an implicit child. So it is enough
to bring the own pods of every quota back to its runtime.

Victims are the least important claims first (lower priority, then newest) that use what is over-used. As soon as one
claim is enough, the smallest such of that priority is taken. Then each chosen claim, the most important first, is
spared if the others are enough.

The start of over-use is not in the ledger, so after a restart the delay begins again. A claim that the engine did not
evict, because of a disruption budget, is skipped the next time.
"""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.claims import Claim
from bursar.ledger.state import State
from bursar.policies.pools.derived_state import DerivedState
from bursar.policies.pools.explanation import subject_of
from bursar.policies.pools.quota_node import NO_MAX, Branch
from bursar.policies.results import Revocation
from bursar.resources import dimension_at

REASON: Final = "pools.revoked"


@final
class Revoker:
    """Records since when quotas are over-used."""

    def __init__(self, derived: DerivedState) -> None:
        self.derived: Final = derived
        self.since: dict[str, int] = {}  # by account
        self.asked: set[str] = set()  # claims revoked the last time

    def due(self, state: State, now: int) -> list[Revocation]:
        options = self.derived.options
        if not options.revoke or not options.runtime:
            return []
        forest = self.derived.forest
        for tree in sorted(forest.trees):
            forest.refresh_all(tree)
        blocked = {uid for uid in self.asked if state.cell("revoked", uid) is None}
        self.asked = set()
        still: dict[str, int] = {}
        found: list[Revocation] = []
        suspects = sorted({*forest.suspects, *self.since})
        forest.suspects.clear()
        for key in suspects:
            branch = forest.branches.get(key)
            if branch is None or not branch.members.claims or not self._over(state, branch):
                continue
            still[key] = self.since.get(key, now)
            if now - still[key] >= options.delay:
                found.extend(self._revoke(state, branch, blocked))
        self.since = still
        return found

    def next_due(self, now: int) -> int | None:
        """When the next delay of an over-used quota ends."""
        options = self.derived.options
        if not options.revoke or not options.runtime:
            return None
        earliest: int | None = None
        for since in self.since.values():
            moment = since + options.delay
            if moment > now and (earliest is None or moment < earliest):
                earliest = moment
        return earliest

    def _over(self, state: State, branch: Branch) -> list[int]:
        """What is used beyond the limit, by slot, without claims that are already revoked; empty if nothing is."""
        if branch.quota is None or not self.derived.forest.is_connected(branch):
            return []
        used = list(branch.own_used)
        for uid, claim in branch.members.claims.items():
            if state.cell("revoked", uid) is not None:
                leaving = self._amounts([claim])[uid]
                used = [used[slot] - leaving[slot] for slot in range(len(used))]
        over = [max(0, used[slot] - self._limit(branch, slot)) for slot in range(len(used))]
        return over if any(over) else []

    def _limit(self, branch: Branch, slot: int) -> int:
        if branch.maxima[slot] == NO_MAX:
            return branch.own_used[slot]  # not managed, so never over-used
        own = branch.own()
        return max(int(own.runtime[slot]), own.floor(slot))

    def _revoke(self, state: State, branch: Branch, blocked: set[str]) -> list[Revocation]:
        over = self._over(state, branch)
        sentence = self._sentence(branch, over)
        candidates = [
            claim
            for claim in branch.members.least_important_first()
            if claim.spec.preemptible and claim.uid not in blocked and state.cell("revoked", claim.uid) is None
        ]
        found: list[Revocation] = []
        for claim in choose(self._amounts(candidates), candidates, over):
            self.asked.add(claim.uid)
            found.append(Revocation(claim.uid, REASON, sentence))
        return found

    def _amounts(self, claims: list[Claim]) -> dict[str, list[int]]:
        """What each claim uses, by slot."""
        found: dict[str, list[int]] = {}
        for claim in claims:
            amounts = [0] * len(self.derived.forest.dims)
            for i in range(len(claim.spec.quota_requests.dims)):
                slot = self.derived.forest.slot_of(int(claim.spec.quota_requests.dims[i]))
                if slot >= 0:
                    amounts[slot] = int(claim.spec.quota_requests.amounts[i])
            found[claim.uid] = amounts
        return found

    def _sentence(self, branch: Branch, over: list[int]) -> str:
        parts: list[str] = []
        for slot in range(len(over)):
            if over[slot]:
                resource = dimension_at(self.derived.forest.dims[slot])
                limit = resource.show(self._limit(branch, slot))
                parts.append(f"{resource.show(branch.own_used[slot])} {resource.name} of {limit}")
        named = f"quota {branch.name}" if branch.quota is None else subject_of(self.derived, branch.quota)
        return f"{named} uses {', '.join(parts)}"


def choose(amounts: dict[str, list[int]], candidates: list[Claim], over: list[int]) -> list[Claim]:
    """The victims, the most important first; ``candidates`` come least important first."""
    left = list(over)
    chosen: list[Claim] = []
    todo = list(candidates)
    while any(left):
        claim = _next(amounts, todo, left)
        if claim is None:
            break
        todo.remove(claim)
        chosen.append(claim)
        left = _minus(left, amounts[claim.uid])
    chosen.reverse()
    if any(left):
        return chosen
    for claim in list(chosen):
        others = [other for other in chosen if other is not claim]
        if _enough(amounts, others, over):
            chosen = others
    return chosen


def _next(amounts: dict[str, list[int]], todo: list[Claim], left: list[int]) -> Claim | None:
    """The first claim that helps, or the smallest of its priority that is enough alone."""
    first: Claim | None = None
    best: Claim | None = None
    for claim in todo:
        if first is not None and claim.spec.priority != first.spec.priority:
            break
        if not any(left[slot] and amounts[claim.uid][slot] for slot in range(len(left))):
            continue
        if first is None:
            first = claim
        if not any(_minus(left, amounts[claim.uid])) and (best is None or _smaller(amounts, claim, best, left)):
            best = claim
    return best if best is not None else first


def _smaller(amounts: dict[str, list[int]], one: Claim, other: Claim, left: list[int]) -> bool:
    """Less in the first over-used resource in which they differ, then less elsewhere."""
    slots = sorted(range(len(left)), key=lambda slot: left[slot] == 0)
    return [amounts[one.uid][slot] for slot in slots] < [amounts[other.uid][slot] for slot in slots]


def _minus(left: list[int], amounts: list[int]) -> list[int]:
    return [max(0, left[slot] - amounts[slot]) for slot in range(len(left))]


def _enough(amounts: dict[str, list[int]], claims: list[Claim], over: list[int]) -> bool:
    left = list(over)
    for claim in claims:
        left = _minus(left, amounts[claim.uid])
    return not any(left)
