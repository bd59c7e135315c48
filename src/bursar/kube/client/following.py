"""How a collection is followed: the settings, the numbers that are kept, and the lines of a watch.

A line is an event with an object, a bookmark (only a version), or an error, which is raised as what it stands for.
Who wants objects as structs has a line read in one go (``Typed``), instead of once for its type, once for the object's
metadata and once for the object. What cannot be read so is read step by step, which finds out what is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from bursar.kube.client.api import EVERYTHING, PAGE, Select
from bursar.kube.client.errors import Malformed, error_for, status_from
from bursar.kube.client.models import Meta, Wire, meta_of

T = TypeVar("T")
SILENCE = 70.0
REST = 0.05
DELETED = "DELETED"
_TYPES = frozenset({"ADDED", "MODIFIED", DELETED})
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
    rest: float = REST  # seconds after each look at what came, for more to come together: each costs something
    pause: float = 0.5  # the first after a failure
    longest_pause: float = 30.0


@dataclass(slots=True)
class Progress:
    """Numbers for metrics and health. Counted are events, bookmarks, lists, connections, silences, failures, swept."""

    counts: Counter[str] = field(default_factory=Counter)
    last_heard: float = 0.0  # time.monotonic() of the last byte
    problem: str = ""  # what keeps it from getting on; "" when nothing does


class Event(NamedTuple, Generic[T]):
    """An object that was added, modified or deleted: as it was read, or (None) as it came."""

    type: str
    meta: Meta
    item: T | None
    raw: bytes | msgspec.Raw = b""


class _TypedLine(Wire, Generic[T], frozen=True):
    type: str
    object: T


class Typed(Generic[T]):
    """Reads objects into a struct, from which ``identify`` tells their metadata."""

    def __init__(self, struct: type[T], identify: Callable[[T], Meta]) -> None:
        self._identify = identify
        self._decode = msgspec.json.Decoder(struct).decode
        self._decode_line = msgspec.json.Decoder(_TypedLine[struct]).decode  # type: ignore[valid-type]

    def __call__(self, _meta: Meta, raw: bytes) -> T:
        return self._decode(raw)

    def line(self, line: bytes) -> Event[T] | None:
        """The event in a line; None: it is none, or must be read step by step."""
        try:
            found = self._decode_line(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return Event(found.type, self._identify(found.object), found.object) if is_change(found.type) else None


class Bookmark(NamedTuple):
    """The version up to which everything has been sent; ``ends_list``: all objects that there were, too."""

    resource_version: str
    ends_list: bool


class _Line(Wire, frozen=True):
    type: str
    object: msgspec.Raw


class MarkMeta(Wire, frozen=True):
    resource_version: str = ""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _Mark(Wire, frozen=True):
    metadata: MarkMeta = MarkMeta()


_decode_line = msgspec.json.Decoder(_Line).decode
_decode_mark = msgspec.json.Decoder(_Mark).decode


def is_change(type_: str) -> bool:
    """Whether an event of that type is about an object."""
    return type_ in _TYPES


def list_ends(annotations: Mapping[str, str]) -> bool:
    """Whether a bookmark with these annotations is the one after the objects that there were."""
    return annotations.get(_INITIAL_END) == "true"


def read_event(line: bytes, path: str) -> Event[Any] | Bookmark:
    """What a line of the watch at ``path`` says."""
    try:
        found = _decode_line(line)
        if found.type == "BOOKMARK":
            mark = _decode_mark(found.object).metadata
            return Bookmark(mark.resource_version, list_ends(mark.annotations))
        if is_change(found.type):
            return Event(found.type, meta_of(found.object), None, found.object)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"watch {path}: {error}: {line[:200]!r}") from None
    if found.type != "ERROR":
        raise Malformed(f"watch {path}: {found.type!r:.40} is not a type of events")
    status = status_from(bytes(found.object), 0)
    raise error_for(f"watch {path}", status.code, status)
