import sqlite3
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from bursar.engine.engine import Engine
from bursar.ledger.claims import Claim
from bursar.store.committer import GroupCommitter
from bursar.store.schema import StoreError
from bursar.store.snapshots import restore
from bursar.store.store import Batch, Store
from tests.engine.machine import new_engine, room_setting
from tests.engine.toy_policies import spec
from tests.store.world import lines_of, put


class Gate:
    """Lets a store commit only when the test says so, and counts the transactions."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Semaphore(0)
        self.reached = threading.Semaphore(0)
        self.sizes: list[int] = []
        commit_all = store.commit_all

        def waiting(batches: list[Batch]) -> int:
            self.reached.release()
            self.open.acquire()
            self.sizes.append(len(batches))
            return commit_all(batches)

        monkeypatch.setattr(store, "commit_all", waiting)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "bursar.db")


def test_a_commit_is_durable_when_it_returns(store: Store) -> None:
    lines = lines_of(1)
    committer = GroupCommitter(store)
    assert committer.commit(Batch(lines[:3])) == 3
    with Store.open(store.path, read_only=True) as reader:
        assert list(reader.load_journal()) == lines[:3]
    committer.close()


def test_what_comes_in_meanwhile_is_written_together(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(store, monkeypatch)
    committer = GroupCommitter(store)
    lines = lines_of(2)
    first = committer.submit(Batch(lines[:1]))
    gate.reached.acquire()
    others = [committer.submit(Batch([line])) for line in lines[1:8]]
    assert not first.done()
    gate.open.release(2)
    assert [future.result(60) for future in others] == [8] * 7
    assert first.result(0) == 1
    assert gate.sizes == [1, 7]
    committer.close()


def test_closing_writes_what_was_submitted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(store, monkeypatch)
    committer = GroupCommitter(store)
    lines = lines_of(3)
    futures = [committer.submit(Batch([line])) for line in lines[:5]]
    gate.open.release(9)
    committer.close()
    assert all(future.done() for future in futures)
    with pytest.raises(StoreError, match="being closed"):
        committer.submit(Batch())
    with Store.open(store.path) as again:
        assert again.last_seq == 5


def test_who_comes_when_too_many_wait_has_to_wait(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(store, monkeypatch)
    committer = GroupCommitter(store, waiting_at_most=2)
    lines = lines_of(4)
    futures = [committer.submit(Batch(lines[:1]))]
    gate.reached.acquire()
    futures += [committer.submit(Batch([line])) for line in lines[1:3]]
    late: list[Future[int]] = []
    thread = threading.Thread(target=lambda: late.append(committer.submit(Batch(lines[3:4]))))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    gate.open.release(9)
    thread.join(60)
    assert late[0].result(60) == 4
    committer.close()


def test_a_failure_reaches_everybody_and_ends_writing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(store, monkeypatch)
    committer = GroupCommitter(store, waiting_at_most=2)
    lines = lines_of(5)
    futures = [committer.submit(Batch(lines[3:4]))]  # not the record that follows
    gate.reached.acquire()
    futures += [committer.submit(Batch(lines[:1])), committer.submit(Batch())]
    blocked: list[str] = []

    def submit_late() -> None:
        with pytest.raises(StoreError, match="takes no more batches") as caught:
            committer.submit(Batch())
        blocked.append(str(caught.value))

    thread = threading.Thread(target=submit_late)
    thread.start()
    gate.open.release(9)
    for future in futures:
        with pytest.raises(StoreError, match="record 4 does not follow record 0"):
            future.result(60)
    thread.join(60)
    assert len(blocked) == 1
    with pytest.raises(StoreError, match=r"takes no more batches: .*does not follow"):
        committer.submit(Batch(lines[:1]))
    committer.close()
    with Store.open(store.path) as again:
        assert again.last_seq == 0


def test_a_full_disk_poisons_and_loses_nothing_acknowledged(store: Store) -> None:
    committer = GroupCommitter(store)
    lines = lines_of(6)
    committer.commit(Batch(lines[:2]))
    assert store._writer is not None
    (pages,) = store._writer.execute("PRAGMA page_count").fetchone()
    store._writer.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="cannot be written: database or disk is full") as caught:
        committer.commit(Batch(lines[2:3], [put("big", 1, b"x" * 100_000)]))
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    committer.close()
    with Store.open(store.path) as again:
        assert list(again.load_journal()) == lines[:2]


def test_a_caller_that_gives_up_waiting_stops_nobody(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(store, monkeypatch)
    committer = GroupCommitter(store)
    lines = lines_of(7)
    future = committer.submit(Batch(lines[:1]))
    assert not future.cancel()
    gate.open.release(9)
    assert committer.commit(Batch(lines[1:2])) == 2
    committer.close()


def test_many_callers_decide_and_everything_acknowledged_is_replayed(store: Store) -> None:
    engine = new_engine()
    committer = GroupCommitter(store)
    engine.configure([room_setting("teams", "a", 10_000, 0), room_setting("hosts", "h1", 10_000, 0)])
    committer.commit(Batch(engine.journal.take()))
    acknowledged: list[int] = []

    def work(number: int) -> None:
        for turn in range(20):
            with engine.lock:
                engine.decide(Claim(f"c{number}-{turn}", spec({"cpu": 1}, {"teams": "a"})), 1)
                future = committer.submit(Batch(engine.journal.take()))
            acknowledged.append(future.result(60))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    committer.close()
    assert len(acknowledged) == 160
    assert max(acknowledged) == 161
    assert_restores(store.path, engine)


def assert_restores(path: Path, engine: Engine) -> None:
    copy = new_engine()
    with Store.open(path, read_only=True) as store:
        restore(store, copy)
    assert (copy.version, copy.digest) == (engine.version, engine.digest)
    assert copy.state.plain() == engine.state.plain()
