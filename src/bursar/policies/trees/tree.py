"""A tree as decisions see it: nodes with their accounts, and the seats of claims in order.

Everything here is derived from the ledger: the shape from the tree's cell, the seats from the cells of the table
``trees.at/<tree>`` (uid -> (node, stamp)) and the claims' bindings. A seat is where a claim is placed: it counts there
and in every node above, in the nodes' accounts.

References go up only (a node knows its ancestors, never its children or seats), so that an old tree is freed at once.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.ledger.accounts import Account
from bursar.ledger.claims import Claim
from bursar.ledger.ordered import Ordered
from bursar.policies.trees.asks import NAME, Ask, Counted
from bursar.policies.trees.bodies import Layout, TreeBody
from bursar.vectors import Vector

AT: Final = "trees.at/"
_SHAPES_KEPT: Final = 65_536


@final
class Waiting:
    """Claims that sit on a node and belong below one child of it: by what they ask for, (-priority, stamp, uid)."""

    __slots__ = ("dims", "least", "shapes")

    def __init__(self) -> None:
        self.shapes: Final[dict[Vector, Ordered]] = {}
        # Of the resources that all of them ask for, an amount that none goes below. It may be out of date when
        # somebody has left, and then is only less sharp.
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
        """Whether the account has too little for any of them, seen without looking at them."""
        for i in range(len(self.dims)):
            dim = self.dims[i]
            if account.used.get(dim) + self.least[i] > account.limits.get(dim):
                return True
        return False


@final
class Node:
    """One node. ``accounts`` are those from here up to the root."""

    __slots__ = ("above", "account", "accounts", "depth", "down", "hard", "leaf", "name", "order", "parent")

    def __init__(self, name: str, parent: Node | None, hard: bool, account: Account) -> None:
        self.name: Final = name
        self.parent: Final = parent
        self.hard: Final = hard
        self.account: Final = account
        self.depth: Final[int] = 0 if parent is None else parent.depth + 1
        self.above: Final[tuple[Node, ...]] = () if parent is None else (parent, *parent.above)
        self.accounts: Final[tuple[Account, ...]] = (account, *[node.account for node in self.above])
        self.leaf: bool = True
        self.order: Final = Ordered()  # who sits here: (priority, stamp, uid)
        # Who sits here and belongs below, by child.
        self.down: Final[dict[str, Waiting]] = {}

    def toward(self, group: Node) -> Node:
        """The child of this node on the way down to a group below it."""
        at = group.depth - self.depth - 2
        return group if at < 0 else group.above[at]

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
class Seat:
    """Where a claim is placed in one tree."""

    __slots__ = ("ask", "claim", "group", "node", "stamp")

    def __init__(self, claim: Claim, ask: Ask, node: Node, group: Node | None, stamp: int) -> None:
        self.claim: Final = claim
        self.ask: Final = ask
        self.node: Final = node
        self.group: Final = group  # None: its group is no longer a node of the tree
        self.stamp: Final = stamp


@final
class Tree:
    """One tree and who sits where."""

    __slots__ = (
        "body",
        "dangling",
        "freed",
        "moved",
        "name",
        "nodes",
        "restless",
        "root",
        "seats",
        "shapes",
        "table",
    )

    def __init__(self, name: str, body: TreeBody, found: Layout, accounts: dict[str, Account]) -> None:
        self.name: Final = name
        self.body: Final = body
        self.table: Final = AT + name
        self.dangling: Final = found.dangling
        self.nodes: Final[dict[str, Node]] = {}
        for spec in found.order:
            parent = self.nodes[spec.parent] if spec.parent else None
            if parent is not None:
                parent.leaf = False
            self.nodes[spec.name] = Node(spec.name, parent, spec.hard, accounts[account_name(name, spec.name)])
        self.root: Final[Node | None] = self.nodes[found.root] if found.root else None
        self.seats: Final[dict[str, Seat]] = {}
        self.shapes: Final[dict[Vector, Counted]] = {}
        # Hints for the next slide-down. One too many costs time and changes nothing, so they need no undo.
        self.restless: bool = False  # there are any
        self.freed: set[str] = set()  # nodes that got room, with all above them
        self.moved: set[str] = set()  # uids that came to another node

    def counted(self, request: Vector) -> Counted:
        """What a request counts in this tree: the resources that the tree names."""
        found = self.shapes.get(request)
        if found is None:
            if len(self.shapes) >= _SHAPES_KEPT:
                self.shapes.clear()
            found = Counted(request, self.body.resources)
            self.shapes[request] = found
        return found

    def warnings(self) -> tuple[str, ...]:
        """Resources of the tree that a node's quota leaves out: there they have no limit."""
        lacking = [(n, r) for n in self.nodes for r in self.body.resources if r not in self.body.nodes[n].quota]
        return tuple([f"the quota of node {node} leaves out {name}: it is unlimited there" for node, name in lacking])

    def sit(self, seat: Seat) -> None:
        uid = seat.claim.uid
        node = seat.node
        ask = seat.ask
        self.seats[uid] = seat
        node.order.add((ask.priority, seat.stamp, uid))
        if seat.group is not None and seat.group is not node:
            child = node.toward(seat.group).name
            waiting = node.down.get(child)
            if waiting is None:
                waiting = Waiting()
                node.down[child] = waiting
            waiting.add(ask.cost, (-ask.priority, seat.stamp, uid))

    def rise(self, uid: str) -> None:
        seat = self.seats.pop(uid)
        node = seat.node
        ask = seat.ask
        node.order.remove((ask.priority, seat.stamp, uid))
        if seat.group is not None and seat.group is not node:
            child = node.toward(seat.group).name
            waiting = node.down[child]
            waiting.remove(ask.cost, (-ask.priority, seat.stamp, uid))
            if not waiting.shapes:
                del node.down[child]

    def seated(self, node: Node) -> list[Seat]:
        """Who sits on a node: lower priority first, then longest there."""
        return [self.seats[cast("str", key[2])] for key in node.order]


def account_name(tree: str, node: str) -> str:
    return f"{NAME}/{tree}/{node}"
