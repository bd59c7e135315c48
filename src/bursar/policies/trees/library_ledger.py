"""The library's ledger: consumers as claims, trees, forests and the mode as cells, one transaction an operation.

``Book`` does the work of ``QuotaManager`` inside an open transaction, without locks and without checks of names. The
same rules run here as in the engine's policy (``plan``, ``sliding``, ``refresh``); what the engine adds there for
all policies, the no-thrash record, is kept here with the same cells.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.ledger.changes import CHARGE, Change, Charge, PutCell
from bursar.ledger.claim_changes import SetBindings, SetState
from bursar.ledger.claims import PENDING, RESERVED, Claim, ClaimSpec
from bursar.ledger.journal import Record
from bursar.ledger.preemption_history import Lineages
from bursar.ledger.state import Watcher
from bursar.ledger.transaction import Ledger, Transaction
from bursar.policies.trees.allocation import Allocation, Bar
from bursar.policies.trees.model import SPEC, QuotaTreeModel, Trees
from bursar.policies.trees.records import NAME, Ask, Entry, Row, entries, entry_of, rows_of, tree_binding
from bursar.policies.trees.responses import Move, QuotaError
from bursar.policies.trees.slide_down import slide_down

FORESTS: Final = "trees.forests"
MANAGER: Final = "trees.manager"


@final
class _Follower(Watcher):
    """Lets the trees follow the ledger's cells."""

    def __init__(self, trees: Trees) -> None:
        self.trees: Final = trees

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        self.trees.cell_changed(table, key, old, new)


@final
class NoThrash(Bar):
    """Nobody displaces one that displaced it, directly or through others, until that one is deallocated."""

    def __init__(self, lineages: Lineages) -> None:
        self.lineages: Final = lineages

    def forbids(self, claimant: Claim, victim: Claim) -> bool:
        return self.lineages.barred(claimant.uid, victim.uid)


