"""Who is mentioned where in the journal, so that the history of one claim need not read all of it.

Records are taken in blocks. Of each block that is complete, the file keeps a short mark of every claim that is
mentioned in it; marks of different claims may be equal, so a block that has the mark is read and looked through. The
index follows the journal at a distance (``extend``); what it does not cover yet is read.

Claims of a cluster are mentioned by uids of the form ``namespace/name#number``; others are not in the index.
"""

from __future__ import annotations

import re
import sqlite3
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from hashlib import blake2b

import msgspec

from bursar.store.store import Store

BLOCK = 1024  # records
_UID = re.compile(rb'"((?:[^"\\]|\\.)*)#[0-9]+"')
_MARKS = "I"


def extend(store: Store) -> int:
    """Index the blocks that are complete by now; returns how many."""
    rows: list[tuple[int, bytes]] = []
    for block in range(_next_block(store), store.last_seq // BLOCK):
        lines = store.load_journal(max(block * BLOCK, store.pruned_to) + 1, (block + 1) * BLOCK)
        rows.append((block, _marks(lines)))

    def write(db: sqlite3.Connection) -> None:
        db.executemany("INSERT OR IGNORE INTO mentions VALUES (?, ?)", rows)

    if rows:
        store.transact(write)
    return len(rows)


def _next_block(store: Store) -> int:
    """The first block that is not in the index. What was pruned needs none."""
    known = store.rows("SELECT max(block) FROM mentions")[0][0]
    return max(store.pruned_to // BLOCK, 0 if known is None else int(known) + 1)


def _marks(lines: Iterator[bytes]) -> bytes:
    found: set[bytes] = set()
    for line in lines:
        found.update(_UID.findall(line))
    return array(_MARKS, sorted({_mark(key) for key in found})).tobytes()


def _mark(key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=4).digest(), "little")


def lines_about(store: Store, key: str, before: int = 0) -> Iterator[bytes]:
    """The lines that mention a claim by its uid, the newest first; ``before``: only those before that record."""
    opened = msgspec.json.encode(key)[:-1]  # with its first quotation mark, but not its last: the number follows
    last = min(before - 1, store.last_seq) if before else store.last_seq
    for first, upto in _ranges(store, _mark(opened[1:]), last):
        lines = [line for line in store.load_journal(first, upto) if opened + b"#" in line]
        yield from reversed(lines)


def _ranges(store: Store, mark: int, last: int) -> Iterator[tuple[int, int]]:
    """(first, last) of the records that may mention it, the newest first: what is not indexed, then blocks."""
    first = max(_next_block(store) * BLOCK, store.pruned_to) + 1
    if first <= last:
        yield first, last
    blocks = store.rows("SELECT block FROM mentions WHERE block * ? < ? ORDER BY block DESC", BLOCK, last)
    for (block,) in blocks:
        marks = array(_MARKS, bytes(store.rows("SELECT marks FROM mentions WHERE block = ?", block)[0][0]))
        place = bisect_left(marks, mark)
        if place < len(marks) and marks[place] == mark:
            yield max(block * BLOCK, store.pruned_to) + 1, min((block + 1) * BLOCK, last)
