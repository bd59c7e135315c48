"""What pods outside of all quotas use, by the tree of the node on which each runs.

Such pods belong to the default or the system quota, which have no share in any tree. What they use is taken from what
the tree of their node distributes; a pod without a node, or on a node that is not listed, from the default tree. It
costs no pod its place: revocation looks at what the tree has in all.

The sums are kept by node, so when a node moves to another tree, they move with it.
"""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.claims import Claim
from bursar.policies.pools.node_pools import NodePools
from bursar.policies.pools.settings import DEFAULT_TREE
from bursar.resources import EMPTY, Vector

Sums = dict[int, int]
"""By dimension."""

_NONE: Final[Sums] = {}


@final
class OutsideUse:
    """Follows the charges and places of the claims of the default and the system quota."""

    def __init__(self, node_pools: NodePools) -> None:
        self.node_pools: Final = node_pools
        self.costs: Final[dict[str, Vector]] = {}  # by uid of these claims
        self.by_node: Final[dict[str, Sums]] = {}  # "" for claims without a node
        self.by_tree: Final[dict[str, Sums]] = {}

    def of(self, tree: str) -> Sums:
        """What they use in a tree; read only."""
        return self.by_tree.get(tree, _NONE)

    def charged(self, claim: Claim, cost: Vector, sign: int) -> None:
        """The claim counts (1) or no longer counts (-1) in one of these quotas."""
        if sign > 0:
            self.costs[claim.uid] = cost
        else:
            self.costs.pop(claim.uid, None)
        self._count(claim.place, cost, sign)

    def placed(self, claim: Claim, old: str, new: str) -> None:
        """A claim is at another place now."""
        cost = self.costs.get(claim.uid, EMPTY)
        if cost:
            self._count(old, cost, -1)
            self._count(new, cost, 1)

    def leave_tree(self, node: str) -> None:
        """The node is about to change; ``enter_tree`` follows."""
        self._count_tree(node, -1)

    def enter_tree(self, node: str) -> None:
        """The node has its tree."""
        self._count_tree(node, 1)

    def sum_up(self) -> None:
        """Any node may have another tree now."""
        self.by_tree.clear()
        for node in self.by_node:
            self.enter_tree(node)

    def _count_tree(self, node: str, sign: int) -> None:
        sums = self.by_node.get(node, _NONE)
        for dim in sums:
            _shift(self.by_tree, self._tree_of(node), dim, sums[dim] * sign)

    def _count(self, node: str, cost: Vector, sign: int) -> None:
        for dim in cost.indices():
            _shift(self.by_node, node, dim, cost.get(dim) * sign)
            _shift(self.by_tree, self._tree_of(node), dim, cost.get(dim) * sign)

    def _tree_of(self, node: str) -> str:
        owner = self.node_pools.owners.get(node)
        return DEFAULT_TREE if owner is None else self.node_pools.tree_of(owner)


def _shift(sums: dict[str, Sums], key: str, dim: int, amount: int) -> None:
    """Adds to one sum. What is zero is not kept."""
    found = sums.setdefault(key, {})
    now = found.get(dim, 0) + amount
    if now:
        found[dim] = now
        return
    found.pop(dim, None)
    if not found:
        del sums[key]
