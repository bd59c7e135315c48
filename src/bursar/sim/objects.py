"""The objects of the embedded cluster, by kind and key, as an API server keeps them.

Each object has a unique uid, a resource version that grows with every write, a generation that grows with every change
of the spec, and the virtual time of its creation. What Bursar writes (status, labels, annotations, the node of a pod)
is kept apart from the applied manifest, so that applying again never removes it.

Decisions do not read the manifests of pods, and there are many. A cluster with a store keeps them there, named by the
resource version with which they were applied, and not in memory (``drop_manifest``).

Changes are staged and then taken or dropped as a whole; a dropped stage leaves no trace, not even in the counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from bursar.objects.decode import ManifestError
from bursar.objects.kinds import POD, Kind, KindSet, TypedObject
from bursar.objects.manifests import Document
from bursar.objects.validation import timestamp
from bursar.policies.plugin import D, DerivedValues, ObjectView

Load = Callable[[int], bytes]
"""The text of the manifest that was applied with a resource version."""

_DECODER = msgspec.json.Decoder(dict[str, Any])
_ENCODER = msgspec.json.Encoder()


def manifest_text(body: dict[str, Any]) -> bytes:
    """A manifest as it is kept."""
    return _ENCODER.encode(body)


def manifest_mark(text: bytes) -> bytes:
    """The hash of a manifest, which the record of its object has."""
    return blake2b(text, digest_size=16).digest()


class ManifestReader:
    """Reads manifests again that are not in memory."""

    def __init__(self, kinds: KindSet, load: Load | None = None) -> None:
        """``load`` None: all manifests are in memory."""
        self._kinds = kinds
        self._load = load

    def body(self, version: int, mark: bytes = b"") -> dict[str, Any]:
        """The manifest as it stands, its fields unchecked. ``mark``: its hash, if it is known."""
        if self._load is None:
            raise RuntimeError(f"the manifest applied as version {version} is nowhere")
        text = self._load(version)
        if mark and mark != manifest_mark(text):
            raise ManifestError(f"the manifest applied as version {version} was altered in the store")
        try:
            return _DECODER.decode(text)
        except msgspec.DecodeError as error:
            raise ManifestError(f"the manifest applied as version {version} cannot be read: {error}") from error

    def read(self, body: dict[str, Any]) -> TypedObject:
        """Read and checked; ``ManifestError`` for what this Bursar cannot read."""
        return self._kinds.read(Document("", 0, body))


Body = dict[str, Any]


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One object. Replaced, never changed."""

    kind: Kind
    key: str
    uid: str
    created: int
    manifests: ManifestReader  # where the manifest is, and what it is read with
    applied_as: int = 0  # the version with which the manifest was applied
    generation: int = 1
    version: int = 0
    written: dict[str, Body] = {}  # by Bursar: status, labels and annotations
    node: str = ""  # pods: where it was placed
    leaves_since: int | None = None  # pods: when it began to terminate
    held: Body | None = None  # the manifest, if it is in memory
    mark: bytes = b""  # the hash of the manifest, once it was written
    number: int = 0  # what its row adds to the sum of all objects, as it was written last

    @property
    def applied(self) -> TypedObject:
        """What was applied, decoded again."""
        return self.manifests.read(self.body)

    @property
    def body(self) -> Body:
        """The manifest that was applied, with nothing that Bursar wrote."""
        return self.manifests.body(self.applied_as, self.mark) if self.held is None else self.held

    def fetched(self) -> Stored:
        """With its manifest in memory, to read it more than once."""
        return self if self.held is not None else replace(self, held=self.body)

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0] if self.kind.namespaced else ""

    @property
    def name(self) -> str:
        return self.key.partition("/")[2] if self.kind.namespaced else self.key

    def manifest(self) -> Body:
        """The whole object, as a reader gets it."""
        body = self.body
        whole: Body = {**body, "metadata": self._metadata(body.get("metadata") or {})}
        if self.node:
            whole["spec"] = {**(body.get("spec") or {}), "nodeName": self.node}
        status = {**self._given_status(body), **self.written.get("status", {})}
        whole.pop("status", None)
        if status:
            whole["status"] = status
        return whole

    def with_written(self, part: str, value: Mapping[str, Any]) -> Stored:
        """With these keys of a part written; None takes a key away. A label of the manifest is not written again."""
        merged = {**self.written.get(part, {}), **value}
        if part == "labels" and self.kind.name != POD.name:
            asked = (self.body.get("metadata") or {}).get("labels") or {}
            merged = {name: inner for name, inner in merged.items() if asked.get(name) != inner}
        kept = {name: inner for name, inner in merged.items() if inner is not None}
        return replace(self, written=shared(self.kind, {**self.written, part: kept}))

    def _given_status(self, body: Body) -> Body:
        """A manifest's own status counts where it is a fact about the world (a Node), not where Bursar writes it."""
        if self.kind.strict or self.kind.name == POD.name:
            return {}
        given = body.get("status")
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


