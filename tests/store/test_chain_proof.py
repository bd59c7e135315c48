"""A long journal's chain is proven beside the replay, and as strictly."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from bursar.store import verify
from bursar.store.schema import DamagedStoreError
from bursar.store.snapshots import restore, take
from bursar.store.store import Batch, Store
from bursar.store.verify import ChildFailedError
from tests.engine.machine import new_engine
from tests.store.world import filled, lived


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bursar.db"


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "worth_a_process", lambda _: True)


def alter(path: Path, seq: int) -> None:
    """Something that leaves the effects as they are."""
    db = sqlite3.connect(path)
    db.execute(
        "UPDATE journal SET line = CAST(replace(CAST(line AS TEXT), '.dev', '.dav') AS BLOB) WHERE seq = ?", (seq,)
    )
    db.commit()
    db.close()


def test_a_restart_is_the_same_as_without_it(path: Path) -> None:
    machine = lived(3, 100)
    lines = machine.engine.journal.take()
    with filled(path, lines) as store:
        copy = new_engine()
        assert restore(store, copy) == len(lines)
        assert (copy.digest, copy.journal.head) == (machine.engine.digest, machine.engine.journal.head)


def test_it_goes_on_from_a_snapshot(path: Path) -> None:
    machine = lived(3, 100)
    lines = machine.engine.journal.take()
    with filled(path, lines[:30]) as store:
        take(store)
        store.commit(Batch(lines[30:]))
        copy = new_engine()
        assert restore(store, copy) == len(lines) - 30
        assert copy.journal.head == machine.engine.journal.head


@pytest.mark.parametrize("seq", [1, 17, 40])
def test_a_line_that_was_altered_is_named(path: Path, seq: int) -> None:
    filled(path, lived(3, 100).engine.journal.take()).close()
    alter(path, seq)
    with Store.open(path) as store, pytest.raises(DamagedStoreError, match=f"journal line {seq}: does not continue"):
        restore(store, new_engine())


def test_another_end_than_the_one_that_was_read_is_refused(path: Path) -> None:
    lines = lived(3, 100).engine.journal.take()
    store = filled(path, lines)
    proof = verify.ChainProof(store, 1, len(lines), "0" * 32)
    with store, proof, pytest.raises(ValueError, match="changed while it was read"):
        proof.check("1" * 32)


def test_a_proof_that_does_not_end_is_no_proof(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = subprocess.PIPE
    for_ever = [sys.executable, "-c", "input()"]
    monkeypatch.setattr(verify, "start_child", lambda *_: subprocess.Popen(for_ever, stdin=pipe, stdout=pipe))
    store = filled(path, lived(3, 20).engine.journal.take())
    proof = verify.ChainProof(store, 1, 5, "0" * 32)
    proof._process.kill()
    with store, proof, pytest.raises(ChildFailedError, match="ended with code -9"):
        proof.check("0" * 32)


def test_short_journals_are_proven_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert not verify.worth_a_process(99_999)
