"""The followed cluster as the server's answers read a cluster, without a copy of anything.

``FollowedView`` looks at the ledger, the object cache and the pods of a ``ClusterFollower``. Objects and pods are made
when a request needs them. A started pod counts as running here, bound or not, because its quotas count it.
Trials go on layers above it. ``ActingCluster`` decides and acts on such layers, in a process that ends with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, cast

from bursar.answers.follower import WrittenParts
from bursar.control.admission import Admission
from bursar.control.observing import ObservingController
from bursar.kube.controller.mirror import Mirror
from bursar.kube.controller.object_cache import CachedObject
from bursar.kube.controller.patches import OWN_LABELS
from bursar.kube.controller.pod_model import manifest_of, milliseconds
from bursar.kube.controller.pod_sync import TrackedPod
from bursar.kube.controller.work_queue import Parts
from bursar.objects.kinds import NAMESPACE, POD
from bursar.policies.plugin import D, ObjectView, Registry
from bursar.policies.results import Check
from bursar.sim.apply import Staging
from bursar.sim.cluster import Cluster
from bursar.sim.objects import ManifestReader, ObjectStore, Stored
from bursar.sim.pods import PENDING, RUNNING, TERMINATING, Clock, PodLife, SimPod
from bursar.sim.rehearsal import LayeredPods

_LEAVES_AFTER = 1  # milliseconds in which an evicted pod leaves in a trial: nothing leaves at once


class LiveObjects(ObjectStore):
    """The objects of a followed cluster, to read."""

    def __init__(self, mirror: Mirror, written: WrittenParts) -> None:
        super().__init__(ManifestReader(mirror.cache.kinds))
        self._mirror = mirror
        self._written = written
        self.version = mirror.cache.version

    def find(self, kind: str, key: str) -> Stored | None:
        if kind == POD.name:
            tracked = self._mirror.pods.by_key.get(key)
            return None if tracked is None else self._pod(tracked)
        known = self._mirror.cache.find(kind, key)
        return None if known is None else self._object(known)

    def kinds(self) -> list[str]:
        return sorted(kind.name for kind in self._mirror.cache.kinds if self.has(kind.name))

    def has(self, kind: str) -> bool:
        if kind == POD.name:
            return bool(self._mirror.pods.by_key)
        return any(True for _ in self._mirror.cache.objects(kind))

    def count(self) -> int:
        return sum(len(self.all(kind)) for kind in self.kinds())

    def all(self, kind: str, namespace: str | None = None) -> list[Stored]:
        if kind == POD.name:
            pods = self._mirror.pods.by_key
            keys = sorted(key for key in pods if namespace in {None, key.partition("/")[0]})
            return [self._pod(pods[key]) for key in keys]
        return [self._object(known) for known in self._mirror.cache.known(kind, namespace)]

    def derive(self, made: type[D], make: Callable[[ObjectView], D]) -> D:
        return self._mirror.cache.derive(made, make)

    def _object(self, known: CachedObject) -> Stored:
        given = known.given
        metadata = given.body.get("metadata") or {}
        return Stored(
            given.kind,
            given.key,
            known.uid,
            milliseconds(str(metadata.get("creationTimestamp") or "")),
            self.manifests,
            written=_written(self._written.get((given.kind.name, given.key), {})),
            version=self.version,
            held=given.body,
        )

    def _pod(self, tracked: TrackedPod) -> Stored:
        meta = tracked.seen.metadata
        ours = {name: value for name, value in meta.labels.items() if name in OWN_LABELS}
        return Stored(
            POD,
            tracked.key,
            tracked.uid,
            milliseconds(meta.creation_timestamp),
            self.manifests,
            written={"labels": ours} if ours else {},
            version=self.version,
            node=_place(tracked),
            held=manifest_of(tracked.seen),
        )


def _written(parts: Parts) -> dict[str, dict[str, Any]]:
    return {
        part: {name: value for name, value in (output.value or {}).items() if value is not None}
        for part, output in parts.items()
    }


def _place(tracked: TrackedPod) -> str:
    """The node of a pod, also of a started one that is not bound yet."""
    if tracked.seen.spec.node_name:
        return tracked.seen.spec.node_name
    return "" if tracked.pending or tracked.record is None else tracked.record.place


class LivePods(MutableMapping[str, SimPod]):
    """The pods of a followed cluster by key, to read: each is made when it is asked for."""

    def __init__(self, mirror: Mirror) -> None:
        self._pods = mirror.pods.by_key

    def __getitem__(self, key: str) -> SimPod:
        tracked = self._pods[key]
        phase = PENDING if tracked.pending else TERMINATING if tracked.seen.leaving else RUNNING
        found = SimPod(tracked.uid, key, None, _LEAVES_AFTER, phase=phase, node=_place(tracked))
        found.deleted = tracked.seen.leaving
        found.message = tracked.problem
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._pods)

    def __len__(self) -> int:
        return len(self._pods)

    def __setitem__(self, key: str, pod: SimPod) -> None:
        raise TypeError("a followed cluster is only read")

    def __delitem__(self, key: str) -> None:
        raise TypeError("a followed cluster is only read")


class FollowedView(Cluster):
    """A followed cluster as it is now; of use until the next event is applied."""

    def __init__(self, registry: Registry, mirror: Mirror, written: WrittenParts) -> None:  # nothing of its own
        self.registry = registry
        self.kinds = mirror.cache.kinds
        self.engine = mirror.engine
        self.controller = mirror.controller
        self.events = []
        self._owned = {}
        self._clock = Clock(mirror.notes.now())
        self._store = LiveObjects(mirror, written)
        self._live(LivePods(mirror))
        self._tracked = mirror.pods.by_key

    def _live(self, pods: MutableMapping[str, SimPod]) -> None:
        self._pods = PodLife(self._store, self._clock, self.controller)
        self._pods.by_key = pods
        self.staging = Staging(self.kinds, Admission(self.registry, self.kinds), self._clock, self._pods)
        self.staging.keeps_ages = True

    def obstacle(self, key: str) -> str:
        """Why a pending pod is not decided at all; empty if it is."""
        tracked = self._tracked.get(key)
        return tracked.problem if tracked is not None and tracked.pending and tracked.counted is None else ""

    def unscheduled(self, key: str) -> str:
        """What the scheduler says of a started pod that is not bound."""
        tracked = self._tracked.get(key)
        if tracked is None or tracked.pending or tracked.seen.spec.node_name:
            return ""
        return tracked.seen.unschedulable

    def explain(self, key: str) -> Check | None:
        problem = self.obstacle(key)
        if not problem:
            return super().explain(key)
        check = Check("readable", False, problem, (), "", True)
        return Check(f"{key} is pending", False, problem, (check,))

    def namespaces(self) -> set[str]:
        """The namespaces that answers may name."""
        return {stored.key for stored in self._store.all(NAMESPACE.name)} | {
            key.partition("/")[0] for key in self._tracked
        }


class ActingCluster(Cluster):
    """Goes on from a followed cluster in a process of its own, which ends afterwards: changes are made in it."""

    def __init__(self, live: FollowedView) -> None:  # nothing of its own but the layers
        self.registry = live.registry
        self.kinds = live.kinds
        self.engine = live.engine
        self.events = []
        self._owned = {}
        self._clock = Clock(live.now())
        self._store = live.objects.stage()
        controller = cast("ObservingController", live.controller)
        controller.wake_expected()
        self.controller = controller.acting(self)
        self._pods = PodLife(self._store, self._clock, self.controller)
        self._pods.by_key = LayeredPods(live.pod_states, _LEAVES_AFTER)
        self.staging = Staging(self.kinds, Admission(self.registry, self.kinds), self._clock, self._pods)
        self.staging.keeps_ages = True
        self.settle()
        self.take_news()
