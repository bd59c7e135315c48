"""How the answer of a watch is read: as lines of JSON, or as frames, by what whoever follows can read and the server
says it sends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from bursar.kube.client.following import Bookmark, Event, Typed, read_event
from bursar.kube.client.http import JSON
from bursar.kube.client.lines import Lines
from bursar.kube.client.nesting import read_any
from bursar.kube.client.packed import Frames, Packed
from bursar.kube.client.packing import PACKED
from bursar.kube.client.store import Decode

T = TypeVar("T")
Split = Callable[[bytes], list[bytes]]
"""What a piece of the answer completes."""
Read = Callable[[bytes], Event[T] | Bookmark]


def acceptable(decode: Decode[T]) -> str:
    """What may be sent to somebody who reads objects so."""
    return f"{PACKED},{JSON}" if isinstance(decode, Packed) else JSON


def reading(decode: Decode[T], content_type: str, path: str) -> tuple[Split, Read[T]]:
    """How an answer of that type to a watch at ``path`` is split, and how what it consists of is read."""
    if isinstance(decode, Packed) and content_type.startswith(PACKED):
        return Frames().feed, lambda frame: decode.frame(frame, path)

    def read_line(line: bytes) -> Event[T] | Bookmark:
        found = decode.line(line) if isinstance(decode, Typed) else None
        return read_any(lambda line: read_event(line, path), line)[0] if found is None else found

    return Lines().feed, read_line
