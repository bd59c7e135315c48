"""A sorted collection of claims by a total order, for policies that ask "who is next".

Keys are tuples of integers and strings that no two claims share (they end with the uid), so that taking a claim out
and putting it back leaves the very same order: this is what makes a rollback exact for ordered lists too.

Adding, removing and finding cost O(log n) comparisons plus a shift inside one chunk of at most ``_CHUNK`` keys.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final, final

_CHUNK: Final = 512


@final
class Ordered:
    """Keys in ascending order, each with a claim's uid as its last part."""

    __slots__ = ("chunks", "size", "tops")

    def __init__(self) -> None:
        self.chunks: list[list[tuple[object, ...]]] = []
        self.tops: list[tuple[object, ...]] = []  # the largest key of each chunk
        self.size: int = 0

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[tuple[object, ...]]:
        for chunk in list(self.chunks):
            yield from list(chunk)

    def keys(self) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        for chunk in self.chunks:
            found.extend(chunk)
        return found

    def descending(self) -> Iterator[tuple[object, ...]]:
        for chunk in reversed(list(self.chunks)):
            yield from reversed(list(chunk))

    def add(self, key: tuple[object, ...]) -> None:
        self.size += 1
        if not self.chunks:
            self.chunks.append([key])
            self.tops.append(key)
            return
        at = min(bisect_left(self.tops, key), len(self.tops) - 1)
        chunk = self.chunks[at]
        insort(chunk, key)
        if len(chunk) > _CHUNK:
            half = len(chunk) // 2
            self.chunks.insert(at + 1, chunk[half:])
            self.tops.insert(at, chunk[half - 1])
            del chunk[half:]
            at += 1
        self.tops[at] = self.chunks[at][-1]

    def remove(self, key: tuple[object, ...]) -> None:
        at = bisect_left(self.tops, key)
        chunk = self.chunks[at] if at < len(self.chunks) else []
        inside = bisect_left(chunk, key)
        if inside >= len(chunk) or chunk[inside] != key:
            raise KeyError(key)
        self.size -= 1
        del chunk[inside]
        if chunk:
            self.tops[at] = chunk[-1]
        else:
            del self.chunks[at]
            del self.tops[at]
