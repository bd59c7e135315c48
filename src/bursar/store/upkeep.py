"""Looking after a store: copies while it is in use, and removing history that nobody wants to keep."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from bursar.store import schema
from bursar.store.errors import StoreError
from bursar.store.mentions import BLOCK
from bursar.store.store import Store


def backup(store: Store, target: Path | str) -> None:
    """A copy of this moment, while work goes on; refuses to touch a file that exists."""
    target = Path(target)
    if target.exists():
        raise StoreError(target, "exists already", "nothing was overwritten; choose another name")
    scratch = target.with_name(f"{target.name}.new-{os.getpid()}")
    try:
        with closing(schema.connect_reader(store.path)) as source, closing(sqlite3.connect(scratch)) as copy:
            copy.execute("PRAGMA synchronous = FULL")
            source.backup(copy)
        os.link(scratch, target)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(target, f"cannot be written: {error}") from error
    finally:
        for leftover in (scratch, *(scratch.with_name(scratch.name + end) for end in ("-wal", "-shm", "-journal"))):
            leftover.unlink(missing_ok=True)
    schema.sync_folder(target)


def prune(store: Store, before: int) -> int:
    """Remove what the newest snapshot at or before a time (ms) makes needless for going on from there.

    Returns how many journal records went. What was before that snapshot can no longer be asked for.
    """
    seq = store.rows("SELECT max(seq) FROM snapshots WHERE at <= ?", before)[0][0]
    if seq is None or seq <= store.pruned_to:
        return 0

    def write(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM journal WHERE seq <= ?", (seq,))
        db.execute("DELETE FROM snapshots WHERE seq < ?", (seq,))
        db.execute("DELETE FROM mentions WHERE (block + 1) * ? <= ?", (BLOCK, seq))
        db.execute(
            "DELETE FROM object_history WHERE seq <= ?1 AND (body IS NULL OR id NOT IN"
            " (SELECT max(id) FROM object_history WHERE seq <= ?1 GROUP BY kind, key))",
            (seq,),
        )
        db.execute("DELETE FROM manifests WHERE number NOT IN (SELECT manifest FROM object_history)")
        db.execute("INSERT OR REPLACE INTO meta VALUES ('pruned_to', ?)", (str(seq),))

    gone = int(seq) - store.pruned_to
    store.transact(write)
    store.pruned_to = int(seq)
    return gone


def check(store: Store) -> list[str]:
    """SQLite's own full check of the file; what it finds, nothing if all is well. Reads everything."""
    found = [str(row[0]) for row in store.rows("PRAGMA integrity_check")]
    return [] if found == ["ok"] else found
