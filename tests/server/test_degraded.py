"""A store that cannot be written: what is durable stays readable, changes are refused, and it goes on by itself."""

from __future__ import annotations

import logging
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bursar.audit.auditor import Auditor
from bursar.objects.manifests import Document, load_text
from bursar.server.batches import WriteRetry
from bursar.server.client import Client, RequestFailedError
from bursar.server.service import Service
from bursar.server.types import Problem, ServerEvent
from bursar.sim.cluster import Cluster
from bursar.store.schema import StoreError
from bursar.store.store import Batch, Store
from tests.server.crash import _env
from tests.server.live import Live, ManualClock, live, node, pod, quota, text, wait_for
from tests.server.test_changes import refused

UNSHARE = shutil.which("unshare") or "unshare"
READS = (
    "/api/v1", "/api/v1/claims", "/api/v1/queue", "/api/v1/quotas", "/api/v1/nodes", "/api/v1/decisions",
    "/api/v1/changes", "/api/v1/objects", "/api/v1/claims/a/p0", "/api/v1/claims/a/p0/explain",
    "/api/v1/history/Pod/a/p0", "/api/v1/objects?at=2", "/api/v1/claims?at=2", "/api/v1/diff?from=2",
)  # fmt: skip


class Broken:
    """A store whose disk is full while ``full`` is set."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        right = store.transact

        def transact(write: object) -> None:
            if self.full:
                raise StoreError(store.path, "cannot be written: database or disk is full")
            right(write)  # type: ignore[arg-type]

        monkeypatch.setattr(store, "transact", transact)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WriteRetry, "_FIRST", 0.05)
    monkeypatch.setattr(WriteRetry, "_MOST", 0.1)


def test_reads_show_what_is_durable_and_changes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live(tmp_path / "b.db") as bed:
        disk = Broken(bed.service.store, monkeypatch)
        bed.give(node("n1"), quota("a", 2), pod("a", "p0"))
        before = bed.position()
        disk.full = True
        problem = refused(bed.give, pod("a", "lost"))
        assert problem.status == 503
        assert problem.detail.startswith("not done, and nothing of it is kept: ")
        assert problem.detail.endswith("cannot be written: database or disk is full")
        assert (problem.seq, problem.digest) == before
        assert bed.position() == before
        for path in READS:
            status, _, content = bed.raw("GET", path)
            assert status == 200, (path, content)
        assert bed.raw("GET", "/api/v1/claims/a/lost")[0] == 404
        again = refused(bed.give, pod("a", "later"))
        assert (again.status, "until the store can be written again" in again.detail) == (503, True)
        assert bed.raw("GET", "/readyz")[0] == 503
        assert b"database or disk is full" in bed.raw("GET", "/readyz")[2]
        assert b"bursar_accepting_changes 0.0" in bed.raw("GET", "/metrics")[2]
        assert bed.client.info().read_only
        disk.full = False
        wait_for("it to go on", lambda: bed.raw("GET", "/readyz")[0] == 200, 20)
        bed.give(pod("a", "later"))
        assert bed.client.claim("a", "later").state == "running"
        assert not bed.client.info().read_only


def test_an_idempotency_key_of_a_lost_change_is_free_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live(tmp_path / "b.db") as bed:
        disk = Broken(bed.service.store, monkeypatch)
        bed.give(node("n1"))
        disk.full = True
        assert refused(bed.client.apply, text(pod("a", "p")), idempotency_key="k").status == 503
        disk.full = False
        wait_for("it to go on", lambda: bed.raw("GET", "/readyz")[0] == 200, 20)
        change = bed.client.apply(text(pod("a", "p")), idempotency_key="k")
        assert (change.id, change.objects[0].result) == (2, "created")


def test_a_change_that_fails_half_way_is_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect, not a disk: the state goes back to the file, and the next change is taken."""
    clock = ManualClock()
    service = Service.open(tmp_path / "b.db", clock=clock)
    try:
        durable = service.read_durable(lambda cluster: cluster.engine.digest)
        right = Cluster.settle

        def wrong(self: Cluster) -> None:
            right(self)
            if self.doing("a/bad") is not None:
                raise KeyError("a defect")

        monkeypatch.setattr(Cluster, "settle", wrong)
        documents = _documents(node("n1"), pod("a", "bad"))
        with pytest.raises(KeyError):
            service.apply(documents)
        assert service.read_durable(lambda cluster: cluster.engine.digest) == durable
        assert service.rebuilds == 1
        monkeypatch.undo()
        wait_for("it to go on", lambda: service.tick() is None and service.error is None, 5)
        assert service.apply(documents).answer.id == 1
    finally:
        service.close()


def _documents(*manifests: dict[str, object]) -> list[Document]:
    return load_text(text(*manifests).decode(), "test.json")


