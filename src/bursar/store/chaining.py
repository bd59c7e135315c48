"""Proving the chain of a long journal in a process of its own, while this one repeats what the records say.

Hashing every line takes as long as a fifth of a restart, and needs nothing but the lines. The proof is over the raw
bytes: each line must follow from the hash of the line before it. ``python -m bursar.store.chaining`` is the other
process.
"""

from __future__ import annotations

import os
import sys
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Self

from bursar.ledger.replay import ReplayError
from bursar.store.processes import ApartError, start, unheard
from bursar.store.store import Store

_SEAL = 36  # what follows the body of a line: ,"hash"]
_BROKEN = "broken"


def worthwhile(records: int) -> bool:
    """Whether another process is done sooner than it takes to start it and to read the journal twice."""
    return records >= 100_000 and len(os.sched_getaffinity(0)) > 1


class ChainProof:
    """The proof of some records, under way; leaving it ends it."""

    def __init__(self, store: Store, first: int, last: int, head: str) -> None:
        self._process = start("bursar.store.chaining", store.path, first, last, head)

    def check(self, head: str) -> None:
        """Wait for it; ``ReplayError`` unless the chain holds and ends in that hash."""
        text, _ = self._process.communicate()
        if self._process.returncode:
            raise ApartError(f"the process that proves the journal's chain ended with code {self._process.returncode}")
        word, _, number = text.decode().strip().partition(" ")
        if word == _BROKEN:
            problem = "does not continue the chain; it or one before it was altered"
            raise ReplayError(f"journal line {number}: {problem}")
        if word != head:
            raise ReplayError("the journal changed while it was read")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()


def prove(store: Store, first: int, last: int, head: str) -> str:
    """The hash of the last line, or ``broken`` with the number of the first line that does not continue the chain."""
    before = head.encode()
    fresh = blake2b(digest_size=len(before) // 2).copy
    for number, line in enumerate(store.load_journal(first, last), first):
        proof = fresh()
        proof.update(before)
        proof.update(line[:-_SEAL])
        proof.update(b"]")
        before = line[2 - _SEAL : -2]
        if proof.hexdigest().encode() != before:
            return f"{_BROKEN} {number}"
    return before.decode()


def main(path: str, first: str, last: str, head: str) -> None:
    with Store.open(Path(path), read_only=True) as store:
        sys.stdout.write(prove(store, int(first), int(last), head))
        sys.stdout.flush()


if __name__ == "__main__":
    unheard(lambda: main(*sys.argv[1:]))
