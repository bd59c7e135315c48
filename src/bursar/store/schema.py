"""The schema of a store file, how it is opened and locked, and its errors.

A store is recognised by its application id, and its format by ``user_version``; other files are refused untouched.
Writers use WAL with full synchronisation: a commit that returned is on the disk. Readers open the file read-only, also
while another process writes it, and also on a read-only medium.

One process writes a store. Its lock is on a file beside the store: closing any handle of a file drops all locks that
the process has on it, and SQLite relies on its own.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote


class StoreError(Exception):
    """The store cannot do what was asked; nothing was changed by the attempt."""

    def __init__(self, path: Path, problem: str, advice: str = "") -> None:
        super().__init__(f"{path}: {problem}" + (f" ({advice})" if advice else ""))
        self.path = path
        self.problem = problem
        self.advice = advice


class ForeignFileError(StoreError):
    """The file is no store of Bursar's, or one of a newer version. It was not touched."""


class DamagedStoreError(StoreError):
    """The file is a store, but parts of it cannot be read or do not fit together."""


class CutOffStoreError(StoreError):
    """Part of the store is missing: its write-ahead log, or the end of the file. The file was not touched."""


class StoreBusyError(StoreError):
    """Another process writes this store."""


def damaged(path: Path, error: object) -> DamagedStoreError:
    advice = "the file was left as it is; go on with the newest backup, or see what `sqlite3 FILE .recover` still finds"
    return DamagedStoreError(path, f"damaged: {error}", advice)


APPLICATION_ID = 0x42757273  # "Burs"
VERSION = 2
_MODE = 0o600  # the store holds every manifest
_PAGE = 4_096  # a small change writes a dozen pages to the log; a restart reads larger ones a tenth faster

_TABLES = {
    "journal": "seq INTEGER PRIMARY KEY, line BLOB NOT NULL",
    "objects": "kind TEXT, key TEXT, version INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (kind, key)",
    # Every change of an object, with the journal record and the time it belongs to; no body: it was deleted.
    "object_history": "id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, at INTEGER NOT NULL, kind TEXT NOT NULL,"
    " key TEXT NOT NULL, version INTEGER NOT NULL, body BLOB, manifest INTEGER NOT NULL",
    # What objects of the history name by number.
    "manifests": "number INTEGER PRIMARY KEY, text BLOB NOT NULL",
    # Of each block of journal records the marks of the claims in it, sorted.
    "mentions": "block INTEGER PRIMARY KEY, marks BLOB NOT NULL",
    "snapshots": "seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, head TEXT NOT NULL, digest TEXT NOT NULL,"
    " state BLOB NOT NULL",
    "meta": "name TEXT PRIMARY KEY, value TEXT NOT NULL",
}
_INDEX = "CREATE INDEX object_history_by_key ON object_history (kind, key, seq, id)"


def create_file(path: Path) -> None:
    """A new, empty store; the file appears whole or not at all, and never in place of another one."""
    with new_file(path) as scratch:
        create_private(scratch)
        connection = sqlite3.connect(scratch, isolation_level=None)
        try:
            _write_schema(connection)
        finally:
            connection.close()


def create_private(path: Path) -> None:
    """An empty file that only its owner may read; SQLite gives the files beside it the same mode."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE))


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Write a store under another name in the same folder; afterwards it has its own, durably.

    It appears whole or not at all, and never in place of another one or beside a log that is not its own.
    """
    check_free(path)
    scratch = path.with_name(f"{path.name}.new-{os.getpid()}")
    try:
        yield scratch
        sync_file(scratch)
        os.link(scratch, path)
    except FileExistsError:
        raise StoreError(path, "exists already", "nothing was overwritten; choose another name") from None
    except (OSError, sqlite3.Error) as error:
        raise StoreError(path, f"cannot be created: {error}") from error
    finally:
        for leftover in (scratch, *(scratch.with_name(scratch.name + end) for end in ("-wal", "-shm", "-journal"))):
            leftover.unlink(missing_ok=True)
    sync_folder(path)


