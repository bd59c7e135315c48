"""The index of claims in the journal, the proof of its hash chain, and child processes on the same store.

Records are indexed in blocks. Of each complete block the file keeps a short hash of every claim in it; hashes may
collide, so a block with the hash is read and searched. The index follows the journal at a distance (``extend``);
records that it does not cover yet are read. Only uids of the form ``namespace/name#number`` are indexed.

Hashing every line takes a fifth of a restart, so a child process (``python -m bursar.store.verify``) proves the chain
of a long journal while this one replays it. The proof is over the raw bytes.

A child process ignores signals that ask it to end: they often go to a whole process group, and the parent ends its
children in its own time, by closing their pipes.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from bursar.ledger.replay import ReplayError
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


_NOT_FOR_THEM = (signal.SIGINT, signal.SIGTERM)
_PATIENCE = 30.0  # seconds until a child that does not end is killed


class ChildFailedError(RuntimeError):
    """A child process ended before it had answered."""


def start_child(module: str, *arguments: object) -> subprocess.Popen[bytes]:
    """Run a module as a child process with two pipes. It ends when its pipes are closed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    command = [sys.executable, "-m", module, *map(str, arguments)]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_THEM)  # which a new process inherits, for good
    try:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)  # noqa: S603 this interpreter
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_child(work: Callable[[], None]) -> None:
    """The main function of a child process: it ends silently when the parent has closed its pipe."""
    try:
        work()
    except BrokenPipeError:
        os._exit(0)


def end_child(process: subprocess.Popen[bytes]) -> None:
    """Close its pipes, wait until it ends, and kill it if it does not."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # it has gone without reading what was written
                continue
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


_SEAL = 36  # what follows the body of a line: ,"hash"]
_BROKEN = "broken"


def worth_a_process(records: int) -> bool:
    """Whether another process is done sooner than it takes to start it and to read the journal twice."""
    return records >= 100_000 and len(os.sched_getaffinity(0)) > 1


class ChainProof:
    """The proof of some records, under way; leaving it ends it."""

    def __init__(self, store: Store, first: int, last: int, head: str) -> None:
        self._process = start_child("bursar.store.verify", store.path, first, last, head)

    def check(self, head: str) -> None:
        """Wait for it; ``ReplayError`` unless the chain holds and ends in that hash."""
        text, _ = self._process.communicate()
        if self._process.returncode:
            raise ChildFailedError(
                f"the process that proves the journal's chain ended with code {self._process.returncode}"
            )
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
    run_child(lambda: main(*sys.argv[1:]))
