"""The events of a watch, and the store of a collection that is compared with them.

A line is an event with an object, a bookmark (a version only), or an error, which is raised. ``Typed`` decodes a line
into a struct in one pass; a line that it cannot read is decoded step by step, which finds the fault.

``WatchStore`` compares every watch event and list item with what it holds, so the handler sees each change once. The
same uid and resourceVersion is no change. Another uid under the same key is a deletion and an addition. An object
missing from a complete list is gone, and is reported with its last known form. An object that cannot be decoded is
reported by its key, and its last good form stays in force.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from bursar.kube.client.api import EVERYTHING, PAGE, Select
from bursar.kube.client.errors import Malformed, error_for, status_from
from bursar.kube.client.models import Meta, Wire, meta_of

T = TypeVar("T")
SILENCE = 70.0
REST = 0.05
DELETED = "DELETED"
_CHANGES = frozenset({"ADDED", "MODIFIED", DELETED})
_INITIAL_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class Following:
    """How to follow a collection. ``optional``: a resource that the server does not have counts as empty."""

    namespace: str = ""
    select: Select = EVERYTHING
    optional: bool = False
    silence: float = SILENCE
    stream_lists: bool = True
    page: int = PAGE
    rest: float = REST  # seconds after each read in which events are gathered, because each read has a cost
    pause: float = 0.5  # the first after a failure
    longest_pause: float = 30.0


@dataclass(slots=True)
class Progress:
    """Numbers for metrics and health. Counted are events, bookmarks, lists, connections, silences, failures, swept."""

    counts: Counter[str] = field(default_factory=Counter)
    problem: str = ""  # what keeps it from getting on; "" when nothing does


class WatchEvent(NamedTuple, Generic[T]):
    """An object that was added, modified or deleted: as it was read, or (None) as it came."""

    type: str
    meta: Meta
    item: T | None
    raw: bytes | msgspec.Raw = b""


class _TypedLine(Wire, Generic[T], frozen=True):
    type: str
    object: T


class Typed(Generic[T]):
    """Reads objects into a struct; ``identify`` returns its metadata, ``narrow`` what is kept of it."""

    def __init__(
        self, struct: type[T], identify: Callable[[T], Meta], narrow: Callable[[T], T] = lambda given: given
    ) -> None:
        self._identify = identify
        self._narrow = narrow
        self._decode = msgspec.json.Decoder(struct).decode
        self._decode_line = msgspec.json.Decoder(_TypedLine[struct]).decode  # type: ignore[valid-type]

    def __call__(self, _meta: Meta, raw: bytes) -> T:
        return self._narrow(self._decode(raw))

    def line(self, line: bytes) -> WatchEvent[T] | None:
        """The event in a line; None: it is none, or must be read step by step."""
        try:
            found = self._decode_line(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if found.type not in _CHANGES:
            return None
        return WatchEvent(found.type, self._identify(found.object), self._narrow(found.object))


class Bookmark(NamedTuple):
    """The version up to which everything has been sent; ``ends_list``: all objects that there were, too."""

    resource_version: str
    ends_list: bool


class _Line(Wire, frozen=True):
    type: str
    object: msgspec.Raw


class _MarkMeta(Wire, frozen=True):
    resource_version: str = ""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _Mark(Wire, frozen=True):
    metadata: _MarkMeta = _MarkMeta()


_decode_line = msgspec.json.Decoder(_Line).decode
_decode_mark = msgspec.json.Decoder(_Mark).decode


def read_event(line: bytes, path: str) -> WatchEvent[Any] | Bookmark:
    """The event in a line of the watch at ``path``."""
    try:
        found = _decode_line(line)
        if found.type == "BOOKMARK":
            mark = _decode_mark(found.object).metadata
            return Bookmark(mark.resource_version, mark.annotations.get(_INITIAL_END) == "true")
        if found.type in _CHANGES:
            return WatchEvent(found.type, meta_of(found.object), None, found.object)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"watch {path}: {error}: {line[:200]!r}") from None
    if found.type != "ERROR":
        raise Malformed(f"watch {path}: {found.type!r:.40} is not a type of events")
    status = status_from(bytes(found.object), 0)
    raise error_for(f"watch {path}", status.code, status)


T_contra = TypeVar("T_contra", contravariant=True)

Decode = Callable[[Meta, bytes], T]
"""Metadata and JSON to whatever is kept. May raise ValueError or msgspec's errors: the object is then undecodable."""


class Handler(Protocol[T_contra]):
    """Receives changes, one after the other, in the event loop; must not block."""

    def added(self, meta: Meta, item: T_contra) -> None: ...

    def modified(self, meta: Meta, item: T_contra, before: T_contra) -> None: ...

    def deleted(self, meta: Meta, item: T_contra) -> None:
        """``item`` is the last form that was seen."""

    def undecodable(self, meta: Meta, problem: str) -> None: ...

    def synced(self) -> None:
        """A list is complete: the handler has all objects that existed when the list began."""


class _Known(NamedTuple, Generic[T]):
    meta: Meta
    item: T | None  # None: never decoded


class WatchStore(Generic[T]):
    """The objects of one collection by key."""

    def __init__(self, decode: Decode[T], handler: Handler[T]) -> None:
        self._decode = decode
        self._handler = handler
        self._known: dict[str, _Known[T]] = {}
        self.undecodable: dict[str, str] = {}  # the problem of each existing object that cannot be decoded, by key

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: str) -> T | None:
        known = self._known.get(key)
        return None if known is None else known.item

    def items(self) -> Iterator[T]:
        return (known.item for known in list(self._known.values()) if known.item is not None)

    def put(self, meta: Meta, raw: bytes | msgspec.Raw, item: T | None = None) -> None:
        """The object exists, in this form; ``item``: if it was read already."""
        key = meta.key
        known = self._known.get(key)
        if known is not None and known.meta.uid != meta.uid:
            self._forget(known)
            known = None
        if known is not None and known.meta.resource_version == meta.resource_version:
            return
        before = None if known is None else known.item
        item = self._decoded(meta, raw, item)
        self._known[key] = _Known(meta, before if item is None else item)
        if item is None:
            return
        if before is None:
            self._handler.added(meta, item)
        else:
            self._handler.modified(meta, item, before)

    def remove(self, meta: Meta, raw: bytes | msgspec.Raw, item: T | None = None) -> None:
        """The object is gone; this was its last form."""
        known = self._known.get(meta.key)
        if known is None or known.meta.uid != meta.uid:
            return
        if known.item is not None:
            item = self._decoded(meta, raw, item)
            known = _Known(meta, known.item if item is None else item)
        self._forget(known)

    def sweep(self, seen: set[str]) -> int:
        """A complete list: objects that are not in it are gone. Returns their number."""
        gone = [known for key, known in self._known.items() if key not in seen]
        for known in gone:
            self._forget(known)
        self._handler.synced()
        return len(gone)

    def _forget(self, known: _Known[T]) -> None:
        key = known.meta.key
        del self._known[key]
        self.undecodable.pop(key, None)
        if known.item is not None:
            self._handler.deleted(known.meta, known.item)

    def _decoded(self, meta: Meta, raw: bytes | msgspec.Raw, item: T | None) -> T | None:
        try:
            item = self._decode(meta, bytes(raw)) if item is None else item
        except (ValueError, msgspec.MsgspecError) as error:
            problem = str(error)
            self.undecodable[meta.key] = problem
            self._handler.undecodable(meta, problem)
            return None
        self.undecodable.pop(meta.key, None)
        return item
