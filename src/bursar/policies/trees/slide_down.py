"""Slide-down: at the end of an operation, claims that borrow move back down as far as there is room.

One pass from the root down is enough: a claim that moves down still counts in the node that it left. On each node
claims of higher priority move first, then those that are longest there.

The pass looks only at what the operation touched: children that got room, and claims that came to their node in it.
All other claims could not move down at the end of the operation before, and still cannot.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import cast

from bursar.ledger.transaction import Transaction
from bursar.policies.trees.model import QuotaTreeModel, Trees
from bursar.policies.trees.tree_nodes import TreeAllocation, TreeNode
from bursar.resources import Vector

Mover = tuple[object, ...]
"""(-priority, stamp, uid): claims of one node move in this order. Kept boxed: it is compared, never computed with."""


def slide_down(trees: Trees, tx: Transaction) -> None:
    """Settle all trees that were touched."""
    dirty = trees.dirty
    if not dirty:
        return
    trees.dirty = []
    if len(dirty) > 1:
        dirty.sort(key=_name)
    for tree in dirty:
        _settle(trees, tx, tree)
        tree.freed.clear()
        tree.moved.clear()
        tree.dirty = False


def _name(tree: QuotaTreeModel) -> str:
    return tree.name


def _is_settled(tree: QuotaTreeModel) -> bool:
    """A quick check that no claim can move: none waits for a node that got room, no newcomer fits further down."""
    for name in tree.freed:
        node = tree.nodes.get(name)
        while node is not None and node.parent is not None:
            if node.name in node.parent.down:
                return False
            node = node.parent
    for uid in tree.moved:
        allocation = tree.allocations.get(uid)
        if allocation is None or allocation.group is None or allocation.group is allocation.node:
            continue
        if allocation.node.toward(allocation.group).fits(allocation.request.cost):
            return False
    return True


def _settle(trees: Trees, tx: Transaction, tree: QuotaTreeModel) -> None:
    if _is_settled(tree):
        return
    freed = _freed_children(tree)
    arrived: dict[str, list[TreeAllocation]] = {}
    for uid in tree.moved:
        allocation = tree.allocations.get(uid)
        if allocation is not None:
            arrived.setdefault(allocation.node.name, []).append(allocation)
    todo = [(tree.nodes[name].depth, name) for name in {*freed, *arrived}]
    heapify(todo)
    while todo:
        depth, name = heappop(todo)
        node = tree.nodes[name]
        children = freed.pop(name, [])
        movers = _choose(tx, tree, node, children, arrived.pop(name, []))
        movers.sort()
        for mover in movers:
            allocation = tree.allocations[cast("str", mover[2])]
            child = node.toward(cast("TreeNode", allocation.group))
            trees.remember(tree, allocation)
            trees.arrive(tx, tree, allocation.claim.uid, child)
            if child.name not in arrived and child.name not in freed:
                heappush(todo, (depth + 1, child.name))
            arrived.setdefault(child.name, []).append(tree.allocations[allocation.claim.uid])


def _freed_children(tree: QuotaTreeModel) -> dict[str, list[TreeNode]]:
    """By parent: the children that got room and have claims waiting for it."""
    found: dict[str, list[TreeNode]] = {}
    seen: set[str] = set()
    for name in sorted(tree.freed):
        node = tree.nodes.get(name)
        while node is not None and node.name not in seen:
            seen.add(node.name)
            parent = node.parent
            if parent is not None and node.name in parent.down:
                found.setdefault(parent.name, []).append(node)
            node = parent
    return found


def _choose(
    tx: Transaction, tree: QuotaTreeModel, node: TreeNode, children: list[TreeNode], arrived: list[TreeAllocation]
) -> list[Mover]:
    """The claims that move down from a node. Each is charged to the child at once."""
    movers: list[Mover] = []
    open_to_all: set[str] = set()
    for child in children:
        open_to_all.add(child.name)
        if child.name in node.down:
            _pull(tx, tree, node, child, movers)
    newcomers: list[Mover] = []
    for allocation in arrived:
        group = allocation.group
        if group is not None and group is not node and node.toward(group).name not in open_to_all:
            newcomers.append((-allocation.request.priority, allocation.stamp, allocation.claim.uid))
    newcomers.sort()
    for mover in newcomers:
        allocation = tree.allocations[cast("str", mover[2])]
        child = node.toward(cast("TreeNode", allocation.group))
        if child.fits(allocation.request.cost):
            tx.charge(allocation.claim, (child.account,), (allocation.request.cost,))
            movers.append(mover)
    return movers


def _pull(tx: Transaction, tree: QuotaTreeModel, node: TreeNode, child: TreeNode, movers: list[Mover]) -> None:
    """Let the claims that wait for a child into it, in order.

    Each round takes the first that fits. A claim that was passed over will not fit later: room only shrinks here.
    """
    waiting = node.down[child.name]
    if waiting.hopeless(child.account):
        return
    costs = list(waiting.shapes.keys())
    heads: list[Mover | None] = [queue.chunks[0][0] for queue in waiting.shapes.values()]
    taken: dict[int, Iterator[Mover]] = {}
    while not waiting.hopeless(child.account):
        at = _first(child, costs, heads)
        if at < 0:
            return
        mover = cast("Mover", heads[at])
        tx.charge(tree.allocations[cast("str", mover[2])].claim, (child.account,), (costs[at],))
        movers.append(mover)
        if at not in taken:
            taken[at] = iter(waiting.shapes[costs[at]])
            next(taken[at])
        heads[at] = next(taken[at], None)


def _first(child: TreeNode, costs: list[Vector], heads: list[Mover | None]) -> int:
    """Which of the heads comes first among those that fit the child; -1 if none does."""
    found = -1
    best: Mover = ()
    for i in range(len(heads)):
        head = heads[i]
        if head is not None and (found < 0 or head < best) and child.fits(costs[i]):
            found = i
            best = head
    return found
