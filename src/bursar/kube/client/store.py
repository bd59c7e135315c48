"""What is known of one collection of objects, and the differences that reach its handler.

Whatever arrives, a watch event or an item of a list, is compared with what is known, so the handler sees each change
once and nothing twice: an object of the same uid and resourceVersion is no news; one with another uid under the same
key is the end of the old and the beginning of a new one; what a complete list does not contain is gone, and is reported
with its last known form. An object that cannot be decoded is reported by its key and harms nothing else; its last good
form, if there was one, stays in force until it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

import msgspec

from bursar.kube.client.models import Body, Meta

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

Decode = Callable[[Meta, bytes], T]
"""Metadata and JSON to whatever is kept. May raise ValueError or msgspec's errors: the object is then undecodable."""


def as_body(meta: Meta, raw: bytes) -> Body:
    """The decoder for those who want everything."""
    return Body(raw, meta)


class Handler(Protocol[T_contra]):
    """Who is told. Called in the event loop, one change after the other; must not block."""

    def added(self, meta: Meta, item: T_contra) -> None: ...

    def modified(self, meta: Meta, item: T_contra, before: T_contra) -> None: ...

    def deleted(self, meta: Meta, item: T_contra) -> None:
        """``item`` is the last form that was seen."""

    def undecodable(self, meta: Meta, problem: str) -> None: ...

    def synced(self) -> None:
        """A list is complete: from here on the handler knows all that there was when it was asked for."""


class _Known(Generic[T]):
    __slots__ = ("item", "meta")

    def __init__(self, meta: Meta, item: T | None) -> None:
        self.meta = meta
        self.item = item  # None: never decoded


class Store(Generic[T]):
    """The objects of one collection by key."""

    def __init__(self, decode: Decode[T], handler: Handler[T]) -> None:
        self._decode = decode
        self._handler = handler
        self._known: dict[str, _Known[T]] = {}
        self.undecodable: dict[str, str] = {}  # what is wrong, by key; only objects that exist

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
        """A list is complete: what it did not contain is gone. How many that were."""
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
