"""Allocation: one claim into its trees, all or nothing, with whatever has to move or leave for it.

In one tree the claim climbs from its group to the root and settles on the lowest node that serves it:

* where it wants to settle, claims of lower priority are pushed one node up; above, whoever sits in the way is (an owner
  takes back what others borrow); who is pushed out of the root leaves the tree and is a victim;
* a hard node lets nobody out, and ends the climb;
* if climbing fails, claims of lower priority on the way are evicted one by one until it works.

Order: lower priority first, then longest on the node. Of those chosen on a node, whoever is not needed is dropped, from
the last one back. A victim leaves every tree it holds at once. At the end each victim, the last one first, is put back
if there is room: on its old place, or else as low as it fits; only who finds none is preempted.

A plan works inside the open transaction; one that fails leaves no trace.
"""

from __future__ import annotations

from typing import Final, cast, final

from mypy_extensions import mypyc_attr

from bursar.ledger.claims import Claim
from bursar.ledger.transaction import Transaction
from bursar.policies.trees.model import QuotaTreeModel, Seat, TreeNode, Trees
from bursar.policies.trees.records import Ask, is_pinned, tree_binding
from bursar.resources import Vector


@mypyc_attr(allow_interpreted_subclasses=True)
class Bar:
    """Who may not displace whom, for reasons that are not the tree's."""

    def forbids(self, claimant: Claim, victim: Claim) -> bool:
        return False


@final
class Departure:
    """A victim, and where it sat."""

    __slots__ = ("claim", "seats")

    def __init__(self, claim: Claim, seats: list[tuple[QuotaTreeModel, Seat]]) -> None:
        self.claim: Final = claim
        self.seats: Final = seats


@final
class Allocation:
    """One attempt to allocate a claim."""

    __slots__ = ("bar", "claim", "departed", "failed", "last", "preempting", "trees", "tx")

    def __init__(self, trees: Trees, tx: Transaction, claim: Claim, preempting: bool, bar: Bar) -> None:
        self.trees: Final = trees
        self.tx: Final = tx
        self.claim: Final = claim
        self.preempting: Final = preempting  # False: nobody may have to leave
        self.bar: Final = bar
        self.departed: list[Departure] = []
        self.failed: Ask | None = None  # the ask that could not be served
        self.last: TreeNode | None = None  # where its climb ended

    def run(self, asks: list[Ask]) -> bool:
        """Allocate in all trees, in the given order; True leaves the claim seated and its victims gone."""
        mark = self.tx.savepoint()
        for ask in asks:
            if not self._allocate(ask):
                self.failed = ask
                self.tx.rollback_to(mark)
                self.departed = []
                return False
        self._spare()
        return True

    # One tree

    def _allocate(self, ask: Ask) -> bool:
        tree = self.trees.by_name[ask.tree]
        group = tree.nodes.get(ask.group)
        if group is None or not group.leaf:
            self.last = group
            return False
        return self._climb(tree, group, ask) or (self.preempting and self._evict(tree, group, ask))

    def _climb(self, tree: QuotaTreeModel, group: TreeNode, ask: Ask) -> bool:
        mark = self.tx.savepoint()
        gone = len(self.departed)
        settled: TreeNode | None = None
        hard = False
        node: TreeNode | None = group
        while node is not None:
            self.last = node
            hard = hard or node.hard
            if node.fits(ask.cost) or self._clear(tree, node, ask, settled is None):
                if settled is None:
                    settled = node
                    self.trees.arrive(self.tx, tree, self.claim.uid, node)
            elif settled is None:
                if node.hard:
                    return False
            else:
                self._back_to(mark, gone)
                settled = None
                if hard:
                    return False
            node = node.parent
        if settled is None:
            return False
        self.tx.charge(self.claim, settled.accounts, settled.costs(ask.cost))
        return True

    def _back_to(self, mark: int, gone: int) -> None:
        self.tx.rollback_to(mark)
        del self.departed[gone:]

    def _clear(self, tree: QuotaTreeModel, node: TreeNode, ask: Ask, lower_only: bool) -> bool:
        """Make room on a node by pushing others up; no effect when that is not enough."""
        parent = node.parent
        if not node.order.size or (node.hard and parent is not None) or (parent is None and not self.preempting):
            return False
        if lower_only and cast("int", node.order.chunks[0][0][0]) >= ask.priority:
            return False
        chosen = self._choose(tree, node, ask, lower_only)
        for seat in chosen:
            if parent is None:
                self._depart(seat.claim)
            else:
                self.trees.lift(self.tx, tree, seat, parent)
        return len(chosen) > 0

    def _choose(self, tree: QuotaTreeModel, node: TreeNode, ask: Ask, lower_only: bool) -> list[Seat]:
        """Whom to push off a node so that the ask fits; empty when nobody helps."""
        need = Need(node, ask)
        chosen: list[Seat] = []
        for chunk in node.order.chunks:  # nothing moves meanwhile
            for key in chunk:
                seat = tree.seats[cast("str", key[2])]
                if lower_only and seat.ask.priority >= ask.priority:
                    return []
                if need.helps(seat) and (node.parent is not None or self._may_displace(seat, ask)):
                    chosen.append(seat)
                    if need.take(seat):
                        return _needed(need, chosen)
        return []

    def _may_displace(self, seat: Seat, ask: Ask) -> bool:
        victim = seat.claim
        return seat.ask.kind == ask.kind and not is_pinned(victim) and not self.bar.forbids(self.claim, victim)

    # Eviction

    def _evict(self, tree: QuotaTreeModel, group: TreeNode, ask: Ask) -> bool:
        """Take away claims of lower priority on the way, least important first, until the climb works."""
        last = self.last
        if last is None:
            return False
        mark = self.tx.savepoint()
        gone = len(self.departed)
        need = Need(last, ask)
        waiting: list[Seat] = []
        for seat in self._evictable(tree, group, last, ask):
            waiting.append(seat)
            if not need.take(seat):
                continue  # no use to try before the node where it failed has room
            for victim in waiting:
                self._depart(victim.claim)
            waiting = []
            if self._climb(tree, group, ask):
                return True
        self._back_to(mark, gone)
        self.last = last
        return False

    def _evictable(self, tree: QuotaTreeModel, group: TreeNode, last: TreeNode, ask: Ask) -> list[Seat]:
        found: list[tuple[int, int, str]] = []
        node: TreeNode | None = group
        while node is not None:
            for key in node.order:
                seat = tree.seats[str(key[2])]
                if seat.ask.priority >= ask.priority:
                    break
                if self._may_displace(seat, ask):
                    found.append((seat.ask.priority, seat.stamp, seat.claim.uid))
            node = None if node is last else node.parent
        found.sort()
        return [tree.seats[uid] for _, _, uid in found]

    def _depart(self, victim: Claim) -> None:
        """The victim leaves every tree it holds."""
        seats: list[tuple[QuotaTreeModel, Seat]] = []
        for ask in self.trees.asks(tree_binding(victim)):
            tree = self.trees.by_name.get(ask.tree)
            seat = None if tree is None else tree.seats.get(victim.uid)
            if tree is not None and seat is not None:
                self.trees.leave(self.tx, tree, seat)
                seats.append((tree, seat))
        self.departed.append(Departure(victim, seats))

    # Minimal harm

    def _spare(self) -> None:
        """Put victims back where there is room for them after all, the last one first."""
        lost = [departure for departure in reversed(self.departed) if not self._put_back(departure)]
        lost.reverse()
        self.departed = lost

    def _put_back(self, departure: Departure) -> bool:
        mark = self.tx.savepoint()
        for tree, seat in departure.seats:
            if not reseat(self.trees, self.tx, tree, seat):
                self.tx.rollback_to(mark)
                return False
            self.trees.remember(tree, seat)
        return True


