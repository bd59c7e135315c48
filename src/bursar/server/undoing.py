"""Taking a change of objects back: the inverse, made of the versions that the objects had before it.

The inverse is a change like any other, checked and made durable like any other. It is refused when an object was
changed since: then that change has to be undone first. What pods lost by the change (their place, their work) does not
come back; the inverse says so, pod by pod.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bursar.objects.corekinds import POD
from bursar.objects.errors import ManifestError
from bursar.objects.kinds import Kind
from bursar.objects.manifests import Document
from bursar.server.changelog import ChangeRecord, ObjectChange, Result
from bursar.sim import records
from bursar.sim.cluster import Cluster
from bursar.sim.pods import EVICTED, RUNNING
from bursar.sim.records import ObjectRecord
from bursar.sim.shelf import Shelf
from bursar.sim.updates import ConflictError
from bursar.store.store import Store


@dataclass(slots=True)
class Inverse:
    """What takes a change back: deletions first, then manifests."""

    number: int
    deletions: list[tuple[Kind, str]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def mixed(self) -> bool:
        return bool(self.deletions and self.bodies)

    def run(self, cluster: Cluster) -> list[tuple[Kind, str, Result]]:
        outcomes: list[tuple[Kind, str, Result]] = []
        if self.deletions:
            cluster.delete(self.deletions)
            outcomes.extend((kind, key, "deleted") for kind, key in self.deletions)
        if self.bodies:
            documents = [Document("", number, body) for number, body in enumerate(self.bodies, 1)]
            outcomes.extend((one.kind, one.key, one.result) for one in cluster.apply(documents))
        return outcomes


def inverse_of(record: ChangeRecord, cluster: Cluster, store: Store) -> Inverse:
    """The inverse of a change; ``ConflictError`` when an object of it is no longer what the change made it."""
    number = record.change.id
    if record.change.verb == "finish":
        raise ManifestError(f"change {number} ended pods, and what has ended does not run again")
    inverse = Inverse(number)
    for change in reversed(record.objects):
        _invert(inverse, change, cluster, store)
    for key in record.evicted:
        pod = cluster.doing(key)
        if pod is not None and pod.phase == EVICTED:
            inverse.lost.append(f"Pod {key} was evicted and stays so; apply it again to start it from the beginning")
        elif pod is None:
            inverse.lost.append(f"Pod {key} was evicted, and is gone")
    if not inverse.deletions and not inverse.bodies:
        raise ConflictError(f"nothing of change {number} is left to undo")
    return inverse


def _invert(inverse: Inverse, change: ObjectChange, cluster: Cluster, store: Store) -> None:
    kind = cluster.kinds.find(change.kind)
    before, after = _versions(store, change)
    shelf = Shelf(cluster.kinds, store.manifest)
    known = cluster.objects.find(change.kind, change.key)
    subject = f"{kind.kind} {change.key}"
    if change.result == "deleted":
        if known is not None:
            raise ConflictError("exists again", subject=subject)
        if before is None:
            raise ConflictError("what it was is no longer in the history", subject=subject)
        inverse.bodies.append(shelf.body(before.applied_as))
        if before.node:
            inverse.lost.append(f"{subject} ran on {before.node} and starts from the beginning")
        return
    if known is None:
        if change.result == "changed":
            raise ConflictError("was deleted since", subject=subject)
        return
    if after is None or known.uid != after.uid or known.body != shelf.body(after.applied_as):
        raise ConflictError("was changed since: undo that first", subject=subject)
    if before is None or before.uid != after.uid:
        inverse.deletions.append((kind, change.key))
        if before is not None:
            inverse.lost.append(f"{subject} had ended before it was created anew, and that one is not brought back")
        elif kind.name == POD.name and _runs(cluster, change.key):
            inverse.lost.append(f"{subject} runs on {known.node}, and what it has done is lost")
    else:
        inverse.bodies.append(shelf.body(before.applied_as))


def _runs(cluster: Cluster, key: str) -> bool:
    pod = cluster.doing(key)
    return pod is not None and pod.phase == RUNNING


def _versions(store: Store, change: ObjectChange) -> tuple[ObjectRecord | None, ObjectRecord | None]:
    """The object before and after the change; None: there was none."""
    before: ObjectRecord | None = None
    for entry in store.object_changes(change.kind, change.key):
        found = None if entry.body is None else records.read(entry.body)
        if entry.version == change.version:
            return before, found
        before = found
    return None, None
