"""The objects of the embedded cluster, by kind and key, as an API server keeps them.

Each object has a uid that is never given again, a resource version that grows with every write, a generation that grows
with every change of what was asked for, and the virtual time of its creation. What Bursar writes (status, labels,
annotations, the node of a pod) is kept apart from what was applied, so that applying again never takes it away.

Changes are staged and then kept or dropped as a whole; a dropped stage leaves no trace, not even in the counters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from bursar.objects.corekinds import POD
from bursar.objects.kinds import Kind
from bursar.objects.kindset import TypedObject

Body = dict[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp(ms: int) -> str:
    """The time as Kubernetes writes it; with milliseconds only where there are some."""
    moment = _EPOCH + timedelta(milliseconds=ms)
    return moment.isoformat(timespec="milliseconds" if ms % 1000 else "seconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Stored:
    """One object. Replaced, never changed."""

    kind: Kind
    key: str
    applied: TypedObject
    uid: str
    created: int
    generation: int = 1
    version: int = 0
    written: dict[str, Body] = field(default_factory=dict)  # by Bursar: status, labels and annotations
    node: str = ""  # pods: where it was placed
    leaves_since: int | None = None  # pods: when it was told to leave

    def manifest(self) -> Body:
        """The whole object, as somebody who reads it sees it."""
        body = self.applied.body
        whole: Body = {**body, "metadata": self._metadata(body.get("metadata") or {})}
        if self.node:
            whole["spec"] = {**(body.get("spec") or {}), "nodeName": self.node}
        status = {**self._given_status(), **self.written.get("status", {})}
        whole.pop("status", None)
        if status:
            whole["status"] = status
        return whole

    def with_written(self, part: str, value: Mapping[str, Any]) -> Stored:
        """With these keys of a part written; None takes a key away."""
        merged = {**self.written.get(part, {}), **value}
        kept = {name: inner for name, inner in merged.items() if inner is not None}
        return replace(self, written={**self.written, part: kept})

    def _given_status(self) -> Body:
        """A manifest's own status counts where it is a fact about the world (a Node), not where Bursar writes it."""
        if self.kind.strict or self.kind.name == POD.name:
            return {}
        given = self.applied.body.get("status")
        return given if isinstance(given, dict) else {}

    def _metadata(self, given: Body) -> Body:
        metadata: Body = {
            **given,
            "uid": self.uid,
            "resourceVersion": str(self.version),
            "generation": self.generation,
            "creationTimestamp": timestamp(self.created),
        }
        if self.leaves_since is not None:
            metadata["deletionTimestamp"] = timestamp(self.leaves_since)
        for part in ("labels", "annotations"):
            marks = {**(given.get(part) or {}), **self.written.get(part, {})}
            if marks:
                metadata[part] = marks
        return metadata


class Store:
    """The objects that are there now."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, Stored]] = {}
        self.version = 0
        self.uids = 0
        self.touched: dict[tuple[str, str], int] = {}  # since somebody took it: the version of the last change

    def find(self, kind: str, key: str) -> Stored | None:
        return self._objects.get(kind, {}).get(key)

    def kinds(self) -> list[str]:
        """The names of the kinds that there are objects of."""
        return sorted(kind for kind, objects in self._objects.items() if objects)

    def count(self) -> int:
        """How many objects there are."""
        return sum(len(objects) for objects in self._objects.values())

    def all(self, kind: str) -> list[Stored]:
        """All objects of a kind, by key."""
        return [found for _, found in sorted(self._objects.get(kind, {}).items())]

    # What admission sees

    def get(self, kind: str, key: str) -> Mapping[str, Any] | None:
        found = self.find(kind, key)
        return None if found is None else found.manifest()

    def list(self, kind: str) -> Iterator[Mapping[str, Any]]:
        return (found.manifest() for found in self.all(kind))

    # Writing

    def write(self, changed: Stored) -> None:
        """Keep a new state of an object."""
        self.version += 1
        self._put(changed.kind.name, changed.key, replace(changed, version=self.version))

    def remove(self, kind: str, key: str) -> None:
        self.version += 1
        self._put(kind, key, None)

    def load(self, stored: Stored) -> None:
        """An object as it was before a restart: no change."""
        self._objects.setdefault(stored.kind.name, {})[stored.key] = stored

    def touch(self, kind: str, key: str) -> None:
        """Something about the object changed that its manifest does not show."""
        found = self.find(kind, key)
        if found is not None:
            self.write(found)

    def _put(self, kind: str, key: str, stored: Stored | None) -> None:
        if stored is not None:
            self._objects.setdefault(kind, {})[key] = stored
            self.touched[kind, key] = stored.version
        else:
            del self._objects[kind][key]
            self.touched[kind, key] = self.version

    def stage(self) -> Stage:
        """Somewhere to try changes."""
        return Stage(self)

    def take(self, stage: Stage) -> None:
        """Make what was staged the present state."""
        self.version, self.uids = stage.version, stage.uids
        for (kind, key), stored in stage.changed.items():
            if stored is not None or self.find(kind, key) is not None:
                self._put(kind, key, stored)


class Stage(Store):
    """Changes on top of a store; what is not changed is looked up there."""

    def __init__(self, base: Store) -> None:
        super().__init__()
        self._base = base
        self.version, self.uids = base.version, base.uids
        self.changed: dict[tuple[str, str], Stored | None] = {}

    def find(self, kind: str, key: str) -> Stored | None:
        if (kind, key) in self.changed:
            return self.changed[kind, key]
        return self._base.find(kind, key)

    def all(self, kind: str) -> list[Stored]:
        found = {stored.key: stored for stored in self._base.all(kind)}
        for (changed_kind, key), stored in self.changed.items():
            if changed_kind != kind:
                continue
            if stored is not None:
                found[key] = stored
            else:
                found.pop(key, None)
        return [found[key] for key in sorted(found)]

    def _put(self, kind: str, key: str, stored: Stored | None) -> None:
        self.changed[kind, key] = stored

    def apply(self, given: TypedObject, now: int, *, anew: bool = False) -> Stored:
        """Create the object, or change what is asked for; ``anew``: it replaces one that has ended."""
        known = self.find(given.kind.name, given.key)
        if known is None or anew:
            self.uids += 1
            stored = Stored(given.kind, given.key, given, f"{given.key}#{self.uids}", now)
        else:
            changed = _asked(known.applied.body) != _asked(given.body)
            stored = replace(known, applied=given, generation=known.generation + changed)
        self.write(stored)
        return stored


def _asked(body: Body) -> Body:
    return {part: value for part, value in body.items() if part not in {"metadata", "status"}}
