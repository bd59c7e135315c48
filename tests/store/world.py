"""An engine with a life of its own to store: the machine of the engine's tests, driven by a seed."""

from __future__ import annotations

from pathlib import Path
from random import Random

from bursar.store.store import Batch, ObjectWrite, Store
from tests.engine.machine import Machine
from tests.soak import step


def lived(seed: int, steps: int = 60) -> Machine:
    """A machine that has gone so many random steps; its journal is not taken yet."""
    machine = Machine()
    rng = Random(seed)
    for _ in range(steps):
        step(machine, rng)
    return machine


def lines_of(seed: int, steps: int = 60) -> list[bytes]:
    return lived(seed, steps).engine.journal.take()


def put(key: str, version: int, body: bytes = b"{}", kind: str = "Pod") -> ObjectWrite:
    return ObjectWrite(kind, key, version, body)


def gone(key: str, version: int, kind: str = "Pod") -> ObjectWrite:
    return ObjectWrite(kind, key, version, None)


def objects_at(store: Store, seq: int) -> list[tuple[object, ...]]:
    """(kind, key, version, body) of the objects after a journal record."""
    return list(store.objects_at(store.last_entry("seq", seq)[0]))


def filled(path: Path, lines: list[bytes]) -> Store:
    """A new store with a journal."""
    store = Store.create(path)
    store.commit(Batch(lines))
    return store
