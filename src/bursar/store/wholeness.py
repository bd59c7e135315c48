"""Whether a store file is whole, and how its write-ahead log is folded into it.

While a server runs, its last changes are in the write-ahead log beside the file. A copy of the file alone looks like a
good, older store, at worst like an empty one. Two marks in table ``meta`` tell it apart: before the log is folded into
the file, ``folded`` gets a new value; after it, ``followed`` gets the same value, in the log. So a file without its log
has two values, and everything that reads both, such as a backup or a clean stop, has equal ones.

A log that belongs to another file is found the same way: ``folded`` in the file alone must be the value in the log or
the one before it.

A fold can be partial, because a reader still needs an older state; then it is repeated before the marks change.
"""

from __future__ import annotations

import secrets
import sqlite3
from pathlib import Path
from typing import Final

from bursar.store import schema
from bursar.store.schema import CutOffStoreError

FOLDED: Final = "folded"
BEFORE: Final = "folded_before"
FOLLOWED: Final = "followed"
_BYTES: Final = 16_000_000  # in the log, when it is folded
_FIRST: Final = 16  # commits until the first fold, which tells how many pages a commit takes
_MOST: Final = 4_096
_HEADER: Final = 32  # bytes of a log without any change in it
_ADVICE: Final = (
    "copy a store with `bursar backup`, also while a server writes it; to go on with the older state that is here:"
    " `bursar restore FILE --accept-cut-off`"
)


def marks(db: sqlite3.Connection) -> dict[str, str]:
    rows = db.execute("SELECT name, value FROM meta WHERE name IN (?, ?, ?)", (FOLDED, BEFORE, FOLLOWED))
    return {str(name): str(value) for name, value in rows}


def new_mark() -> str:
    return secrets.token_hex(8)


def check_whole(db: sqlite3.Connection, path: Path) -> None:
    """``CutOffStoreError`` if what was in the write-ahead log is missing, or the end of the file is."""
    found = marks(db)
    if _has_log(path):
        return
    if found.get(FOLDED) != found.get(FOLLOWED):
        problem = "is cut off: it was copied while a server wrote it, and its last changes are not in it"
        raise CutOffStoreError(path, problem, _ADVICE)
    (pages,), (size,) = (db.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
    if path.stat().st_size < pages * size:
        problem = f"is cut off: the file has {path.stat().st_size:,} bytes of {pages * size:,}"
        raise CutOffStoreError(path, problem, "copy it again, or go on with the newest backup")


def check_log(db: sqlite3.Connection, path: Path) -> None:
    """``CutOffStoreError`` if the write-ahead log belongs to another file. Only while no other process writes.

    A fold that was killed leaves a file of old and new pages, which alone may be unreadable or lack its mark. With its
    log it is whole, so only a mark that is neither tells of another file.
    """
    found = marks(db)
    if FOLDED not in found or not _has_log(path):
        return
    alone = schema.connect_alone(path)
    try:
        held = marks(alone).get(FOLDED)
    except sqlite3.DatabaseError:
        held = None
    finally:
        alone.close()
    if held is not None and held not in {found[FOLDED], found.get(BEFORE)}:
        problem = f"the write-ahead log beside it ({schema.log_of(path).name}) belongs to another file"
        raise CutOffStoreError(path, problem, "nothing was changed; move both away, and restore a backup")


def _has_log(path: Path) -> bool:
    log = schema.log_of(path)
    return log.exists() and log.stat().st_size > _HEADER


class LogFolder:
    """Folds the log of a writing connection into the file, whenever it has some megabytes."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._commits = 0
        self._every = _FIRST
        self._pages = _BYTES // int(db.execute("PRAGMA page_size").fetchone()[0])
        self._mark = ""  # of a fold that is not complete yet
        self.folded = True  # whether the marks are equal: a file without its log would then be found

    def use(self, db: sqlite3.Connection) -> None:
        """Go on with another connection to the same file."""
        self._db = db

    def committed(self) -> None:
        """A transaction was committed; fold if it is time to."""
        self._commits += 1
        if self._commits >= self._every or self._mark:
            self.fold()

    def fold(self) -> None:
        """Begin a fold, or complete the one that was begun. If the disk refuses, the log keeps everything."""
        try:
            self._begin()
            _, pages, done = self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if pages == done:
                self._end(pages)
        except sqlite3.OperationalError:
            return  # the disk is full or fails: the next commit says so to its callers, and tries again

    def _begin(self) -> None:
        if self._mark:
            return
        mark = new_mark()
        write = "INSERT OR REPLACE INTO meta SELECT ?, coalesce((SELECT value FROM meta WHERE name = ?), '')"
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.execute(write, (BEFORE, FOLDED))
            self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (FOLDED, mark))
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._mark, self.folded = mark, False

    def _end(self, pages: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (FOLLOWED, self._mark))
        if self._commits:
            self._every = max(1, min(_MOST, self._every * self._pages // max(1, pages)))
        self._mark, self.folded, self._commits = "", True, 0

    def retry(self) -> None:
        """Complete a fold that a reader held up."""
        if self._mark:
            self.fold()
