"""A sorted collection of claims by a total order, for policies that ask "who is next".

Keys are tuples of integers and strings that no two claims share (they end with the uid), so that taking a claim out
and putting it back leaves the very same order: this is what makes a rollback exact for ordered lists too.

Adding, removing and finding cost O(log n) comparisons plus a shift inside one chunk of at most ``_CHUNK`` keys.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, final

_CHUNK: Final = 512


@final
class Ordered:
    """Keys in ascending order, each with a claim's uid as its last part."""

    __slots__ = ("chunks", "edits", "size", "tops")

    def __init__(self) -> None:
        self.chunks: list[list[tuple[object, ...]]] = []
        self.tops: list[tuple[object, ...]] = []  # the largest key of each chunk
        self.size: int = 0
        self.edits: int = 0  # tells iterators that their position may be off

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[tuple[object, ...]]:
        """Ascending. Keys may be added and removed meanwhile: what follows is the next larger key of that moment."""
        at = 0
        inside = 0
        edits = self.edits
        while at < len(self.chunks):
            if inside >= len(self.chunks[at]):
                at += 1
                inside = 0
                continue
            key = self.chunks[at][inside]
            yield key
            inside += 1
            if edits != self.edits:
                edits = self.edits
                at = bisect_left(self.tops, key)
                inside = bisect_right(self.chunks[at], key) if at < len(self.chunks) else 0

    def keys(self) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        for chunk in self.chunks:
            found.extend(chunk)
        return found

    def descending(self) -> Iterator[tuple[object, ...]]:
        """Descending, otherwise as ``__iter__``."""
        at = len(self.chunks) - 1
        inside = len(self.chunks[at]) - 1 if self.chunks else -1
        edits = self.edits
        while at >= 0:
            if inside < 0:
                at -= 1
                inside = len(self.chunks[at]) - 1 if at >= 0 else -1
                continue
            key = self.chunks[at][inside]
            yield key
            inside -= 1
            if edits != self.edits:
                edits = self.edits
                at = min(bisect_left(self.tops, key), len(self.chunks) - 1)
                inside = bisect_left(self.chunks[at], key) - 1 if self.chunks else -1

    def add(self, key: tuple[object, ...]) -> None:
        if not self.chunks:
            self.chunks.append([key])
            self.tops.append(key)
            self._edited(1)
            return
        at = len(self.tops) - 1
        if key > self.tops[at]:  # the newest of the most common kind: often the last one
            chunk = self.chunks[at]
            chunk.append(key)
        else:
            at = bisect_left(self.tops, key)
            chunk = self.chunks[at]
            inside = bisect_left(chunk, key)
            if chunk[inside] == key:
                raise ValueError(f"{key!r} is there already")
            chunk.insert(inside, key)
        self._edited(1)
        if len(chunk) > _CHUNK:
            half = len(chunk) // 2
            self.chunks.insert(at + 1, chunk[half:])
            self.tops.insert(at, chunk[half - 1])
            del chunk[half:]
            at += 1
        self.tops[at] = self.chunks[at][-1]

    def _edited(self, by: int) -> None:
        self.size += by
        self.edits += 1

    def remove(self, key: tuple[object, ...]) -> None:
        at = 0
        inside = 0
        chunk = self.chunks[0] if self.chunks else []
        if not chunk or chunk[0] != key:  # who is next is asked for most often, and then taken out
            at = bisect_left(self.tops, key)
            chunk = self.chunks[at] if at < len(self.chunks) else []
            inside = bisect_left(chunk, key)
            if inside >= len(chunk) or chunk[inside] != key:
                raise KeyError(key)
        del chunk[inside]
        self._edited(-1)
        if chunk:
            self.tops[at] = chunk[-1]
        else:
            del self.chunks[at]
            del self.tops[at]
