"""Clusters as they are on the disk: of now, to start from, or of any moment of the past, to look at.

A cluster of the past is a whole one, with engine and queue, so everything that can be asked of the present can be asked
of it. The last few are kept. It never settles and nothing of it is written. A store file can be looked at this way
without a server.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock, RLock

import msgspec

from bursar.policies.plugin import Registry
from bursar.server.moments import Moment, entry_of
from bursar.server.trimming import give_back
from bursar.sim.cluster import Cluster
from bursar.store import snapshots
from bursar.store.store import Store

META = "cluster"
_KEPT = 4
_CLAIMS_KEPT = 50_000  # in all of them together; one is kept however large


class Counters(msgspec.Struct, frozen=True):
    """What a cluster counts, besides its objects; written with every batch."""

    now: int = 0
    uids: int = 0
    version: int = 0
    changes: int = 0

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


def counters(store: Store) -> Counters:
    text = store.meta(META)
    return Counters() if text is None else msgspec.json.decode(text, type=Counters)


def present(store: Store, registry: Registry) -> Cluster:
    """The cluster as it was when the last batch was written."""
    cluster = _restored(store, registry, store.last_seq)
    known = counters(store)
    rows = store.stream("SELECT kind, key, version, body FROM objects ORDER BY kind, key")
    cluster.resume(known.now, known.uids, known.version, rows)
    give_back()
    return cluster


def past(store: Store, registry: Registry, moment: Moment) -> Cluster:
    """The cluster as it was at a moment."""
    cluster = _restored(store, registry, moment.seq)
    rows = store.stream(
        "SELECT kind, key, version, body FROM object_history WHERE body IS NOT NULL AND id IN"
        " (SELECT max(id) FROM object_history WHERE id <= ? GROUP BY kind, key) ORDER BY kind, key",
        entry_of(store, moment.version),
    )
    cluster.resume(moment.at, counters(store).uids, moment.version, rows)
    give_back()
    return cluster


def _restored(store: Store, registry: Registry, seq: int) -> Cluster:
    """A cluster without objects whose engine is as it was after a record; the snapshot is out of memory again."""
    cluster = Cluster(registry, manifests=store.manifest)
    snapshots.restore(store, cluster.engine, seq)
    give_back()
    return cluster


class Archive:
    """The clusters of the past that somebody asked for lately."""

    def __init__(self, store: Store, registry: Registry, kept: int = _KEPT) -> None:
        self.store = store
        self._registry = registry
        self._kept = kept
        self._lock = Lock()
        self._clusters: OrderedDict[Moment, tuple[RLock, Cluster]] = OrderedDict()

    def at(self, moment: Moment) -> tuple[RLock, Cluster]:
        """The cluster of a moment, and the lock to hold while reading it. One at a time is built."""
        with self._lock:
            found = self._clusters.get(moment)
            if found is None:
                found = RLock(), past(self.store, self._registry, moment)
                self._clusters[moment] = found
                while len(self._clusters) > 1 and self._too_much():
                    self._clusters.popitem(last=False)
            else:
                self._clusters.move_to_end(moment)
            return found

    def _too_much(self) -> bool:
        claims = sum(len(cluster.engine.state.claims) for _, cluster in self._clusters.values())
        return len(self._clusters) > self._kept or claims > _CLAIMS_KEPT

    def scratch(self, moment: Moment) -> Cluster:
        """A cluster of a moment that nobody else sees, to try changes on."""
        return past(self.store, self._registry, moment)
