"""The history of one claim is found by an index, and is the same as if the whole journal were read."""

from __future__ import annotations

from pathlib import Path

import pytest

from bursar.engine.engine import Engine
from bursar.ledger.claims import Claim
from bursar.store import verify
from bursar.store.snapshots import take
from bursar.store.store import Batch, Store
from bursar.store.upkeep import prune
from tests.engine.machine import new_engine, room_setting
from tests.engine.toy_policies import spec

KEYS = [f"ns/p{number}" for number in range(7)] + ['ns/"odd"', "ns/p"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "bursar.db")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "BLOCK", 8)


def fill(store: Store, engine: Engine, rounds: int, start: int = 0) -> None:
    for number in range(start, start + rounds):
        for key in KEYS:
            if number % (KEYS.index(key) + 1) == 0:
                uid = f"{key}#{number}"
                engine.decide(Claim(uid, spec({"cpu": 1}, {"teams": "a"}), number, "ns"), number)
                engine.release(uid, number)
    store.commit(Batch(engine.journal.take()))


def new(store: Store) -> Engine:
    engine = new_engine()
    engine.configure([room_setting("teams", "a", 40, 10), room_setting("hosts", "h1", 30, 30)], 0)
    store.commit(Batch(engine.journal.take()))
    return engine


def scanned(store: Store, key: str, before: int = 0) -> list[bytes]:
    text = key.replace('"', '\\"').encode() + b"#"
    lines = list(store.load_journal(store.pruned_to + 1, before - 1 if before else None))
    return [line for line in reversed(lines) if text in line]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("indexed", ["nothing", "a part", "all"])
def test_it_finds_what_a_scan_finds(store: Store, key: str, indexed: str) -> None:
    engine = new(store)
    fill(store, engine, 10)
    if indexed != "nothing":
        assert verify.extend(store) == store.last_seq // 8
    fill(store, engine, 10, 10)
    if indexed == "all":
        verify.extend(store)
    found = list(verify.lines_about(store, key))
    assert found == scanned(store, key)
    assert found
    assert list(verify.lines_about(store, key, 50)) == scanned(store, key, 50)


def test_blocks_that_do_not_mention_it_are_not_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = new(store)
    fill(store, engine, 20)
    verify.extend(store)
    read: list[int] = []
    load = Store.load_journal

    def noted(store: Store, first: int = 1, last: int | None = None) -> object:
        read.append(first)
        return load(store, first, last)

    monkeypatch.setattr(Store, "load_journal", noted)
    assert list(verify.lines_about(store, "ns/nobody")) == []
    assert len(read) <= 1  # what is not indexed yet
    found = list(verify.lines_about(store, KEYS[6]))  # in three of twenty rounds
    assert len(found) == 6
    assert len(read) < store.last_seq // 8 // 2


def test_nothing_is_indexed_twice(store: Store) -> None:
    fill(store, new(store), 10)
    assert verify.extend(store) > 0
    assert verify.extend(store) == 0


def test_what_was_pruned_is_neither_indexed_nor_read(store: Store) -> None:
    engine = new(store)
    fill(store, engine, 10)
    verify.extend(store)
    at = take(store).at
    fill(store, engine, 10, 10)
    assert prune(store, at) > 0
    verify.extend(store)
    found = list(verify.lines_about(store, KEYS[0]))
    assert found == scanned(store, KEYS[0])
    assert len(found) == 20
