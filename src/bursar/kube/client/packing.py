"""Objects of Kubernetes in Protocol Buffers: the envelope around each of them, and what all of them have.

An envelope begins with four bytes that no JSON begins with. It says what is inside, and contains it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bursar.kube.client.models import Status
from bursar.kube.client.protobuf import (
    BYTES,
    FLAG,
    MESSAGE,
    NUMBER,
    TEXT,
    TEXTS,
    TIME,
    Field,
    Message,
)

PACKED = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"

_TYPE_META = Message({1: Field("apiVersion", TEXT), 2: Field("kind", TEXT)})
_ENVELOPE = Message({1: Field("typeMeta", MESSAGE, _TYPE_META), 2: Field("raw", BYTES)})
_OWNER = Message(
    {
        1: Field("kind", TEXT),
        3: Field("name", TEXT),
        4: Field("uid", TEXT),
        5: Field("apiVersion", TEXT),
        6: Field("controller", FLAG),
    }
)
OBJECT_META = Message(
    {
        1: Field("name", TEXT),
        3: Field("namespace", TEXT),
        5: Field("uid", TEXT),
        6: Field("resourceVersion", TEXT),
        7: Field("generation", NUMBER),
        8: Field("creationTimestamp", TIME),
        9: Field("deletionTimestamp", TIME),
        11: Field("labels", TEXTS),
        12: Field("annotations", TEXTS),
        13: Field("ownerReferences", MESSAGE, _OWNER, many=True),
    }
)
_CAUSE = Message({1: Field("reason", TEXT), 2: Field("message", TEXT), 3: Field("field", TEXT)})
_DETAILS = Message(
    {
        1: Field("name", TEXT),
        3: Field("kind", TEXT),
        4: Field("causes", MESSAGE, _CAUSE, many=True),
        5: Field("retryAfterSeconds", NUMBER),
    }
)
_STATUS = Message(
    {
        2: Field("status", TEXT),
        3: Field("message", TEXT),
        4: Field("reason", TEXT),
        5: Field("details", MESSAGE, _DETAILS),
        6: Field("code", NUMBER),
    }
)


def is_packed(body: bytes) -> bool:
    return body.startswith(MAGIC)


def unpacked(body: bytes, described: Message) -> dict[str, object]:
    """The object in an envelope, with its apiVersion and kind. Raises ``ValueError``, if it is no envelope."""
    if not is_packed(body):
        raise ValueError("an object without its envelope")
    envelope = _ENVELOPE.read(body, len(MAGIC))
    found = described.read(bytes_of(envelope))
    what = envelope.get("typeMeta")
    if isinstance(what, dict):
        found.update(what)
    return found


def bytes_of(found: Mapping[str, object]) -> bytes:
    """What is wrapped in an event or envelope; nothing, if there is nothing."""
    raw = found.get("raw")
    return raw if isinstance(raw, bytes) else b""


def unpacked_status(body: bytes) -> Status:
    """The Status in an envelope. Raises ``ValueError`` or msgspec's errors, if it is none."""
    found = unpacked(body, _STATUS)
    if found.get("kind") != "Status":
        raise ValueError(f"{found.get('kind')!r:.40} is no Status")
    return msgspec.convert(found, Status)
