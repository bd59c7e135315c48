"""One quota in its tree, with all that is derived for it: demand going up, runtime coming down.

Amounts are kept in lists over *slots*, one slot for each resource that any quota manages (see ``forest``).

Upwards, at once: a change of demand runs from the quota to the root, and stops where a max swallows it. A parent's
own pods are an implicit child of it (``inner``), so that they share with the children instead of over their heads.

Downwards, when somebody asks: a branch whose children's inputs changed is *stale*; what it has is then distributed
among them anew (see ``runtimes``).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account, Ordered
from bursar.policies.pools.settings import PoolQuotaBody
from bursar.quantity import MAX_AMOUNT

NO_MAX: Final = -1


@final
class Branch:
    """A quota, the implicit child of a quota, or the root of a tree."""

    __slots__ = (
        "account",
        "allocated",
        "aside",
        "askers",
        "below",
        "children",
        "firm_own",
        "firm_request",
        "firm_taken",
        "firm_used",
        "guaranteed",
        "inner",
        "key",
        "lends",
        "lim",
        "maxima",
        "members",
        "minima",
        "moved",
        "name",
        "order",
        "own",
        "parent",
        "quota",
        "request",
        "runtime",
        "scaled",
        "seen_base",
        "seen_lim",
        "shared",
        "stale",
        "taken",
        "touched",
        "touches",
        "tree_id",
        "weights",
        "whole",
    )

    def __init__(self, tree_id: str, name: str, key: str, size: int) -> None:
        self.tree_id: Final = tree_id
        self.name: Final = name
        self.key: Final = key  # the name of its account
        self.quota: PoolQuotaBody | None = None  # None: removed, root, or the implicit child
        self.account: Account | None = None
        self.parent: Branch | None = None
        self.children: Final[list[Branch]] = []  # sorted by name, the implicit child first among equals
        self.inner: Branch | None = None
        self.aside: bool = False  # served before anything is shared, and not held to a runtime
        self.lends: bool = True
        self.askers: Final[dict[str, Claim]] = {}  # claims whose demand is counted here
        self.members: Final[dict[str, Claim]] = {}  # claims that count here, by uid
        self.order: Ordered | None = None
        self.maxima: vec[i64] = filled(size, NO_MAX)
        self.minima: vec[i64] = filled(size, 0)
        self.weights: vec[i64] = filled(size, 0)
        self.own: list[int] = [0] * size  # demand of its own pods
        self.below: list[int] = [0] * size  # that and what its children ask for
        self.request: list[int] = [0] * size
        self.lim: vec[i64] = filled(size, 0)  # the request, capped by max: what the parent sees
        self.taken: list[int] = [0] * size  # in use by its own pods
        self.allocated: list[int] = [0] * size
        self.guaranteed: vec[i64] = filled(size, 0)
        self.firm_own: list[int] = [0] * size  # of pods that may not be preempted
        self.firm_request: list[int] = [0] * size
        self.firm_taken: list[int] = [0] * size
        self.firm_used: list[int] = [0] * size
        self.runtime: vec[i64] = filled(size, 0)
        self.scaled: list[bool] = [False] * size  # the children's needs did not fit
        self.seen_lim: vec[i64] = filled(size, 0)  # what the last distribution used
        self.seen_base: vec[i64] = filled(size, 0)
        self.shared: vec[i64] = filled(size, 0)  # what it last distributed
        self.touched: bool = False
        self.touches: Final[list[Branch]] = []  # children to compare
        self.whole: bool = True  # everything is to be distributed anew
        self.stale: bool = False
        self.moved: bool = False  # its runtime changed in the distribution that is under way

    def __repr__(self) -> str:
        return f"Branch({self.key})"

    def grow(self, size: int) -> None:
        """Make room for new slots."""
        while len(self.own) < size:
            self.scaled.append(False)
            for amounts in (self.own, self.below, self.request, self.taken, self.allocated):
                amounts.append(0)
            for firm in (self.firm_own, self.firm_request, self.firm_taken, self.firm_used):
                firm.append(0)
            self.whole = True
        self.maxima = grown(self.maxima, size, NO_MAX)
        self.minima = grown(self.minima, size, 0)
        self.weights = grown(self.weights, size, 0)
        self.lim = grown(self.lim, size, 0)
        self.guaranteed = grown(self.guaranteed, size, 0)
        self.runtime = grown(self.runtime, size, 0)
        self.seen_lim = grown(self.seen_lim, size, 0)
        self.seen_base = grown(self.seen_base, size, 0)
        self.shared = grown(self.shared, size, 0)

    def depth(self) -> int:
        above = self.parent
        count = 0
        while above is not None:
            above = above.parent
            count += 1
        return count

    def top(self) -> Branch:
        found = self
        while found.parent is not None:
            found = found.parent
        return found

    def base(self, slot: int) -> int:
        """What it needs before anything is shared: its min, or more that is guaranteed to it."""
        return max(int(self.minima[slot]), int(self.guaranteed[slot]))

    def floor(self, slot: int) -> int:
        """The min in effect: scaled down where the siblings' needs did not fit."""
        least = int(self.minima[slot])
        if self.parent is not None and self.parent.scaled[slot]:
            return min(int(self.runtime[slot]), least)
        return least

    # From scratch

    def sum_up(self, guarantee: bool) -> None:
        """Compute all that comes from below, after the quota or the children changed."""
        for slot in range(len(self.own)):
            below = 0
            allocated = 0
            for child in self.children:
                below += int(child.lim[slot])
                allocated += int(child.guaranteed[slot])
            if self.inner is None:
                below += self.own[slot]
                allocated += self.taken[slot]
            self.below[slot] = below
            self.ask_for(slot)
            self.allocated[slot] = allocated if guarantee else 0
            self.keep(slot, guarantee)
            self._sum_firm(slot)

    def _sum_firm(self, slot: int) -> None:
        request = self.firm_own[slot]
        used = self.firm_taken[slot]
        for child in self.children:
            request += child.firm_request[slot]
            used += child.firm_used[slot]
        self.firm_request[slot] = request
        self.firm_used[slot] = used

    def ask_for(self, slot: int) -> int:
        """Compute the request, and what of it the parent sees; returns by how much the latter changed."""
        request = max(self.below[slot], 0 if self.lends else int(self.minima[slot]))
        self.request[slot] = request
        most = int(self.maxima[slot])
        if most == NO_MAX:
            most = MAX_AMOUNT  # nobody asks for more than can be counted
        lim = min(request, most)
        more = lim - int(self.lim[slot])
        self.lim[slot] = i64(lim)
        return more

    def keep(self, slot: int, guarantee: bool) -> int:
        """Compute what is guaranteed; returns by how much it changed."""
        kept = min(max(self.allocated[slot], int(self.minima[slot])), MAX_AMOUNT) if guarantee else 0
        more = kept - int(self.guaranteed[slot])
        self.guaranteed[slot] = i64(kept)
        return more

    # Children

    def link(self, child: Branch) -> None:
        """Put the child in its place by name; the caller carries on what it asks for."""
        at = bisect_left([other.name for other in self.children], child.name)
        if at < len(self.children) and self.children[at] is self.inner and child.name == self.name:
            at += 1
        self.children.insert(at, child)
        child.parent = self

    def unlink(self, child: Branch) -> None:
        self.children.remove(child)
        child.parent = None
        if child.touched:
            child.touched = False
            self.touches.remove(child)

    def touch(self, child: Branch) -> bool:
        """An input of the child changed; True if the branch was not stale before."""
        if not child.touched:
            child.touched = True
            self.touches.append(child)
        fresh = not self.stale
        self.stale = True
        return fresh

    # Claims

    def join(self, claim: Claim) -> None:
        self.members[claim.uid] = claim
        if self.order is not None:
            self.order.add(importance(claim))

    def quit(self, claim: Claim) -> None:
        del self.members[claim.uid]
        if self.order is not None:
            try:
                self.order.remove(importance(claim))
            except KeyError:
                self.order = None  # its priority changed while it counted: sort anew when asked

    def least_important_first(self) -> list[Claim]:
        if self.order is None:
            self.order = Ordered()
            for claim in self.members.values():
                self.order.add(importance(claim))
        return [self.members[str(key[-1])] for key in self.order.keys()]  # noqa: SIM118 - no dictionary


def filled(size: int, value: int) -> vec[i64]:
    return grown(vec[i64](), size, value)


def grown(amounts: vec[i64], size: int, value: int) -> vec[i64]:
    while len(amounts) < size:
        amounts = append(amounts, i64(value))
    return amounts


def importance(claim: Claim) -> tuple[object, ...]:
    """Sorts the least important first: lower priority, then newer, then by name."""
    return (claim.spec.priority, -claim.created, claim.namespace, claim.name, claim.uid)
