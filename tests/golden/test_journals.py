"""Journals and stores that an earlier Bursar wrote still replay, audit, and can be continued."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from bursar.audit.auditor import Auditor
from bursar.cli.main import cli
from bursar.engine.engine import Engine
from bursar.objects.manifests import load_text
from bursar.policies.plugin import default_registry
from bursar.server.service import Service
from bursar.store.snapshots import restore
from bursar.store.store import Store
from tests.golden.journals import OldJournal, read_journals, store_file
from tests.golden.servers import POD
from tests.server.live import ManualClock

JOURNALS = list(read_journals())
LAST = 419, "1e22200658392d76"
A_DAY = 24 * 3600 * 1000


@pytest.mark.parametrize("journal", JOURNALS, ids=[one.scenario for one in JOURNALS])
def test_a_journal_replays_and_audits(journal: OldJournal) -> None:
    engine, auditor = Engine(default_registry().policies()), Auditor()
    engine.replay(journal.lines)
    for line in journal.lines:
        auditor.feed(line)
    assert f"{engine.digest:016x}" == auditor.digest == journal.digest


def test_the_journals_have_records_of_every_kind() -> None:
    text = b"\n".join(line for journal in JOURNALS for line in journal.lines)
    causes = ("submit", "decide", "observe", "configure", "evicted", "release", "group", "tick", "adjust")
    effects = ("claim", "bind", "bound", "charge", "state", "field", "drop", "cell", "open", "close", "limits")
    assert all(b'["%s"' % word.encode() in text for word in causes + effects)


def audit(path: Path) -> str:
    done = CliRunner().invoke(cli, ["audit", str(path)])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_store_audits_and_can_be_restored_from_its_journal_and_from_its_snapshot(tmp_path: Path) -> None:
    path = store_file(tmp_path)
    assert audit(path).startswith("GOOD")
    with Store.open(path, read_only=True) as store:
        engines = [Engine(default_registry().policies()) for _ in range(2)]
        engines[0].replay(store.load_journal(1))
        assert restore(store, engines[1]) < store.last_seq, "the snapshot was used"
        assert {(engine.version, f"{engine.digest:016x}") for engine in engines} == {LAST}


def test_a_server_goes_on_from_a_store(tmp_path: Path) -> None:
    path = store_file(tmp_path)
    service = Service.open(path, clock=ManualClock(1_800_000_000_000 + A_DAY))
    try:
        assert service.cluster.engine.version > LAST[0], "pods ended meanwhile"
        service.apply(load_text(POD))
        pod = service.cluster.pod("vision/tried")
        assert pod is not None
        assert pod.phase == "Running"
    finally:
        service.close()
    assert audit(path).startswith("GOOD")
