"""What is kept of a store and for how long: copies for backups, and the history that ``--retain`` keeps.

A copy is made in the store's folder, and has no name any more when it is sent. It needs as much room as the content
of the store.

History is pruned up to a snapshot, so with a retention a snapshot is taken when a tenth of that time has passed since
the last one. At least the time that was asked for is kept, and at most a tenth more once the server has run that long.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import IO

from bursar.server.changes import forget_changes
from bursar.server.problems import RefusedError
from bursar.store import upkeep
from bursar.store.store import Store


@dataclass(frozen=True, slots=True)
class StoreCopy:
    """A copy of a store on its way to who asked for it."""

    file: IO[bytes]
    size: int

    def parts(self) -> Iterator[bytes]:
        with self.file:
            while part := self.file.read(_PART):
                yield part


_PART = 1024 * 1024  # bytes of a copy at a time
_SHORTEST = 60_000  # ms between two snapshots that only retention asks for


class StoreCopies:
    """Makes copies of a store, one at a time. A copy has no name any more, so it is gone when it was sent or not."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()

    def make(self) -> StoreCopy:
        if not self._lock.acquire(blocking=False):
            raise RefusedError(409, "another backup is being made; try again when it is done")
        try:
            self._check_room()
            with TemporaryDirectory(prefix=_prefix(self._store.path), dir=self._store.path.parent) as folder:
                path = Path(folder) / "copy.db"
                upkeep.backup(self._store.path, path)
                return StoreCopy(path.open("rb"), path.stat().st_size)
        finally:
            self._lock.release()

    def _check_room(self) -> None:
        (pages,), (free,), (size,) = (
            self._store.rows(f"PRAGMA {name}")[0] for name in ("page_count", "freelist_count", "page_size")
        )
        needed = (pages - free) * size
        there = shutil.disk_usage(self._store.path.parent).free
        if there < needed:
            advice = f"on its machine, copy it to another disk: bursar backup --data {self._store.path} FILE"
            problem = f"a copy needs {needed:,} bytes beside the store, and {there:,} are free; {advice}"
            raise RefusedError(507, problem)


class Retention:
    """Keeps history for a time (ms), and prunes what is older."""

    def __init__(self, store: Store, kept: int) -> None:
        self._store = store
        self._kept = kept
        self.every = max(_SHORTEST, kept // 10)

    def wants_snapshot(self, now: int) -> bool:
        """Whether there is something new that a snapshot should make prunable later."""
        rows = self._store.rows("SELECT seq, at FROM snapshots ORDER BY seq DESC LIMIT 1")
        seq, at = rows[0] if rows else (0, 0)
        return self._store.last_seq > int(seq) and now - int(at) >= self.every

    def prune(self, now: int) -> int:
        """Returns how many journal records went."""
        gone = upkeep.prune(self._store, now - self._kept)
        if gone:
            forget_changes(self._store, self._store.pruned_to)
        return gone


def _prefix(store: Path) -> str:
    return f".{store.name}.backup-"


def remove_leftovers(store: Path) -> None:
    """Copies that a killed server was making."""
    for folder in store.parent.glob(f"{_prefix(store)}*"):
        shutil.rmtree(folder, ignore_errors=True)
