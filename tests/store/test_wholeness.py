"""Copies of a store that are not whole are refused; what is whole opens, however it was copied or left."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bursar.store import schema
from bursar.store.schema import CutOffStoreError, DamagedStoreError, StoreError
from bursar.store.store import Batch, Store
from bursar.store.upkeep import backup
from tests.store.world import filled, lines_of, put


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bursar.db"


@pytest.fixture
def running(path: Path) -> Iterator[Store]:
    """A store that is being written: its last changes are in its log."""
    with filled(path, lines_of(1)) as store:
        yield store


def copied(store: Store, name: str = "copy.db", *, log: bool = False) -> Path:
    """As `cp` copies it, with its log or without."""
    target = store.path.with_name(name)
    shutil.copy(store.path, target)
    if log:
        shutil.copy(schema.log_of(store.path), schema.log_of(target))
    return target


def folds(store: Store) -> None:
    """Commit until the log was folded, and then once more."""
    assert store._log is not None
    while store._log._commits or not store._log.folded:
        store.commit(Batch(objects=[put("a", 1)]))
    store.commit(Batch(objects=[put("b", 1)]))


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("folded", [False, True])
def test_a_copy_without_the_log_is_refused(running: Store, read_only: bool, folded: bool) -> None:
    if folded:
        folds(running)
    copy = copied(running)
    content = copy.read_bytes()
    with pytest.raises(CutOffStoreError, match=r"copy\.db: is cut off: .*`bursar backup`.*--accept-cut-off"):
        Store.open(copy, read_only)
    assert copy.read_bytes() == content
    with Store.open(copy, read_only=True, cut_off=True) as store:
        assert store.last_seq == (running.last_seq if folded else 0)


def test_a_copy_with_an_empty_log_is_refused(running: Store) -> None:
    copy = copied(running)
    schema.log_of(copy).touch()
    with pytest.raises(CutOffStoreError, match="is cut off"):
        Store.open(copy)


def test_a_copy_with_its_log_is_what_a_killed_server_leaves(running: Store) -> None:
    for read_only in (True, False):
        with Store.open(copied(running, log=True), read_only) as store:
            assert store.last_seq == running.last_seq


def test_a_copy_by_sqlite_is_whole(running: Store) -> None:
    target = running.path.with_name("copy.db")
    with closing(sqlite3.connect(running.path)) as source, closing(sqlite3.connect(target)) as copy:
        source.backup(copy)
    with Store.open(target) as store:
        assert store.last_seq == running.last_seq


def test_a_log_that_another_program_folded_is_whole(running: Store) -> None:
    copy = copied(running, log=True)
    with closing(sqlite3.connect(copy)) as db:  # as `sqlite3 copy.db` does at its end
        db.execute("SELECT count(*) FROM journal").fetchone()
    assert not schema.log_of(copy).exists()
    with Store.open(copy) as store:
        assert store.last_seq == running.last_seq


def test_a_store_that_was_closed_is_whole_without_a_log(running: Store) -> None:
    running.close()
    assert not schema.log_of(running.path).exists()
    with Store.open(copied(running)) as store:
        assert store.last_seq == running.last_seq


def test_a_fold_that_a_reader_held_up_is_completed_later(running: Store) -> None:
    folds(running)
    with closing(schema.connect_reader(running.path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM journal").fetchone()
        running.commit(Batch(objects=[put("c", 1)]))
        assert running._log is not None
        running._log.fold()
        assert running._log._mark
    running.fold()
    assert not running._log._mark
    running.commit(Batch(objects=[put("d", 1)]))
    with pytest.raises(CutOffStoreError):
        Store.open(copied(running))


def test_a_store_that_is_closed_in_the_middle_of_a_fold_keeps_its_log(running: Store) -> None:
    with closing(schema.connect_reader(running.path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM journal").fetchone()
        running.commit(Batch(objects=[put("c", 1)]))
        assert running._log is not None
        running._log.fold()
        running.close()
    with Store.open(running.path) as store:
        assert {row[1] for row in store.objects()} == {"c"}


def test_the_log_is_folded_now_and_then(running: Store) -> None:
    for number in range(120):
        running.commit(Batch(objects=[put(f"p{number}", number + 1, os.urandom(200_000))]))
    log = schema.log_of(running.path).stat().st_size
    assert running.path.stat().st_size > 15_000_000
    assert log < 40_000_000


@pytest.mark.parametrize("share", range(6))
def test_a_fold_that_was_killed_half_way_loses_nothing(running: Store, share: int) -> None:
    """Some pages of the file are new and some are old then; with its log the store is whole."""
    assert running._log is not None
    running._log._every = 1_000
    meta = {f"m{number}": "x" * 900 for number in range(200)}
    running.commit(Batch(objects=[put(f"p{number}", number + 1, os.urandom(9_000)) for number in range(40)], meta=meta))
    running._log._begin()
    half = copied(running, "half.db", log=True)
    old = half.read_bytes()
    running._log.fold()
    new = running.path.read_bytes()
    size = 4_096
    pages = range(0, len(new), size)
    taken = [new if (page // size) % 6 == share else old for page in pages]
    half.write_bytes(b"".join(source[page : page + size] for source, page in zip(taken, pages, strict=True)))
    with Store.open(half) as store:
        assert len(list(store.objects())) == 40


def test_a_log_of_another_store_is_refused(running: Store, tmp_path: Path) -> None:
    """As when a backup is copied over a store that a killed server left."""
    folds(running)
    log = copied(running, "left.db", log=True)
    backup(running.path, tmp_path / "backup.db")
    shutil.copy(tmp_path / "backup.db", log)
    with pytest.raises(CutOffStoreError, match=r"the write-ahead log beside it \(left\.db-wal\) belongs to another"):
        Store.open(log)


def test_no_store_is_made_beside_a_log(running: Store) -> None:
    copy = copied(running, log=True)
    copy.unlink()
    with pytest.raises(StoreError, match=r"there is no such file, but the write-ahead log of one"):
        Store.create(copy)


@pytest.mark.parametrize("missing", [1, 16_384, 40_000])
def test_a_file_without_its_end_is_refused(path: Path, missing: int) -> None:
    with filled(path, lines_of(2)) as store:
        store.commit(Batch(objects=[put("a", 1, b"x" * 200_000)]))
    content = path.read_bytes()
    path.write_bytes(content[:-missing])
    with pytest.raises((CutOffStoreError, DamagedStoreError), match=r"cut off|damaged"):
        Store.open(path, read_only=True)


def test_a_store_of_an_older_version_has_no_marks(path: Path) -> None:
    filled(path, lines_of(3)).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM meta WHERE name LIKE 'fol%'")
        db.commit()
    with Store.open(path, read_only=True) as store:
        assert store.last_seq == len(lines_of(3))
    with Store.open(path) as store, pytest.raises(CutOffStoreError):
        Store.open(copied(store))
