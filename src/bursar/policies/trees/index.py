"""All trees of a ledger, derived from its cells, and the few writes that everything else here is made of.

Tables: ``trees.spec`` (tree -> its document), and for each tree ``trees.at/<tree>`` (uid -> (node, stamp)). A stamp is
taken by every arrival at a node, so that "longest on its node" is a comparison of numbers, and so that undo and replay
restore the order too.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.ledger.claims import Binding, Claim
from bursar.ledger.state import State
from bursar.ledger.transactions import Transaction
from bursar.policies.trees.asks import NAME, Ask, Entry, ask_of, entries, tree_binding
from bursar.policies.trees.bodies import body_of, layout
from bursar.policies.trees.tree import AT, Node, Seat, Tree
from bursar.vectors import Vector

SPEC: Final = "trees.spec"
_KEPT: Final = 65_536


@final
class Trees:
    """The trees by name. Changed only by ``cell_changed``."""

    __slots__ = ("bindings", "by_name", "by_table", "origins", "restless", "state")

    def __init__(self, state: State) -> None:
        self.state: Final = state
        self.by_name: Final[dict[str, Tree]] = {}
        self.restless: list[Tree] = []  # trees in which somebody may slide down, each once
        self.by_table: Final[dict[str, Tree]] = {}  # the same, by the table of their seats
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
        tree = Tree(name, body, layout(body), self.state.accounts)
        self.by_name[name] = tree
        self.by_table[tree.table] = tree
        for uid, seat in self.state.cells(tree.table).items():
            self._sit(tree, uid, seat)

    def _sit(self, tree: Tree, uid: str, cell: object) -> None:
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

    def arrive(self, tx: Transaction, tree: Tree, uid: str, node: Node) -> None:
        """The claim comes to a node; counting it is the caller's."""
        tree.moved.add(uid)
        self.stir(tree)
        tx.put(NAME, tree.table, uid, (node.name, tx.moment()))

    def enter(self, tx: Transaction, tree: Tree, claim: Claim, cost: Vector, node: Node) -> None:
        """The claim takes a seat, and counts from there up."""
        self.arrive(tx, tree, claim.uid, node)
        tx.charge(claim, node.accounts, node.costs(cost))

    def resume(self, tx: Transaction, tree: Tree, claim: Claim, cost: Vector, node: Node, stamp: int) -> None:
        """The claim takes a seat that it had, with the stamp that it had."""
        tree.moved.add(claim.uid)
        self.stir(tree)
        tx.put(NAME, tree.table, claim.uid, (node.name, stamp))
        tx.charge(claim, node.accounts, node.costs(cost))

    def leave(self, tx: Transaction, tree: Tree, seat: Seat) -> None:
        """The claim gives up its seat and no longer counts in the tree."""
        node = seat.node
        claim = seat.claim
        self._freed(tree, node)
        tx.put(NAME, tree.table, claim.uid, None)
        tx.release(claim, node.accounts, node.costs(seat.ask.cost))

    def lift(self, tx: Transaction, tree: Tree, seat: Seat, parent: Node) -> None:
        """The claim moves one node up, where it counted already."""
        self.remember(tree, seat)
        self._freed(tree, seat.node)
        tx.release(seat.claim, (seat.node.account,), (seat.ask.cost,))
        self.arrive(tx, tree, seat.claim.uid, parent)

    def remember(self, tree: Tree, seat: Seat) -> None:
        """Note where a claim was before this operation, for the report of moves."""
        key = (tree.name, seat.claim.uid)
        if key not in self.origins:
            self.origins[key] = seat.node.name

    def _freed(self, tree: Tree, node: Node) -> None:
        tree.freed.add(node.name)
        self.stir(tree)

    def stir(self, tree: Tree) -> None:
        if not tree.restless:
            tree.restless = True
            self.restless.append(tree)

    def seat(self, tree: str, uid: str) -> Seat | None:
        found = self.by_name.get(tree)
        return None if found is None else found.seats.get(uid)
