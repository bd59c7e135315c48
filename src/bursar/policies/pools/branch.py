"""One quota in its tree, with all that is derived for it: demand going up, runtime coming down.

Amounts are kept in lists over *slots*, one slot for each resource that any quota manages (see ``forest``).

Upwards, at once: a change of demand runs from the quota to the root, and stops where a max swallows it. A parent's
own pods are an implicit child of it (``inner``), so that they share with the children instead of over their heads.

Downwards, when somebody asks: a branch whose children's inputs changed is *stale*; ``share`` then distributes what it
has among all its children at once, only in the resources in which an input differs from the one used last. A change
that was taken back in between therefore costs nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, final

from mypy_extensions import i64

from bursar.ledger.accounts import Account
from bursar.ledger.claims import Claim
from bursar.ledger.ordered import Ordered
from bursar.policies.pools.quotas import Quota
from bursar.policies.pools.rounds import Sharing
from bursar.policies.pools.sharing import Trace, distribute

NO_MAX: Final = -1
_HUGE: Final = 2**62


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
        self.quota: Quota | None = None  # None: removed, root, or the implicit child
        self.account: Account | None = None
        self.parent: Branch | None = None
        self.children: Final[list[Branch]] = []  # sorted by name, the implicit child first among equals
        self.inner: Branch | None = None
        self.aside: bool = False  # served before anything is shared, and not held to a runtime
        self.lends: bool = True
        self.askers: Final[dict[str, Claim]] = {}  # claims whose demand is counted here
        self.members: Final[dict[str, Claim]] = {}  # claims that count here, by uid
        self.order: Ordered | None = None
        self.maxima: list[int] = [NO_MAX] * size
        self.minima: list[int] = [0] * size
        self.weights: list[int] = [0] * size
        self.own: list[int] = [0] * size  # demand of its own pods
        self.below: list[int] = [0] * size  # that and what its children ask for
        self.request: list[int] = [0] * size
        self.lim: list[int] = [0] * size  # the request, capped by max: what the parent sees
        self.taken: list[int] = [0] * size  # in use by its own pods
        self.allocated: list[int] = [0] * size
        self.guaranteed: list[int] = [0] * size
        self.firm_own: list[int] = [0] * size  # of pods that may not be preempted
        self.firm_request: list[int] = [0] * size
        self.firm_taken: list[int] = [0] * size
        self.firm_used: list[int] = [0] * size
        self.runtime: list[int] = [0] * size
        self.scaled: list[bool] = [False] * size  # the children's needs did not fit
        self.seen_lim: list[int] = [0] * size  # what the last distribution used
        self.seen_base: list[int] = [0] * size
        self.shared: list[int] = [0] * size  # what it last distributed
        self.touched: bool = False
        self.touches: Final[list[Branch]] = []  # children to compare
        self.whole: bool = True  # everything is to be distributed anew
        self.stale: bool = False

    def __repr__(self) -> str:
        return f"Branch({self.key})"

    def grow(self, size: int) -> None:
        """Make room for new slots."""
        while len(self.own) < size:
            self.maxima.append(NO_MAX)
            self.scaled.append(False)
            for amounts in self._lists():
                amounts.append(0)
            self.whole = True

    def _lists(self) -> list[list[int]]:
        return [
            self.minima,
            self.weights,
            self.own,
            self.below,
            self.request,
            self.lim,
            self.taken,
            self.allocated,
            self.guaranteed,
            self.firm_own,
            self.firm_request,
            self.firm_taken,
            self.firm_used,
            self.runtime,
            self.seen_lim,
            self.seen_base,
            self.shared,
        ]

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
        return max(self.minima[slot], self.guaranteed[slot])

    # From scratch

    def sum_up(self, guarantee: bool) -> None:
        """Compute all that comes from below, after the quota or the children changed."""
        for slot in range(len(self.own)):
            below = 0
            allocated = 0
            for child in self.children:
                below += child.lim[slot]
                allocated += child.guaranteed[slot]
            if self.inner is None:
                below += self.own[slot]
                allocated += self.taken[slot]
            self.below[slot] = below
            self.request[slot] = self._request(slot)
            self.lim[slot] = self._lim(slot)
            if guarantee:
                self.allocated[slot] = allocated
                self.guaranteed[slot] = max(allocated, self.minima[slot])
            else:
                self.allocated[slot] = 0
                self.guaranteed[slot] = 0
            self._sum_firm(slot)

    def _sum_firm(self, slot: int) -> None:
        request = self.firm_own[slot]
        used = self.firm_taken[slot]
        for child in self.children:
            request += child.firm_request[slot]
            used += child.firm_used[slot]
        self.firm_request[slot] = request
        self.firm_used[slot] = used

    def _request(self, slot: int) -> int:
        below = self.below[slot]
        return below if self.lends or below > self.minima[slot] else self.minima[slot]

    def _lim(self, slot: int) -> int:
        most = self.maxima[slot]
        return self.request[slot] if most == NO_MAX or self.request[slot] < most else most

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

    # Distribution

    def share(self) -> list[Branch]:
        """Distribute what it has among its children; returns those whose runtime changed."""
        changed: list[Branch] = []
        for slot in self._stale_slots():
            self._share_slot(slot, changed)
        for child in self.touches:
            child.touched = False
        self.touches.clear()
        self.whole = False
        self.stale = False
        return changed

    def _stale_slots(self) -> list[int]:
        if self.whole:
            return list(range(len(self.own)))
        found: list[int] = []
        for slot in range(len(self.own)):
            differs = self.shared[slot] != self.runtime[slot]
            if not differs:
                for child in self.touches:
                    if child.seen_lim[slot] != child.lim[slot] or child.seen_base[slot] != child.base(slot):
                        differs = True
                        break
            if differs:
                found.append(slot)
        return found

    def _share_slot(self, slot: int, changed: list[Branch]) -> None:
        sharing = Sharing()
        total = self.runtime[slot]
        self.shared[slot] = total
        huge = total >= _HUGE
        for child in self.children:
            lim = child.lim[slot]
            base = max(child.minima[slot], child.guaranteed[slot])
            weight = child.weights[slot]
            child.seen_lim[slot] = lim
            child.seen_base[slot] = base
            if huge or lim >= _HUGE or base >= _HUGE or weight >= _HUGE:
                huge = True
            else:
                sharing.add(i64(lim), i64(lim if child.lends and lim < base else base), i64(weight))
        if huge or not sharing.fits(i64(total)) or not sharing.run(i64(total)):
            self._share_huge(slot, changed)
            return
        self.scaled[slot] = total < int(sharing.needed)
        grants = sharing.grants
        for i in range(len(self.children)):
            self._grant(self.children[i], slot, int(grants[i]), changed)

    def _share_huge(self, slot: int, changed: list[Branch]) -> None:
        """The same in integers of any size."""
        trace = Trace()
        children = self.children
        found = distribute(
            self.runtime[slot],
            [child.lim[slot] for child in children],
            [child.base(slot) for child in children],
            [child.weights[slot] for child in children],
            [child.lends for child in children],
            trace,
        )
        self.scaled[slot] = trace.scaled
        for i in range(len(children)):
            self._grant(children[i], slot, found[i], changed)

    def _grant(self, child: Branch, slot: int, amount: int, changed: list[Branch]) -> None:
        if child.runtime[slot] != amount:
            child.runtime[slot] = amount
            changed.append(child)

    def floor(self, slot: int) -> int:
        """The min in effect: scaled down where the siblings' needs did not fit."""
        if self.parent is not None and self.parent.scaled[slot]:
            return min(self.runtime[slot], self.minima[slot])
        return self.minima[slot]

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


def importance(claim: Claim) -> tuple[object, ...]:
    """Sorts the least important first: lower priority, then newer, then by name."""
    return (claim.spec.priority, -claim.created, claim.namespace, claim.name, claim.uid)
