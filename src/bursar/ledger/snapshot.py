"""Snapshots: a state written so that it can be built again without the journal that led to it.

A snapshot is text, one JSON value a line. The first line is a header: format, number, time and chain hash of the last
record in it, the digest of the state, and the decisions that still matter. Each further line is a list of effects, as
they stand in a journal. Repeated in order on an empty state they give the same state, and watchers hear of it like of
any other change: accounts first, then claims, cells, and last who is charged where. ``ledger.summary`` writes them.
"""

from __future__ import annotations

from typing import Final, final

import msgspec

from bursar.ledger.journal import FORMAT
from bursar.ledger.kinds import HEADERS
from bursar.ledger.replay import ReplayError

_MARK: Final = "bursar-snapshot"


@final
class Snapshot:
    """A state as text, and where in the journal it belongs."""

    __slots__ = ("at", "decisions", "digest", "head", "lines", "seq")

    def __init__(
        self, seq: int, at: int, head: str, digest: int, decisions: list[msgspec.Raw], lines: list[bytes]
    ) -> None:
        self.seq: Final = seq
        self.at: Final = at
        self.head: Final = head
        self.digest: Final = digest
        self.decisions: Final = decisions
        self.lines: Final = lines

    def text(self) -> bytes:
        header = [_MARK, FORMAT, self.seq, self.at, self.head, f"{self.digest:016x}", self.decisions]
        return b"\n".join([msgspec.json.encode(header), *self.lines])


def read_snapshot(text: bytes) -> Snapshot:
    """The inverse of ``Snapshot.text``; the effects are looked at when they are repeated."""
    first, *lines = text.split(b"\n")
    try:
        found = HEADERS.decode(first)
        if found.mark != _MARK or found.format != FORMAT:
            raise ValueError(f"{found.mark} of format {found.format} is not known here (this is format {FORMAT})")
        return Snapshot(found.seq, found.at, found.head, int(found.digest, 16), found.decisions, lines)
    except ValueError as error:
        raise ReplayError(f"not a snapshot: {error}") from error
