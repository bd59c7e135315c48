"""Pods and nodes for the few requests that ask for them: what admission reads of them, from the API server itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bursar.kube.admission.judging import Fetch
from bursar.kube.client.api import Api
from bursar.kube.client.resources import NODES, PODS


class _Metadata(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    namespace: str = ""
    labels: dict[str, str] = {}


class _Status(msgspec.Struct, frozen=True, omit_defaults=True):
    phase: str = ""
    allocatable: dict[str, str] = {}
    capacity: dict[str, str] = {}


class _Narrow(msgspec.Struct, frozen=True):
    metadata: _Metadata
    status: _Status = _Status()


_RESOURCES = {"Pod": PODS, "Node": NODES}
_decode = msgspec.json.Decoder(_Narrow).decode


def fetch_from(api: Api) -> Fetch:
    """Names, labels, phases and amounts; the rest of a pod is not even decoded."""

    async def fetch(kind: str) -> Sequence[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        async for page in api.pages(_RESOURCES[kind]):
            found.extend(msgspec.to_builtins(_decode(raw)) for raw in page.items or ())
        return found

    return fetch
