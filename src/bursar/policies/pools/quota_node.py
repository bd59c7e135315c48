"""One quota in its tree, with its requests and its runtime.

Amounts are lists over *slots*, one slot for each resource that any quota manages (see ``propagation``). A parent's own
pods are an implicit child (``inner``), which shares with the other children. A slot of a branch is *stale* while an
input of its children has changed and their runtimes have not been distributed again.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account
from bursar.policies.placement_kit import Residents
from bursar.policies.pools.settings import PoolQuotaBody
from bursar.quantity import MAX_AMOUNT

NO_MAX: Final = -1


@final
class Branch:
    """A quota, the implicit child of a quota, or the root of a tree."""

    def __init__(self, tree_id: str, name: str, key: str, size: int) -> None:
        self.tree_id: Final = tree_id
        self.name: Final = name
        self.key: Final = key  # the name of its account
        self.quota: PoolQuotaBody | None = None  # None: removed, root, or the implicit child
        self.account: Account | None = None
        self.parent: Branch | None = None
        self.children: Final[list[Branch]] = []  # sorted by name, the implicit child first among equals
        self.inner: Branch | None = None
        self.built_in: bool = False  # system or default quota: served first, and not limited by a runtime
        self.lends: bool = True
        self.askers: Final[dict[str, Claim]] = {}  # claims whose demand is counted here
        self.members: Final = Residents()  # claims that count here
        self.maxima: vec[i64] = filled(size, NO_MAX)
        self.minima: vec[i64] = filled(size, 0)
        self.weights: vec[i64] = filled(size, 0)
        self.own_request: list[int] = [0] * size  # demand of its own pods
        self.child_request: list[int] = [0] * size  # that and the limited requests of its children
        self.request: list[int] = [0] * size
        self.lim: vec[i64] = filled(size, 0)  # the request, limited by max, which counts for the parent
        self.own_used: list[int] = [0] * size  # by its own pods
        self.allocated: list[int] = [0] * size
        self.guaranteed: vec[i64] = filled(size, 0)
        self.non_preemptible_request: list[int] = [0] * size  # of its own pods and below
        self.non_preemptible_used: list[int] = [0] * size
        self.runtime: vec[i64] = filled(size, 0)
        self.scaled: list[bool] = [False] * size  # the children's needs did not fit
        # What it gets before anything is shared, and what it gets if there is enough for all.
        self.need: vec[i64] = filled(size, 0)
        self.want: vec[i64] = filled(size, 0)
        self.needed: list[int] = [0] * size  # the sums over its children
        self.wanted: list[int] = [0] * size
        self.stale: int = 0  # the slots to distribute again, as bits
        self.plenty: int = 0  # the slots in which each child got what it wants, as bits
        self.moved: list[Branch] = []  # children to look at where there is still plenty
        self.is_moved: bool = False
        self.is_shifted: bool = False  # its runtime changed, which is not noted yet

    def __repr__(self) -> str:
        return f"Branch({self.key})"

    def grow(self, size: int) -> None:
        """Makes room for new slots."""
        while len(self.own_request) < size:
            self.scaled.append(False)
            for amounts in (self.own_request, self.child_request, self.request, self.own_used, self.allocated):
                amounts.append(0)
            for amounts in (self.non_preemptible_request, self.non_preemptible_used, self.needed, self.wanted):
                amounts.append(0)
        self.maxima = grown(self.maxima, size, NO_MAX)
        self.minima = grown(self.minima, size, 0)
        self.weights = grown(self.weights, size, 0)
        self.lim = grown(self.lim, size, 0)
        self.guaranteed = grown(self.guaranteed, size, 0)
        self.runtime = grown(self.runtime, size, 0)
        self.need = grown(self.need, size, 0)
        self.want = grown(self.want, size, 0)

    def ancestors(self) -> list[Branch]:
        """Its parent first, the root of the tree last, unless the branch is loose."""
        found: list[Branch] = []
        above = self.parent
        while above is not None:
            found.append(above)
            above = above.parent
        return found

    def top(self) -> Branch:
        found = self
        while found.parent is not None:
            found = found.parent
        return found

    def child_quotas(self) -> list[Branch]:
        """Its children without the implicit child."""
        return [child for child in self.children if child is not self.inner]

    def own(self) -> Branch:
        """Where its own pods share: its implicit child if it is a parent."""
        return self if self.inner is None else self.inner

    def base(self, slot: int) -> int:
        """The larger of its min and what is guaranteed to it, which it gets before anything is shared."""
        return max(int(self.minima[slot]), int(self.guaranteed[slot]))

    def floor(self, slot: int) -> int:
        """The min in effect, which is scaled down where the needs of the siblings did not fit."""
        least = int(self.minima[slot])
        if self.parent is not None and self.parent.scaled[slot]:
            return min(int(self.runtime[slot]), least)
        return least

    # From scratch

    def sum_up(self, guarantee: bool) -> None:
        """Computes the request and the guaranteed amounts, after the quota or the children changed."""
        for slot in range(len(self.own_request)):
            request = 0
            allocated = 0
            for child in self.children:
                request += int(child.lim[slot])
                allocated += int(child.guaranteed[slot])
            if self.inner is None:
                request += self.own_request[slot]
                allocated += self.own_used[slot]
            self.child_request[slot] = request
            self.update_request(slot)
            self.allocated[slot] = allocated if guarantee else 0
            self.update_guaranteed(slot, guarantee)
            self.weigh(slot)

    def update_request(self, slot: int) -> int:
        """Computes the request and the limited request; returns by how much the latter changed."""
        request = max(self.child_request[slot], 0 if self.lends else int(self.minima[slot]))
        self.request[slot] = request
        most = int(self.maxima[slot])
        if most == NO_MAX:
            most = MAX_AMOUNT  # the largest amount that can be counted
        lim = min(request, most)
        more = lim - int(self.lim[slot])
        self.lim[slot] = i64(lim)
        return more

    def update_guaranteed(self, slot: int, guarantee: bool) -> int:
        """Computes what is guaranteed; returns by how much it changed."""
        now = min(max(self.allocated[slot], int(self.minima[slot])), MAX_AMOUNT) if guarantee else 0
        more = now - int(self.guaranteed[slot])
        self.guaranteed[slot] = i64(now)
        return more

    def weigh(self, number: int) -> bool:
        """Computes what it needs and wants, also in the sums of its parent; returns whether the need changed."""
        slot = i64(number)
        lim = self.lim[slot]
        need = self.minima[slot]
        if self.guaranteed[slot] > need:  # noqa: PLR1730 - max() of 64-bit integers boxes them
            need = self.guaranteed[slot]
        if self.lends and lim < need:
            need = lim
        want = lim if lim > need and self.weights[slot] > 0 else need
        above = self.parent
        if above is not None:
            above.needed[number] += int(need) - int(self.need[slot])
            above.wanted[number] += int(want) - int(self.want[slot])
        changed = need != self.need[slot]
        self.need[slot] = need
        self.want[slot] = want
        return changed

    # Children

    def move(self, child: Branch) -> None:
        """Notes a child that wants something else than at the last distribution."""
        if not child.is_moved:
            child.is_moved = True
            self.moved.append(child)

    def forget_moved(self) -> None:
        for child in self.moved:
            child.is_moved = False
        self.moved = []

    def link(self, child: Branch) -> None:
        """Inserts the child by name; the caller propagates its request."""
        at = bisect_left(self.children, child.name, key=_name_of)
        if at < len(self.children) and self.children[at] is self.inner and child.name == self.name:
            at += 1
        self.children.insert(at, child)
        child.parent = self
        self._add_up(child, 1)
        self.move(child)

    def unlink(self, child: Branch) -> None:
        self.children.remove(child)
        child.parent = None
        self._add_up(child, -1)
        if child.is_moved:
            child.is_moved = False
            self.moved.remove(child)

    def _add_up(self, child: Branch, sign: int) -> None:
        for slot in range(len(self.needed)):
            self.needed[slot] += sign * int(child.need[slot])
            self.wanted[slot] += sign * int(child.want[slot])


def _name_of(branch: Branch) -> str:
    return branch.name


def filled(size: int, value: int) -> vec[i64]:
    return grown(vec[i64](), size, value)


def grown(amounts: vec[i64], size: int, value: int) -> vec[i64]:
    while len(amounts) < size:
        amounts = append(amounts, i64(value))
    return amounts
