"""What binds a claim: the quota that it belongs to, those above it, and what it costs in each.

A quota counts the resources of its max. Bindings are shared by claims that cost the same in the same quota; the cache
is bounded, and starts anew when quotas change in what bindings depend on.
"""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.claims import PENDING, Binding, Claim
from bursar.ledger.state import State
from bursar.policies.pools.books import FIRM, OWN, Books
from bursar.policies.pools.branch import NO_MAX, Branch
from bursar.policies.pools.names import DEFAULT, NAME, SYSTEM
from bursar.policies.pools.quotas import Quota
from bursar.vectors import Vector

_CACHED: Final = 65_536

# Positions in a binding's data, which begins with the name of the quota
TREE_AT: Final = 1
COUNTED_AT: Final = 2  # whether its demand counts
STRAY_AT: Final = 3  # its label names no quota
FIRM_AT: Final = 4  # it may not be preempted


@final
class Bindings:
    """The bindings of all claims."""

    __slots__ = ("books", "cache", "cached_version")

    def __init__(self, books: Books) -> None:
        self.books: Final = books
        self.cache: Final[dict[tuple[str, Vector, int], Binding]] = {}
        self.cached_version: int = 0

    def of(self, state: State, claim: Claim) -> Binding | None:
        """The binding of a claim as it is now; None: it belongs to no quota."""
        quota = self.books.resolver.resolve(claim)
        if quota is None:
            return None
        branch = self.books.forest.branch(quota.tree, quota.name)
        firm = not claim.spec.preemptible
        stray = self.books.resolver.is_stray(claim, quota)
        counted = claim.state != PENDING or self._countable(branch, claim)
        if self.cached_version != self.books.version or len(self.cache) >= _CACHED:
            self.cache.clear()
            self.cached_version = self.books.version
        key = (branch.key, claim.spec.requests, int(firm) + 2 * int(stray) + 4 * int(counted))
        found = self.cache.get(key)
        if found is None:
            found = self._new(state, branch, quota, claim.spec.requests, (counted, stray, firm))
            self.cache[key] = found
        return found

    def _new(
        self, state: State, branch: Branch, quota: Quota, requests: Vector, flags: tuple[bool, bool, bool]
    ) -> Binding:
        accounts = [state.accounts[branch.key + OWN]]
        own = _managed(quota, requests)
        costs = [own]
        for at in self.books.forest.path(branch):
            accounts.append(state.accounts[at.key])
            cost = requests if at.quota is None else _managed(at.quota, requests)
            costs.append(own if cost == own else cost)  # one vector where it is the same: journals are shorter
        if flags[2]:
            accounts.append(state.accounts[branch.key + FIRM])
            costs.append(own)
        data = (quota.name, quota.tree, *flags)
        return Binding(NAME, tuple(accounts), tuple(costs), data)

    def _countable(self, branch: Branch, claim: Claim) -> bool:
        """Demand that could never be granted is none: above a max, or more than any node of the tree has."""
        requests = claim.spec.requests
        for at in self.books.forest.path(branch):
            for i in range(len(requests.dims)):
                slot = self.books.forest.slot_of(int(requests.dims[i]))
                if slot >= 0 and at.maxima[slot] != NO_MAX and requests.amounts[i] > at.maxima[slot]:
                    return False
        if branch.aside or not claim.spec.placeable:
            return True
        return self.books.grounds.could_take(branch.tree_id, requests)


def binding_of(claim: Claim) -> Binding | None:
    """What the claim is bound to here."""
    for binding in claim.bindings:
        if binding is not None and binding.policy == NAME:
            return binding
    return None


def _managed(quota: Quota, requests: Vector) -> Vector:
    """What counts there: the resources of its max; all of them in the quotas outside of the distribution."""
    return requests if quota.name in (SYSTEM, DEFAULT) else requests.only(quota.keys())
