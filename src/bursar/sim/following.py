"""A cluster that follows another one by its journal and its objects: a copy that stays near the original.

A step is given by the next journal lines and the rows of the objects that changed meanwhile, and ends where the
original was at rest, or, for moments of the past, anywhere. Where the rows come from is the caller's business.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, NamedTuple, cast

from msgspec.structs import replace

from bursar.control.admission import CONFIGURATION, ObjectChange
from bursar.control.controller import Controller
from bursar.control.following import FollowingController
from bursar.objects.kinds import DEVICE_KINDS, POD, KindSet
from bursar.sim.cluster import Cluster
from bursar.sim.objects import ObjectStore, Stored
from bursar.sim.persistence import decode
from bursar.sim.pods import ENDED, PodLife

FollowedRow = tuple[str, str, int, bytes | None]
"""(kind, key, version, record) of an object that changed; no record if it is gone."""


class FollowingCluster(Cluster):
    """Goes where another cluster went. It is restored like that one (``resume``), and then led on."""

    controls: ClassVar[type[Controller]] = FollowingController

    def follow(self, lines: Iterable[bytes], now: int, uids: int, version: int, rows: Iterable[FollowedRow]) -> None:
        """The other cluster wrote these journal lines and objects, and came to this time and these counters."""
        asked = self.engine.follow(lines)
        followed = follow_rows(self._store, self._pods, self.kinds, rows)
        self._clock.skip_to(now)
        self._store.uids, self._store.version, self._store.taken = uids, version, version
        cast("FollowingController", self.controller).follow(*followed, asked)

    def rest(self) -> bool:
        """The other cluster is at rest here; False if this one is not, so that it is no copy."""
        before = self._store.version
        while cast("FollowingController", self.controller).rest():
            if not self._pods.seen:
                self.take_news()
                return self._store.version == before
            while self._pods.seen:
                self._pods.seen.popleft()()
        return False


class Followed(NamedTuple):
    """What rows mean for a controller."""

    changes: list[ObjectChange]  # of objects that it reads
    gone: list[str]  # uids of pods that are gone or have ended
    pods: list[tuple[str, str]]  # keys and uids of others that came or changed


def follow_rows(store: ObjectStore, pods: PodLife, kinds: KindSet, rows: Iterable[FollowedRow]) -> Followed:
    """Objects as another cluster has them now: rows (kind, key, version, record), without a record if it is gone."""
    found = Followed([], [], [])
    for kind, key, number, text in rows:
        stored, pod = (None, None) if text is None else decode(kinds, store.manifests, kind, key, number, text)
        if kind == POD.name:
            uid = pods.follow(key, pod)
            store.follow(kind, key, stored)
            found.gone.extend([uid] if uid else [])
            if pod is not None and pod.phase in ENDED:
                found.gone.append(pod.uid)
            elif pod is not None:
                found.pods.append((key, pod.uid))
            continue
        known = store.find(kind, key)
        given = None
        if stored is not None:
            given = stored.applied if known is None or known.applied_as != stored.applied_as else None
            stored = replace(stored, held=given.body if given is not None else cast("Stored", known).held)
        store.follow(kind, key, stored)
        noted = kinds.find(kind)
        if (stored is None or given is not None) and (noted.kind == CONFIGURATION or noted in DEVICE_KINDS):
            found.changes.append(ObjectChange(noted, key, given))
    return found
