"""What runs beside a server, in processes of their own."""

from __future__ import annotations

import os
import signal
import sqlite3
from pathlib import Path

import pytest

from bursar.objects.manifests import Document
from bursar.server.audit_child import AuditVerdict
from bursar.server.background import AuditProcess, AuditWatch, SnapshotKeeper, SumProcess
from bursar.server.service import Service
from bursar.store.snapshots import newest, summed
from bursar.store.verify import ChildFailedError
from tests.server.live import node, pod, wait_for
from tests.store.world import filled, lines_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bursar.db"


def alter(path: Path, seq: int) -> None:
    db = sqlite3.connect(path)
    db.execute("UPDATE journal SET line = CAST(line || ' ' AS BLOB) WHERE seq = ?", (seq,))
    db.commit()
    db.close()


def test_the_auditor_goes_as_far_as_it_is_asked(path: Path) -> None:
    lines = lines_of(3)
    with filled(path, lines):
        auditor = AuditProcess(path)
        assert auditor.audit(5) == AuditVerdict(5)
        assert auditor.audit(len(lines)) == AuditVerdict(len(lines))
        auditor.close()


def test_the_auditor_names_the_first_record_that_was_altered(path: Path) -> None:
    filled(path, lines_of(3)).close()
    alter(path, 4)
    auditor = AuditProcess(path)
    verdict = auditor.audit(10)
    auditor.close()
    assert verdict.audited == 3
    assert verdict.problem.startswith("record 4: ")


def test_an_auditor_that_was_ended_is_an_error(path: Path) -> None:
    filled(path, lines_of(3)).close()
    auditor = AuditProcess(path)
    auditor._process.kill()
    auditor._process.wait()
    with pytest.raises(ChildFailedError, match="the auditor's process"):
        auditor.audit(10)
    auditor.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_for_the_whole_group_do_not_end_whoever_works_for_a_server(path: Path, number: signal.Signals) -> None:
    with filled(path, lines_of(3)) as store:
        auditor, summing = AuditProcess(path), SumProcess(path)
        for pid in (auditor.pid, summing._process.pid):
            os.kill(pid, number)  # at once: before it has begun to work
        assert auditor.audit(5) == AuditVerdict(5)
        os.kill(auditor.pid, number)
        assert auditor.audit(9) == AuditVerdict(9)
        assert summing.keep(store) == store.last_seq
        auditor.close()
    assert auditor._process.returncode == 0


def test_starting_such_a_process_leaves_this_one_its_signals(path: Path) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    filled(path, lines_of(3)).close()
    AuditProcess(path).close()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_a_process_sums_up_like_this_one(path: Path) -> None:
    with filled(path, lines_of(3)) as store:
        wanted = summed(store)
        assert SumProcess(path).keep(store) == wanted.seq
        found = newest(store, wanted.seq)
        assert found is not None
        assert found.text() == wanted.text()


def test_what_cannot_be_summed_up_is_an_error(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = filled(path, lines_of(3))
    alter(path, 4)
    with store, pytest.raises(ChildFailedError, match="ended with code 1"):
        SumProcess(path).keep(store)
    assert "journal line 4" in capfd.readouterr().err


def test_a_service_has_itself_audited_and_summed_up(path: Path) -> None:
    service = Service.open(path)
    audit, keeper = AuditWatch(service), SnapshotKeeper(service, every=10)
    try:
        for number in range(6):
            service.apply([Document("", 1, node("n1", 9)), Document("", 2, pod("a", f"p{number}"))])
        wait_for("audit", lambda: audit.audited == service.cluster.engine.version)
        wait_for("snapshot", lambda: keeper.taken > 0)
        assert (audit.failures, audit.problem) == (0, "")
        assert newest(service.store, service.store.last_seq) is not None
    finally:
        keeper.stop()
        audit.stop()
        service.close()


def test_a_service_counts_an_audit_that_failed(path: Path) -> None:
    service = Service.open(path)
    durable = service.apply([Document("", 1, node("n1", 9)), Document("", 2, pod("a", "p"))]).durable
    assert durable is not None
    alter(path, durable.result() - 1)
    audit = AuditWatch(service)
    try:
        wait_for("failure", lambda: audit.failures == 1)
        assert audit.problem.startswith(f"record {durable.result() - 1}: ")
    finally:
        audit.stop()
        service.close()
