"""The upkeep of a store: copies, pruning, checks.

A copy is of one moment, while work goes on. It has no unused pages, and marks of its own, so a write-ahead log of the
store it comes from never fits it.

Pruning first moves the beginning of the journal, in one short transaction. It then removes what is before that, some
thousand rows at a time, so a server that prunes keeps answering. What was not removed before a crash is removed by the
next pruning.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bursar.store import schema, wholeness
from bursar.store.schema import StoreError, WriterLock
from bursar.store.store import Store
from bursar.store.verify import BLOCK

_AT_ONCE = 2_000  # rows removed in one transaction


def backup(source: Path, target: Path) -> None:
    """A copy of this moment; refuses to touch a file that exists. The source may be written meanwhile."""
    with schema.new_file(target) as scratch:
        copy(source, scratch)


def copy(source: Path, target: Path) -> None:
    """The same into a new file that is not durable yet; only its owner may read it."""
    schema.create_private(target)
    try:
        with closing(schema.connect_reader(source)) as db:
            db.execute("VACUUM INTO ?", (str(target),))
        with closing(sqlite3.connect(target, isolation_level=None)) as db:
            own = wholeness.new_mark()
            for name in (wholeness.FOLDED, wholeness.FOLLOWED):
                db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, own))
    except sqlite3.OperationalError as error:
        raise StoreError(target, f"cannot be written: {error}") from error
    except sqlite3.DatabaseError as error:
        raise schema.damaged(source, error) from error


def check(store: Store) -> list[str]:
    """SQLite's own full check of the file; what it finds, nothing if all is well. Reads everything."""
    found = [str(row[0]) for row in store.rows("PRAGMA integrity_check")]
    return [] if found == ["ok"] else found


def prune(store: Store, before: int) -> int:
    """Remove what the newest snapshot at or before a time (ms) makes needless for going on from there.

    Returns how many journal records went. What was before that snapshot can no longer be asked for.
    """
    seq = store.rows("SELECT max(seq) FROM snapshots WHERE at <= ?", before)[0][0]
    gone = 0 if seq is None else max(0, int(seq) - store.pruned_to)
    if gone:
        _begin_at(store, int(seq))
    if store.rows("SELECT 1 FROM journal WHERE seq <= ? LIMIT 1", store.pruned_to):
        _sweep(store)
    return gone


def _begin_at(store: Store, seq: int) -> None:
    def write(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM snapshots WHERE seq < ?", (seq,))
        db.execute("DELETE FROM mentions WHERE (block + 1) * ? <= ?", (BLOCK, seq))
        db.execute("INSERT OR REPLACE INTO meta VALUES ('pruned_to', ?)", (str(seq),))

    store.transact(write)
    store.pruned_to = seq


def _sweep(store: Store) -> None:
    """Remove rows before the beginning; journal records last, because they show that rows are left."""
    last = store.last_entry("seq", store.pruned_to)[0]
    for first in range(0, last + 1, _AT_ONCE):
        store.transact(partial(_sweep_history, seq=store.pruned_to, first=first, end=first + _AT_ONCE))
    first, upto = store.rows("SELECT min(seq), max(seq) FROM journal WHERE seq <= ?", store.pruned_to)[0]
    for end in range(first + _AT_ONCE, upto + _AT_ONCE + 1, _AT_ONCE):
        store.transact(partial(_sweep_journal, seq=min(end - 1, store.pruned_to)))


def _sweep_journal(db: sqlite3.Connection, seq: int) -> None:
    db.execute("DELETE FROM journal WHERE seq <= ?", (seq,))


def _sweep_history(db: sqlite3.Connection, seq: int, first: int, end: int) -> None:
    """Entries (from an id, to another) that later ones replace, and manifests that no entry names any more."""
    rows = db.execute(
        "DELETE FROM object_history WHERE id >= ? AND id < ? AND seq <= ? AND (body IS NULL OR EXISTS"
        " (SELECT 1 FROM object_history AS later WHERE later.kind = object_history.kind"
        " AND later.key = object_history.key AND later.seq <= ? AND later.id > object_history.id))"
        " RETURNING kind, key, manifest",
        (first, end, seq, seq),
    ).fetchall()
    db.executemany(
        "DELETE FROM manifests WHERE number = ?3 AND NOT EXISTS"
        " (SELECT 1 FROM object_history WHERE kind = ?1 AND key = ?2 AND manifest = ?3)",
        set(rows),
    )


def compact(path: Path) -> None:
    """Give the room of what was pruned back to the file system. The store must be closed."""
    path = Path(os.path.realpath(path))
    lock = WriterLock(path)
    smaller = path.with_name(f"{path.name}.compact")
    try:
        smaller.unlink(missing_ok=True)  # of an attempt that was killed
        backup(path, smaller)
        smaller.replace(path)
        schema.sync_folder(path)
    finally:
        lock.release()


def restore(source: Path, target: Path, *, replace: bool = False) -> Path | None:
    """Make a store of a backup. With ``replace``, a store that is there is moved away, with its log; says to where."""
    target = Path(os.path.realpath(target))
    lock = WriterLock(target)
    fresh = target.with_name(f"{target.name}.restored")
    try:
        if not replace:
            schema.check_free(target)
        fresh.unlink(missing_ok=True)  # of an attempt that was killed
        backup(source, fresh)
        moved = _move_away(target)
        fresh.rename(target)
        schema.sync_folder(target)
        return moved
    finally:
        lock.release()


def _move_away(path: Path) -> Path | None:
    """Rename a store and the files beside it, so that they still belong together."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
    away = path.with_name(f"{path.name}.replaced-{stamp}")
    there = [end for end in ("", "-wal", "-shm") if path.with_name(path.name + end).exists()]
    for end in there:
        path.with_name(path.name + end).rename(away.with_name(away.name + end))
    return away if "" in there else None
