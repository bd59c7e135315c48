"""Pods and nodes for the few requests that ask for them: what admission reads of them, from the API server itself.

There may be a hundred thousand pods, and the API server waits: of pods only their metadata is asked for, and only of
those that have not ended, since nobody looks at the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bursar.kube.admission.judging import Fetch
from bursar.kube.client.api import EVERYTHING, METADATA_LIST, Api, Select
from bursar.kube.client.http import JSON
from bursar.kube.client.resources import NODES, PODS


class _Metadata(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    namespace: str = ""
    labels: dict[str, str] = {}


class _Status(msgspec.Struct, frozen=True, omit_defaults=True):
    allocatable: dict[str, str] = {}
    capacity: dict[str, str] = {}


class _Narrow(msgspec.Struct, frozen=True):
    metadata: _Metadata
    status: _Status = _Status()


_RESOURCES = {"Pod": PODS, "Node": NODES}
_NOT_ENDED = Select(fields="status.phase!=Succeeded,status.phase!=Failed")
_decode = msgspec.json.Decoder(_Narrow).decode


def fetch_from(api: Api) -> Fetch:
    """Names, labels and amounts; the rest is not even decoded."""

    async def fetch(kind: str) -> Sequence[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        select, accept = (_NOT_ENDED, METADATA_LIST) if kind == "Pod" else (EVERYTHING, JSON)
        async for page in api.pages(_RESOURCES[kind], select=select, accept=accept):
            found.extend(msgspec.to_builtins(_decode(raw)) for raw in page.items or ())
        return found

    return fetch
