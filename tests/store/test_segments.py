"""History in a folder: all terms in one chain, what is missing is said, and decisions never wait for it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bursar.cli import exit_codes
from bursar.cli.main import cli
from bursar.store import segments
from bursar.store.segments import SegmentError, SegmentWriter, gap_of, history_of, parts_in
from tests.store.world import lines_of

SECOND = 1_000


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    """A journal from its first record."""
    found = lines_of(3, 40)
    assert len(found) > 6
    return found


def until(true: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def written(folder: Path, term: int, given: list[bytes], **how: Any) -> SegmentWriter:  # noqa: ANN401
    writer = SegmentWriter(folder, term, term * SECOND, pause=0.02, **how)
    writer.keep(given, term * SECOND + 1)
    return writer


def killed(writer: SegmentWriter, folder: Path, count: int) -> None:
    """As with kill -9, once so many lines are on the disk: there is no seal."""
    until(lambda: sum(len(part.lines) for part in history_of(folder)) >= count)
    writer._end = lambda: writer._out and writer._out._file.close()  # type: ignore[assignment,method-assign]
    writer.close()


def audited(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["audit", str(folder), *options], prog_name="bursar")


def kept(folder: Path) -> list[bytes]:
    return [line for part in history_of(folder) for line in part.lines]


def test_terms_are_one_chain_and_each_is_checked_from_its_first_record(tmp_path: Path, lines: list[bytes]) -> None:
    for term in (1, 2, 3):
        written(tmp_path, term, lines).close()
    assert kept(tmp_path) == lines * 3
    names = [path.name for path in parts_in(tmp_path)]
    assert [part.header.after and part.header.after.file for part in history_of(tmp_path)] == [None, *names[:2]]
    result = audited(tmp_path)
    assert result.exit_code == exit_codes.OK, result.output
    assert result.output.startswith(f"GOOD {tmp_path}: 3 ledgers of leaders, {3 * len(lines)} records")
    assert "gap" not in result.output


def test_a_leader_that_is_killed_leaves_a_gap_until_the_next_term(tmp_path: Path, lines: list[bytes]) -> None:
    for term in (1, 2, 3):
        killed(written(tmp_path, term, lines), tmp_path, term * len(lines))
    written(tmp_path, 4, lines).close()
    result = audited(tmp_path)
    assert result.exit_code == exit_codes.OK, result.output
    assert result.output.count("the leader ended without a word") == 3
    terms = json.loads(audited(tmp_path, "-o", "json").output)["terms"]
    assert [one["sealed"] for one in terms] == [False, False, False, True]


def test_a_line_that_was_cut_off_is_no_line(tmp_path: Path, lines: list[bytes]) -> None:
    killed(written(tmp_path, 1, lines), tmp_path, len(lines))
    (path,) = parts_in(tmp_path)
    path.write_bytes(path.read_bytes()[:-10])
    written(tmp_path, 2, lines).close()
    assert kept(tmp_path) == [*lines[:-1], *lines]
    assert audited(tmp_path).exit_code == exit_codes.OK


def test_two_ledgers_of_one_term_are_told_apart(tmp_path: Path, lines: list[bytes]) -> None:
    for _ in range(2):
        written(tmp_path, 5, lines).close()
    assert len({part.ledger for part in history_of(tmp_path)}) == 2
    assert audited(tmp_path).exit_code == exit_codes.OK


@pytest.mark.parametrize("what", ["altered", "shortened", "removed", "unsealed"])
def test_what_was_written_cannot_be_changed_unseen(tmp_path: Path, lines: list[bytes], what: str) -> None:
    for term in (1, 2, 3):
        written(tmp_path, term, lines).close()
    path = parts_in(tmp_path)[1]
    whole = path.read_bytes().split(b"\n")
    if what == "altered":
        whole[2] = whole[2].replace(b"1", b"2", 1)
    elif what == "shortened":
        whole = [*whole[:3], b""]
    elif what == "unsealed":
        whole = [*whole[:-2], b""]
    path.write_bytes(b"\n".join(whole))
    if what == "removed":
        path.unlink()
    result = audited(tmp_path)
    assert result.exit_code == exit_codes.FAILED
    assert result.output.startswith(f"BAD  {tmp_path}: 000000000")


def test_a_lie_in_a_journal_is_found_also_where_the_hashes_fit(tmp_path: Path, lines: list[bytes]) -> None:
    written(tmp_path, 1, [*lines[:-1], lines[-1].replace(b'"', b'"x', 1)]).close()
    result = audited(tmp_path)
    assert result.exit_code == exit_codes.FAILED
    assert "term 1: record" in result.output


# Storage that fails


class Disk:
    """Writes of parts fail while it is down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.problem: OSError | None = None
        self.delay = 0.0
        self._fsync = os.fsync
        monkeypatch.setattr("bursar.store.segments.os.fsync", self._sync)

    def _sync(self, file: int) -> None:
        time.sleep(self.delay)
        if self.problem is not None:
            raise self.problem
        self._fsync(file)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    found = Disk(monkeypatch)
    yield found
    found.problem, found.delay = None, 0.0


