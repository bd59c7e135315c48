"""Snapshots in a store, and starting an engine from them.

A restart needs the newest snapshot and the records after it; a past state needs the newest snapshot before it and the
records up to it. Without snapshots both replay the whole journal, with the same result. Taking one replays records
beside the engine and never stops it.
"""

from __future__ import annotations

import gc
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from bursar.engine.engine import Engine
from bursar.engine.session import Recall
from bursar.ledger.compaction import Summary
from bursar.ledger.replay import ReplayError
from bursar.ledger.transaction import Snapshot, read_snapshot
from bursar.store import verify
from bursar.store.schema import damaged
from bursar.store.store import Store


def restore(store: Store, engine: Engine, seq: int | None = None) -> int:
    """Bring a new engine to the state after a record, by default the last one; returns how many records it replayed."""
    wanted = store.last_seq if seq is None else seq
    with _collector_off(), _proving(store):
        return _replay(store, engine, _begin(store, engine, wanted) + 1, wanted)


def _begin(store: Store, engine: Engine, wanted: int) -> int:
    """Begin with the newest snapshot that may be used; the number of its record. It is out of memory afterwards."""
    snapshot = newest(store, wanted)
    if snapshot is None:
        return 0
    engine.restore(snapshot)
    return snapshot.seq


def _replay(store: Store, engine: Engine, first: int, last: int) -> int:
    if first > last:
        return 0
    lines = store.load_journal(first, last)
    if not verify.worth_a_process(last - first):
        return engine.replay(lines)
    with verify.ChainProof(store, first, last, engine.journal.head) as proof:
        count = engine.replay(lines, chained=True)
        proof.check(engine.journal.head)
        return count


def newest(store: Store, seq: int) -> Snapshot | None:
    """The newest snapshot of a record or one before it."""
    found = store.rows("SELECT state FROM snapshots WHERE seq <= ? ORDER BY seq DESC LIMIT 1", seq)
    return read_snapshot(unpacked(found[0][0])) if found else None


def take(store: Store) -> Snapshot:
    """Sum the journal up to its present end and keep that as a snapshot."""
    snapshot = summed(store)
    label, state = pack(snapshot)
    keep(store, label, [state])
    return snapshot


def summed(store: Store) -> Snapshot:
    """The journal up to its present end, summed up; writes nothing."""
    summary = Summary()
    recall = Recall(summary.ledger.state)
    with _collector_off(), _proving(store):
        known = newest(store, store.last_seq)
        if known is not None:
            summary.start_from(known)
            recall.restore(known.decisions)
        for line in summary.follow(store.load_journal(1 if known is None else known.seq + 1)):
            recall.replayed(line)
        recall.settle()
        return summary.snapshot(recall.rows())


class Label(msgspec.Struct, frozen=True):
    """Where a snapshot belongs, and how many bytes its compressed text has."""

    seq: int
    at: int
    head: str
    digest: str
    size: int


def pack(snapshot: Snapshot) -> tuple[Label, bytes]:
    """A snapshot as the file has it."""
    state = packed(snapshot.text())
    return Label(snapshot.seq, snapshot.at, snapshot.head, f"{snapshot.digest:016x}", len(state)), state


def packed(text: bytes) -> bytes:
    """A snapshot is repetitive: compression leaves a tenth of it, in less time than writing the whole would take."""
    return zlib.compress(text, 1)


def unpacked(state: bytes) -> bytes:
    try:
        return zlib.decompress(state)
    except zlib.error as error:
        raise ReplayError(f"not a snapshot: {error}") from error


def keep(store: Store, label: Label, parts: Iterable[bytes]) -> None:
    """Write a snapshot whose text comes in parts, so that it is never whole in memory."""
    row = (label.seq, label.at, label.head, label.digest, label.size)

    def write(db: sqlite3.Connection) -> None:
        db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?, zeroblob(?))", row)
        with db.blobopen("snapshots", "state", label.seq) as state:
            for part in parts:
                state.write(part)
            if state.tell() != label.size:
                raise ValueError(f"a snapshot of {label.size} bytes has only {state.tell()}")

    store.transact(write)


@contextmanager
def _proving(store: Store) -> Iterator[None]:
    """What replay refuses is damage of the store."""
    try:
        yield
    except ReplayError as error:
        raise damaged(store.path, error) from error


@contextmanager
def _collector_off() -> Iterator[None]:
    """A replay makes millions of objects and no cycles: looking for those would take longer than the replay."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
