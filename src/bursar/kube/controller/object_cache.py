"""The object cache: every object except pods, as manifest for admission and as the control loop last applied it.

Status, labels and annotations that Bursar writes come back with the next event. They are removed before an object is
compared with the cache; otherwise each write would look like a change and cause the next one. Node marks stay, because
pods are placed by them. A GPU node without its mark counts as cordoned: CPU pods are kept off GPU nodes by that mark.
The transition times of conditions are kept, because the next leader has no other source for them.

``Devices`` holds the devices of nodes that DRA drivers publish in ResourceSlices. They reach the control loop as an
annotation of the node. Of a pool only the newest generation counts; slices for more than one node are not counted.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, get_type_hints

import msgspec
from msgspec import structs

from bursar.objects.core import Node
from bursar.objects.devices import ResourceSlice
from bursar.objects.kinds import DEVICE_KINDS, NODE, Kind, KindSet, TypedObject
from bursar.objects.manifests import Document
from bursar.objects.pods import DEVICES
from bursar.objects.refused_pods import RefusedNodes
from bursar.policies.plugin import D, DerivedValues, ObjectView
from bursar.policies.results import Output


class Published(msgspec.Struct, frozen=True):
    """One slice, as far as it is read."""

    node: str
    driver: str
    pool: str
    generation: int
    count: int


def published(given: ResourceSlice) -> Published:
    spec = given.spec
    return Published(spec.node_name, spec.driver, spec.pool.name, spec.pool.generation, len(spec.devices))


class Devices:
    def __init__(self) -> None:
        self._slices: dict[str, Published] = {}  # by name of the slice
        self._by_node: dict[str, set[str]] = {}  # names of slices

    def seen(self, name: str, published: Published) -> set[str]:
        """A slice was added or changed. Returns its present and former nodes."""
        touched = self.gone(name)
        if published.node:
            self._slices[name] = published
            self._by_node.setdefault(published.node, set()).add(name)
            touched.add(published.node)
        return touched

    def gone(self, name: str) -> set[str]:
        known = self._slices.pop(name, None)
        if known is None:
            return set()
        names = self._by_node[known.node]
        names.discard(name)
        if not names:
            del self._by_node[known.node]
        return {known.node}

    def counts(self, node: str) -> dict[str, int]:
        """How many devices of each driver the node has."""
        slices = [self._slices[name] for name in self._by_node.get(node, ())]
        newest: dict[tuple[str, str], int] = {}
        for one in slices:
            pool = (one.driver, one.pool)
            newest[pool] = max(newest.get(pool, 0), one.generation)
        found: Counter[str] = Counter()
        for one in slices:
            if one.generation == newest[one.driver, one.pool]:
                found[one.driver] += one.count
        return {driver: count for driver, count in sorted(found.items()) if count}

    def marked(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """The metadata of a node with its devices; a value by another writer is dropped."""
        annotations = dict(metadata.get("annotations") or {})
        annotations.pop(DEVICES, None)
        counts = self.counts(metadata.get("name", ""))
        if counts:
            annotations[DEVICES] = ",".join(f"{driver}={count}" for driver, count in counts.items())
        return {**metadata, "annotations": annotations}


Report = Callable[[str, str, str, str], None]
"""(kind, key, reason, message) of a fault, for an event."""

_BOOKKEEPING = ("managedFields", "resourceVersion", "selfLink")


@dataclass(slots=True)
class CachedObject:
    """An object, and its name on the server, which may differ from its key."""

    given: TypedObject
    namespace: str
    name: str
    uid: str


class ObjectCache:
    """The objects in force."""

    def __init__(self, kinds: KindSet) -> None:
        self.kinds = kinds
        self.devices = Devices()
        self.refused = RefusedNodes()
        self.unmarked: Callable[[Node], bool] | None = None  # whether a node lacks the mark of a GPU node
        self.version = 0  # grows with each change of what admission reads
        self._derived = DerivedValues()
        self._by_kind: dict[str, dict[str, CachedObject]] = {}
        self._by_namespace: dict[tuple[str, str], dict[str, CachedObject]] = {}  # (kind, namespace)
        self._keys: dict[tuple[str, str, str], str] = {}  # (kind, namespace, name on the server) -> our key
        self._written: dict[tuple[str, str, str], dict[str, object]] = {}  # (kind, key, part) -> what we last wrote
        self._since: dict[tuple[str, str], dict[tuple[str, str], str]] = {}  # (kind, key) -> see _transitions

    # For admission

    def get(self, kind: str, key: str) -> Mapping[str, Any] | None:
        """The manifest with the marks that Bursar wrote: checks read some of them."""
        found = self._by_kind.get(kind, {}).get(key)
        return None if found is None else self.with_written(kind, key, found.given.body)

    def list(self, kind: str, namespace: str | None = None) -> Iterable[Mapping[str, Any]]:
        found = self._by_kind.get(kind, {}) if namespace is None else self._by_namespace.get((kind, namespace), {})
        return [known.given.body for known in found.values()]

    def derive(self, made: type[D], make: Callable[[ObjectView], D]) -> D:
        """What a policy makes of the objects, pods excepted; see ``plugin.derived``."""
        return self._derived.get(made, lambda: make(self))

    def objects(self, kind: str) -> Iterable[TypedObject]:
        return [known.given for known in self._by_kind.get(kind, {}).values()]

    def known(self, kind: str, namespace: str | None = None) -> Sequence[CachedObject]:
        """All objects of a kind, or those of a namespace, by key."""
        found = self._by_kind.get(kind, {}) if namespace is None else self._by_namespace.get((kind, namespace), {})
        return [found[key] for key in sorted(found)]

    # For the control loop

    def find(self, kind: str, key: str) -> CachedObject | None:
        return self._by_kind.get(kind, {}).get(key)

    def key_at(self, kind: str, namespace: str, name: str) -> str | None:
        """The key of the object with that name on the server."""
        return self._keys.get((kind, namespace, name))

    def read(self, kind: Kind, raw: bytes) -> tuple[TypedObject, dict[str, Any]]:
        """The object as its owner wants it, and its metadata on the server; raises ``ManifestError``."""
        body = msgspec.json.decode(raw)
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        metadata = {name: value for name, value in (body.get("metadata") or {}).items() if name not in _BOOKKEEPING}
        status = body.pop("status", None) if status_is_ours(kind) else None
        if kind.name == NODE.name:
            marked = self.refused.marked(self.devices.marked(metadata))
            given = self.kinds.read(Document("", 0, {**body, "metadata": marked}))
            return self._closed(given), metadata
        given = self.kinds.read(Document("", 0, {**body, "metadata": metadata}))
        self._note_since(given, status)
        stripped = self._without_written(given)
        return given if stripped is None else self.kinds.read(Document("", 0, stripped)), metadata

    def _note_since(self, given: TypedObject, status: object) -> None:
        found = _transitions(status)
        if found:
            self._since[given.kind.name, given.key] = found
        else:
            self._since.pop((given.kind.name, given.key), None)

    def since(self, kind: str, key: str, condition: str, status: str) -> str | None:
        """Since when a condition of the object has that status; None if it has another one."""
        return self._since.get((kind, key), {}).get((condition, status))

    def _closed(self, given: TypedObject) -> TypedObject:
        node = given.typed
        if self.unmarked is None or not isinstance(node, Node) or not self.unmarked(node):
            return given
        closed = structs.replace(node, spec=structs.replace(node.spec, unschedulable=True))
        return dataclasses.replace(given, typed=closed)

    def keep(self, given: TypedObject, metadata: Mapping[str, Any]) -> None:
        namespace, name = metadata.get("namespace", ""), metadata.get("name", "")
        known = CachedObject(given, namespace, name, metadata.get("uid", ""))
        self.version += given.kind not in DEVICE_KINDS
        self._derived.follow(given.kind.name, given.key, given.body)
        self._by_kind.setdefault(given.kind.name, {})[given.key] = known
        self._by_namespace.setdefault((given.kind.name, given.namespace), {})[given.key] = known
        self._keys[given.kind.name, namespace, name] = given.key

    def drop(self, kind: str, key: str) -> None:
        known = self._by_kind.get(kind, {}).pop(key, None)
        self.version += 1
        if kind == NODE.name:
            self.refused.forget(key)
        self._derived.follow(kind, key, None)
        if known is not None:
            self._keys.pop((kind, known.namespace, known.name), None)
            self._leave_namespace(kind, known.given)
        self._since.pop((kind, key), None)
        for part in ("labels", "annotations"):
            self._written.pop((kind, key, part), None)

    def _leave_namespace(self, kind: str, given: TypedObject) -> None:
        there = self._by_namespace[kind, given.namespace]
        del there[given.key]
        if not there:
            del self._by_namespace[kind, given.namespace]

    def manifest(self, kind: str, key: str) -> bytes | None:
        """The manifest of an object, to read it again."""
        known = self.find(kind, key)
        return None if known is None else msgspec.json.encode(known.given.body)

    # Own writes

    def note_written(self, output: Output) -> None:
        if output.kind != NODE.name and output.part in {"labels", "annotations"} and output.value:
            self._written.setdefault((output.kind, output.key, output.part), {}).update(output.value)

    def with_written(self, kind: str, key: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The manifest of an object with the marks that Bursar wrote, which are left out elsewhere."""
        metadata = dict(body.get("metadata") or {})
        for part in ("labels", "annotations"):
            ours = self._written.get((kind, key, part), {})
            if ours:
                ours = {name: value for name, value in ours.items() if value is not None}
                metadata[part] = {**ours, **(metadata.get(part) or {})}
        return {**body, "metadata": metadata}

    def _without_written(self, given: TypedObject) -> dict[str, Any] | None:
        """The manifest without marks that Bursar wrote; None if it has none of them."""
        metadata = dict(given.body.get("metadata") or {})
        changed = False
        for part in ("labels", "annotations"):
            ours = self._written.get((given.kind.name, given.key, part))
            marks = metadata.get(part)
            if not ours or not marks:
                continue
            kept = {name: value for name, value in marks.items() if ours.get(name) != value}
            changed = changed or len(kept) != len(marks)
            metadata[part] = kept
        return {**given.body, "metadata": metadata} if changed else None


def _transitions(status: object) -> dict[tuple[str, str], str]:
    """The lastTransitionTime of each condition by (type, status); malformed conditions are skipped."""
    rows = status.get("conditions") if isinstance(status, dict) else None
    found: dict[tuple[str, str], str] = {}
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict):
            what, says, since = row.get("type"), row.get("status"), row.get("lastTransitionTime")
            if isinstance(what, str) and isinstance(says, str) and isinstance(since, str):
                found[what, says] = since
    return found


def status_is_ours(kind: Kind) -> bool:
    """Whether the kind's status is only written by Bursar: then its struct reads nothing of it."""
    return _reads_no_status(kind.struct)


@cache
def _reads_no_status(struct: type) -> bool:
    return get_type_hints(struct).get("status") is object
