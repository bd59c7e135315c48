"""Objects that are nested so deeply that reading them fails.

Where a schema leaves the form of a field open, whoever may write the object chooses how deep it is; the API server
takes 10,000 levels. Decoders call themselves for each level and fail at about a thousand. One such object would end
whatever follows its collection, each time anew. No field that anybody reads lies so deep, so a text is read in its
place: where any form is allowed nobody looks at it, and elsewhere it is wrong, as it should be.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEEPEST = 100  # levels, of what cannot be read as it is
ROOM = 100  # calls: so much deeper in the stack somebody may want to read the object again
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
