"""Watches in Protocol Buffers: the API server packs an object once for everybody who watches it so.

Schedulers, kubelets and controllers do. Who wants to have the same objects as JSON makes the server copy each of them,
and write it out, once more for every change.

An event is a frame: four bytes with its length, and as many bytes. In it are the type and the object's envelope.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from bursar.kube.client.errors import Malformed, error_for
from bursar.kube.client.following import Bookmark, Event, MarkMeta, Typed, is_change, list_ends
from bursar.kube.client.lines import LONGEST
from bursar.kube.client.models import Envelope, Meta
from bursar.kube.client.packing import OBJECT_META, bytes_of, is_packed, unpacked, unpacked_status
from bursar.kube.client.protobuf import BYTES, INLINE, MESSAGE, NAME, Field, Message

T = TypeVar("T")
_LENGTH = 4
_RAW = Message({1: Field("raw", BYTES)})
_MARK = Message({1: Field("metadata", MESSAGE, OBJECT_META)})
_EVENT = Message({1: Field("type", NAME), 2: Field("object", INLINE, _RAW)})


class Frames:
    """Splits a stream; a frame that is not complete waits for the next piece."""

    def __init__(self) -> None:
        self._held = b""
        self._pieces: list[bytes] = []  # after what is held, of a frame that is longer than that
        self._missing = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """The frames that this piece completes, without their lengths."""
        if len(piece) < self._missing:
            self._pieces.append(piece)
            self._missing -= len(piece)
            return []
        data = b"".join((self._held, *self._pieces, piece))
        self._pieces = []
        frames: list[bytes] = []
        at = 0
        while (end := self._end(data, at)) <= len(data):
            frames.append(data[at + _LENGTH : end])
            at = end
        self._held, self._missing = data[at:], end - len(data)
        return frames

    @staticmethod
    def _end(data: bytes, at: int) -> int:
        """Where the frame ends that begins there; if its length is not known yet, where that is known."""
        if len(data) < at + _LENGTH:
            return at + _LENGTH
        length = int.from_bytes(data[at : at + _LENGTH], "big")
        if length > LONGEST:
            raise Malformed(f"a frame of more than {LONGEST} bytes")
        return at + _LENGTH + length


class Packed(Typed[T]):
    """Reads objects into a struct, from JSON or, as ``described``, from Protocol Buffers."""

    def __init__(self, struct: type[T], identify: Callable[[T], Meta], described: Message) -> None:
        super().__init__(struct, identify)
        self._struct = struct
        self._described = described

    def __call__(self, meta: Meta, raw: bytes) -> T:
        if not is_packed(raw):
            return super().__call__(meta, raw)
        return msgspec.convert(unpacked(raw, self._described), self._struct)

    def frame(self, frame: bytes, path: str) -> Event[T] | Bookmark:
        """What a frame of the watch at ``path`` says."""
        try:
            found = _EVENT.read(frame)
            type_, raw = str(found.get("type")), bytes_of(found)
            if is_change(type_):
                return self._change(type_, raw)
            if type_ == "BOOKMARK":
                return _bookmark(raw)
            if type_ != "ERROR":
                raise ValueError(f"{type_!r:.40} is not a type of events")
            status = unpacked_status(raw)
        except (ValueError, msgspec.MsgspecError) as error:
            raise Malformed(f"watch {path}: {error}: {frame[:200]!r}") from None
        raise error_for(f"watch {path}", status.code, status)

    def _change(self, type_: str, raw: bytes) -> Event[T]:
        try:
            item = msgspec.convert(unpacked(raw, self._described), self._struct)
        except (ValueError, msgspec.ValidationError):  # whoever keeps it finds out what is wrong
            return Event(type_, msgspec.convert(unpacked(raw, _MARK), Envelope).metadata, None, raw)
        return Event(type_, self._identify(item), item)


def _bookmark(raw: bytes) -> Bookmark:
    meta = msgspec.convert(unpacked(raw, _MARK).get("metadata", {}), MarkMeta)
    return Bookmark(meta.resource_version, list_ends(meta.annotations))
