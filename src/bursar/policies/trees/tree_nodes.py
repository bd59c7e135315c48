"""The nodes of a tree and the claims that are allocated on them, in the orders in which decisions ask for them.

An allocation is a claim on the node on which it counts. It counts in every node above it too, in the nodes' accounts.

The claims on a node are listed by classes: alike in priority, type, whether they may be victims, and the resources that
they hold. With the sums of each class a decision sees whether it is of any use to look at the claims one by one.

References go up only (a node knows its ancestors, never its children or allocations), so that an old tree is freed
at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from typing import Final, cast, final

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account, Ordered
from bursar.policies.trees.records import TreeRequest
from bursar.resources import Tally, Vector


@final
class AllocationClass:
    """Claims on one node that are alike: (stamp, uid) in order, and what they hold together."""

    __slots__ = ("dims", "kind", "order", "pinned", "priority", "sums")

    def __init__(self, request: TreeRequest) -> None:
        self.priority: Final = request.priority
        self.kind: Final = request.kind
        self.pinned: Final = request.pinned
        self.dims: Final = request.cost.indices()
        self.order: Final = Ordered()
        self.sums: Final = Tally()

    def holds(self, dims: list[int]) -> bool:
        """Whether the claims hold one of these resources."""
        for dim in self.dims:
            if dim in dims:
                return True
        return False

    def first(self) -> str:
        """The uid of the one that is longest on the node."""
        return cast("str", self.order.chunks[0][0][1])

    def precedes(self, other: AllocationClass) -> bool:
        """Whether its first one comes before the other's: lower priority, or longer on the node."""
        if self.priority != other.priority:
            return self.priority < other.priority
        return self.order.chunks[0][0] < other.order.chunks[0][0]


def in_order(classes: list[AllocationClass]) -> Iterator[str]:
    """The uids of these classes: lower priority first, then longest on its node. Nothing may move meanwhile."""
    classes = sorted(classes, key=_priority)
    at = 0
    while at < len(classes):
        alike = [classes[at]]
        while at + len(alike) < len(classes) and classes[at + len(alike)].priority == alike[0].priority:
            alike.append(classes[at + len(alike)])
        at += len(alike)
        if len(alike) == 1:
            for chunk in alike[0].order.chunks:
                for key in chunk:
                    yield cast("str", key[1])
        else:
            for key in merge(*[iter(one.order) for one in alike]):
                yield cast("str", key[1])


def _priority(one: AllocationClass) -> int:
    return one.priority


@final
class Waiting:
    """Claims that count on a node and belong below one child of it: by their request, (-priority, stamp, uid)."""

    __slots__ = ("dims", "least", "shapes")

    def __init__(self) -> None:
        self.shapes: Final[dict[Vector, Ordered]] = {}
        # A lower bound of what each of them requests, in the resources that all of them request. After a claim has
        # left it may be lower than need be.
        self.dims: list[int] = []
        self.least: list[int] = []

    def add(self, cost: Vector, key: tuple[object, ...]) -> None:
        queue = self.shapes.get(cost)
        if queue is None:
            self._lower(cost)
            queue = Ordered()
            self.shapes[cost] = queue
        queue.add(key)

    def remove(self, cost: Vector, key: tuple[object, ...]) -> None:
        queue = self.shapes[cost]
        queue.remove(key)
        if not queue.size:
            del self.shapes[cost]

    def _lower(self, cost: Vector) -> None:
        if not self.shapes:
            self.dims = cost.indices()
            self.least = [cost.get(dim) for dim in self.dims]
            return
        kept: list[int] = []
        least: list[int] = []
        for i in range(len(self.dims)):
            amount = cost.get(self.dims[i])
            if amount > 0:
                kept.append(self.dims[i])
                least.append(min(amount, self.least[i]))
        self.dims = kept
        self.least = least

    def hopeless(self, account: Account) -> bool:
        """Whether the account has too little for each of them, by their lower bound."""
        for i in range(len(self.dims)):
            dim = self.dims[i]
            if account.used.get(dim) + self.least[i] > account.limits.get(dim):
                return True
        return False


@final
class TreeNode:
    """One node. ``accounts`` are those from here up to the root."""

    __slots__ = (
        "above",
        "account",
        "accounts",
        "classes",
        "count",
        "depth",
        "down",
        "hard",
        "leaf",
        "name",
        "parent",
    )

    def __init__(self, name: str, parent: TreeNode | None, hard: bool, account: Account) -> None:
        self.name: Final = name
        self.parent: Final = parent
        self.hard: Final = hard
        self.account: Final = account
        self.depth: Final[int] = 0 if parent is None else parent.depth + 1
        self.above: Final[tuple[TreeNode, ...]] = () if parent is None else (parent, *parent.above)
        self.accounts: Final[tuple[Account, ...]] = (account, *[node.account for node in self.above])
        self.leaf: bool = True
        self.count: int = 0  # the claims that count here
        self.classes: Final[dict[tuple[object, ...], AllocationClass]] = {}  # those claims, by class
        self.down: Final[dict[str, Waiting]] = {}  # those of them that belong below, by child

    def toward(self, group: TreeNode) -> TreeNode:
        """The child of this node on the way down to a group below it."""
        at = group.depth - self.depth - 2
        return group if at < 0 else group.above[at]

    def add(self, request: TreeRequest, stamp: int, uid: str) -> None:
        alike = request.alike()
        found = self.classes.get(alike)
        if found is None:
            found = AllocationClass(request)
            self.classes[alike] = found
        found.order.add((stamp, uid))
        found.sums.add(request.cost)
        self.count += 1

    def remove(self, request: TreeRequest, stamp: int, uid: str) -> None:
        alike = request.alike()
        found = self.classes[alike]
        found.order.remove((stamp, uid))
        found.sums.take(request.cost)
        self.count -= 1
        if not found.order.size:
            del self.classes[alike]

    def costs(self, cost: Vector) -> tuple[Vector, ...]:
        """The cost once for each account from here to the root."""
        return (cost,) * len(self.accounts)

    def fits(self, cost: Vector) -> bool:
        return self.account.short_dimension(cost) < 0

    def fits_up(self, cost: Vector) -> bool:
        """Whether the cost fits here and in every node above."""
        for account in self.accounts:
            if account.short_dimension(cost) >= 0:
                return False
        return True


@final
class TreeAllocation:
    """A claim in one tree: the node on which it counts, and the group that it belongs to."""

    __slots__ = ("claim", "group", "node", "request", "stamp")

    def __init__(self, claim: Claim, request: TreeRequest, node: TreeNode, group: TreeNode | None, stamp: int) -> None:
        self.claim: Final = claim
        self.request: Final = request
        self.node: Final = node
        self.group: Final = group  # None: its group is no longer a node of the tree
        self.stamp: Final = stamp
