"""The few fields that the client itself reads of what the API server sends; everything else is skipped, not stored.

Objects are handed out as ``Body``: the JSON as it came, with its metadata decoded. Whoever wants more decodes it into
a struct of his own. A body is never a view into a larger answer, so keeping one keeps nothing else alive.
"""

from __future__ import annotations

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
    name: str = ""
    kind: str = ""
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


class Version(Wire, frozen=True):
    git_version: str = ""
    major: str = ""
    minor: str = ""

    @property
    def pair(self) -> tuple[int, int]:
        """(1, 36), also where a vendor writes the minor as 36+."""
        return int(_digits(self.major)), int(_digits(self.minor))


def _digits(text: str) -> str:
    return "".join(char for char in text if char in "0123456789") or "0"


class ApiResource(Wire, frozen=True):
    name: str = ""
    kind: str = ""
    namespaced: bool = False


class ApiResourceList(Wire, frozen=True):
    resources: tuple[ApiResource, ...] = ()


class LeaseSpec(Wire, frozen=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class Lease(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: LeaseSpec = LeaseSpec()