def reseat(trees: Trees, tx: Transaction, tree: QuotaTreeModel, seat: Seat) -> bool:
    """Seat a claim again: on its old node with its old stamp, or else as low as it fits; False if nowhere."""
    cost = seat.ask.cost
    if tree.root is None or not tree.root.fits(cost):
        return False  # wherever it sits, it counts there
    if seat.node.fits_up(cost):
        trees.resume(tx, tree, seat.claim, cost, seat.node, seat.stamp)
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
    """What a node lacks for an ask, while others are taken off it."""

    __slots__ = ("dims", "lacking")

    def __init__(self, node: TreeNode, ask: Ask) -> None:
        used = node.account.used
        limits = node.account.limits
        cost = ask.cost
        self.dims: Final[list[int]] = []
        self.lacking: Final[list[int]] = []
        for i in range(len(cost.dims)):
            dim = int(cost.dims[i])
            over = used.get(dim) + int(cost.amounts[i]) - limits.get(dim)
            if over > 0:
                self.dims.append(dim)
                self.lacking.append(over)

    def helps(self, seat: Seat) -> bool:
        """Whether taking the seat away frees something that is still lacking at all."""
        cost = seat.ask.cost
        for dim in self.dims:
            if cost.get(dim) > 0:
                return True
        return False

    def take(self, seat: Seat) -> bool:
        """Count the seat as gone; whether nothing is lacking then."""
        return self._shift(seat, -1)

    def give_back(self, seat: Seat) -> bool:
        """Count it as there again; whether nothing is lacking even so."""
        return self._shift(seat, 1)

    def _shift(self, seat: Seat, sign: int) -> bool:
        cost = seat.ask.cost
        met = True
        for i in range(len(self.dims)):
            lacking = self.lacking[i] + sign * cost.get(self.dims[i])
            self.lacking[i] = lacking
            met = met and lacking <= 0
        return met


def _needed(need: Need, chosen: list[Seat]) -> list[Seat]:
    """The chosen without those that are not needed, dropped from the last one back."""
    if len(chosen) == 1:
        return chosen  # without it nothing was met
    kept: list[Seat] = []
    for seat in reversed(chosen):
        if not need.give_back(seat):
            need.take(seat)
            kept.append(seat)
    kept.reverse()
    return kept
