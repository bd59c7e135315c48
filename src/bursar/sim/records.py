"""Objects of the embedded cluster as text, so that it can be stopped and started again.

A record holds what Bursar wrote, for a pod what it is doing and when its next timer is due, and the version with which
the manifest was applied. The manifest itself stands apart, because it seldom changes: writing what a pod is doing needs
neither to have nor to repeat it.
"""

from __future__ import annotations

from sys import intern
from typing import Any, NamedTuple

import msgspec

from bursar.objects.errors import ManifestError
from bursar.objects.kindset import KindSet
from bursar.sim.pods import SimPod
from bursar.sim.shelf import Shelf
from bursar.sim.store import Stored, shared


class ObjectRow(NamedTuple):
    """An object as it is to be written. Without a record it is gone; the manifest only when it is new."""

    kind: str
    key: str
    version: int
    record: bytes | None
    applied_as: int = 0
    manifest: bytes | None = None


class PodRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    phase: str
    reason: str = ""
    message: str = ""
    evicted: bool = False
    deleted: bool = False
    due: int | None = None
    order: int = 0  # among timers of the same time
    runs_for: int | None = None
    leaves_after: int = 0


class ObjectRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    uid: str
    created: int
    applied_as: int
    generation: int = 1
    written: dict[str, dict[str, Any]] = {}
    node: str = ""
    leaves_since: int | None = None
    pod: PodRecord | None = None


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(ObjectRecord)


def encode(stored: Stored, pod: SimPod | None) -> bytes:
    doing = None
    if pod is not None:
        doing = PodRecord(
            pod.phase,
            pod.reason,
            pod.message,
            pod.evicted,
            pod.deleted,
            pod.due,
            pod.order,
            pod.runs_for,
            pod.leaves_after,
        )
    return _ENCODER.encode(
        ObjectRecord(
            stored.uid,
            stored.created,
            stored.applied_as,
            stored.generation,
            stored.written,
            stored.node,
            stored.leaves_since,
            doing,
        )
    )


def read(text: bytes) -> ObjectRecord:
    """The record as it stands."""
    return _DECODER.decode(text)


def decode(
    kinds: KindSet, shelf: Shelf, kind: str, key: str, version: int, text: bytes
) -> tuple[Stored, SimPod | None]:
    """The inverse of ``encode``; ``ManifestError`` for what this Bursar cannot read. The manifest is not read."""
    try:
        record = _DECODER.decode(text)
    except msgspec.DecodeError as error:
        raise ManifestError(f"the stored record cannot be read: {error}", subject=f"{kind} {key}") from error
    known = kinds.find(kind)
    stored = Stored(
        known,
        key,
        record.uid,
        record.created,
        shelf,
        record.applied_as,
        record.generation,
        version,
        shared(known, record.written),
        intern(record.node),  # many pods are on one node, and most of them do the same
        record.leaves_since,
    )
    return stored, None if record.pod is None else _pod(stored, record.pod)


def _pod(stored: Stored, record: PodRecord) -> SimPod:
    return SimPod(
        stored.uid,
        stored.key,
        record.runs_for,
        record.leaves_after,
        intern(record.phase),
        stored.node,
        record.reason,
        record.message,
        record.evicted,
        record.deleted,
        record.due,
        record.order,
    )