@final
class TreeLedger:
    """One ledger with trees."""

    __slots__ = ("bar", "journaled", "ledger", "lineages", "parsed", "trees", "tx", "versions")

    def __init__(self, journaled: bool) -> None:
        self.journaled: Final = journaled  # keep the journal's records until somebody takes them
        self.ledger: Final = Ledger()
        self.tx: Final[Transaction] = self.ledger.tx
        self.trees: Final = Trees(self.ledger.state)
        self.lineages: Final = Lineages(self.ledger)
        self.bar: Final = NoThrash(self.lineages)
        self.versions: Final[dict[str, int]] = {}  # by tree: the commit that changed it last
        self.parsed: Final[dict[str, tuple[ClaimSpec, list[Row]]]] = {}  # by consumer
        self.ledger.watch(NAME, _Follower(self.trees))

    # Transactions

    def commit(self, cause: tuple[object, ...]) -> Record:
        """Slide down, commit, and note which trees changed."""
        self.slide()
        record = self.ledger.commit(0, cause)
        for tree in self.touched(record.changes):
            self.versions[tree] = record.seq
        if not self.journaled:
            self.ledger.journal.records.clear()
        return record

    def slide(self) -> None:
        if self.trees.restless:
            slide_down(self.trees, self.tx)

    def end(self) -> None:
        """Whatever was not committed is undone."""
        if self.ledger.opened:
            self.ledger.abort()

    def touched(self, changes: tuple[Change, ...]) -> list[str]:
        """Trees whose seats or documents the changes wrote."""
        found: list[str] = []
        for change in changes:
            if isinstance(change, PutCell) and change.policy == NAME:
                tree = self.trees.by_table.get(change.table)
                name = change.key if change.table == SPEC else "" if tree is None else tree.name
                if name and name not in found:
                    found.append(name)
        return found

    # Allocation

    def rows(self, claim: Claim) -> list[Row]:
        """What the consumer names, by tree; parsed once."""
        known = self.parsed.get(claim.uid)
        if known is None or known[0] is not claim.spec:
            known = (claim.spec, rows_of(claim))
            self.parsed[claim.uid] = known
        return known[1]

    def hold(self, claim: Claim, rows: list[Row], via: str) -> list[Ask]:
        """Bind the claim to the trees of these rows too; seats are read with the binding's help."""
        held = tree_binding(claim)
        trees = self.trees.by_name
        data = [entry_of(row, trees[row.tree].counted(row.request), via) for row in rows]
        if held is not None:
            data.extend(entries(held))
            data.sort(key=_tree_of)
        binding = self.trees.binding(tuple(data))
        self.tx.set_bindings(claim, (binding,))
        asks = self.trees.asks(binding)
        if held is None:
            return list(asks)
        wanted = [row.tree for row in rows]
        return [ask for ask in asks if ask.tree in wanted]

    def allocate(self, claim: Claim, asks: list[Ask]) -> Allocation:
        """Allocate by the rules; the plan has the victims, or what failed."""
        tx = self.tx
        plan = Allocation(self.trees, tx, claim, True, self.bar)
        if not plan.run(asks):
            return plan
        for departure in plan.departed:
            victim = departure.claim
            self.lineages.displaced(claim, victim)
            tx.set_bindings(victim, ())
            tx.set_state(victim, PENDING)
        tx.set_state(claim, RESERVED)
        return plan

    def force(self, claim: Claim, asks: list[Ask]) -> None:
        """Seat the claim on its group nodes, whatever the quotas say; groups may be any nodes."""
        for ask in asks:
            tree = self.trees.by_name[ask.tree]
            self.trees.enter(self.tx, tree, claim, ask.cost, tree.nodes[ask.group])
        self.tx.set_state(claim, RESERVED)

    def let_go(self, claim: Claim, trees: list[str]) -> None:
        """The claim leaves these trees."""
        kept: list[Entry] = []
        for entry in entries(tree_binding(claim)):
            name = cast("str", entry[0])
            if name not in trees:
                kept.append(entry)
                continue
            tree = self.trees.by_name[name]
            seat = tree.seats.get(claim.uid)
            if seat is not None:
                self.trees.leave(self.tx, tree, seat)
        self.tx.set_bindings(claim, (self.trees.binding(tuple(kept)),) if kept else ())
        if not kept:
            self.tx.set_state(claim, PENDING)

    def moves(self, but: str) -> tuple[Move, ...]:
        """Who sits elsewhere than when the operation began, without the consumer that it was about."""
        found: list[Move] = []
        for (name, uid), source in self.trees.origins.items():
            seat = self.trees.seat(name, uid)
            if seat is not None and uid != but and seat.node.name != source:
                found.append(Move(uid, name, source, seat.node.name))
        self.trees.origins.clear()
        return tuple(found)

    # Undo

    def is_as_left(self, changes: tuple[Change, ...]) -> bool:
        """Whether what these changes wrote besides trees still stands: bindings of claims, and cells."""
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

    def invert(self, changes: tuple[Change, ...]) -> None:
        """Do the opposite of a transaction's changes, last one first."""
        tx = self.tx
        for change in reversed(changes):
            if isinstance(change, Charge):
                if change.mode == CHARGE:
                    tx.release(change.claim, change.accounts, change.costs)
                else:
                    tx.charge(change.claim, change.accounts, change.costs)
            elif isinstance(change, PutCell):
                tx.put(change.policy, change.table, change.key, change.old)
            elif isinstance(change, SetBindings):
                tx.set_bindings(change.claim, change.old)
            elif isinstance(change, SetState):
                tx.set_state(change.claim, change.old)
            else:
                raise QuotaError("a try that changed more than seats cannot be undone")

    # Reading

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
        """The forest that a tree belongs to, "" if none."""
        for name, trees in self.ledger.state.cells(FORESTS).items():
            if tree in cast("tuple[str, ...]", trees):
                return name
        return ""


def _tree_of(entry: Entry) -> str:
    return cast("str", entry[0])
