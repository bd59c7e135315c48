"""The reflectors of a term: one for each kind, all of them told to one listener.

Of pods only what decisions read is kept, as structs; of everything else the manifest, because admission wants it, and
of that what ``narrowing`` leaves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, Generic, Protocol, TypeVar

from bursar.kube.client.api import Api
from bursar.kube.client.following import Following
from bursar.kube.client.models import Meta
from bursar.kube.client.packed import Packed
from bursar.kube.client.reflector import Reflector
from bursar.kube.client.resources import PODS, RESOURCE_SLICES, Resource
from bursar.kube.controller.devices import Published, read_slice
from bursar.kube.controller.narrowing import narrowed
from bursar.kube.controller.packedpod import POD
from bursar.kube.controller.seenpod import SeenPod, identity
from bursar.objects.kinds import Kind

log = logging.getLogger(__name__)
T = TypeVar("T")


class Listener(Protocol):
    """Who is told what was seen, in the order in which it was."""

    def object_seen(self, kind: Kind, meta: Meta, raw: bytes) -> None: ...

    def object_gone(self, kind: Kind, meta: Meta) -> None: ...

    def slice_seen(self, meta: Meta, published: Published) -> None: ...

    def slice_gone(self, meta: Meta) -> None: ...

    def pod_seen(self, pod: SeenPod) -> None: ...

    def pod_gone(self, key: str, uid: str) -> None: ...


class Watches:
    """Follows everything that a ledger is built from."""

    def __init__(self, api: Api, kinds: Iterable[Kind], listener: Listener) -> None:
        self._objects: list[tuple[Kind, Reflector[bytes]]] = []
        for kind in kinds:
            following = Following(optional=bool(kind.group))
            handler = _ObjectHandler(listener, kind)
            self._objects.append((kind, Reflector(api, Resource.of(kind), narrowed(kind), handler, following)))
        self._pods: Reflector[SeenPod] = Reflector(api, PODS, Packed(SeenPod, identity, POD), _PodHandler(listener))
        following = Following(optional=True)
        self._slices: Reflector[tuple[str, Published]] = Reflector(
            api, RESOURCE_SLICES, _slice, _SliceHandler(listener), following
        )

    def _all(self) -> list[Reflector[Any]]:
        return [*(reflector for _, reflector in self._objects), self._slices, self._pods]

    def work(self) -> list[Coroutine[Any, Any, None]]:
        return [reflector.run() for reflector in self._all()]

    async def synced(self) -> None:
        """Return when everything was listed once."""
        await asyncio.gather(*(reflector.wait_synced() for reflector in self._all()))

    def objects(self) -> list[tuple[Kind, bytes]]:
        return [(kind, raw) for kind, reflector in self._objects for raw in reflector.store.items()]

    def slices(self) -> list[tuple[str, Published]]:
        return list(self._slices.store.items())

    def pods(self) -> list[SeenPod]:
        return list(self._pods.store.items())


def _slice(meta: Meta, raw: bytes) -> tuple[str, Published]:
    return meta.name, read_slice(raw)


class _Handler(Generic[T]):
    """What is the same for pods and objects."""

    kind_name = ""

    def undecodable(self, meta: Meta, problem: str) -> None:
        log.error("%s %s cannot be read: %s", self.kind_name, meta.key, problem)

    def synced(self) -> None:
        """Whoever builds a ledger waits for the reflector itself."""


class _ObjectHandler(_Handler[bytes]):
    def __init__(self, listener: Listener, kind: Kind) -> None:
        self._listener = listener
        self._kind = kind
        self.kind_name = kind.name

    def added(self, meta: Meta, item: bytes) -> None:
        self._listener.object_seen(self._kind, meta, item)

    def modified(self, meta: Meta, item: bytes, before: bytes) -> None:
        if item != before:  # else something changed that nobody reads
            self._listener.object_seen(self._kind, meta, item)

    def deleted(self, meta: Meta, item: bytes) -> None:
        self._listener.object_gone(self._kind, meta)


class _SliceHandler(_Handler[tuple[str, Published]]):
    kind_name = "ResourceSlice"

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def added(self, meta: Meta, item: tuple[str, Published]) -> None:
        self._listener.slice_seen(meta, item[1])

    def modified(self, meta: Meta, item: tuple[str, Published], before: tuple[str, Published]) -> None:
        self._listener.slice_seen(meta, item[1])

    def deleted(self, meta: Meta, item: tuple[str, Published]) -> None:
        self._listener.slice_gone(meta)


class _PodHandler(_Handler[SeenPod]):
    kind_name = "Pod"

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def added(self, meta: Meta, item: SeenPod) -> None:
        self._listener.pod_seen(item)

    def modified(self, meta: Meta, item: SeenPod, before: SeenPod) -> None:
        self._listener.pod_seen(item)

    def deleted(self, meta: Meta, item: SeenPod) -> None:
        self._listener.pod_gone(meta.key, meta.uid)
