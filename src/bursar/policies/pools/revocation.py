"""Revokes claims of a quota that has used more than its runtime for too long, where that is switched on.

A quota is over-used in a resource while it uses more than the larger of its runtime and its min in effect, and a claim
that asks for that resource waits in the same tree, counts as demand and is within the runtime of its own quota. Two
runtimes must both be exceeded: the one in force, and the one of the tree's total without what pods outside of all
quotas use, so these cost no pod its place. Runtimes of siblings never add up to more than that of their parent, and own
pods of a parent are an implicit child. So it is enough to bring the own pods of every quota back to its runtime.

Victims run on a node of the tree. They are the least important claims first (lower priority, then newest) that use what
is over-used. As soon as one claim is enough, the smallest such of that priority is taken. Then each chosen claim, the
most important first, is spared if the others are enough. Claims that a disruption budget keeps are passed over.

Everything is read from the state. The cells of the table ``pools.overuse`` say since when each quota is over-used, so
the delay survives a restart.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.ledger.claims import RESERVED, Binding, Claim
from bursar.ledger.state import State
from bursar.ledger.transaction import Transaction
from bursar.policies.policy import EvictionRules
from bursar.policies.pools.derived_state import COUNTED_AT, DerivedState
from bursar.policies.pools.explanation import subject_of
from bursar.policies.pools.quota_node import NO_MAX, Branch
from bursar.policies.pools.runtime import Trace, distribute
from bursar.policies.pools.settings import NAME
from bursar.policies.results import Revocation
from bursar.quantity import MAX_AMOUNT
from bursar.resources import dimension_at

REASON: Final = "pools.revoked"
OVERUSE: Final = "pools.overuse"  # table: account of a quota -> since when it is over-used, in milliseconds
REVOKED: Final = "revoked"


@final
class Revoker:
    """Finds over-used quotas and their victims; it remembers nothing."""

    def __init__(self, derived: DerivedState) -> None:
        self.derived: Final = derived
        self.rules: EvictionRules = EvictionRules()

    def note(self, state: State, tx: Transaction, now: int) -> None:
        """Set since when quotas are over-used."""
        over = self._over_used(state)
        for key in sorted(state.cells(OVERUSE)):
            if key not in over:
                tx.put(NAME, OVERUSE, key, None)
        for key in sorted(over):
            if state.cell(OVERUSE, key) is None:
                tx.put(NAME, OVERUSE, key, now)

    def due(self, state: State, now: int) -> list[Revocation]:
        """The claims to evict now, as of the last ``note``."""
        if not state.cells(OVERUSE):
            return []
        over = self._over_used(state)
        found: list[Revocation] = []
        for key in sorted(over):
            since = state.cell(OVERUSE, key)
            if since is not None and now - cast("int", since) >= self.derived.options.delay:
                found.extend(self._revoke(state, self.derived.forest.branches[key], over[key]))
        return found

    def next_due(self, state: State, now: int) -> int | None:
        """When the next delay of an over-used quota ends."""
        moments = [moment for moment in self._moments(state) if moment > now]
        return min(moments) if moments else None

    def last_due(self, state: State) -> int | None:
        """When the last one ends."""
        moments = self._moments(state)
        return max(moments) if moments else None

    def _moments(self, state: State) -> list[int]:
        if not self._is_on():
            return []
        return [cast("int", since) + self.derived.options.delay for since in state.cells(OVERUSE).values()]

    def _is_on(self) -> bool:
        return self.derived.options.revoke and self.derived.options.runtime

    # Over-use

    def _over_used(self, state: State) -> dict[str, list[int]]:
        """By account of the over-used quotas: what they use beyond their limit, by slot."""
        forest = self.derived.forest
        if not self._is_on():
            return {}
        for tree in sorted(forest.trees):
            forest.refresh_all(tree)
        leaving = self._leaving(state)
        beyond: dict[str, list[int]] = {}
        for key in sorted(forest.suspects):
            branch = forest.branches.get(key)
            if branch is None or branch.quota is None or branch.built_in:
                del forest.suspects[key]
            elif not forest.is_connected(branch):
                continue
            elif not self._exceeds(branch):
                del forest.suspects[key]
            else:
                over = self._over(branch, leaving.get(key))
                if any(over):
                    beyond[key] = over
        return self._wanted(state, beyond)

    def _exceeds(self, branch: Branch) -> bool:
        """Whether own pods use more than the limit in force, leaving ones included."""
        for slot in range(len(branch.own_used)):
            if branch.maxima[slot] != NO_MAX and branch.own_used[slot] > self._limit(branch, slot):
                return True
        return False

    def _leaving(self, state: State) -> dict[str, list[int]]:
        """By account: what claims that are revoked already use."""
        found: dict[str, list[int]] = {}
        for uid in state.cells(REVOKED):
            claim = state.claims.get(uid)
            binding = None if claim is None or not claim.counts() else claim.binding_of(NAME)
            if claim is not None and binding is not None:
                known = found.setdefault(binding.accounts[1].name, [0] * len(self.derived.forest.dims))
                amounts = self._amounts(claim)
                for slot in range(len(known)):
                    known[slot] += amounts[slot]
        return found

    def _over(self, branch: Branch, leaving: list[int] | None) -> list[int]:
        """What own pods use beyond the limit, by slot, without claims that leave."""
        found: list[int] = []
        for slot in range(len(branch.own_used)):
            used = branch.own_used[slot] - (leaving[slot] if leaving is not None else 0)
            over = branch.maxima[slot] != NO_MAX and used > self._limit(branch, slot)
            found.append(max(0, used - self._limit_of_all(branch, slot)) if over else 0)
        return found

    def _limit(self, branch: Branch, slot: int) -> int:
        if branch.maxima[slot] == NO_MAX:
            return branch.own_used[slot]  # not managed, so never over-used
        own = branch.own()
        return max(int(own.runtime[slot]), own.floor(slot))

    def _limit_of_all(self, branch: Branch, slot: int) -> int:
        """The limit if nothing were used outside of quotas; no smaller than the one in force."""
        forest = self.derived.forest
        dim = forest.dims[slot]
        limit = self._limit(branch, slot)
        if not forest.outside.of(branch.tree_id).get(dim, 0):
            return limit
        runtime = min(forest.total(branch.tree_id).get(dim, 0), MAX_AMOUNT)
        trace = Trace()
        path = [branch.own(), *branch.own().ancestors()]
        for i in range(len(path) - 1, 0, -1):
            children = path[i].children
            trace = Trace()
            runtime = distribute(
                runtime,
                [int(child.lim[slot]) for child in children],
                [child.base(slot) for child in children],
                [int(child.weights[slot]) for child in children],
                [child.lends for child in children],
                trace,
            )[children.index(path[i - 1])]
        least = int(branch.own().minima[slot])
        return max(limit, runtime, min(runtime, least) if trace.scaled else least)

    def _wanted(self, state: State, beyond: dict[str, list[int]]) -> dict[str, list[int]]:
        """Of that, what claims of the same tree wait for."""
        if not beyond:
            return beyond
        asked: dict[str, set[int]] = {}  # by tree: slots
        for alike in state.pending.values():
            binding = next(iter(alike.values())).binding_of(NAME)
            if binding is not None:
                self._note_waiting(binding, asked)
        found: dict[str, list[int]] = {}
        for key, over in beyond.items():
            slots = asked.get(self.derived.forest.branches[key].tree_id, set())
            wanted = [over[slot] if slot in slots else 0 for slot in range(len(over))]
            if any(wanted):
                found[key] = wanted
        return found

    def _note_waiting(self, binding: Binding, asked: dict[str, set[int]]) -> None:
        """Notes what claims with this binding ask for, if they count and are within the runtime of their quota."""
        forest = self.derived.forest
        branch = forest.branches[binding.accounts[1].name]
        if not binding.data[COUNTED_AT] or branch.built_in or not forest.is_connected(branch):
            return
        slots: set[int] = set()
        own = branch.own()
        account = binding.accounts[1 if branch.inner is None else 0]
        for dim in binding.costs[0].indices():
            slot = forest.slot_of(dim)
            if account.used.get(dim) + binding.costs[0].get(dim) > int(own.runtime[slot]):
                return
            slots.add(slot)
        asked.setdefault(branch.tree_id, set()).update(slots)

    # Victims

    def _revoke(self, state: State, branch: Branch, over: list[int]) -> list[Revocation]:
        sentence = self._sentence(branch, over)
        candidates = [claim for claim in branch.members.least_important_first() if self._may_go(branch, claim)]
        amounts = {claim.uid: self._amounts(claim) for claim in candidates}
        return [Revocation(claim.uid, REASON, sentence) for claim in choose(amounts, candidates, over)]

    def _may_go(self, branch: Branch, claim: Claim) -> bool:
        """Whether the claim runs on a node of the tree, and the engine lets it go."""
        there = not claim.spec.placeable or self.derived.node_pools.is_in(claim.place, branch.tree_id)
        return there and claim.state >= RESERVED and not self.rules.protection(claim)

    def _amounts(self, claim: Claim) -> list[int]:
        """What a claim uses, by slot."""
        amounts = [0] * len(self.derived.forest.dims)
        for i in range(len(claim.spec.quota_requests.dims)):
            slot = self.derived.forest.slot_of(int(claim.spec.quota_requests.dims[i]))
            if slot >= 0:
                amounts[slot] = int(claim.spec.quota_requests.amounts[i])
        return amounts

    def _sentence(self, branch: Branch, over: list[int]) -> str:
        parts: list[str] = []
        for slot in range(len(over)):
            if over[slot]:
                resource = dimension_at(self.derived.forest.dims[slot])
                limit = resource.show(self._limit_of_all(branch, slot))
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
