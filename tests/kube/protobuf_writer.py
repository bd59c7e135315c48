"""Writes Protocol Buffers, field by field: the other direction of what the client reads, slow and plain.

It writes what it is given, also what is empty. (Kubernetes writes strings, numbers and flags that nobody gave, too.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from bursar.kube.client import protobuf as kinds
from bursar.kube.client.protobuf import _STATUS, MAGIC, Message, MessageField

UNKNOWN_SOURCE = 99
"""The number of a field that is not described, and gets written nevertheless where others are read, too."""


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def sized(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def plain(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def packed(described: Message, body: Mapping[str, Any]) -> bytes:
    """The fields of a message that are described."""
    found = b"".join(
        part
        for number, field in enumerate(described.fields)
        if field is not None
        for part in _written(number, field, body)
    )
    named = {field.name for field in described.fields if field is not None}
    others = [name for name in body if described.others and name not in named | {"name"}]
    return found + b"".join(sized(UNKNOWN_SOURCE, b"") for _ in others)


def _written(number: int, field: MessageField, body: Mapping[str, Any]) -> Iterator[bytes]:
    if field.kind == kinds.INLINE:
        assert field.message is not None
        yield sized(number, packed(field.message, body))
        return
    value = body.get(field.name)
    if value is None:
        return
    if field.kind in {kinds.TEXTS, kinds.QUANTITIES}:
        for key, text in value.items():
            inner = text if isinstance(text, bytes) else str(text).encode()
            yield sized(
                number, sized(1, key.encode()) + sized(2, inner if field.kind == kinds.TEXTS else sized(1, inner))
            )
        return
    for one in value if field.many else [value]:
        yield _one(number, field, one)


def _one(number: int, field: MessageField, value: Any) -> bytes:  # noqa: ANN401 whatever the field is
    if field.kind in {kinds.NUMBER, kinds.AMOUNT, kinds.FLAG}:
        return plain(number, int(value))
    if field.kind in {kinds.TEXT, kinds.NAME}:
        return sized(number, value if isinstance(value, bytes) else value.encode())
    if field.kind == kinds.TIME:
        return sized(number, plain(1, int(datetime.fromisoformat(value).timestamp())))
    if field.kind == kinds.MESSAGE:
        assert field.message is not None
        return sized(number, packed(field.message, value))
    return sized(number, value if field.kind == kinds.BYTES else b"")


def enveloped(described: Message, body: Mapping[str, Any]) -> bytes:
    """An object with its envelope."""
    what = sized(1, body.get("apiVersion", "v1").encode()) + sized(2, body.get("kind", "").encode())
    return MAGIC + sized(1, what) + sized(2, packed(described, body)) + sized(3, b"") + sized(4, b"")


def status(body: Mapping[str, Any]) -> bytes:
    """A Status with its envelope."""
    return enveloped(_STATUS, body)


def framed(type_: str, wrapped: bytes) -> bytes:
    """An event of a watch."""
    event = sized(1, type_.encode()) + sized(2, sized(1, wrapped))
    return len(event).to_bytes(4, "big") + event