def test_streams_are_told_to_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live(tmp_path / "b.db") as bed:
        disk = Broken(bed.service.store, monkeypatch)
        bed.give(node("n1"))
        seen: list[ServerEvent] = []
        ended = threading.Event()

        def follow() -> None:
            for event in bed.client.events():
                seen.append(event)
                if event.type == "notice":
                    break
            ended.set()

        threading.Thread(target=follow, daemon=True).start()
        wait_for("the stream", lambda: len(bed.service.hub) > 2)
        disk.full = True
        refused(bed.give, pod("a", "lost"))
        assert ended.wait(20)
        assert seen[-1].data["reason"] == "StateReloaded"
        disk.full = False


def test_the_log_says_it_once_and_that_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "bursar.server")
    with live(tmp_path / "b.db") as bed:
        disk = Broken(bed.service.store, monkeypatch)
        bed.give(node("n1"))
        disk.full = True
        refused(bed.give, pod("a", "lost"))
        for _ in range(3):
            refused(bed.give, pod("a", "lost"))
        disk.full = False
        wait_for("it to go on", lambda: bed.raw("GET", "/readyz")[0] == 200, 20)
    told = [record.message for record in caplog.records]
    assert sum("no changes are taken until the store can be written" in one for one in told) == 1
    assert told[-1] == "changes are taken again"


def test_trials_go_on_while_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live(tmp_path / "b.db") as bed:
        disk = Broken(bed.service.store, monkeypatch)
        bed.give(node("n1"), quota("a", 2))
        disk.full = True
        refused(bed.give, pod("a", "lost"))
        assert bed.client.what_if(text(pod("a", "p"))).pods[0].verdict == "now"
        disk.full = False


def test_a_wait_for_what_is_lost_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that saw a change before it was lost looks again."""
    service = Service.open(tmp_path / "b.db", clock=ManualClock())
    try:
        disk = Broken(service.store, monkeypatch)
        pending = service.apply(_documents(node("n1")))
        assert pending.durable is not None
        pending.durable.result()
        disk.full = True
        lost = service.apply(_documents(node("n2")))
        assert service.read_durable(lambda cluster: [one.key for one in cluster.objects.all("Node")]) == ["n1"]
        assert service.position().seq == service.store.last_seq
        assert lost.durable is not None
        assert isinstance(lost.durable.exception(), StoreError)
    finally:
        service.close()


def test_a_store_writes_on_after_a_failed_rollback(tmp_path: Path) -> None:
    with Store.create(tmp_path / "b.db") as store:
        store.commit(Batch(meta={"a": "1"}))
        assert store._writer is not None
        store._writer.close()
        with pytest.raises(StoreError):
            store.commit(Batch(meta={"a": "2"}))
        store.reconnect()
        store.commit(Batch(meta={"a": "3"}))
        store.try_writing()
        assert (store.meta("a"), store.meta("room")) == ("3", None)


# A small file system


def start(folder: Path) -> tuple[subprocess.Popen[str], Client]:
    """A server whose folder is a file system of its own."""
    inner = f'mount -t tmpfs -o size=8m none {folder} && exec "$0" "$@"'
    command = [sys.executable, "-m", "bursar", "serve", "--data", str(folder / "b.db"), "--port", "0"]
    process = subprocess.Popen(
        [UNSHARE, "--map-root-user", "--mount", "sh", "-c", inner, *command],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_env(),
    )  # fmt: skip
    assert process.stdout is not None
    return process, Client(process.stdout.readline().split()[2], timeout=60)


def test_a_full_file_system_and_room_again(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    process, client = start(folder)
    inside = Path(f"/proc/{process.pid}/root{folder}")
    done: list[str] = []
    try:
        client.apply(text(node("n1"), quota("a", 2)))
        filler = inside / "filler"
        problem = _until_refused(client, filler, done)
        assert problem.status == 503
        assert "database or disk is full" in problem.detail
        assert len(done) >= 3
        assert sorted(row.name for row in client.claims().items) == sorted(done)
        for path in READS:
            assert _status(client, path) == 200, path
        assert client.explain("a", "p0", fixes=True).claim.name == "p0"
        filler.unlink()
        wait_for("it to go on", lambda: _status(client, "/readyz") == 200)
        client.apply(text(pod("a", "after")))
        copy = tmp_path / "copy.db"
        copy.write_bytes(b"".join(client.backup()))
        auditor = Auditor()
        with Store.open(copy, read_only=True) as store:
            for line in store.load_journal():
                auditor.feed(line)
            keys = [key for kind, key, *_ in store.objects() if kind == "Pod"]
        assert keys == sorted(f"a/{name}" for name in [*done, "after"])
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "no changes are taken until the store can be written" in errors
    assert "changes are taken again" in errors


def _until_refused(client: Client, filler: Path, done: list[str]) -> Problem:
    """Apply pods while room is left."""
    for number in range(2_000):
        if number == 3:
            _fill(filler)
        try:
            client.apply(text(pod("a", f"p{number}")))
        except RequestFailedError as error:
            return error.problem
        done.append(f"p{number}")
    raise AssertionError("the file system is never full")


def _fill(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"." * 4096)
        except OSError:
            return


def _status(client: Client, path: str) -> int:
    bed = Live.__new__(Live)
    bed.port = int(client.address.rpartition(":")[2])
    return bed.raw("GET", path)[0]
