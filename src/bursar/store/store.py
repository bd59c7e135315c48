"""A store: the journal, the objects and the snapshots of one Bursar, in one SQLite file.

``Store.commit`` returns when everything in its batch is on the disk, or raises and has written nothing. Journal records
are numbered without gaps. One process writes, any number reads at the same time. Only ``snapshots.prune`` removes data.

``GroupCommitter`` lets many callers share one wait for the disk: a thread writes all batches that were submitted
meanwhile in one transaction, in the order of submission. So a caller that takes journal lines from an engine submits
them before it releases the engine's lock. When a write fails, memory is ahead of the disk: all callers get the error,
the store is closed, and a restart continues from the disk.
"""

from __future__ import annotations

import os
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from threading import Condition, Lock, Thread
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from bursar.store import schema
from bursar.store.schema import StoreError, WriterLock, damaged


class ObjectWrite(msgspec.Struct, frozen=True):
    """An object gets a new body (JSON), or (None) is deleted. Versions of one object only grow.

    What seldom changes about it can stand apart, as a manifest under a number that is used once: ``manifest`` names it,
    ``text`` is given when it is new.
    """

    kind: str
    key: str
    version: int
    body: bytes | None
    manifest: int = 0
    text: bytes | None = None


class Batch(msgspec.Struct, frozen=True):
    """All of it becomes durable, or none.

    Object changes belong to the last of the lines, or to the last line before if there is none.
    """

    lines: Sequence[bytes] = ()
    objects: Sequence[ObjectWrite] = ()
    at: int = 0  # milliseconds, the time of the object changes
    meta: Mapping[str, str] = msgspec.field(default_factory=dict)


class ObjectEntry(msgspec.Struct, frozen=True):
    """One entry of an object's history."""

    seq: int
    at: int
    version: int
    body: bytes | None


def line_position(line: bytes) -> tuple[int, int]:
    """(sequence number, time) of a sealed journal line, without decoding the rest of it."""
    parts = line.split(b",", 3)
    if len(parts) < 4 or not line.startswith(b"["):
        raise ValueError("not a journal line")
    return int(parts[1]), int(parts[2])


_ENTRY = "INSERT INTO object_history (seq, at, kind, key, version, body, manifest) VALUES (?, ?, ?, ?, ?, ?, ?)"
_ROWS = 512  # fetched at a time from the journal


