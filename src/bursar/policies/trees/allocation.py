"""Allocation: one claim into its trees, all or nothing, with the claims that have to move or leave for it.

In one tree the claim climbs from its group to the root and settles on the lowest node that serves it:

* where it wants to settle it pushes claims of lower priority one node up; above that it pushes any claim in the way
  (an owner takes back what others borrow); a claim that is pushed out of the root leaves the tree and is a victim;
* a hard node lets no claim out, and ends the climb;
* if climbing fails, claims of lower priority on the way are evicted one by one until it works.

Order: lower priority first, then longest on the node. Of the claims chosen on a node, those that are not needed are
dropped, from the last one back. A victim leaves every tree it holds at once. At the end each victim, the last one
first, is put back if there is room: on its old node, or else as low as it fits. Only those that fit nowhere are
preempted.

An allocation works inside the open transaction; one that fails leaves no trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast, final

from bursar.ledger.claims import Claim
from bursar.ledger.preemption_history import Lineages
from bursar.ledger.transaction import Transaction
from bursar.policies.trees.model import QuotaTreeModel, Seat, TreeNode, Trees
from bursar.policies.trees.records import TreeRequest, held_requests, is_pinned
from bursar.resources import Vector


@final
@dataclass
class Victim:
    """A claim that had to leave, and the seats that it had."""

    claim: Claim
    seats: list[tuple[QuotaTreeModel, Seat]]


@final
class Allocation:
    """One attempt to allocate a claim."""

    __slots__ = ("claim", "failed", "history", "last", "preempting", "protected", "trees", "tx", "victims")

    def __init__(
        self,
        trees: Trees,
        tx: Transaction,
        claim: Claim,
        preempting: bool = True,
        protected: frozenset[str] = frozenset(),
        history: Lineages | None = None,
    ) -> None:
        self.trees: Final = trees
        self.tx: Final = tx
        self.claim: Final = claim
        self.preempting: Final = preempting  # False: no claim may have to leave
        self.protected: Final = protected  # uids that may not be victims
        self.history: Final = history  # a claim never displaces one that displaced it
        self.victims: list[Victim] = []
        self.failed: TreeRequest | None = None  # the request that could not be served
        self.last: TreeNode | None = None  # where its climb ended

    def run(self, requests: list[TreeRequest]) -> bool:
        """Allocate in all trees, in the given order; True leaves the claim seated and its victims count."""
        mark = self.tx.savepoint()
        for request in requests:
            if not self._allocate(request):
                self.failed = request
                self._back_to(mark, 0)
                return False
        self._spare_victims()
        return True

    # One tree

    def _allocate(self, request: TreeRequest) -> bool:
        tree = self.trees.by_name[request.tree]
        group = tree.nodes.get(request.group)
        if group is None or not group.leaf:
            self.last = group
            return False
        return self._climb(tree, group, request) or (self.preempting and self._evict(tree, group, request))

    def _climb(self, tree: QuotaTreeModel, group: TreeNode, request: TreeRequest) -> bool:
        mark = self.tx.savepoint()
        count = len(self.victims)
        settled: TreeNode | None = None
        hard = False
        node: TreeNode | None = group
        while node is not None:
            self.last = node
            hard = hard or node.hard
            if node.fits(request.cost) or self._clear(tree, node, request, settled is None):
                if settled is None:
                    settled = node
                    self.trees.arrive(self.tx, tree, self.claim.uid, node)
            elif settled is None:
                if node.hard:
                    return False
            else:
                self._back_to(mark, count)
                settled = None
                if hard:
                    return False
            node = node.parent
        if settled is None:
            return False
        self.tx.charge(self.claim, settled.accounts, settled.costs(request.cost))
        return True

    def _back_to(self, mark: int, count: int) -> None:
        self.tx.rollback_to(mark)
        del self.victims[count:]

    def _clear(self, tree: QuotaTreeModel, node: TreeNode, request: TreeRequest, lower_only: bool) -> bool:
        """Make room on a node by pushing others up; no effect when that is not enough."""
        parent = node.parent
        if not node.order.size or (node.hard and parent is not None) or (parent is None and not self.preempting):
            return False
        if lower_only and cast("int", node.order.chunks[0][0][0]) >= request.priority:
            return False
        chosen = self._choose(tree, node, request, lower_only)
        for seat in chosen:
            if parent is None:
                self._take_out(seat.claim)
            else:
                self.trees.lift(self.tx, tree, seat, parent)
        return len(chosen) > 0

    def _choose(self, tree: QuotaTreeModel, node: TreeNode, request: TreeRequest, lower_only: bool) -> list[Seat]:
        """The seats to push off a node so that the request fits; empty if that cannot be."""
        need = Need(node, request)
        chosen: list[Seat] = []
        for chunk in node.order.chunks:  # nothing moves meanwhile
            for key in chunk:
                seat = tree.seats[cast("str", key[2])]
                if lower_only and seat.request.priority >= request.priority:
                    return []
                if need.helps(seat) and (node.parent is not None or self._may_displace(seat, request)):
                    chosen.append(seat)
                    if need.take(seat):
                        return _needed(need, chosen)
        return []

    def _may_displace(self, seat: Seat, request: TreeRequest) -> bool:
        victim = seat.claim
        if seat.request.kind != request.kind or victim.uid in self.protected or is_pinned(victim):
            return False
        return self.history is None or not self.history.barred(self.claim.uid, victim.uid)

    # Eviction

    def _evict(self, tree: QuotaTreeModel, group: TreeNode, request: TreeRequest) -> bool:
        """Evict claims of lower priority on the way, least important first, until the climb works."""
        last = self.last
        if last is None:
            return False
        mark = self.tx.savepoint()
        count = len(self.victims)
        need = Need(last, request)
        waiting: list[Seat] = []
        for seat in self._evictable(tree, group, last, request):
            waiting.append(seat)
            if not need.take(seat):
                continue  # no use to try before the node where it failed has room
            for victim in waiting:
                self._take_out(victim.claim)
            waiting = []
            if self._climb(tree, group, request):
                return True
        self._back_to(mark, count)
        self.last = last
        return False

    def _evictable(self, tree: QuotaTreeModel, group: TreeNode, last: TreeNode, request: TreeRequest) -> list[Seat]:
        found: list[tuple[int, int, str]] = []
        node: TreeNode | None = group
        while node is not None:
            for key in node.order:
                seat = tree.seats[str(key[2])]
                if seat.request.priority >= request.priority:
                    break
                if self._may_displace(seat, request):
                    found.append((seat.request.priority, seat.stamp, seat.claim.uid))
            node = None if node is last else node.parent
        found.sort()
        return [tree.seats[uid] for _, _, uid in found]

    def _take_out(self, victim: Claim) -> None:
        """Take a victim out of every tree it holds."""
        held = [request.tree for request in held_requests(victim)]
        self.victims.append(Victim(victim, self.trees.leave_all(self.tx, victim, held)))

    # Minimal harm

    def _spare_victims(self) -> None:
        """Put victims back where there is room for them after all, the last one first."""
        if self.victims:
            lost = [victim for victim in reversed(self.victims) if not self._put_back(victim)]
            lost.reverse()
            self.victims = lost

    def _put_back(self, victim: Victim) -> bool:
        mark = self.tx.savepoint()
        for tree, seat in victim.seats:
            if not reseat(self.trees, self.tx, tree, seat):
                self.tx.rollback_to(mark)
                return False
            self.trees.remember(tree, seat)
        return True


def reseat(trees: Trees, tx: Transaction, tree: QuotaTreeModel, seat: Seat) -> bool:
    """Seat a claim again: on its old node with its old stamp, or else as low as it fits. False if it fits nowhere."""
    cost = seat.request.cost
    if tree.root is None or not tree.root.fits(cost):
        return False  # it counts there on any node
    if seat.node.fits_up(cost):
        trees.enter(tx, tree, seat.claim, cost, seat.node, seat.stamp)
        return True
    node = lowest_fit(seat.group, cost)
    if node is None:
        return False
    trees.enter(tx, tree, seat.claim, cost, node)
    return True


def lowest_fit(group: TreeNode | None, cost: Vector) -> TreeNode | None:
    """The lowest node, from the group up and never over a hard one, where the cost fits up to the root."""
    node = group
    while node is not None:
        if node.fits_up(cost):
            return node
        node = None if node.hard else node.parent
    return None


@final
class Need:
    """What a node lacks for a request, while other claims are taken off it."""

    __slots__ = ("dims", "lacking")

    def __init__(self, node: TreeNode, request: TreeRequest) -> None:
        used = node.account.used
        limits = node.account.limits
        cost = request.cost
        self.dims: Final[list[int]] = []
        self.lacking: Final[list[int]] = []
        for i in range(len(cost.dims)):
            dim = int(cost.dims[i])
            over = used.get(dim) + int(cost.amounts[i]) - limits.get(dim)
            if over > 0:
                self.dims.append(dim)
                self.lacking.append(over)

    def helps(self, seat: Seat) -> bool:
        """Whether taking the seat away frees a resource that is lacking."""
        cost = seat.request.cost
        for dim in self.dims:
            if cost.get(dim) > 0:
                return True
        return False

    def take(self, seat: Seat) -> bool:
        """Count the seat as taken away; whether nothing is lacking then."""
        return self._shift(seat, -1)

    def give_back(self, seat: Seat) -> bool:
        """Count the seat as there again; whether nothing is lacking even so."""
        return self._shift(seat, 1)

    def _shift(self, seat: Seat, sign: int) -> bool:
        cost = seat.request.cost
        met = True
        for i in range(len(self.dims)):
            lacking = self.lacking[i] + sign * cost.get(self.dims[i])
            self.lacking[i] = lacking
            met = met and lacking <= 0
        return met


def _needed(need: Need, chosen: list[Seat]) -> list[Seat]:
    """The chosen seats without those that are not needed, dropped from the last one back."""
    if len(chosen) == 1:
        return chosen  # without it nothing was met
    kept: list[Seat] = []
    for seat in reversed(chosen):
        if not need.give_back(seat):
            need.take(seat)
            kept.append(seat)
    kept.reverse()
    return kept
