"""A tree as decisions see it: nodes with their accounts, and the seats of claims in order.

Everything here is derived from the ledger: the shape from the tree's cell, the seats from the cells of the table
``trees.at/<tree>`` (uid -> (node, stamp)) and the claims' bindings. A seat is where a claim is placed: it counts there
and in every node above, in the nodes' accounts.

References go up only (a node knows its ancestors, never its children or seats), so that an old tree is freed at once.

All trees of a ledger, derived from its cells, and the few writes that everything else here is made of.

Tables: ``trees.spec`` (tree -> its document), and for each tree ``trees.at/<tree>`` (uid -> (node, stamp)). A stamp is
taken by every arrival at a node, so that "longest on its node" is a comparison of numbers, and so that undo and replay
restore the order too.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.ledger.claims import Binding, Claim
from bursar.ledger.state import Account, Ordered, State
from bursar.ledger.transaction import Transaction
from bursar.policies.trees.records import (
    NAME,
    Ask,
    Counted,
    Entry,
    Layout,
    TreeBody,
    ask_of,
    body_of,
    entries,
    layout,
    tree_binding,
)
from bursar.resources import Vector

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
class TreeNode:
    """One node. ``accounts`` are those from here up to the root."""

    __slots__ = ("above", "account", "accounts", "depth", "down", "hard", "leaf", "name", "order", "parent")

    def __init__(self, name: str, parent: TreeNode | None, hard: bool, account: Account) -> None:
        self.name: Final = name
        self.parent: Final = parent
        self.hard: Final = hard
        self.account: Final = account
        self.depth: Final[int] = 0 if parent is None else parent.depth + 1
        self.above: Final[tuple[TreeNode, ...]] = () if parent is None else (parent, *parent.above)
        self.accounts: Final[tuple[Account, ...]] = (account, *[node.account for node in self.above])
        self.leaf: bool = True
        self.order: Final = Ordered()  # who sits here: (priority, stamp, uid)
        # Who sits here and belongs below, by child.
        self.down: Final[dict[str, Waiting]] = {}

    def toward(self, group: TreeNode) -> TreeNode:
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

    def __init__(self, claim: Claim, ask: Ask, node: TreeNode, group: TreeNode | None, stamp: int) -> None:
        self.claim: Final = claim
        self.ask: Final = ask
        self.node: Final = node
        self.group: Final = group  # None: its group is no longer a node of the tree
        self.stamp: Final = stamp


@final
class QuotaTreeModel:
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
        self.nodes: Final[dict[str, TreeNode]] = {}
        for spec in found.order:
            parent = self.nodes[spec.parent] if spec.parent else None
            if parent is not None:
                parent.leaf = False
            self.nodes[spec.name] = TreeNode(spec.name, parent, spec.hard, accounts[account_name(name, spec.name)])
        self.root: Final[TreeNode | None] = self.nodes[found.root] if found.root else None
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

    def seated(self, node: TreeNode) -> list[Seat]:
        """Who sits on a node: lower priority first, then longest there."""
        return [self.seats[cast("str", key[2])] for key in node.order]


def account_name(tree: str, node: str) -> str:
    return f"{NAME}/{tree}/{node}"


SPEC: Final = "trees.spec"
_KEPT: Final = 65_536


@final
class Trees:
    """The trees by name. Changed only by ``cell_changed``."""

    __slots__ = ("bindings", "by_name", "by_table", "origins", "restless", "state")

    def __init__(self, state: State) -> None:
        self.state: Final = state
        self.by_name: Final[dict[str, QuotaTreeModel]] = {}
        self.restless: list[QuotaTreeModel] = []  # trees in which somebody may slide down, each once
        self.by_table: Final[dict[str, QuotaTreeModel]] = {}  # the same, by the table of their seats
        self.bindings: Final[dict[tuple[Entry, ...], Binding]] = {}
        self.origins: Final[dict[tuple[str, str], str]] = {}  # (tree, uid) -> where it was before this operation

    # Following the ledger

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        if table == SPEC:
            self._rebuild(key, new)
            return
        tree = self.by_table.get(table)
        if tree is not None:
            if old is not None:
                tree.rise(key)
            if new is not None:
                self._sit(tree, key, new)

    def _rebuild(self, name: str, cell: object) -> None:
        self.by_name.pop(name, None)
        self.by_table.pop(AT + name, None)
        self.restless = [tree for tree in self.restless if tree.name != name]
        self.bindings.clear()  # a claim that is bound anew must get another binding, or nobody looks at its seats
        if cell is None:
            return
        body = body_of(cell)
        tree = QuotaTreeModel(name, body, layout(body), self.state.accounts)
        self.by_name[name] = tree
        self.by_table[tree.table] = tree
        for uid, seat in self.state.cells(tree.table).items():
            self._sit(tree, uid, seat)

    def _sit(self, tree: QuotaTreeModel, uid: str, cell: object) -> None:
        place, stamp = cast("tuple[str, int]", cell)
        claim = self.state.claims[uid]
        for ask in self.asks(tree_binding(claim)):
            if ask.tree == tree.name:
                tree.sit(Seat(claim, ask, tree.nodes[place], tree.nodes.get(ask.group), stamp))

    # Shared values

    def asks(self, binding: Binding | None) -> tuple[Ask, ...]:
        """What a binding asks of each of its trees."""
        if binding is None:
            return ()
        if binding.parsed is None:
            binding.parsed = tuple([ask_of(entry) for entry in entries(binding)])
        return cast("tuple[Ask, ...]", binding.parsed)

    def binding(self, data: tuple[Entry, ...]) -> Binding:
        """The binding with this data, one for all claims that have the same."""
        found = self.bindings.get(data)
        if found is None:
            if len(self.bindings) >= _KEPT:
                self.bindings.clear()
            found = Binding(NAME, (), (), data)
            self.bindings[data] = found
        return found

    # Writing

    def arrive(self, tx: Transaction, tree: QuotaTreeModel, uid: str, node: TreeNode) -> None:
        """The claim comes to a node; counting it is the caller's."""
        tree.moved.add(uid)
        self.stir(tree)
        tx.put(NAME, tree.table, uid, (node.name, tx.moment()))

    def enter(self, tx: Transaction, tree: QuotaTreeModel, claim: Claim, cost: Vector, node: TreeNode) -> None:
        """The claim takes a seat, and counts from there up."""
        self.arrive(tx, tree, claim.uid, node)
        tx.charge(claim, node.accounts, node.costs(cost))

    def resume(
        self, tx: Transaction, tree: QuotaTreeModel, claim: Claim, cost: Vector, node: TreeNode, stamp: int
    ) -> None:
        """The claim takes a seat that it had, with the stamp that it had."""
        tree.moved.add(claim.uid)
        self.stir(tree)
        tx.put(NAME, tree.table, claim.uid, (node.name, stamp))
        tx.charge(claim, node.accounts, node.costs(cost))

    def leave(self, tx: Transaction, tree: QuotaTreeModel, seat: Seat) -> None:
        """The claim gives up its seat and no longer counts in the tree."""
        node = seat.node
        claim = seat.claim
        self._freed(tree, node)
        tx.put(NAME, tree.table, claim.uid, None)
        tx.release(claim, node.accounts, node.costs(seat.ask.cost))

    def lift(self, tx: Transaction, tree: QuotaTreeModel, seat: Seat, parent: TreeNode) -> None:
        """The claim moves one node up, where it counted already."""
        self.remember(tree, seat)
        self._freed(tree, seat.node)
        tx.release(seat.claim, (seat.node.account,), (seat.ask.cost,))
        self.arrive(tx, tree, seat.claim.uid, parent)

    def remember(self, tree: QuotaTreeModel, seat: Seat) -> None:
        """Note where a claim was before this operation, for the report of moves."""
        key = (tree.name, seat.claim.uid)
        if key not in self.origins:
            self.origins[key] = seat.node.name

    def _freed(self, tree: QuotaTreeModel, node: TreeNode) -> None:
        tree.freed.add(node.name)
        self.stir(tree)

    def stir(self, tree: QuotaTreeModel) -> None:
        if not tree.restless:
            tree.restless = True
            self.restless.append(tree)

    def seat(self, tree: str, uid: str) -> Seat | None:
        found = self.by_name.get(tree)
        return None if found is None else found.seats.get(uid)