class Store:
    """An open store file. Its methods may be called from any thread."""

    def __init__(self, path: Path, reader: sqlite3.Connection, writer: sqlite3.Connection | None) -> None:
        self.path = path
        self._reader = reader
        self._writer = writer
        self._lock: WriterLock | None = None
        self._reading = Lock()
        self._writing = Lock()
        self.last_seq, self.pruned_to = 0, 0

    # Opening and closing

    @classmethod
    def create(cls, path: Path | str) -> Store:
        """A new store; refuses to touch a file that exists."""
        schema.create_file(Path(path))
        return cls.open(path)

    @classmethod
    def open(cls, path: Path | str, read_only: bool = False) -> Store:
        """An existing store. What is foreign, damaged or written by another process is refused and left as it is."""
        path = Path(os.path.realpath(path))
        reader = schema.connect_reader(path)
        try:
            schema.probe(reader, path)
            store = cls(path, reader, None)
            if not read_only:
                store._begin_writing()
            store._find_ends()
        except BaseException:
            reader.close()
            raise
        return store

    def _begin_writing(self) -> None:
        self._lock = WriterLock(self.path)
        try:
            self._writer = schema.connect_writer(self.path)
            self.transact(
                lambda db: db.execute("INSERT OR REPLACE INTO meta VALUES ('writer', ?)", (str(os.getpid()),))
            )
            schema.sync_folder(self.path)  # the write-ahead log may be a new file
        except BaseException:
            self._lock.release()
            raise

    def _find_ends(self) -> None:
        """The journal must end in a record with the number of its row."""
        with self.read() as db:
            first, last = db.execute("SELECT min(seq), max(seq) FROM journal").fetchone()
            pruned = db.execute("SELECT value FROM meta WHERE name = 'pruned_to'").fetchone()
        self.pruned_to = 0 if pruned is None else int(pruned[0])
        self.last_seq = self.pruned_to if last is None else last
        if last is not None and first != self.pruned_to + 1:
            raise damaged(self.path, f"the journal begins with record {first} instead of {self.pruned_to + 1}")
        try:
            if last is not None and line_position(self.line(last))[0] != last:
                raise ValueError("another record in its place")
        except ValueError as error:
            raise damaged(self.path, f"journal record {last}: {error}") from error

    def close(self) -> None:
        """Nothing that was committed is lost by not calling it."""
        with self._writing, self._reading:
            self._reader.close()
            if self._writer is not None:
                self._writer.close()  # as the last one, it folds the write-ahead log into the file
                self._writer = None
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Writing

    def commit(self, batch: Batch) -> int:
        """Write a batch; returns the number of the last journal record once everything is on the disk."""
        return self.commit_all([batch])

    def commit_all(self, batches: Sequence[Batch]) -> int:
        """Several batches in one transaction: one wait for the disk for all of them."""
        last = self.last_seq

        def write(db: sqlite3.Connection) -> None:
            nonlocal last
            for batch in batches:
                last = self._write_batch(db, batch, last)

        self.transact(write)
        self.last_seq = last
        return last

    def _write_batch(self, db: sqlite3.Connection, batch: Batch, last: int) -> int:
        rows: list[tuple[int, bytes]] = []
        for line in batch.lines:
            seq, _ = line_position(line)
            if seq != last + 1:
                raise StoreError(self.path, f"journal record {seq} does not follow record {last}")
            rows.append((seq, line))
            last = seq
        if rows:
            db.executemany("INSERT INTO journal VALUES (?, ?)", rows)
        for write in batch.objects:
            if write.body is None:
                db.execute("DELETE FROM objects WHERE kind = ? AND key = ?", (write.kind, write.key))
            else:
                row = (write.kind, write.key, write.version, write.body)
                db.execute("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)", row)
            if write.text is not None:
                db.execute("INSERT INTO manifests VALUES (?, ?)", (write.manifest, write.text))
            entry = (last, batch.at, write.kind, write.key, write.version, write.body, write.manifest)
            db.execute(_ENTRY, entry)
        if batch.meta:
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list(batch.meta.items()))
        return last

    def transact(self, write: Callable[[sqlite3.Connection], object]) -> None:
        """Run it in one transaction: all of it is on the disk afterwards, or none of it is in the file."""
        with self._writing:
            db = self._writer
            if db is None:
                raise StoreError(self.path, "is not open for writing")
            try:
                db.execute("BEGIN IMMEDIATE")
                write(db)
                db.execute("COMMIT")
            except BaseException as error:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                if isinstance(error, (sqlite3.Error, ValueError)):
                    raise StoreError(self.path, f"cannot be written: {error}") from error
                raise

    # Reading

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """The reading connection, for one short query."""
        with self._reading:
            try:
                yield self._reader
            except sqlite3.DatabaseError as error:
                raise damaged(self.path, error) from error

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self.read() as db:
            return db.execute(query, values).fetchall()

    def line(self, seq: int) -> bytes:
        found = self.rows("SELECT line FROM journal WHERE seq = ?", seq)
        if not found:
            pruned = f"; records up to {self.pruned_to} were pruned" if seq <= self.pruned_to else ""
            raise StoreError(self.path, f"there is no journal record {seq}{pruned}")
        return bytes(found[0][0])

    def load_journal(self, from_seq: int = 1, to_seq: int | None = None) -> Iterator[bytes]:
        """The lines in order, from one number to another, both included; as of the call that starts it."""
        if from_seq <= self.pruned_to:
            raise StoreError(self.path, f"journal records up to {self.pruned_to} were pruned", "start from a snapshot")
        last = 2**62 if to_seq is None else to_seq
        pages = self._pages("SELECT line FROM journal WHERE seq BETWEEN ? AND ? ORDER BY seq", from_seq, last)
        return chain.from_iterable([line for (line,) in rows] for rows in pages)

    def stream(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """The rows of a long query, as of the call that starts it; a few are in memory at a time."""
        return chain.from_iterable(self._pages(query, *values))

    def _pages(self, query: str, *values: object) -> Iterator[list[tuple[Any, ...]]]:
        # A connection of its own: a long scan sees one state of the file and blocks no other reader.
        with closing(schema.connect_reader(self.path)) as db:
            try:
                found = db.execute(query, values)
                while rows := found.fetchmany(_ROWS):
                    yield rows
            except sqlite3.DatabaseError as error:
                raise damaged(self.path, error) from error

    def line_at(self, time: int) -> int:
        """The number of the last record at or before a time (ms), 0 if there is none. Record times never go back."""
        low, high = self.pruned_to, self.last_seq
        while low < high:
            middle = (low + high + 1) // 2
            if line_position(self.line(middle))[1] <= time:
                low = middle
            else:
                high = middle - 1
        return low

    def meta(self, name: str) -> str | None:
        found = self.rows("SELECT value FROM meta WHERE name = ?", name)
        return str(found[0][0]) if found else None

    def manifest(self, number: int) -> bytes:
        """What an object named by that number."""
        found = self.rows("SELECT text FROM manifests WHERE number = ?", number)
        if not found:
            raise StoreError(self.path, f"there is no manifest {number}")
        return bytes(found[0][0])

    def objects(self) -> Iterator[tuple[Any, ...]]:
        """(kind, key, version, body) of the objects that are there now, by kind and key."""
        return self.stream("SELECT kind, key, version, body FROM objects ORDER BY kind, key")

    def objects_at(self, entry: int) -> Iterator[tuple[Any, ...]]:
        """The same as of an entry in the history of the objects."""
        return self.stream(
            "SELECT kind, key, version, body FROM object_history WHERE body IS NOT NULL AND id IN"
            " (SELECT max(id) FROM object_history WHERE id <= ? GROUP BY kind, key) ORDER BY kind, key",
            entry,
        )

    def last_entry(self, column: Literal["seq", "version", "at"], value: int) -> tuple[int, int, int]:
        """(id, version, at) of the last entry in the history whose column is at most the value.

        All three columns grow with the id.
        """
        low, high = 0, int(self.rows("SELECT coalesce(max(id), 0) FROM object_history")[0][0])
        found = (0, 0, 0)
        query = f"SELECT id, version, at, {column} FROM object_history WHERE id <= ? ORDER BY id DESC LIMIT 1"  # noqa: S608 one of three
        while low < high:
            middle = (low + high + 1) // 2
            rows = self.rows(query, middle)
            if not rows or rows[0][3] <= value:
                low = middle
                found = rows[0][:3] if rows else found
            else:
                high = rows[0][0] - 1
        return found

    def object_changes(self, kind: str, key: str) -> list[ObjectEntry]:
        """All that happened to one object, oldest first."""
        query = "SELECT seq, at, version, body FROM object_history WHERE kind = ? AND key = ? ORDER BY id"
        return [ObjectEntry(*row) for row in self.rows(query, kind, key)]


_WAITING_AT_MOST = 10_000
_TOGETHER_AT_MOST = 2_000


class GroupCommitter:
    """The writing thread of a store."""

    def __init__(self, store: Store, waiting_at_most: int = _WAITING_AT_MOST) -> None:
        self.store = store
        self.error: BaseException | None = None
        self._limit = waiting_at_most
        self._waiting: deque[tuple[Batch, Future[int]]] = deque()
        self._changed = Condition()
        self._closing = False
        self._thread = Thread(target=self._run, name="bursar-committer", daemon=True)
        self._thread.start()

    def submit(self, batch: Batch) -> Future[int]:
        """Hand a batch over; the future holds the number of the last record when it is durable.

        Blocks while too many batches wait, so that decisions do not outrun the disk.
        """
        future: Future[int] = Future()
        future.set_running_or_notify_cancel()  # a decision is written even if its caller has given up
        with self._changed:
            while len(self._waiting) >= self._limit and self.error is None and not self._closing:
                self._changed.wait()
            if self.error is not None:
                raise StoreError(self.store.path, f"was closed after a failure: {self.error}") from self.error
            if self._closing:
                raise StoreError(self.store.path, "is being closed")
            self._waiting.append((batch, future))
            if len(self._waiting) == 1:
                self._changed.notify_all()
        return future

    def commit(self, batch: Batch) -> int:
        """Submit and wait."""
        return self.submit(batch).result()

    def close(self) -> None:
        """Write what was submitted, then close the store."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        self.store.close()

    def _run(self) -> None:
        while True:
            work = self._next()
            if not work:
                return
            try:
                seq = self.store.commit_all([batch for batch, _ in work])
            except BaseException as error:  # noqa: BLE001 whatever it is, everybody who waits must hear of it
                self._fail(error, work)
                return
            for _, future in work:
                future.set_result(seq)

    def _next(self) -> list[tuple[Batch, Future[int]]]:
        """What is waiting, as soon as there is something; nothing when it is time to end."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            full = len(self._waiting) >= self._limit
            count = min(len(self._waiting), _TOGETHER_AT_MOST)
            work = [self._waiting.popleft() for _ in range(count)]
            if full:
                self._changed.notify_all()
            return work

    def _fail(self, error: BaseException, work: list[tuple[Batch, Future[int]]]) -> None:
        with self._changed:
            self.error = error
            lost = [*work, *self._waiting]
            self._waiting.clear()
            self._changed.notify_all()
        for _, future in lost:
            future.set_exception(error)
        self.store.close()


class TermJournal:
    """The journal of one leader term of a controller, in a store file that a thread writes."""

    def __init__(self, path: Path) -> None:
        self._committer = GroupCommitter(Store.create(path))

    def keep(self, lines: list[bytes], now: int) -> None:
        self._committer.submit(Batch(lines, (), now))

    def close(self) -> None:
        self._committer.close()


def journals_in(folder: Path, number: int) -> TermJournal:
    """Open a journal for a term that begins now. The name holds the time: a leader may rebuild its ledger in a term."""
    folder.mkdir(parents=True, exist_ok=True)
    begun = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
    return TermJournal(folder / f"term-{number}-{begun}.db")
