"""Allocation: one claim into its trees, all or nothing, with the claims that have to move or leave for it.

In one tree the claim climbs from its group to the root (``climb``). If that fails, claims of lower priority on the way
have to leave (``preemption``); in several trees they may have to be found together (``forests``). A victim leaves every
tree it holds at once. At the end each victim, the last one first, is put back if there is room: on the node where it
was before, or else as low as it fits. Only those that fit nowhere are preempted.

An allocation works inside the open transaction; one that fails leaves no trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from bursar.ledger.claims import Claim
from bursar.ledger.transaction import Transaction
from bursar.policies.policy import EvictionRules
from bursar.policies.trees.climb import Climb, Permission
from bursar.policies.trees.forests import find_together
from bursar.policies.trees.model import QuotaTreeModel, Trees
from bursar.policies.trees.preemption import find_victims
from bursar.policies.trees.records import TreeRequest, held_requests
from bursar.policies.trees.tree_nodes import TreeAllocation, TreeNode
from bursar.resources import Vector

_NO_RULES: Final = EvictionRules()


@final
@dataclass
class Victim:
    """A claim that had to leave, and the allocations that it had."""

    claim: Claim
    allocations: list[tuple[QuotaTreeModel, TreeAllocation]]


@final
class Allocator:
    """One attempt to allocate a claim."""

    __slots__ = ("claim", "climb", "failed", "origins", "permission", "preempting", "trees", "tx", "victims")

    def __init__(
        self,
        trees: Trees,
        tx: Transaction,
        claim: Claim,
        preempting: bool = True,
        rules: EvictionRules = _NO_RULES,
        protected: frozenset[str] = frozenset(),
    ) -> None:
        self.trees: Final = trees
        self.tx: Final = tx
        self.claim: Final = claim
        self.preempting: Final = preempting  # False: no claim may have to leave
        self.permission: Final = Permission(claim, rules, protected)
        self.victims: list[Victim] = []
        self.origins: Final[
            dict[tuple[str, str], TreeAllocation]
        ] = {}  # (tree, uid) -> its allocation before it was pushed
        self.failed: TreeRequest | None = None  # the request that could not be served
        self.climb: Climb | None = None  # and where its climb ended

    def run(self, requests: list[TreeRequest]) -> bool:
        """Allocate in all trees, in the given order; True leaves the claim allocated and its victims count."""
        if not self._allocate_all(requests):
            climbs = self._climbs(requests) if self.preempting and len(requests) > 1 else []
            victims = find_together(climbs) if climbs else []
            if not victims:
                return False
            failed, climb = self.failed, self.climb
            mark = self.tx.savepoint()
            for victim in victims:
                self._take_out(victim)
            if not self._allocate_all(requests):
                self.tx.rollback_to(mark)
                self.victims.clear()
                self.failed, self.climb = failed, climb
                return False
        self._spare_victims()
        return True

    def _allocate_all(self, requests: list[TreeRequest]) -> bool:
        """Tree by tree. If one refuses, nothing has changed but ``failed`` and ``climb``."""
        mark = self.tx.savepoint()
        count = len(self.victims)
        self.failed = None
        for request in requests:
            if not self._allocate(request):
                self.failed = request
                self.tx.rollback_to(mark)
                del self.victims[count:]
                return False
        return True

    def _climbs(self, requests: list[TreeRequest]) -> list[Climb]:
        """The climbs in all trees; none if a group is not a leaf."""
        found: list[Climb] = []
        for request in requests:
            tree = self.trees.by_name[request.tree]
            group = tree.nodes.get(request.group)
            if group is None or not group.leaf:
                return []
            found.append(Climb(tree, group, request, self.permission, True))
        return found

    # One tree

    def _allocate(self, request: TreeRequest) -> bool:
        tree = self.trees.by_name[request.tree]
        group = tree.nodes.get(request.group)
        if group is None or not group.leaf:
            return False
        if group.fits_up(request.cost):
            self.trees.enter(self.tx, tree, self.claim, request.cost, group)
            return True
        climb = Climb(tree, group, request, self.permission, self.preempting)
        if not climb.run() and not (self.preempting and find_victims(climb)):
            self.climb = climb
            return False
        self._apply(tree, request, climb)
        return True

    def _apply(self, tree: QuotaTreeModel, request: TreeRequest, climb: Climb) -> None:
        """Carry out what the climb worked out."""
        for allocation in climb.gone.values():
            self._take_out(allocation.claim)
        settled = climb.nodes[0]
        for push in climb.pushes:
            if push.allocation is not None:
                self._push(tree, push.allocation.claim, push.node)
            elif push.node is not None:
                self.trees.arrive(self.tx, tree, self.claim.uid, push.node)
                settled = push.node
        self.tx.charge(self.claim, settled.accounts, settled.costs(request.cost))

    def _push(self, tree: QuotaTreeModel, claim: Claim, target: TreeNode | None) -> None:
        if target is None:
            self._take_out(claim)
            return
        allocation = tree.allocations[claim.uid]
        self.origins.setdefault((tree.name, claim.uid), allocation)
        self.trees.lift(self.tx, tree, allocation, target)

    def _take_out(self, victim: Claim) -> None:
        """Take a victim out of every tree it holds."""
        held = [request.tree for request in held_requests(victim)]
        left = self.trees.leave_all(self.tx, victim, held)
        if self.origins:
            left = [(tree, self.origins.get((tree.name, victim.uid), allocation)) for tree, allocation in left]
        self.victims.append(Victim(victim, left))

    # Minimal harm

    def _spare_victims(self) -> None:
        """Put victims back where there is room for them after all, the last one first."""
        if self.victims:
            lost = [victim for victim in reversed(self.victims) if not self._put_back(victim)]
            lost.reverse()
            self.victims = lost

    def _put_back(self, victim: Victim) -> bool:
        mark = self.tx.savepoint()
        for tree, allocation in victim.allocations:
            if not allocate_again(self.trees, self.tx, tree, allocation):
                self.tx.rollback_to(mark)
                return False
            self.trees.remember(tree, allocation)
        return True


def allocate_again(trees: Trees, tx: Transaction, tree: QuotaTreeModel, allocation: TreeAllocation) -> bool:
    """Allocate a claim on its old node with its old stamp, or else as low as it fits. False if it fits nowhere."""
    cost = allocation.request.cost
    if tree.root is None or not tree.root.fits(cost):
        return False  # it counts there on any node
    if allocation.node.fits_up(cost):
        trees.enter(tx, tree, allocation.claim, cost, allocation.node, allocation.stamp)
        return True
    node = lowest_fit(allocation.group, cost)
    if node is None:
        return False
    trees.enter(tx, tree, allocation.claim, cost, node)
    return True


def lowest_fit(group: TreeNode | None, cost: Vector) -> TreeNode | None:
    """The lowest node, from the group up and never over a hard one, where the cost fits up to the root."""
    node = group
    while node is not None:
        if node.fits_up(cost):
            return node
        node = None if node.hard else node.parent
    return None
