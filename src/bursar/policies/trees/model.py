"""The trees of a ledger as decisions see them: nodes with their accounts, and the allocations of claims.

Everything here is derived from two kinds of tables: ``trees.spec`` (tree -> its document) and, for each tree,
``trees.at/<tree>`` (uid -> (node, stamp)). Every arrival at a node takes a new stamp. So the order of arrival is a
comparison of numbers, and undo and replay restore it.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.ledger.claims import Binding, Claim
from bursar.ledger.state import Account, State, Watcher
from bursar.ledger.transaction import Transaction
from bursar.policies.trees.records import (
    NAME,
    Entry,
    Layout,
    TreeBody,
    TreeRequest,
    body_of,
    held_requests,
    layout,
)
from bursar.policies.trees.tree_nodes import TreeAllocation, TreeNode, Waiting, in_order
from bursar.resources import Vector

SPEC: Final = "trees.spec"
AT: Final = "trees.at/"
_KEPT: Final = 65_536  # entries of a cache


@final
class QuotaTreeModel:
    """One tree and its allocations."""

    __slots__ = (
        "allocations",
        "body",
        "dangling",
        "dirty",
        "freed",
        "moved",
        "name",
        "nodes",
        "root",
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
        self.allocations: Final[dict[str, TreeAllocation]] = {}
        self.shapes: Final[dict[Vector, Vector]] = {}  # request -> what of it the tree counts
        # Hints for the next slide-down. One too many costs time and changes nothing, so they need no undo.
        self.dirty: bool = False  # there are any
        self.freed: set[str] = set()  # nodes that got room, with all above them
        self.moved: set[str] = set()  # uids that came to another node

    def counted(self, request: Vector) -> Vector:
        """What of a request the tree counts: the resources that it names."""
        found = self.shapes.get(request)
        if found is None:
            if len(self.shapes) >= _KEPT:
                self.shapes.clear()
            found = request.only(self.body.resources)
            self.shapes[request] = found
        return found

    def warnings(self) -> tuple[str, ...]:
        """Resources of the tree that a node's quota leaves out: there they have no limit."""
        lacking = [(n, r) for n in self.nodes for r in self.body.resources if r not in self.body.nodes[n].quota]
        return tuple([f"the quota of node {node} leaves out {name}: it is unlimited there" for node, name in lacking])

    def add(self, allocation: TreeAllocation) -> None:
        uid = allocation.claim.uid
        node = allocation.node
        request = allocation.request
        self.allocations[uid] = allocation
        node.add(request, allocation.stamp, uid)
        if allocation.group is not None and allocation.group is not node:
            child = node.toward(allocation.group).name
            waiting = node.down.get(child)
            if waiting is None:
                waiting = Waiting()
                node.down[child] = waiting
            waiting.add(request.cost, (-request.priority, allocation.stamp, uid))

    def remove(self, uid: str) -> None:
        allocation = self.allocations.pop(uid)
        node = allocation.node
        request = allocation.request
        node.remove(request, allocation.stamp, uid)
        if allocation.group is not None and allocation.group is not node:
            child = node.toward(allocation.group).name
            waiting = node.down[child]
            waiting.remove(request.cost, (-request.priority, allocation.stamp, uid))
            if not waiting.shapes:
                del node.down[child]

    def allocated_on(self, node: TreeNode) -> list[TreeAllocation]:
        """The allocations on a node: lower priority first, then longest there."""
        return [self.allocations[uid] for uid in in_order(list(node.classes.values()))]


def account_name(tree: str, node: str) -> str:
    return f"{NAME}/{tree}/{node}"