def check_free(path: Path) -> None:
    """``StoreError`` unless a store can be made there."""
    if path.exists():
        raise StoreError(path, "exists already", "nothing was overwritten; choose another name")
    log = log_of(path)
    if log.exists() and log.stat().st_size:
        advice = f"bring the store back beside {log.name}, or move that away"
        raise StoreError(path, "there is no such file, but the write-ahead log of one", advice)


def log_of(path: Path) -> Path:
    """The write-ahead log of a store."""
    return path.with_name(path.name + "-wal")


def _write_schema(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA page_size = {_PAGE}")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN")
    for name, columns in _TABLES.items():
        connection.execute(f"CREATE TABLE {name} ({columns}) STRICT")
    connection.execute(_INDEX)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")
    connection.execute("PRAGMA journal_mode = WAL")


def connect_reader(path: Path) -> sqlite3.Connection:
    """A connection that cannot write, to a file that is a store."""
    if not path.is_file():
        raise StoreError(path, "there is no such file")
    try:
        connection = _connect(path, "mode=ro")
        _identify(connection, path)
    except sqlite3.OperationalError as error:
        connection = _connect_unwritable(path, error)
        _identify(connection, path)
    return connection


def connect_writer(path: Path) -> sqlite3.Connection:
    """The connection that writes. Only for a file that ``connect_reader`` has accepted."""
    connection = _connect(path, "mode=rw")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")  # ``wholeness`` folds the log
    return connection


def connect_alone(path: Path) -> sqlite3.Connection:
    """A connection that reads the file without its write-ahead log."""
    return _connect(path, "mode=ro&immutable=1")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    address = f"file:{quote(str(path.absolute()))}?{mode}"
    return sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False, timeout=10)


def _connect_unwritable(path: Path, error: sqlite3.Error) -> sqlite3.Connection:
    """On a read-only medium SQLite cannot share a WAL; without one there is nothing to share."""
    log = log_of(path)
    if os.access(path.parent, os.W_OK) or (log.exists() and log.stat().st_size > 0):
        advice = "to read it elsewhere, copy it together with its -wal file to a folder that can be written"
        raise StoreError(path, f"cannot be opened: {error}", advice) from error
    return _connect(path, "immutable=1")


def _identify(connection: sqlite3.Connection, path: Path) -> None:
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        raise
    except sqlite3.DatabaseError as error:
        connection.close()
        if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
            raise damaged(path, error) from error
        raise ForeignFileError(path, f"is no store of Bursar's: {error}", "it was left as it is") from error
    if application != APPLICATION_ID:
        connection.close()
        raise ForeignFileError(path, "is a database, but no store of Bursar's", "it was left as it is")
    if version != VERSION:
        connection.close()
        advice = "use the version of Bursar that wrote it, or a newer one"
        raise ForeignFileError(path, f"has store format {version}; this Bursar knows format {VERSION}", advice)


def probe(connection: sqlite3.Connection, path: Path) -> None:
    """A quick look at what a store stands on. The journal's content is proven line by line when it is replayed."""
    try:
        found = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        missing = sorted(set(_TABLES) - found)
        if missing:
            raise damaged(path, f"no table {', '.join(missing)}")
        for table in ("meta", "objects", "snapshots"):
            (verdict,) = connection.execute(f"PRAGMA quick_check('{table}')").fetchone()
            if verdict != "ok":
                raise damaged(path, verdict)
    except sqlite3.DatabaseError as error:
        raise damaged(path, error) from error


def sync_file(path: Path) -> None:
    """What was written into the file is on the disk."""
    file = os.open(path, os.O_RDWR)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def sync_folder(path: Path) -> None:
    """Make the name of a new file as durable as its content."""
    folder = os.open(path.absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class WriterLock:
    """Held from construction until ``release`` or the end of the process."""

    def __init__(self, store: Path) -> None:
        self.path = store.with_name(store.name + "-lock")
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(store, f"cannot be opened for writing: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._file, 20, 0).decode("ascii", "replace").strip()
            os.close(self._file)
            advice = "only one process may write a store; ask that one, or stop it first"
            raise StoreBusyError(store, f"in use by process {owner or 'unknown'}", advice) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Give it up. The file stays: removing it could take it from under another process's feet."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
