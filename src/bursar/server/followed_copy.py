"""A copy of the cluster in another process: restored from the store's file, then led on by its journal.

A copy of the present goes from batch to batch, and is at rest after each, like the original. If it is not, it is no
copy, and of no use any more. A copy of the past may be anywhere in a batch, and is left as it is.

The file is only open during a step or a question. A process may fork in between, and SQLite must not be carried over.
"""

from __future__ import annotations

import gc
import logging
from contextlib import closing
from pathlib import Path

import msgspec

from bursar.policies.plugin import Registry
from bursar.server import time_travel
from bursar.server.time_travel import Counters, Revision, trim_memory
from bursar.sim.following import FollowingCluster
from bursar.store import schema
from bursar.store.store import Store

LOG = logging.getLogger("bursar.server")
_REACH = 8_000  # records that a copy of the past goes forward for one question
_MARGIN = 2_000  # records between its own moment and the one that was asked for first


class StoreFile:
    """The file of a store that another process writes; open only when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._store: Store | None = None

    def store(self) -> Store:
        if self._store is None:
            self._store = Store.open(self.path, read_only=True, checked=True)
        return self._store

    def manifest(self, number: int) -> bytes:
        return self.store().manifest(number)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None


class FollowedCopy:
    """A cluster that follows the journal of a store, and where it is in it."""

    def __init__(self, file: StoreFile, cluster: FollowingCluster, position: Revision) -> None:
        self.file = file
        self.cluster = cluster
        self.position = position
        gc.freeze()  # what was restored stays: collections need not go through it, nor a fork copy it
        trim_memory()

    @classmethod
    def present(cls, file: StoreFile, registry: Registry) -> FollowedCopy:
        """As of the last batch, at rest."""
        with closing(schema.connect_reader(file.path)) as db:
            db.execute("BEGIN")  # counters, records and objects of one moment
            (seq,) = db.execute("SELECT max(seq) FROM journal").fetchone()
            kept = db.execute("SELECT value FROM meta WHERE name = ?", (time_travel.META,)).fetchone()
            known = Counters() if kept is None else msgspec.json.decode(kept[0], type=Counters)
            seq = file.store().pruned_to if seq is None else seq
            cluster = FollowingCluster(registry, manifests=file.manifest)
            time_travel.restore_engine(file.store(), cluster, seq)
            rows = db.execute("SELECT kind, key, version, body FROM objects ORDER BY kind, key")
            cluster.resume(known.now, known.uids, known.version, rows)
        found = cls(file, cluster, Revision(seq, known.version, known.now))
        if not cluster.rest():
            LOG.warning("a copy of the cluster at record %d is not at rest", seq)
        return found

    @classmethod
    def before(cls, file: StoreFile, registry: Registry, wanted: Revision) -> FollowedCopy:
        """A little before a moment of the past, so that earlier ones are near too."""
        store = file.store()
        base = time_travel.at_record(store, max(store.pruned_to, wanted.seq - _MARGIN))
        base = min(base, wanted, key=lambda one: (one.seq, one.version))
        return cls(file, time_travel.past(store, FollowingCluster(registry, manifests=file.manifest), base), base)

    def reaches(self, wanted: Revision) -> bool:
        """Whether it can go forward to a moment in little time."""
        here = self.position
        return here.seq <= wanted.seq <= here.seq + _REACH and here.version <= wanted.version

    def follow(self, upto: Revision) -> None:
        """Go forward to a moment; one that was passed already changes nothing."""
        here, store = self.position, self.file.store()
        if (upto.seq, upto.version, upto.at) <= (here.seq, here.version, here.at):
            return
        lines = store.load_journal(here.seq + 1, upto.seq) if upto.seq > here.seq else ()
        first, last = (store.last_entry("version", version)[0] for version in (here.version, upto.version))
        query = "SELECT kind, key, version, body FROM object_history WHERE id > ? AND id <= ? ORDER BY id"
        rows = {(row[0], row[1]): row for row in store.stream(query, first, last)}  # of each object the last one
        uids = time_travel.counters(store).uids  # some may not be in use yet
        self.cluster.follow(lines, upto.at, uids, upto.version, rows.values())
        self.position = upto