_SHARED: dict[bytes, dict[str, Body]] = {}
_SHARED_AT_MOST = 65_536


def shared(kind: Kind, written: dict[str, Body]) -> dict[str, Body]:
    """Equal values become one object: most pods have the same status and labels."""
    if kind.name != POD.name:
        return written
    if len(_SHARED) >= _SHARED_AT_MOST:
        _SHARED.clear()
    return _SHARED.setdefault(msgspec.json.encode(written), written)


class ObjectStore:
    def __init__(self, manifests: ManifestReader) -> None:
        self._objects: dict[str, dict[str, dict[str, Stored]]] = {}  # by kind, namespace and key
        self.manifests = manifests
        self.version = 0
        self.uids = 0
        self.taken = 0  # the version up to which changes were taken
        self.touched: dict[tuple[str, str], int] = {}  # since changes were taken: the version of the last one
        self.sum = 0  # of the numbers of all objects, as they were taken last
        self.gone = 0  # the numbers of those that are gone since then
        self._derived = DerivedValues()

    def find(self, kind: str, key: str) -> Stored | None:
        return self._objects.get(kind, {}).get(_namespace(key), {}).get(key)

    def kinds(self) -> list[str]:
        """The names of the kinds that there are objects of."""
        return sorted(kind for kind, spaces in self._objects.items() if spaces)

    def has(self, kind: str) -> bool:
        """Whether there are objects of a kind."""
        return bool(self._objects.get(kind))

    def count(self) -> int:
        return sum(len(objects) for spaces in self._objects.values() for objects in spaces.values())

    def all(self, kind: str, namespace: str | None = None) -> list[Stored]:
        """All objects of a kind, or those of a namespace, by key."""
        spaces = self._objects.get(kind, {})
        wanted = spaces.values() if namespace is None else [spaces.get(namespace, {})]
        return sorted((found for objects in wanted for found in objects.values()), key=attrgetter("key"))

    # What admission sees

    def get(self, kind: str, key: str) -> Mapping[str, Any] | None:
        found = self.find(kind, key)
        return None if found is None else found.manifest()

    def list(self, kind: str, namespace: str | None = None) -> Iterator[Mapping[str, Any]]:
        return (found.manifest() for found in self.all(kind, namespace))

    def derive(self, made: type[D], make: Callable[[ObjectView], D]) -> D:
        """What a policy makes of the objects, pods excepted; see ``plugin.derived``."""
        return self._derived.get(made, lambda: make(self))

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
        spaces = self._objects.setdefault(stored.kind.name, {})
        spaces.setdefault(_namespace(stored.key), {})[stored.key] = stored

    def follow(self, kind: str, key: str, stored: Stored | None) -> None:
        """Keep an object as another cluster wrote it; None if it is gone there."""
        if stored is not None or self.find(kind, key) is not None:
            self._put(kind, key, stored)
            del self.touched[kind, key]

    def drop_manifest(self, kind: str, key: str, applied_as: int) -> None:
        """The manifest of a pod is durable now, and leaves memory; no change of the object."""
        found = self.find(kind, key)
        if found is not None and found.applied_as == applied_as and found.kind.name == POD.name:
            self.load(replace(found, held=None))

    def touch(self, kind: str, key: str) -> None:
        """Something about the object changed that its manifest does not show."""
        found = self.find(kind, key)
        if found is not None:
            self.write(found)

    def _put(self, kind: str, key: str, stored: Stored | None) -> None:
        self._follow(kind, key, stored)
        known = self.find(kind, key)
        if known is not None and (stored is None or stored.number != known.number):
            self.gone += known.number
        if stored is not None:
            self.load(stored)
            self.touched[kind, key] = stored.version
            return
        spaces, namespace = self._objects[kind], _namespace(key)
        del spaces[namespace][key]
        if not spaces[namespace]:
            del spaces[namespace]
        self.touched[kind, key] = self.version

    def _follow(self, kind: str, key: str, stored: Stored | None) -> None:
        """Status and annotations that Bursar writes are no change of the object."""
        if kind == POD.name:
            return
        known = self.find(kind, key)
        if known is not None and stored is not None and known.held is stored.held and _labels(known) == _labels(stored):
            return
        self._derived.follow(kind, key, None if stored is None else stored.manifest())

    def stage(self) -> Stage:
        return Stage(self)

    def take(self, stage: Stage) -> None:
        """Make what was staged the present state."""
        self.version, self.uids = stage.version, stage.uids
        for kind, changed in stage.changed.items():
            for key, stored in changed.items():
                if stored is not None or self.find(kind, key) is not None:
                    self._put(kind, key, stored)


