"""Slide-down: once an operation has changed a tree, claims that borrow move back down as far as there is room.

Runs from the root down, once; on each node higher priority first, then longest there. Moving down changes nothing for
the node that is left (it counts the claim either way), so one pass reaches the end.

Only what an operation touched is looked at: children that got room, and claims that came to their node in it. Everybody
else could not move down when the operation before was over, and still cannot.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final, cast, final

from bursar.ledger.ordered import Ordered
from bursar.ledger.transactions import Transaction
from bursar.policies.trees.index import Trees
from bursar.policies.trees.tree import Node, Seat, Tree
from bursar.vectors import Vector

Mover = tuple[int, int, str]
"""(-priority, stamp, uid): the order in which claims of one node move."""


def slide_down(trees: Trees, tx: Transaction) -> None:
    """Settle all trees that were touched."""
    for name in sorted(trees.restless):
        tree = trees.by_name.get(name)
        if tree is not None:
            _settle(trees, tx, tree)
            tree.freed.clear()
            tree.moved.clear()
    trees.restless.clear()


def _rests(tree: Tree) -> bool:
    """Whether nobody can move, seen quickly: no node got room, and no newcomer fits further down."""
    if tree.freed:
        return False
    for uid in tree.moved:
        seat = tree.seats.get(uid)
        if seat is None or seat.group is None or seat.group is seat.node:
            continue
        if seat.node.toward(seat.group).fits(seat.ask.cost):
            return False
    return True


def _settle(trees: Trees, tx: Transaction, tree: Tree) -> None:
    if _rests(tree):
        return
    freed = _freed_children(tree)
    arrived: dict[str, list[Seat]] = {}
    for uid in tree.moved:
        seat = tree.seats.get(uid)
        if seat is not None:
            arrived.setdefault(seat.node.name, []).append(seat)
    todo = [(tree.nodes[name].depth, name) for name in {*freed, *arrived}]
    heapify(todo)
    while todo:
        depth, name = heappop(todo)
        node = tree.nodes[name]
        children = freed.pop(name, [])
        movers = _choose(tx, tree, node, children, arrived.pop(name, []))
        movers.sort()
        for mover in movers:
            seat = tree.seats[mover[2]]
            child = node.toward(cast("Node", seat.group))
            trees.remember(tree, seat)
            trees.arrive(tx, tree, seat.claim.uid, child)
            if child.name not in arrived and child.name not in freed:
                heappush(todo, (depth + 1, child.name))
            arrived.setdefault(child.name, []).append(tree.seats[mover[2]])


def _freed_children(tree: Tree) -> dict[str, list[Node]]:
    """By parent: the children that got room and have somebody waiting for it."""
    found: dict[str, list[Node]] = {}
    seen: set[str] = set()
    for name in tree.freed:
        node = tree.nodes.get(name)
        while node is not None and node.name not in seen:
            seen.add(node.name)
            parent = node.parent
            if parent is not None and node.name in parent.down:
                found.setdefault(parent.name, []).append(node)
            node = parent
    return found


def _choose(tx: Transaction, tree: Tree, node: Node, children: list[Node], arrived: list[Seat]) -> list[Mover]:
    """Who moves down from a node; each is counted in the child at once."""
    movers: list[Mover] = []
    open_to_all: set[str] = set()
    for child in children:
        open_to_all.add(child.name)
        if child.name in node.down:
            _pull(tx, tree, node, child, movers)
    newcomers: list[Mover] = []
    for seat in arrived:
        group = seat.group
        if group is not None and group is not node and node.toward(group).name not in open_to_all:
            newcomers.append((-seat.ask.priority, seat.stamp, seat.claim.uid))
    newcomers.sort()
    for mover in newcomers:
        seat = tree.seats[mover[2]]
        child = node.toward(cast("Node", seat.group))
        if child.fits(seat.ask.cost):
            tx.charge(seat.claim, (child.account,), (seat.ask.cost,))
            movers.append(mover)
    return movers


def _pull(tx: Transaction, tree: Tree, node: Node, child: Node, movers: list[Mover]) -> None:
    """Let the claims that wait for a child into it, in order. A shape that does not fit once never fits again here."""
    queues: list[Queue] = []
    for cost, waiting in node.down[child.name].items():
        if child.fits(cost):
            queues.append(Queue(cost, waiting))
    heads = [(queues[at].head, at) for at in range(len(queues))]
    heapify(heads)
    while heads:
        mover, at = heappop(heads)
        queue = queues[at]
        if not child.fits(queue.cost):
            heads = [head for head in heads if child.fits(queues[head[1]].cost)]
            heapify(heads)
            continue
        tx.charge(tree.seats[mover[2]].claim, (child.account,), (queue.cost,))
        movers.append(mover)
        if queue.advance():
            heappush(heads, (queue.head, at))


@final
class Queue:
    """Claims that ask for the same and wait for the same child, the first one at the head."""

    __slots__ = ("cost", "head", "rest", "waiting")

    def __init__(self, cost: Vector, waiting: Ordered) -> None:
        self.cost: Final = cost
        self.waiting: Final = waiting
        self.head: Mover = cast("Mover", waiting.chunks[0][0])
        self.rest: Iterator[tuple[object, ...]] | None = None  # most are never moved past their head

    def advance(self) -> bool:
        """Go on to the next one; False if there is none."""
        if self.rest is None:
            self.rest = iter(self.waiting)
            next(self.rest)
        following = next(self.rest, None)
        if following is None:
            return False
        self.head = cast("Mover", following)
        return True
