"""The ledger and its transactions: changes that are applied at once, logged, and kept or undone as a whole.

A ledger has one transaction at a time. Inside it, ``savepoint`` marks a position of the log and ``rollback_to`` undoes
everything after it, exactly and in reverse; savepoints nest freely, because they are just positions. Trials, dry runs
and the search for victims are built on this. Policies and the engine write state only by the transaction's methods.

A snapshot is a state as text, one JSON value a line, built again without the journal that led to it. The first line is
a header: format, number, time and chain hash of the last record, the digest of the state, and the decisions that still
matter. Each further line is a list of effects, as in a journal, to repeat in order on an empty state: accounts, claims,
cells, and last the charges. Watchers hear of them like of any other change. ``ledger.compaction`` writes snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, final

import msgspec
from mypy_extensions import i64

from bursar._version import __version__
from bursar.ledger.changes import (
    CHARGE,
    CLEAR,
    RELEASE,
    RETURN,
    VACATE,
    Change,
    Charge,
    CloseAccount,
    OpenAccount,
    PutCell,
    SetLimits,
)
from bursar.ledger.claim_changes import (
    LEAVING,
    PLACE,
    SPEC,
    WAITS_FOR,
    AddClaim,
    DropClaim,
    SetBindings,
    SetField,
    SetState,
)
from bursar.ledger.claims import Binding, Claim, ClaimSpec
from bursar.ledger.journal import FORMAT, Journal, Record
from bursar.ledger.journal_lines import HEADERS, JournalLine
from bursar.ledger.replay import Provenance, Replay, ReplayError, read_next, read_numbered
from bursar.ledger.state import Account, State, Watcher
from bursar.resources import NO_LIMITS, Limits, Vector

_MOMENTS: Final[i64] = 4294967296  # of one transaction; more changes than that do not fit in memory


@final
class Transaction:
    """The log of one transaction, its time, and the methods that write state."""

    __slots__ = ("log", "now", "seq", "state")

    def __init__(self, state: State) -> None:
        self.state: Final = state
        self.log: list[Change] = []
        self.seq: i64 = 0  # the number that its record will have
        self.now: int = 0  # the time of the call that opened it, in milliseconds

    def do(self, change: Change) -> None:
        change.apply(self.state)
        self.log.append(change)

    def savepoint(self) -> int:
        return len(self.log)

    def moment(self) -> int:
        """A number for this moment: above those of all earlier transactions and of all changes in the log.

        It follows from the journal, so a repeated decision gets the same number.
        """
        return int(self.seq * _MOMENTS + len(self.log))

    def rollback_to(self, savepoint: int) -> None:
        log = self.log
        while len(log) > savepoint:
            log.pop().revert(self.state)

    def undo(self, changes: tuple[Change, ...]) -> None:
        """Undo committed changes, the last one first. The caller makes sure that the state is as they left it."""
        for change in reversed(changes):
            self.do(change.inverse(self.state))

    # Claims

    def add_claim(self, claim: Claim) -> None:
        self.do(AddClaim(claim))

    def drop_claim(self, claim: Claim) -> None:
        """The claim is gone; its charges must have been released."""
        self.do(DropClaim(claim))

    def set_state(self, claim: Claim, state: int) -> None:
        if claim.state != state:
            self.do(SetState(claim, state))

    def set_bindings(self, claim: Claim, bindings: tuple[Binding | None, ...]) -> None:
        if claim.bindings is not bindings:
            self.do(SetBindings(claim, bindings))

    def set_place(self, claim: Claim, place: str) -> None:
        if claim.place != place:
            self.do(SetField(claim, PLACE, place))

    def set_leaving(self, claim: Claim, leaving: bool) -> None:
        if claim.leaving != leaving:
            self.do(SetField(claim, LEAVING, leaving))

    def set_waits_for(self, claim: Claim, uids: tuple[str, ...]) -> None:
        if claim.waits_for != uids:
            self.do(SetField(claim, WAITS_FOR, uids))

    def set_spec(self, claim: Claim, spec: ClaimSpec) -> None:
        if claim.spec is not spec:
            self.do(SetField(claim, SPEC, spec))

    # Charges. All accounts of one call are charged or none (an overflow raises and leaves no trace).

    def charge(self, claim: Claim, accounts: tuple[Account, ...], costs: tuple[Vector, ...]) -> None:
        self.do(Charge(claim, accounts, costs, CHARGE))

    def release(self, claim: Claim, accounts: tuple[Account, ...], costs: tuple[Vector, ...]) -> None:
        """Stop counting the claim there. The mode depends on whether it is being evicted."""
        self.do(Charge(claim, accounts, costs, RELEASE))

    def vacate(self, claim: Claim, accounts: tuple[Account, ...], costs: tuple[Vector, ...]) -> None:
        """An eviction begins: no longer counted, physically still there."""
        self.do(Charge(claim, accounts, costs, VACATE))

    def restore(self, claim: Claim, accounts: tuple[Account, ...], costs: tuple[Vector, ...]) -> None:
        """The eviction is cancelled."""
        self.do(Charge(claim, accounts, costs, RETURN))

    def clear(self, claim: Claim, accounts: tuple[Account, ...], costs: tuple[Vector, ...]) -> None:
        """The evicted claim is physically gone."""
        self.do(Charge(claim, accounts, costs, CLEAR))

    # Accounts

    def open_account(self, policy: str, name: str, topic: str = "", physical: bool = False) -> Account:
        account = Account(policy, name, topic, physical)
        self.do(OpenAccount(account))
        return account

    def close_account(self, account: Account) -> None:
        mark = self.savepoint()
        self.set_limits(account, NO_LIMITS)
        try:
            self.do(CloseAccount(account))
        except ValueError:
            self.rollback_to(mark)
            raise

    def set_limits(self, account: Account, limits: Limits) -> None:
        if account.limits != limits:
            self.do(SetLimits(account, limits))

    # Cells

    def put(self, policy: str, table: str, key: str, value: object) -> None:
        """Set a cell to a plain immutable value; None removes it."""
        if value is None and self.state.cell(table, key) is None:
            return
        change = PutCell(self.state, policy, table, key, value)
        old = change.old
        # True == 1, but they are different cells: equal values are compared as they are written.
        if old is not value and (old is None or old != value or ascii(old) != ascii(value)):
            self.do(change)

    def get(self, table: str, key: str) -> object:
        return self.state.cell(table, key)


_MARK: Final = "bursar-snapshot"


@final
@dataclass(frozen=True)
class Snapshot:
    """A state as text, and where in the journal it belongs."""

    seq: int
    at: int
    head: str
    digest: int
    decisions: list[msgspec.Raw]
    lines: list[bytes]

    def text(self) -> bytes:
        header = [_MARK, FORMAT, self.seq, self.at, self.head, f"{self.digest:016x}", self.decisions]
        return b"\n".join([msgspec.json.encode(header), *self.lines])


def read_snapshot(text: bytes) -> Snapshot:
    """The inverse of ``Snapshot.text``; effects are decoded when they are repeated."""
    first, *lines = text.split(b"\n")
    try:
        found = HEADERS.decode(first)
        if found.mark != _MARK or found.format != FORMAT:
            raise ValueError(f"{found.mark} of format {found.format} is not known here (this is format {FORMAT})")
        return Snapshot(found.seq, found.at, found.head, int(found.digest, 16), found.decisions, lines)
    except ValueError as error:
        raise ReplayError(f"not a snapshot: {error}") from error


@final
class Ledger:
    """Owns the state; everything that changes it goes begin -> commit or abort. Not thread-safe by itself."""

    __slots__ = ("journal", "objects", "opened", "state", "tx", "version")

    def __init__(self, journal: Journal | None = None) -> None:
        self.state: Final = State()
        self.journal: Final = journal if journal is not None else Journal()
        self.tx: Final = Transaction(self.state)
        self.version: int = 0
        self.opened: bool = False
        self.objects: str = ""  # the sum of the objects beside it, as replayed records vouch for it

    @property
    def digest(self) -> int:
        return self.state.digest

    def watch(self, policy: str, watcher: Watcher) -> None:
        """Let a policy hear of its accounts and tables; call it before the first of them exists."""
        self.state.watchers[policy] = watcher
        if type(watcher).charged is not Watcher.charged:  # most do not listen, and charges are frequent
            self.state.charge_watchers[policy] = watcher
        if type(watcher).placed is not Watcher.placed:
            self.state.place_watchers[policy] = watcher

    def begin(self, now: int = 0) -> Transaction:
        if self.opened:
            raise RuntimeError("a transaction is open already; use a savepoint")
        self.opened = True
        self.tx.now = now
        self.tx.seq = self.version + 1
        return self.tx

    def commit(self, at: int, cause: tuple[object, ...], decision: object = None) -> Record:
        """Keep all that was done since ``begin``, as one journal record."""
        if not self.opened:
            raise RuntimeError("no transaction is open")
        state = self.state
        changes = self.tx.log
        for change in changes:
            change.digest(state)
        self.version += 1
        record = Record(self.version, at, __version__, cause, decision, tuple(changes), state.digest)
        changes.clear()
        self.opened = False
        self.journal.append(record)
        return record

    def abort(self) -> None:
        """Undo all that was done since ``begin``."""
        self.tx.rollback_to(0)
        self.opened = False

    def replay(
        self, lines: Iterable[bytes], provenance: Provenance | None = None, chained: bool = False
    ) -> Iterable[JournalLine]:
        """Repeat sealed journal lines on top of this ledger; yields each line once it is verified.

        ``chained`` means that the chain is verified elsewhere; until then, the state proves nothing.
        """
        if self.opened or self.journal.records:
            raise RuntimeError("a journal can only be replayed on a ledger without work of its own in hand")
        replay = Replay(self.state, provenance)
        journal = self.journal
        for text in lines:
            number = self.version + 1
            line = read_numbered(text, number) if chained else read_next(text, journal.head, number)
            replay.apply(line)
            self._passed(line)
            self.objects = replay.objects or self.objects
            yield line

    def follow(self, text: bytes, replay: Replay) -> tuple[JournalLine, Record]:
        """Repeat the next sealed line of another ledger's journal, and return it with its changes, as of a commit.

        Each call goes on with the same ``replay``, so that equal parts of all lines are shared.
        """
        if self.opened or self.journal.records:
            raise RuntimeError("only a ledger without work of its own can follow another one")
        line = read_next(text, self.journal.head, self.version + 1)
        changes = tuple(replay.apply(line))
        self._passed(line)
        self.objects = replay.objects or self.objects
        return line, Record(line.seq, line.at, line.engine, tuple(line.cause), None, changes, self.state.digest)

    def _passed(self, line: JournalLine) -> None:
        self.version += 1
        self.journal.head = line.hash
        self.journal.sealed_to = self.version

    def restore(self, snapshot: Snapshot, provenance: Provenance | None = None) -> None:
        """Build the state of a snapshot; only in a new ledger, which must be discarded if this fails."""
        if self.opened or self.version or self.journal.records:
            raise RuntimeError("a snapshot can only be restored in a new ledger")
        replay = Replay(self.state, provenance)
        last = len(snapshot.lines) - 1
        for i in range(len(snapshot.lines)):
            replay.build(snapshot.lines[i], f"{snapshot.digest:016x}" if i == last else "")
        self.version = snapshot.seq
        self.objects = replay.objects
        self.journal.head = snapshot.head
        self.journal.sealed_to = snapshot.seq
