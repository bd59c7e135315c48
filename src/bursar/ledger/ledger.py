"""The ledger: state, the one open transaction, the journal, and a version that counts commits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from bursar._version import __version__
from bursar.ledger.accounts import Watcher
from bursar.ledger.journal import Journal, Record
from bursar.ledger.kinds import Line
from bursar.ledger.provenance import Provenance
from bursar.ledger.replay import Replay, read_next, read_numbered
from bursar.ledger.snapshot import Snapshot
from bursar.ledger.state import State
from bursar.ledger.transactions import Transaction


@final
class Ledger:
    """Owns the state; everything that changes it goes begin -> commit or abort. Not thread-safe by itself."""

    __slots__ = ("journal", "opened", "state", "tx", "version")

    def __init__(self, journal: Journal | None = None) -> None:
        self.state: Final = State()
        self.journal: Final = journal if journal is not None else Journal()
        self.tx: Final = Transaction(self.state)
        self.version: int = 0
        self.opened: bool = False

    @property
    def digest(self) -> int:
        return self.state.digest

    def watch(self, policy: str, watcher: Watcher) -> None:
        """Let a policy hear of its accounts and tables; before the first of them exists."""
        self.state.watchers[policy] = watcher
        if type(watcher).charged is not Watcher.charged:  # most do not listen, and charges are frequent
            self.state.charge_watchers[policy] = watcher

    def begin(self) -> Transaction:
        if self.opened:
            raise RuntimeError("a transaction is open already; use a savepoint")
        self.opened = True
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
    ) -> Iterable[Line]:
        """Repeat sealed journal lines on top of this ledger; yields each line once it is proven.

        ``chained``: that each continues the chain is proven elsewhere; until it is, the state proves nothing.
        """
        if self.opened or self.journal.records:
            raise RuntimeError("a journal can only be replayed on a ledger without work of its own in hand")
        replay = Replay(self.state, provenance)
        journal = self.journal
        for text in lines:
            number = self.version + 1
            line = read_numbered(text, number) if chained else read_next(text, journal.head, number)
            replay.apply(line)
            self.version += 1
            journal.head = line.hash
            journal.sealed_to = self.version
            yield line

    def restore(self, snapshot: Snapshot, provenance: Provenance | None = None) -> None:
        """Build the state of a snapshot; only in a new ledger, which is of no use any more if this fails."""
        if self.opened or self.version or self.journal.records:
            raise RuntimeError("a snapshot can only be restored in a new ledger")
        replay = Replay(self.state, provenance)
        last = len(snapshot.lines) - 1
        for i in range(len(snapshot.lines)):
            replay.build(snapshot.lines[i], f"{snapshot.digest:016x}" if i == last else "")
        self.version = snapshot.seq
        self.journal.head = snapshot.head
        self.journal.sealed_to = snapshot.seq
