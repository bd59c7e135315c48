"""The few fields that the client itself reads of API objects; everything else is skipped.

Objects are passed on as ``Body``: the JSON as it came, with decoded metadata. Callers decode it into their own
structs. A body is never a view into a larger answer, so keeping one keeps nothing else alive.

``read_any`` decodes objects that are nested too deeply. Where a schema leaves a field open, its writer chooses the
depth; the API server accepts 10,000 levels, and decoders fail at about a thousand. No field that is read lies that
deep, so the deep part is replaced by a text: an open field accepts it, and any other field is reported as invalid.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

T = TypeVar("T")


class Wire(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all: camelCase, unknown fields ignored, defaults not written."""


class Meta(Wire, frozen=True):
    """Identity and version of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None

    @property
    def key(self) -> str:
        """``namespace/name``, or the name of what belongs to no namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Envelope(Wire, frozen=True):
    metadata: Meta = Meta()


_decode_envelope = msgspec.json.Decoder(Envelope).decode
_decode_any = msgspec.json.Decoder().decode


def meta_of(raw: bytes | msgspec.Raw) -> Meta:
    return _decode_envelope(raw).metadata


class RawObject:
    """One object as the server sent it."""

    __slots__ = ("meta", "raw")

    def __init__(self, raw: bytes, meta: Meta | None = None) -> None:
        self.raw = raw
        self.meta = meta_of(raw) if meta is None else meta

    @property
    def key(self) -> str:
        return self.meta.key

    def into(self, struct: type[T]) -> T:
        """The fields that a struct (or any other type that msgspec decodes) asks for."""
        return msgspec.json.decode(self.raw, type=struct)

    def plain(self) -> dict[str, Any]:
        """Everything, as dictionaries and lists."""
        decoded: dict[str, Any] = _decode_any(self.raw)
        return decoded

    def __repr__(self) -> str:
        return f"Body({self.key} @{self.meta.resource_version}, {len(self.raw)} bytes)"


class Cause(Wire, frozen=True):
    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Wire, frozen=True):
    causes: tuple[Cause, ...] = ()
    retry_after_seconds: int = 0


class ApiStatus(Wire, frozen=True):
    """The server's answer when there is no object to answer with."""

    status: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails = StatusDetails()


class ListMeta(Wire, frozen=True):
    resource_version: str = ""
    continue_: str = field(name="continue", default="")


class ListPage(Wire, frozen=True):
    """One page of a list. The items are views into the page: copy what is kept."""

    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


class ApiResource(Wire, frozen=True):
    name: str = ""


class ApiResourceList(Wire, frozen=True):
    resources: tuple[ApiResource, ...] = ()


class LeaseSpec(Wire, frozen=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    lease_transitions: int = 0


class Lease(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: LeaseSpec = LeaseSpec()


DEEPEST = 100  # levels, of what cannot be read as it is
ROOM = 100  # calls: a later caller may be this much deeper in the stack when it reads the object again
TOO_DEEP = b'"nested too deeply"'

_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]')


def read_any(read: Callable[[bytes], T], raw: bytes) -> tuple[T, bytes]:
    """What ``read`` makes of JSON, and the JSON: as it came, or such that others can read it, too."""
    try:
        return _from_below(ROOM, read, raw), raw
    except RecursionError:
        levelled = level(raw)
        return read(levelled), levelled


def _from_below(calls: int, read: Callable[[bytes], T], raw: bytes) -> T:
    return read(raw) if calls == 0 else _from_below(calls - 1, read, raw)


def level(raw: bytes) -> bytes:
    """The JSON with a text in place of everything that is deeper than ``DEEPEST`` levels."""
    kept: list[bytes] = []
    depth = begin = 0
    for token in _TOKENS.finditer(raw):
        char = raw[token.start()]
        if char in b"{[":
            depth += 1
            if depth == DEEPEST + 1:
                kept += raw[begin : token.start()], TOO_DEEP
        elif char in b"}]":
            if depth == DEEPEST + 1:
                begin = token.end()
            depth -= 1
    return b"".join([*kept, raw[begin:]])
