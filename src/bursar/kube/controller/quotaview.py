"""The quota objects of the cluster for the webhook, which every replica serves, leading or not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from bursar.kube.client.api import Api
from bursar.kube.client.following import Following
from bursar.kube.client.models import Meta
from bursar.kube.client.reflector import Reflector
from bursar.kube.client.resources import Resource
from bursar.kube.client.store import Decode
from bursar.kube.controller.narrowing import narrowed
from bursar.objects.kinds import Kind

Body = dict[str, Any]


class QuotaView:
    """Follows some kinds; see ``admission.judging.LiveView``."""

    def __init__(self, api: Api, kinds: Iterable[Kind]) -> None:
        self._reflectors: dict[str, Reflector[Body]] = {}
        for kind in kinds:
            handler, following = _Nobody(), Following(optional=True)
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


def _decoder(kind: Kind) -> Decode[Body]:
    narrow = narrowed(kind)

    def decode(meta: Meta, raw: bytes) -> Body:
        body: Body = msgspec.json.decode(narrow(meta, raw))
        return {"apiVersion": kind.api_version, "kind": kind.kind, **body}

    return decode


class _Nobody:
    """Nobody needs to be told: the webhook looks when it is asked."""

    def added(self, meta: Meta, item: Body) -> None: ...

    def modified(self, meta: Meta, item: Body, before: Body) -> None: ...

    def deleted(self, meta: Meta, item: Body) -> None: ...

    def undecodable(self, meta: Meta, problem: str) -> None: ...

    def synced(self) -> None: ...
