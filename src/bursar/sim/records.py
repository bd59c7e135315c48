"""Objects of the embedded cluster as text, so that it can be stopped and started again.

A record holds what was applied, what Bursar wrote, and for a pod what it is doing and when its next timer is due.
"""

from __future__ import annotations

from typing import Any

import msgspec

from bursar.objects.errors import ManifestError
from bursar.objects.kindset import KindSet
from bursar.objects.manifests import Document
from bursar.sim.pods import SimPod, pod_times
from bursar.sim.store import Stored


class PodRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    phase: str
    reason: str = ""
    message: str = ""
    evicted: bool = False
    deleted: bool = False
    due: int | None = None
    order: int = 0  # among timers of the same time


class ObjectRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    body: dict[str, Any]
    uid: str
    created: int
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
        doing = PodRecord(pod.phase, pod.reason, pod.message, pod.evicted, pod.deleted, pod.due, pod.order)
    return _ENCODER.encode(
        ObjectRecord(
            stored.applied.body,
            stored.uid,
            stored.created,
            stored.generation,
            stored.written,
            stored.node,
            stored.leaves_since,
            doing,
        )
    )


def read(text: bytes) -> ObjectRecord:
    """The record as it stands, its body unchecked."""
    return _DECODER.decode(text)


def decode(kinds: KindSet, kind: str, key: str, version: int, text: bytes) -> tuple[Stored, SimPod | None]:
    """The inverse of ``encode``; ``ManifestError`` for what this Bursar cannot read."""
    try:
        record = _DECODER.decode(text)
    except msgspec.DecodeError as error:
        raise ManifestError(f"the stored record cannot be read: {error}", subject=f"{kind} {key}") from error
    applied = kinds.read(Document("", 0, record.body))
    stored = Stored(
        applied.kind,
        key,
        applied,
        record.uid,
        record.created,
        record.generation,
        version,
        record.written,
        record.node,
        record.leaves_since,
    )
    if record.pod is None:
        return stored, None
    return stored, _pod(stored, record.pod)


def _pod(stored: Stored, record: PodRecord) -> SimPod:
    runs_for, leaves_after = pod_times(stored.applied.typed)  # type: ignore[arg-type]  # only pods have such a record
    return SimPod(
        stored.uid,
        stored.key,
        runs_for,
        leaves_after,
        record.phase,
        stored.node,
        record.reason,
        record.message,
        record.evicted,
        record.deleted,
        record.due,
        record.order,
    )
