"""Informers: one reflector per kind, all feeding one listener, and what is kept of each object.

A pod is kept as a struct with the fields that decisions read, and with the annotations that policies read, because
everybody who may create pods decides how large they are. A node is kept in the same way: a real node is tens of
kilobytes, and agents rewrite other annotations every half minute. Fields that are not kept cost no memory, and their
changes cause no work. Other objects are kept whole except for ``managedFields``, because strict kinds are refused for
unknown fields.

``QuotaView`` follows the quota kinds for the webhook, which every replica serves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import structs

from bursar.kube.admission.predicate import (
    MIRROR,
    OWN_ANNOTATIONS,
    OWN_PREFIX,
    QUOTA_ANNOTATIONS,
    AdmissionOptions,
    quota_labels,
)
from bursar.kube.client.api import PODS, Api, Resource
from bursar.kube.client.models import Meta
from bursar.kube.client.reflector import Reflector
from bursar.kube.client.watch import Decode, Following, Typed
from bursar.kube.controller.pod_model import SeenPod, anywhere, identity, user_annotations
from bursar.objects.bounds import excess
from bursar.objects.core import Node
from bursar.objects.kinds import NODE, Kind
from bursar.policies.plugin import D, DerivedValues, ObjectView, default_registry, installed_marks

READ_MARKS = tuple(prefix for plugin in default_registry() for prefix in plugin.node_annotations)
"""Prefixes of the node annotations that policies read."""

_MANAGED = "managedFields"
_decode_node = msgspec.json.Decoder(Node).decode
_decode_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def narrowed(kind: Kind) -> Decode[bytes]:
    """How objects of the kind are kept."""
    return _node if kind.name == NODE.name else _object


def _node(meta: Meta, raw: bytes) -> bytes:
    try:
        node = _decode_node(raw)
    except msgspec.ValidationError:  # object sync reports what is wrong
        return _object(meta, raw)
    marks = {name: value for name, value in node.metadata.annotations.items() if name.startswith(READ_MARKS)}
    return _encode(structs.replace(node, metadata=structs.replace(node.metadata, annotations=marks)))


def _object(_meta: Meta, raw: bytes) -> bytes:
    if _MANAGED.encode() not in raw:
        return raw
    body = _decode_parts(raw)
    metadata = _decode_parts(body["metadata"])
    metadata.pop(_MANAGED, None)
    return _encode({**body, "metadata": metadata})


_MARKS = installed_marks()
_QUOTA_LABELS = quota_labels(AdmissionOptions())
READ_OF_PODS = (
    *(OWN_PREFIX, MIRROR, *_MARKS.own_annotations, *_MARKS.fixed_annotations, *_MARKS.read_annotations),
    *(name for demand in _MARKS.demands for name in demand.annotations),
)
"""How the annotations of pods begin that are kept."""


def narrowed_pod(pod: SeenPod) -> SeenPod:
    """The pod as it is kept. All labels are: selectors of disruption budgets may name any of them at any time."""
    meta = pod.metadata
    annotations = {name: value for name, value in meta.annotations.items() if name.startswith(READ_OF_PODS)}
    if len(annotations) != len(meta.annotations):
        pod = structs.replace(pod, metadata=structs.replace(meta, annotations=annotations))
    problem = excess(pod, user_annotations(annotations))
    return pod if problem is None else _cut(pod, str(problem))


def _cut(pod: SeenPod, problem: str) -> SeenPod:
    """A pod beyond a bound (see ``objects.bounds``). While it is gated it is refused for that.

    On its node it counts. So it keeps its resources, and the labels and annotations that decide how it is charged:
    guards keep those as they were when the pod was created.
    """
    meta = pod.metadata
    labels = {name: value for name, value in meta.labels.items() if _QUOTA_LABELS.names(name)}
    fixed = {
        name: value
        for name, value in meta.annotations.items()
        if OWN_ANNOTATIONS.names(name) or QUOTA_ANNOTATIONS.names(name)
    }
    spec = structs.replace(anywhere(pod.spec), volumes=(), topology_spread_constraints=())
    meta = structs.replace(meta, labels=labels, annotations=fixed)
    return structs.replace(pod, metadata=meta, spec=spec, excess=problem)


log = logging.getLogger(__name__)
T = TypeVar("T")


class Listener(Protocol):
    """Applies what the informers deliver, in the order of its arrival."""

    def object_seen(self, kind: Kind, meta: Meta, raw: bytes) -> None: ...

    def object_gone(self, kind: Kind, meta: Meta) -> None: ...

    def pod_seen(self, pod: SeenPod) -> None: ...

    def pod_gone(self, meta: Meta) -> None: ...


Take = Callable[..., None]
"""Queues a method of the listener, with its arguments."""


class Watches:
    """Follows everything that a ledger is built from."""

    def __init__(self, api: Api, kinds: Iterable[Kind], listener: Listener, take: Take) -> None:
        self._objects: list[tuple[Kind, Reflector[bytes]]] = []
        for kind in kinds:
            handler = _ObjectHandler(kind, listener, take)
            following = Following(optional=bool(kind.group))
            self._objects.append((kind, Reflector(api, Resource.of(kind), narrowed(kind), handler, following)))
        pods = _Handler[SeenPod](
            "Pod", lambda _, pod: take(listener.pod_seen, pod), lambda meta: take(listener.pod_gone, meta)
        )
        self._pods = Reflector(api, PODS, Typed(SeenPod, identity, narrowed_pod), pods)

    def _all(self) -> list[Reflector[Any]]:
        return [*(reflector for _, reflector in self._objects), self._pods]

    def work(self) -> list[Coroutine[Any, Any, None]]:
        return [reflector.run() for reflector in self._all()]

    async def synced(self) -> None:
        await asyncio.gather(*(reflector.wait_synced() for reflector in self._all()))

    def problems(self) -> list[str]:
        """What keeps watches from getting on."""
        return [reflector.progress.problem for reflector in self._all() if reflector.progress.problem]

    def objects(self) -> list[tuple[Kind, bytes]]:
        return [(kind, raw) for kind, reflector in self._objects for raw in reflector.store.items()]

    def pods(self) -> list[SeenPod]:
        return list(self._pods.store.items())


class _Handler(Generic[T]):
    """Delivers additions and changes alike, and deletions."""

    def __init__(self, kind_name: str, seen: Callable[[Meta, T], None], gone: Callable[[Meta], None]) -> None:
        self._kind_name = kind_name
        self._seen = seen
        self._gone = gone

    def added(self, meta: Meta, item: T) -> None:
        self._seen(meta, item)

    def modified(self, meta: Meta, item: T, before: T) -> None:
        self._seen(meta, item)

    def deleted(self, meta: Meta, item: T) -> None:
        self._gone(meta)

    def undecodable(self, meta: Meta, problem: str) -> None:
        log.error("%s %s cannot be read: %s", self._kind_name, meta.key, problem)

    def synced(self) -> None:
        """Unused: the term waits for the reflector itself."""


class _ObjectHandler(_Handler[bytes]):
    def __init__(self, kind: Kind, listener: Listener, take: Take) -> None:
        super().__init__(
            kind.name, partial(take, listener.object_seen, kind), partial(take, listener.object_gone, kind)
        )

    def modified(self, meta: Meta, item: bytes, before: bytes) -> None:
        if item != before:  # otherwise only fields changed that are not kept
            self._seen(meta, item)


Body = dict[str, Any]


class QuotaView:
    """Follows some kinds; the ``LiveView`` of the webhook."""

    def __init__(self, api: Api, kinds: Iterable[Kind]) -> None:
        self._reflectors: dict[str, Reflector[Body]] = {}
        self._derived = DerivedValues()
        for kind in kinds:
            handler, following = _Follower(kind.name, self._derived), Following(optional=True)
            self._reflectors[kind.name] = Reflector(api, Resource.of(kind), _decoder(kind), handler, following)

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors.values():
                group.create_task(reflector.run())

    def ready(self) -> bool:
        return all(reflector.synced for reflector in self._reflectors.values())

    async def catch_up(self) -> None:
        await asyncio.gather(*(reflector.refresh() for reflector in self._reflectors.values()))

    def get(self, kind: str, key: str) -> Mapping[str, Any] | None:
        reflector = self._reflectors.get(kind)
        return None if reflector is None else reflector.store.get(key)

    def list(self, kind: str, namespace: str | None = None) -> Iterable[Mapping[str, Any]]:
        reflector = self._reflectors.get(kind)
        found = () if reflector is None else reflector.store.items()
        return [body for body in found if namespace is None or body["metadata"].get("namespace") == namespace]

    def derive(self, made: type[D], make: Callable[[ObjectView], D]) -> D:
        """What a policy makes of the objects, pods excepted; see ``plugin.derived``."""
        return self._derived.get(made, lambda: make(self))


def _decoder(kind: Kind) -> Decode[Body]:
    narrow = narrowed(kind)

    def decode(meta: Meta, raw: bytes) -> Body:
        body: Body = msgspec.json.decode(narrow(meta, raw))
        return {"apiVersion": kind.api_version, "kind": kind.kind, **body}

    return decode


class _Follower(_Handler[Body]):
    """Keeps what policies derive in step; the rest the webhook reads from the store on each request."""

    def __init__(self, kind_name: str, derived: DerivedValues) -> None:
        super().__init__(
            kind_name,
            lambda meta, body: derived.follow(kind_name, meta.key, body),
            lambda meta: derived.follow(kind_name, meta.key, None),
        )

    def undecodable(self, meta: Meta, problem: str) -> None:
        """The controller reports it."""
