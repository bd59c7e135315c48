"""The library's ledger: consumers as claims; trees, forests and the mode as cells; one transaction per operation.

The rules are those of the engine's policy (``allocation``, ``slide_down``, ``refresh``). The engine keeps the
preemption history for all policies; the library keeps it here, in the same cells.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.ledger.changes import Change, PutCell
from bursar.ledger.claim_changes import SetBindings
from bursar.ledger.claims import PENDING, RESERVED, Claim, ClaimSpec
from bursar.ledger.preemption_history import PreemptionHistory
from bursar.ledger.transaction import Ledger, Transaction
from bursar.policies.policy import EvictionRules
from bursar.policies.trees.allocation import Allocator
from bursar.policies.trees.model import SPEC, QuotaTreeModel, Trees
from bursar.policies.trees.records import NAME, TreeRequest, held_requests, spec_requests, tree_name
from bursar.policies.trees.responses import Move, QuotaError
from bursar.policies.trees.slide_down import slide_down

NORMAL: Final = 0
MAINTENANCE: Final = 1
FORESTS: Final = "trees.forests"
MANAGER: Final = "trees.manager"


@final
class TreeTransaction:
    """The transaction of one operation. It commits when its ``with`` block ends; an error or ``abort`` undoes it."""

    __slots__ = ("book", "cause", "changes", "trees")

    def __init__(self, book: TreeLedger, cause: tuple[object, ...]) -> None:
        self.book: Final = book
        self.cause: Final = cause
        # Once it is committed: the changes, and the trees whose allocations or documents they wrote.
        self.changes: tuple[Change, ...] = ()
        self.trees: list[str] = []

    def __enter__(self) -> Transaction:
        self.book.trees.origins.clear()
        return self.book.ledger.begin()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if error is None and self.book.ledger.opened:
                self._commit()
        finally:
            self.abort()

    def _commit(self) -> None:
        """Slide down, commit, and note which trees changed."""
        book = self.book
        slide_down(book.trees, book.tx)
        record = book.ledger.commit(0, self.cause)
        self.changes = record.changes
        self.trees = _written_trees(book.trees, record.changes)
        for tree in self.trees:
            book.versions[tree] = record.seq
        if not book.journaled:
            book.ledger.journal.records.clear()

    def abort(self) -> None:
        """Undo what is not committed."""
        if self.book.ledger.opened:
            self.book.ledger.abort()


@final
class HistoryRules(EvictionRules):
    """In the library only the preemption history keeps a consumer from displacing another."""

    def __init__(self, history: PreemptionHistory) -> None:
        self.history: Final = history

    def obstacle(self, claim: Claim, victim: Claim) -> str:
        return "displaced it before" if self.history.barred(claim.uid, victim.uid) else ""


@final
class TreeLedger:
    """One ledger with trees. It takes no lock and, except for names, checks nothing."""

    __slots__ = ("history", "journaled", "ledger", "parsed", "rules", "trees", "tx", "versions")

    def __init__(self, journaled: bool) -> None:
        self.journaled: Final = journaled  # keep the journal's records until they are taken
        self.ledger: Final = Ledger()
        self.tx: Final[Transaction] = self.ledger.tx
        self.trees: Final = Trees(self.ledger.state)
        self.history: Final = PreemptionHistory(self.ledger)
        self.rules: Final = HistoryRules(self.history)
        self.versions: Final[dict[str, int]] = {}  # by tree: the commit that changed it last
        self.parsed: Final[dict[str, tuple[ClaimSpec, list[TreeRequest]]]] = {}  # by consumer
        self.ledger.watch(NAME, self.trees)

    def transaction(self, *cause: object) -> TreeTransaction:
        return TreeTransaction(self, cause)

    # Writing, inside a transaction

    def bind(self, claim: Claim, requests: list[TreeRequest], forest: str) -> list[TreeRequest]:
        """Bind the claim to the trees of these requests too; returns what it requests of them by the binding."""
        trees = self.trees.by_name
        bound = [one.changed(one.group, trees[one.tree].counted(one.cost), forest) for one in requests]
        both = bound
        if claim.bindings:
            both = sorted([*bound, *held_requests(claim)], key=tree_name)
        self.tx.set_bindings(claim, (self.trees.binding(both),))
        return bound

    def allocate(self, claim: Claim, requests: list[TreeRequest]) -> Allocator:
        """Allocate by the rules, or in maintenance mode by force. The attempt has the victims, or what failed."""
        attempt = Allocator(self.trees, self.tx, claim, rules=self.rules)
        if self.mode() == MAINTENANCE:
            self._force(claim, requests)
        elif not attempt.run(requests):
            return attempt
        for victim in attempt.victims:
            self.history.displaced(claim, victim.claim)
            self.tx.set_bindings(victim.claim, ())
            self.tx.set_state(victim.claim, PENDING)
        self.tx.set_state(claim, RESERVED)
        return attempt

    def _force(self, claim: Claim, requests: list[TreeRequest]) -> None:
        """Put the claim on its group nodes, over their quota if need be. A group may be any node here."""
        for request in requests:
            tree = self.trees.by_name[request.tree]
            self.trees.enter(self.tx, tree, claim, request.cost, tree.nodes[request.group])

    def release(self, claim: Claim, trees: list[str]) -> None:
        """Take the claim out of these trees."""
        self.trees.leave_all(self.tx, claim, trees)
        kept = [request for request in held_requests(claim) if request.tree not in trees]
        self.tx.set_bindings(claim, (self.trees.binding(kept),) if kept else ())
        if not kept:
            self.tx.set_state(claim, PENDING)

    # Reading

    def mode(self) -> int:
        found = self.ledger.state.cell(MANAGER, "mode")
        return MAINTENANCE if found is None else cast("int", found)

    def requests(self, claim: Claim) -> list[TreeRequest]:
        """What the consumer requests, by tree. It is parsed once."""
        known = self.parsed.get(claim.uid)
        if known is None or known[0] is not claim.spec:
            known = (claim.spec, spec_requests(claim))
            self.parsed[claim.uid] = known
        return known[1]

    def moves(self, but: str = "") -> tuple[Move, ...]:
        """The consumers that the last operation moved to another node, without the one that it was about."""
        found: list[Move] = []
        for (name, uid), source in self.trees.origins.items():
            allocation = self.trees.allocation(name, uid)
            if allocation is not None and uid != but and allocation.node.name != source:
                found.append(Move(uid, name, source, allocation.node.name))
        return tuple(found)

    def is_as_left(self, changes: tuple[Change, ...]) -> bool:
        """Whether the cells and bindings that these changes wrote still have the values that they wrote."""
        state = self.ledger.state
        cells: dict[tuple[str, str], object] = {}
        bound: dict[str, SetBindings] = {}
        for change in changes:
            if isinstance(change, PutCell):
                cells[change.table, change.key] = change.new
            elif isinstance(change, SetBindings):
                bound[change.claim.uid] = change
        for (table, key), value in cells.items():
            if state.cell(table, key) != value:
                return False
        for uid, last in bound.items():
            if state.claims.get(uid) is not last.claim or last.claim.bindings is not last.new:
                return False
        return True

    def tree(self, name: str) -> QuotaTreeModel:
        found = self.trees.by_name.get(name)
        if found is None:
            raise QuotaError(f"there is no tree {name}")
        return found

    def claim(self, uid: str) -> Claim:
        found = self.ledger.state.claims.get(uid)
        if found is None:
            raise QuotaError(f"there is no consumer {uid}")
        return found

    def forest(self, name: str) -> tuple[str, ...]:
        """The trees of a forest, sorted."""
        found = self.ledger.state.cell(FORESTS, name)
        if found is None:
            raise QuotaError(f"there is no forest {name}")
        return cast("tuple[str, ...]", found)

    def forest_of(self, tree: str) -> str:
        """The forest to which a tree belongs, "" if none."""
        for name, trees in self.ledger.state.cells(FORESTS).items():
            if tree in cast("tuple[str, ...]", trees):
                return name
        return ""

    def held_through(self, uid: str, forest: str) -> list[str]:
        """The trees on which a consumer is allocated through a forest, or by themselves if that is ""."""
        claim = self.ledger.state.claims.get(uid)
        return [] if claim is None else [one.tree for one in held_requests(claim) if one.forest == forest]


def _written_trees(trees: Trees, changes: tuple[Change, ...]) -> list[str]:
    found: list[str] = []
    for change in changes:
        if isinstance(change, PutCell) and change.policy == NAME:
            tree = trees.by_table.get(change.table)
            name = change.key if change.table == SPEC else "" if tree is None else tree.name
            if name and name not in found:
                found.append(name)
    return found