@final
class Trees(Watcher):
    """The trees by name. Changed only by ``cell_changed``."""

    def __init__(self, state: State) -> None:
        self.state: Final = state
        self.by_name: Final[dict[str, QuotaTreeModel]] = {}
        self.by_table: Final[dict[str, QuotaTreeModel]] = {}  # the same, by the table of their allocations
        self.dirty: list[QuotaTreeModel] = []  # trees in which a claim may slide down, each once
        self.bindings: Final[dict[tuple[Entry, ...], Binding]] = {}
        self.origins: Final[dict[tuple[str, str], str]] = {}  # (tree, uid) -> its node before this operation

    # Following the ledger

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        if table == SPEC:
            self._rebuild(key, new)
            return
        tree = self.by_table.get(table)
        if tree is not None:
            if old is not None:
                tree.remove(key)
            if new is not None:
                self._add_allocation(tree, key, new)

    def _rebuild(self, name: str, cell: object) -> None:
        self.by_name.pop(name, None)
        self.by_table.pop(AT + name, None)
        self.dirty = [tree for tree in self.dirty if tree.name != name]
        self.bindings.clear()  # a claim that is bound again must get a new binding, or its allocations are not read
        if cell is None:
            return
        body = body_of(cell)
        tree = QuotaTreeModel(name, body, layout(body), self.state.accounts)
        self.by_name[name] = tree
        self.by_table[tree.table] = tree
        for uid, allocation in self.state.cells(tree.table).items():
            self._add_allocation(tree, uid, allocation)

    def _add_allocation(self, tree: QuotaTreeModel, uid: str, cell: object) -> None:
        place, stamp = cast("tuple[str, int]", cell)
        claim = self.state.claims[uid]
        for request in held_requests(claim):
            if request.tree == tree.name:
                tree.add(TreeAllocation(claim, request, tree.nodes[place], tree.nodes.get(request.group), stamp))

    # Reading

    def allocation(self, tree: str, uid: str) -> TreeAllocation | None:
        found = self.by_name.get(tree)
        return None if found is None else found.allocations.get(uid)

    def binding(self, requests: list[TreeRequest]) -> Binding:
        """The binding with these requests, one for all claims that have the same."""
        data = tuple([request.entry() for request in requests])
        found = self.bindings.get(data)
        if found is None:
            if len(self.bindings) >= _KEPT:
                self.bindings.clear()
            found = Binding(NAME, (), (), data)
            found.parsed = tuple(requests)
            self.bindings[data] = found
        return found

    # Writing

    def arrive(self, tx: Transaction, tree: QuotaTreeModel, uid: str, node: TreeNode, stamp: int = 0) -> None:
        """Put the claim on a node, with a new stamp or one that it had. The caller charges it."""
        tree.moved.add(uid)
        self.touch(tree)
        tx.put(NAME, tree.table, uid, (node.name, stamp or tx.moment()))

    def enter(
        self, tx: Transaction, tree: QuotaTreeModel, claim: Claim, cost: Vector, node: TreeNode, stamp: int = 0
    ) -> None:
        """Put the claim on a node and charge it from there up."""
        self.arrive(tx, tree, claim.uid, node, stamp)
        tx.charge(claim, node.accounts, node.costs(cost))

    def leave(self, tx: Transaction, tree: QuotaTreeModel, allocation: TreeAllocation) -> None:
        """Take the claim out of the tree and release it there."""
        node = allocation.node
        self._freed(tree, node)
        tx.put(NAME, tree.table, allocation.claim.uid, None)
        tx.release(allocation.claim, node.accounts, node.costs(allocation.request.cost))

    def leave_all(self, tx: Transaction, claim: Claim, names: list[str]) -> list[tuple[QuotaTreeModel, TreeAllocation]]:
        """Take the claim out of these trees; returns the allocations that it had."""
        found: list[tuple[QuotaTreeModel, TreeAllocation]] = []
        for name in names:
            tree = self.by_name.get(name)
            allocation = None if tree is None else tree.allocations.get(claim.uid)
            if tree is not None and allocation is not None:
                self.leave(tx, tree, allocation)
                found.append((tree, allocation))
        return found

    def lift(self, tx: Transaction, tree: QuotaTreeModel, allocation: TreeAllocation, parent: TreeNode) -> None:
        """Move the claim one node up, where it is charged already."""
        self.remember(tree, allocation)
        self._freed(tree, allocation.node)
        tx.release(allocation.claim, (allocation.node.account,), (allocation.request.cost,))
        self.arrive(tx, tree, allocation.claim.uid, parent)

    def remember(self, tree: QuotaTreeModel, allocation: TreeAllocation) -> None:
        """Note the claim's node before this operation, for the report of moves."""
        key = (tree.name, allocation.claim.uid)
        if key not in self.origins:
            self.origins[key] = allocation.node.name

    def _freed(self, tree: QuotaTreeModel, node: TreeNode) -> None:
        tree.freed.add(node.name)
        self.touch(tree)

    def touch(self, tree: QuotaTreeModel) -> None:
        """Let the end of the operation slide claims down in this tree."""
        if not tree.dirty:
            tree.dirty = True
            self.dirty.append(tree)
