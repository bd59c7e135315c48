"""What is written together: journal lines and the changes of objects that belong to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


class ObjectWrite(msgspec.Struct, frozen=True):
    """An object gets a new body (JSON), or (None) is deleted. Versions of one object only grow.

    What seldom changes about it can stand apart, as a manifest under a number that is used once: ``manifest`` names it,
    ``text`` is given when it is new.
    """

    kind: str
    key: str
    version: int
    body: bytes | None
    manifest: int = 0
    text: bytes | None = None


class Batch(msgspec.Struct, frozen=True):
    """All of it becomes durable, or none.

    Object changes belong to the last of the lines, or to the last line before if there is none.
    """

    lines: Sequence[bytes] = ()
    objects: Sequence[ObjectWrite] = ()
    at: int = 0  # milliseconds, the time of the object changes
    meta: Mapping[str, str] = msgspec.field(default_factory=dict)


class StoredObject(msgspec.Struct, frozen=True):
    kind: str
    key: str
    version: int
    body: bytes


class ObjectChange(msgspec.Struct, frozen=True):
    """One entry of an object's history."""

    seq: int
    at: int
    kind: str
    key: str
    version: int
    body: bytes | None


def line_position(line: bytes) -> tuple[int, int]:
    """(sequence number, time) of a sealed journal line, without decoding the rest of it."""
    parts = line.split(b",", 3)
    if len(parts) < 4 or not line.startswith(b"["):
        raise ValueError("not a journal line")
    return int(parts[1]), int(parts[2])