class Stage(ObjectStore):
    """Changes on top of a store; what is not changed is looked up there."""

    def __init__(self, base: ObjectStore) -> None:
        super().__init__(base.manifests)
        self._base = base
        self.version, self.uids = base.version, base.uids
        self.changed: dict[str, dict[str, Stored | None]] = {}

    def find(self, kind: str, key: str) -> Stored | None:
        changed = self.changed.get(kind, {})
        return changed[key] if key in changed else self._base.find(kind, key)

    def all(self, kind: str, namespace: str | None = None) -> list[Stored]:
        known = self._base.all(kind, namespace)
        changed = self.changed.get(kind, {})
        here = [key for key in changed if namespace in {None, _namespace(key)}]
        if not here:
            return known
        found = {stored.key: stored for stored in known if stored.key not in changed}
        found.update((key, stored) for key in here if (stored := changed[key]) is not None)
        return [found[key] for key in sorted(found)]

    def derive(self, made: type[D], make: Callable[[ObjectView], D]) -> D:
        return self._derived.get(made, lambda: self._layer(made, make))

    def _layer(self, made: type[D], make: Callable[[ObjectView], D]) -> D:
        """The value of the store below, with what is changed here."""
        found = self._base.derive(made, make).layer()
        for kind, changed in self.changed.items():
            for key, stored in changed.items():
                if kind != POD.name and not found.follow(kind, key, None if stored is None else stored.manifest()):
                    return make(self)
        return found if isinstance(found, made) else make(self)

    def _put(self, kind: str, key: str, stored: Stored | None) -> None:
        self._follow(kind, key, stored)
        self.changed.setdefault(kind, {})[key] = stored

    def apply(self, given: TypedObject, now: int, *, anew: bool = False) -> Stored:
        """Create the object, or change its spec. With ``anew`` it replaces a pod that has ended."""
        known = self.find(given.kind.name, given.key)
        as_version = self.version + 1
        if known is None or anew:
            self.uids += 1
            uid = f"{given.key}#{self.uids}"
            stored = Stored(given.kind, given.key, uid, now, self.manifests, as_version, held=given.body)
        else:
            generation = known.generation + (_asked(known.body) != _asked(given.body))
            stored = replace(known, held=given.body, applied_as=as_version, generation=generation)
            if known.written.get("labels"):
                stored = stored.with_written("labels", {})
        self.write(stored)
        return stored


def _namespace(key: str) -> str:
    return key.partition("/")[0] if "/" in key else ""


def _labels(stored: Stored) -> Body:
    return stored.written.get("labels", {})


def _asked(body: Body) -> Body:
    return {part: value for part, value in body.items() if part not in {"metadata", "status"}}
