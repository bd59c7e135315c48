"""A store: the journal, the objects and the snapshots of one Bursar, in one SQLite file.

``Store.commit`` returns when everything in its batch is on the disk, or raises and has written nothing. Journal records
are numbered without gaps. One process writes, any number reads at the same time. Only ``upkeep.prune`` removes data.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from bursar.store import schema, wholeness
from bursar.store.schema import StoreError, WriterLock, damaged
from bursar.store.wholeness import LogFolder


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
_ROOM = 512 * 1024  # bytes that must be writable after a write failed


class Store:
    """An open store file. Its methods may be called from any thread."""

    def __init__(self, path: Path, reader: sqlite3.Connection, writer: sqlite3.Connection | None) -> None:
        self.path = path
        self._reader = reader
        self._writer = writer
        self._lock: WriterLock | None = None
        self._log: LogFolder | None = None
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
    def open(cls, path: Path | str, read_only: bool = False, *, cut_off: bool = False, checked: bool = False) -> Store:
        """An existing store. What is foreign, damaged or written by another process is refused and left as it is.

        A store that is cut off is refused as well, unless ``cut_off`` accepts it. ``checked``: the process that writes
        the file has checked it when it opened it.
        """
        path = Path(os.path.realpath(path))
        reader = schema.connect_reader(path)
        try:
            if not checked:
                schema.probe(reader, path)
            if not (checked or cut_off):
                wholeness.check_whole(reader, path)
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
            wholeness.check_log(self._reader, self.path)
            self._writer = schema.connect_writer(self.path)
            self._log = LogFolder(self._writer)
            self._log.fold()
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
        self.last_seq = max(self.pruned_to, last or 0)
        if last is not None and first > self.pruned_to + 1:
            raise damaged(self.path, f"the journal begins with record {first} instead of {self.pruned_to + 1}")
        try:
            if last is not None and line_position(self.line(last))[0] != last:
                raise ValueError("another record in its place")
        except ValueError as error:
            raise damaged(self.path, f"journal record {last}: {error}") from error

    def close(self) -> None:
        """Nothing that was committed is lost by not calling it."""
        with self._writing, self._reading:
            if self._log is not None:
                self._log.retry()
                if not self._log.folded and self._writer is not None:
                    self._writer.close()  # before the reader, which leaves the log where it is: the marks need it
            self._reader.close()
            if self._writer is not None:
                self._writer.close()  # as the last one, it folds the write-ahead log into the file
                self._writer = self._log = None
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
                with suppress(sqlite3.Error):  # a connection that cannot even do that is replaced
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                if isinstance(error, (sqlite3.Error, ValueError)):
                    raise StoreError(self.path, f"cannot be written: {error}") from error
                raise
            if self._log is not None:
                self._log.committed()

    def reconnect(self) -> None:
        """Write through a new connection; the old one may be left in a transaction that failed."""
        with self._writing:
            if self._writer is None or self._log is None:
                raise StoreError(self.path, "is not open for writing")
            with suppress(sqlite3.Error):
                self._writer.close()
            self._writer = schema.connect_writer(self.path)
            self._log.use(self._writer)

    def try_writing(self) -> None:
        """``StoreError`` unless there is room for more than a small change; leaves nothing behind."""
        name, filler = "room", "." * _ROOM
        self.transact(lambda db: db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, filler)))
        self.transact(lambda db: db.execute("DELETE FROM meta WHERE name = ?", (name,)))

    def fold(self) -> None:
        """Complete a fold of the write-ahead log that a reader held up."""
        with self._writing:
            if self._log is not None:
                self._log.retry()

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
