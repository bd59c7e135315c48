import json
import re
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bursar.cli import exit_codes
from bursar.cli.main import cli
from bursar.store.snapshots import packed, take, unpacked
from bursar.store.store import Batch, Store
from bursar.store.upkeep import prune
from tests.audit.forgery import resealed
from tests.audit.test_auditor import record, small_history
from tests.store.world import filled, lines_of


def run(*arguments: object, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(cli, ["audit", *map(str, arguments)], input=stdin, prog_name="bursar")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bursar.db"


def written(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(b"\n".join([*lines, b""]))
    return path


def test_a_store_that_is_clean(path: Path) -> None:
    filled(path, small_history()).close()
    result = run(path)
    assert result.exit_code == exit_codes.OK
    assert f"GOOD {path}: records 1 to 7 are true to each other" in result.output
    found = dict(re.findall(r"^  (\w+) +([\d,]+)$", result.output, re.MULTILINE))
    assert found == {
        "records": "7",
        "claims": "2",
        "accounts": "2",
        "decisions": "4",
        "victims": "1",
        "charges": "9",
        "limits": "4",
    }


def test_a_journal_file_and_stdin(tmp_path: Path) -> None:
    lines = lines_of(1)
    file = written(tmp_path / "journal.jsonl", lines)
    for result in (run(file), run("-", stdin=file.read_bytes())):
        assert result.exit_code == exit_codes.OK
        assert f"records 1 to {len(lines)} are true" in result.output


def test_json(path: Path) -> None:
    lines = small_history()
    filled(path, lines).close()
    found = json.loads(run(path, "-o", "json").stdout)
    assert (found["first"], found["last"], found["head"]) == (1, 7, record(lines, 7)[8])
    assert found["checked"]["victims"] == 1


def test_one_number_in_a_journal(path: Path) -> None:
    lines = small_history()
    forged = record(lines, 3)
    forged[6][0][5]["requests"]["cpu"] = 1
    filled(path, resealed(lines, 2, forged)).close()
    result = run(path)
    assert result.exit_code == exit_codes.FAILED
    assert re.search(
        r"^BAD  \S+: record 3: says digest \w{16}, but the books have \w{16}$", result.output, re.MULTILINE
    )


def test_one_byte_in_a_store(path: Path) -> None:
    filled(path, small_history()).close()
    db = sqlite3.connect(path)
    db.execute("""UPDATE journal SET line = CAST(replace(line, '"cpu":3', '"cpu":2') AS BLOB) WHERE seq = 3""")
    db.commit()
    db.close()
    result = run(path)
    assert result.exit_code == exit_codes.FAILED
    assert "record 3: does not continue the chain" in result.output


def test_a_journal_that_ends_in_the_middle(tmp_path: Path) -> None:
    lines = small_history()
    result = run(written(tmp_path / "j", [*lines[:4], lines[4][:50]]))
    assert (result.exit_code, "record 5: cannot be understood" in result.output) == (exit_codes.FAILED, True)


def test_a_pruned_store_is_checked_from_its_snapshot(path: Path) -> None:
    lines = lines_of(3, 90)
    with filled(path, lines[:50]) as store:
        prune(store, take(store).at)
        store.commit(Batch(lines[50:]))
    result = run(path)
    assert f"records 51 to {len(lines)} are true" in result.output
    assert result.exit_code == exit_codes.OK
    with Store.open(path) as store:
        (state,) = store.rows("SELECT state FROM snapshots")[0]
        altered = packed(unpacked(state).replace(b'"cpu":6', b'"cpu":7'))
        store.transact(lambda db: db.execute("UPDATE snapshots SET state = ?", (altered,)))
    result = run(path)
    assert (result.exit_code, "the snapshot says" in result.output) == (exit_codes.FAILED, True)
    for rubbish in (b"rubbish", packed(unpacked(state)[:2000])):
        with Store.open(path) as store:
            store.transact(lambda db, rubbish=rubbish: db.execute("UPDATE snapshots SET state = ?", (rubbish,)))  # type: ignore[misc]
        result = run(path)
        assert (result.exit_code, "damaged: " in result.stderr) == (exit_codes.BAD_INPUT, True)


class TestHead:
    def test_the_same_history(self, path: Path) -> None:
        lines = small_history()
        filled(path, lines).close()
        assert run(path, "--head", f"4:{record(lines, 4)[8]}").exit_code == exit_codes.OK

    def test_another_history(self, path: Path) -> None:
        filled(path, small_history()).close()
        result = run(path, "--head", f"4:{'0' * 32}")
        assert (result.exit_code, "record 4: has hash" in result.output) == (exit_codes.FAILED, True)

    def test_a_shorter_history(self, path: Path) -> None:
        lines = small_history()
        filled(path, lines[:3]).close()
        result = run(path, "--head", f"4:{record(lines, 4)[8]}")
        assert result.exit_code == exit_codes.FAILED
        assert "record 4: is not there: the journal goes from 1 to 3" in result.output

    @pytest.mark.parametrize("text", ["", "4", "x:" + "0" * 32, "4:00"])
    def test_no_hash(self, path: Path, text: str) -> None:
        filled(path, small_history()).close()
        assert run(path, "--head", text).exit_code == exit_codes.BAD_INPUT


@pytest.mark.parametrize("content", [b"", b"hello", b"SQLite format 3\0 and then nothing", b"\x00" * 5000])
def test_files_that_are_neither(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    result = run(tmp_path / "file")
    assert result.exit_code == exit_codes.BAD_INPUT
    assert result.stderr.startswith(f"error: {tmp_path / 'file'}: ")
    assert result.stderr.count("\n") == 1
    assert (tmp_path / "file").read_bytes() == content


def test_no_file(tmp_path: Path) -> None:
    result = run(tmp_path / "nothing")
    assert (result.exit_code, result.stderr) == (2, f"error: {tmp_path / 'nothing'}: No such file or directory\n")


def test_a_folder(tmp_path: Path) -> None:
    result = run(tmp_path)
    said = f"error: {tmp_path}: holds no history, so there is nothing to check\n"
    assert (result.exit_code, result.stderr) == (1, said)