def test_while_the_storage_is_full_lines_wait_and_nothing_is_lost(
    tmp_path: Path, lines: list[bytes], disk: Disk
) -> None:
    writer = written(tmp_path, 1, lines[:2])
    until(lambda: kept(tmp_path) == lines[:2])
    disk.problem = OSError(28, "No space left on device")
    began = time.monotonic()
    for line in lines[2:]:
        writer.keep([line], SECOND * 2)
    assert time.monotonic() - began < 0.5
    until(lambda: writer.problem)
    disk.problem = None
    until(lambda: kept(tmp_path) == lines)
    writer.close()
    assert writer.lost == 0
    assert audited(tmp_path).exit_code == exit_codes.OK


def test_a_folder_that_is_gone_comes_back_and_what_was_left_out_is_said(tmp_path: Path, lines: list[bytes]) -> None:
    folder = tmp_path / "history"
    folder.write_text("the volume is not mounted")
    room = sum(map(len, lines[:6]))
    writer = written(folder, 1, lines[:3], waiting=room)
    writer.keep(lines[3:5] * 50, SECOND * 2)
    until(lambda: writer.problem)
    folder.unlink()
    until(lambda: folder.is_dir() and kept(folder) == lines[:3])
    writer.keep(lines[5:6], SECOND * 3)
    writer.close()
    (gap,) = [gap for line in kept(folder) if (gap := gap_of(line)) is not None]
    assert (gap.records, gap.since, gap.until, writer.lost) == (100, SECOND * 2, SECOND * 3, 100)
    result = audited(folder)
    assert result.exit_code == exit_codes.OK, result.output
    assert "gap: 100 records from 1970-01-01T00:00:02" in result.output
    assert "only their hashes are checked" in result.output


def test_a_slow_storage_delays_nobody(tmp_path: Path, lines: list[bytes], disk: Disk) -> None:
    disk.delay = 0.3
    writer = SegmentWriter(tmp_path, 1, SECOND)
    slowest = 0.0
    for line in lines:
        began = time.monotonic()
        writer.keep([line], SECOND)
        slowest = max(slowest, time.monotonic() - began)
    assert slowest < 0.1
    writer.close()
    assert kept(tmp_path) == lines


def test_the_end_of_a_term_waits_only_so_long_for_the_storage(
    tmp_path: Path, lines: list[bytes], disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_LAST_WORDS", 0.2)
    disk.delay = 5.0
    writer = written(tmp_path, 1, lines)
    began = time.monotonic()
    writer.close()
    assert time.monotonic() - began < 2.0


def test_a_clock_that_jumps_back_changes_neither_order_nor_what_is_kept(tmp_path: Path, lines: list[bytes]) -> None:
    for term, now in ((1, 9_000_000), (2, 1_000)):
        writer = SegmentWriter(tmp_path, term, now)
        writer.keep(lines, now)
        writer.close()
    assert [part.header.term for part in history_of(tmp_path)] == [1, 2]
    assert audited(tmp_path).exit_code == exit_codes.OK


def test_the_oldest_ledgers_go_when_there_are_too_many_bytes(tmp_path: Path, lines: list[bytes]) -> None:
    size = sum(map(len, lines))
    for term in range(1, 8):
        written(tmp_path, term, lines, most=3 * size).close()
    there = [part.header.term for part in history_of(tmp_path)]
    assert there[-1] == 7
    assert 2 <= len(there) <= 4
    assert audited(tmp_path).exit_code == exit_codes.OK


def test_a_long_ledger_is_written_in_parts(tmp_path: Path, lines: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "PART_BYTES", 1)
    monkeypatch.setattr(segments, "_BATCH", 2)
    written(tmp_path, 1, lines).close()
    assert len(parts_in(tmp_path)) >= len(lines) // 2
    assert kept(tmp_path) == lines
    assert audited(tmp_path).exit_code == exit_codes.OK


def test_a_folder_without_history_is_said_to_be_so(tmp_path: Path) -> None:
    result = audited(tmp_path)
    assert result.exit_code == exit_codes.FAILED
    assert "holds no history" in result.stderr
    with pytest.raises(SegmentError, match="no journal record"):
        segments.position_of(b"{}")
