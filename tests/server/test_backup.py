"""Back up, restore and prune, by the commands and by the API."""

from __future__ import annotations

import http.client
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bursar.cli import exit_codes
from bursar.cli.main import cli
from bursar.server import background, retention
from bursar.server.background import SnapshotKeeper
from bursar.server.client import RequestFailedError
from bursar.server.retention import StoreCopies
from bursar.server.serve import ServeOptions, StartError, serve_forever
from bursar.store import snapshots, upkeep
from bursar.store.store import Store
from tests.server.live import Live, ManualClock, live, pod, wait_for

DAY = 24 * 3600 * 1000


def run(*arguments: object, bed: Live | None = None) -> Result:
    env = {"BURSAR_SERVER": "http://127.0.0.1:1" if bed is None else bed.address}
    return CliRunner().invoke(cli, [str(one) for one in arguments], prog_name="bursar", env=env)


def records(path: Path) -> list[bytes]:
    with Store.open(path, read_only=True) as store:
        return list(store.load_journal(store.pruned_to + 1))


def content(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """All rows of all tables, but for the marks that each copy has of its own."""
    with Store.open(path, read_only=True) as store:
        tables = [name for (name,) in store.rows("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        found = {name: store.rows(f"SELECT * FROM {name}") for name in tables}  # noqa: S608
    found["meta"] = [row for row in found["meta"] if not str(row[0]).startswith("fol")]
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


class TestBackup:
    def test_a_backup_of_a_server_is_its_store_at_that_moment(self, bed: Live, tmp_path: Path) -> None:
        bed.give(pod("a", "p"))
        result = run("backup", tmp_path / "copy.db", bed=bed)
        assert (result.exit_code, result.output) == (
            exit_codes.OK,
            f"copied the store of {bed.address} to {tmp_path / 'copy.db'}: records 1 to 4\n",
        )
        assert content(tmp_path / "copy.db") == content(bed.service.store.path)
        assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
        assert not list(tmp_path.glob(".*"))

    def test_a_backup_of_a_file_that_a_server_writes(self, bed: Live, tmp_path: Path) -> None:
        result = run("backup", "--data", bed.service.store.path, tmp_path / "copy.db")
        assert result.exit_code == exit_codes.OK
        assert records(tmp_path / "copy.db") == records(bed.service.store.path)

    def test_backups_while_callers_change_pods_are_each_whole(self, bed: Live, tmp_path: Path) -> None:
        done = threading.Event()

        def change() -> None:
            for number in range(60):
                bed.give(pod("a", f"p{number}"), pod("b", f"q{number}"))
            done.set()

        thread = threading.Thread(target=change)
        thread.start()
        count = 0
        while not done.is_set() or not count:
            assert run("backup", tmp_path / f"{count}.db", bed=bed).exit_code == exit_codes.OK
            count += 1
        thread.join()
        whole = records(bed.service.store.path)
        for number in range(count):
            found = records(tmp_path / f"{number}.db")
            assert found == whole[: len(found)]

    def test_nothing_is_overwritten(self, bed: Live, tmp_path: Path) -> None:
        (tmp_path / "copy.db").write_text("precious")
        result = run("backup", tmp_path / "copy.db", bed=bed)
        assert result.exit_code == exit_codes.BAD_INPUT
        assert "exists already" in result.output
        assert (tmp_path / "copy.db").read_text() == "precious"

    def test_a_backup_that_fails_the_audit_gets_no_name(self, bed: Live, tmp_path: Path) -> None:
        bed.give(pod("a", "p"))
        with closing(sqlite3.connect(bed.service.store.path)) as db:
            db.execute("UPDATE journal SET line = CAST(line || ' ' AS BLOB) WHERE seq = 2")
            db.commit()
        result = run("backup", tmp_path / "copy.db", bed=bed)
        assert result.exit_code == exit_codes.FAILED
        assert f"{tmp_path / 'copy.db'}: the audit fails: record 2" in result.output
        assert not list(tmp_path.glob("copy*"))

    def test_a_copy_of_which_part_is_missing_is_no_backup(
        self, bed: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read = http.client.HTTPResponse.read

        def cut(self: http.client.HTTPResponse, amount: int | None = None) -> bytes:
            """The connection ends in the middle of a file."""
            return read(self, amount)[:5000] if amount == 1024 * 1024 else read(self, amount)

        monkeypatch.setattr(http.client.HTTPResponse, "read", cut)
        result = run("backup", tmp_path / "copy.db", bed=bed)
        assert result.exit_code == exit_codes.UNREACHABLE
        assert "bytes before the file did" in result.output
        assert not list(tmp_path.glob("copy*"))

    def test_it_needs_the_role_admin(self, tmp_path: Path) -> None:
        tokens = tmp_path / "tokens"
        tokens.write_text("read 0123456789abcdef\nadmin fedcba9876543210\n")
        tokens.chmod(0o600)
        with live(tmp_path / "bursar.db", tokens=tokens, token="0123456789abcdef") as bed:  # noqa: S106
            with pytest.raises(RequestFailedError) as caught:
                list(bed.client.backup())
            assert caught.value.status == 403

    def test_one_copy_is_made_at_a_time(self, bed: Live) -> None:
        copies = StoreCopies(bed.service.store)
        with copies._lock, pytest.raises(Exception, match="another backup is being made"):
            copies.make()
        first, second = copies.make(), copies.make()
        assert b"".join(first.parts())[:15] == b"SQLite format 3"
        second.file.close()

    def test_a_copy_for_which_there_is_no_room(self, bed: Live, monkeypatch: pytest.MonkeyPatch) -> None:
        usage = shutil.disk_usage(bed.service.store.path.parent)
        monkeypatch.setattr("bursar.server.retention.shutil.disk_usage", lambda _: usage._replace(free=4096))
        with pytest.raises(RequestFailedError, match=r"and 4,096 are free; .*bursar backup --data") as caught:
            list(bed.client.backup())
        assert caught.value.status == 507

    def test_what_a_killed_server_left_of_a_copy_is_removed(self, tmp_path: Path) -> None:
        (tmp_path / ".bursar.db.backup-x").mkdir()
        (tmp_path / ".bursar.db.backup-x" / "copy.db").write_text("half")
        with live(tmp_path / "bursar.db"):
            assert not list(tmp_path.glob(".*"))


class TestRestore:
    @pytest.fixture
    def saved(self, bed: Live, tmp_path: Path) -> Path:
        bed.give(pod("a", "p"))
        assert run("backup", tmp_path / "saved.db", bed=bed).exit_code == exit_codes.OK
        return tmp_path / "saved.db"

    def test_a_restored_store_equals_its_source_and_goes_on(self, saved: Path, tmp_path: Path) -> None:
        result = run("restore", saved, "--data", tmp_path / "new.db")
        assert (result.exit_code, result.output) == (
            exit_codes.OK,
            f"restored {saved} to {tmp_path / 'new.db'}: records 1 to 4\n",
        )
        assert content(tmp_path / "new.db") == content(saved)
        with live(tmp_path / "new.db", clock=ManualClock()) as again:
            assert [claim.name for claim in again.client.claims().items] == ["p"]
            again.give(pod("b", "q"))

    def test_a_running_server_keeps_its_store(self, bed: Live, saved: Path) -> None:
        for options in ([], ["--replace"]):
            result = run("restore", saved, "--data", bed.service.store.path, *options)
            assert result.exit_code == exit_codes.BAD_INPUT
            assert "in use by process" in result.output
        bed.give(pod("b", "q"))

    def test_what_is_there_is_moved_away_with_its_log_or_not_touched(self, saved: Path, tmp_path: Path) -> None:
        there = tmp_path / "there.db"
        with Store.create(there) as store:  # as a killed server leaves it
            shutil.copy(there, tmp_path / "left.db")
            shutil.copy(tmp_path / "there.db-wal", tmp_path / "left.db-wal")
            del store
        left = tmp_path / "left.db"
        before = left.read_bytes(), (tmp_path / "left.db-wal").read_bytes()
        result = run("restore", saved, "--data", left)
        assert (result.exit_code, "exists already" in result.output) == (exit_codes.BAD_INPUT, True)
        assert (left.read_bytes(), (tmp_path / "left.db-wal").read_bytes()) == before
        result = run("restore", saved, "--data", left, "--replace")
        assert result.exit_code == exit_codes.OK
        away = Path(result.output.split()[-1])
        assert (away.read_bytes(), away.with_name(f"{away.name}-wal").read_bytes()) == before
        assert records(left) == records(saved)

    def test_a_backup_that_was_altered_is_not_restored(self, saved: Path, tmp_path: Path) -> None:
        with closing(sqlite3.connect(saved)) as db:
            db.execute("DELETE FROM journal WHERE seq = 3")
            db.commit()
        result = run("restore", saved, "--data", tmp_path / "new.db")
        assert result.exit_code == exit_codes.FAILED
        assert "the audit fails: record 3" in result.output
        assert not (tmp_path / "new.db").exists()

    def test_a_copy_without_its_log_is_restored_only_when_that_is_accepted(self, bed: Live, tmp_path: Path) -> None:
        shutil.copy(bed.service.store.path, tmp_path / "cp.db")
        result = run("restore", tmp_path / "cp.db", "--data", tmp_path / "new.db")
        assert (result.exit_code, "is cut off" in result.output) == (exit_codes.BAD_INPUT, True)
        result = run("restore", tmp_path / "cp.db", "--data", tmp_path / "new.db", "--accept-cut-off")
        assert (result.exit_code, "no records" in result.output) == (exit_codes.OK, True)
        Store.open(tmp_path / "new.db").close()


class TestCutOff:
    """A copy by `cp` is neither GOOD, nor asked, nor served."""

    @pytest.fixture
    def cut(self, bed: Live, tmp_path: Path) -> Path:
        bed.give(pod("a", "p"))
        return Path(shutil.copy(bed.service.store.path, tmp_path / "cp.db"))

    @pytest.mark.parametrize("command", [["audit", "CUT"], ["get", "pods", "--data", "CUT"]])
    def test_commands_refuse_it(self, cut: Path, command: list[str]) -> None:
        result = run(*[str(cut) if word == "CUT" else word for word in command])
        assert result.exit_code == exit_codes.BAD_INPUT
        assert "is cut off" in result.output
        assert "GOOD" not in result.output

    def test_a_server_refuses_it(self, cut: Path) -> None:
        with pytest.raises(StartError, match="is cut off"):
            serve_forever(ServeOptions(cut, port=0), lambda _: None)

    def test_an_empty_store_is_not_good(self, tmp_path: Path) -> None:
        Store.create(tmp_path / "new.db").close()
        (tmp_path / "journal").write_bytes(b"[")
        result = run("audit", tmp_path / "new.db")
        assert (result.exit_code, "GOOD" in result.output) == (exit_codes.FAILED, False)
        assert "holds no record" in result.output
        result = CliRunner().invoke(cli, ["audit", "-"], input=b"", prog_name="bursar")
        assert (result.exit_code, "GOOD" in result.output) == (exit_codes.FAILED, False)


class TestRetention:
    def test_a_server_drops_history_that_is_older(self, bed: Live, clock: ManualClock) -> None:
        keeper = SnapshotKeeper(bed.service, kept=10 * DAY)
        try:
            numbers = []
            for day in range(25):
                numbers.append(bed.give(pod("a", f"p{day}"), pod("b", f"q{day}")).id)
                keeper.keep(bed.service.store.last_seq)
                clock.now += DAY
                bed.service.tick()
            store = bed.service.store
            oldest = store.rows("SELECT min(seq) FROM journal")[0][0]
            assert oldest == store.pruned_to + 1 > 20
            assert [change.id for change in bed.client.changes(limit=500).items][-1] > numbers[10]
            last = bed.client.claims(at="-216h").items
            assert {claim.name for claim in last} >= {"p0", "p10", "p14"}
            with pytest.raises(RequestFailedError, match=r"was pruned: history begins at") as caught:
                bed.client.claims(at="-480h")
            assert caught.value.status == 410
            assert caught.value.problem.title == "that moment is no longer kept"
            with pytest.raises(RequestFailedError, match="record 3 was pruned"):
                bed.client.claims(at="3")
        finally:
            keeper.stop()
        assert run("audit", store.path).exit_code == exit_codes.OK

    def test_snapshots_for_retention_need_news_and_time(self, bed: Live, clock: ManualClock) -> None:
        kept = retention.Retention(bed.service.store, 10 * DAY)
        assert kept.wants_snapshot(clock.now)
        snapshots.take(bed.service.store)
        assert not kept.wants_snapshot(clock.now + 2 * DAY)
        bed.give(pod("a", "p"))
        assert not kept.wants_snapshot(clock.now + DAY // 2)
        assert kept.wants_snapshot(clock.now + 2 * DAY)

    def test_a_keeper_without_retention_prunes_nothing(self, bed: Live, clock: ManualClock) -> None:
        keeper = SnapshotKeeper(bed.service, every=1)
        try:
            for _ in range(3):
                clock.now += 400 * DAY
                bed.give(pod("a", f"p{clock.now}"))
                keeper.keep(bed.service.store.last_seq)
        finally:
            keeper.stop()
        assert keeper.taken >= 3
        assert bed.service.store.pruned_to == 0

    def test_the_command_prunes_a_store_and_makes_it_smaller(self, tmp_path: Path) -> None:
        data, clock = tmp_path / "bursar.db", ManualClock(1_000_000_000_000)
        with live(data, clock=clock) as bed:
            for number in range(30):
                bed.give({**pod("a", f"p{number}"), "metadata": {
                    "namespace": "a", "name": f"p{number}", "annotations": {"x": "y" * 60_000}}})  # fmt: skip
                bed.client.delete([f"Pod/a/p{number}"])
            running = run("prune", "--data", data, "--retain", "30d")
            assert (running.exit_code, "in use by process" in running.output) == (exit_codes.BAD_INPUT, True)
        result = run("prune", "--data", data, "--retain", "30d")
        assert result.exit_code == exit_codes.OK, result.output
        assert f"dropped 90 journal records; the journal of {data} begins with record 91" in result.output
        sizes = [int(word.replace(",", "")) for word in result.output.splitlines()[-1].split() if word[0].isdigit()]
        assert sizes[0] == data.stat().st_size < sizes[1] // 5
        with live(data, clock=clock) as bed:
            bed.give(pod("a", "again"))
        assert run("audit", data).exit_code == exit_codes.OK

    @pytest.mark.parametrize("text", ["0", "0s", "tomorrow", "-1d", "30 d"])
    def test_a_time_that_is_none(self, text: str) -> None:
        result = run("serve", "--retain", text)
        assert result.exit_code == exit_codes.BAD_INPUT

    def test_a_sweep_that_was_killed_is_completed(self, bed: Live, monkeypatch: pytest.MonkeyPatch) -> None:
        store = bed.service.store
        for number in range(20):
            bed.give(pod("a", f"p{number}"))
            bed.client.delete([f"Pod/a/p{number}"])
        at = snapshots.take(store).at
        monkeypatch.setattr(upkeep, "_AT_ONCE", 5)
        transact, steps = store.transact, iter([True] * 4)

        def killed(write: object) -> None:
            if not next(steps, False):
                raise KeyboardInterrupt
            transact(write)  # type: ignore[arg-type]

        monkeypatch.setattr(store, "transact", killed)
        with pytest.raises(KeyboardInterrupt):
            upkeep.prune(store, at)
        monkeypatch.setattr(store, "transact", transact)
        assert f"the snapshot of record {store.last_seq} is true to itself" in run("audit", store.path).output
        bed.give(pod("a", "later"))
        with Store.open(store.path, read_only=True) as other:
            assert other.last_seq == store.last_seq
        assert run("audit", store.path).exit_code == exit_codes.OK
        upkeep.prune(store, at)
        assert store.rows("SELECT min(seq) FROM journal")[0][0] == store.pruned_to + 1
        assert store.rows("SELECT count(*) FROM manifests")[0][0] == 4

    def test_the_keeper_wakes_by_itself(self, bed: Live, monkeypatch: pytest.MonkeyPatch) -> None:
        kept: list[int] = []
        monkeypatch.setattr(background.SnapshotKeeper, "keep", lambda _, last: kept.append(last))
        monkeypatch.setattr(retention, "_SHORTEST", 1)
        keeper = SnapshotKeeper(bed.service, kept=10)
        try:
            wait_for("keeper", lambda: kept)
        finally:
            keeper.stop()
