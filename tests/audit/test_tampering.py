"""Whoever alters one number of a journal is found, and the record is named: as the file stands, and also when the chain
of hashes was made right again from there on.
"""

from __future__ import annotations

import re
from copy import copy, deepcopy
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from bursar.audit.auditor import AuditError, Auditor
from bursar.cli import exit_codes
from bursar.cli.main import cli
from tests.audit.forgery import Path as Place
from tests.audit.forgery import Record, altered, first_lie, numbers, resealed
from tests.audit.test_auditor import record, small_history
from tests.audit.test_scenarios import SCENARIOS, played
from tests.store.world import filled, lines_of

STEPS = (1, -1, 1000)
LIVES = {scenario.name: scenario for scenario in SCENARIOS if "/examples/" in scenario.source}


def lie_of(auditor: Auditor, line: bytes) -> AuditError | None:
    """What an auditor who has come that far says of another line."""
    try:
        auditor.feed(line)
    except AuditError as error:
        return error
    return None


def untold_time(lines: list[bytes], at: int, time: int) -> bool:
    """The time of a record without a decision of that time proves nothing, while it stays between its neighbours'."""
    original = record(lines, at + 1)
    earlier = record(lines, at)[2] if at else 0
    later = record(lines, at + 2)[2] if at + 1 < len(lines) else time
    return (original[5] is None or original[4][0] == "evicted") and earlier <= time <= later


def overwritten(effects: list[Record], path: Place) -> bool:
    """Whether an effect sets a cell or limits which a later one of the same record sets anew."""
    if path[0] != 6:
        return False
    at = int(path[1])
    length = {"cell": 4, "limits": 2}.get(effects[at][0], 0)
    return length > 0 and effects[at][:length] in [later[:length] for later in effects[at + 1 :]]


@pytest.mark.parametrize("name", LIVES)
def test_every_digit_of_every_record(name: str) -> None:
    auditor = Auditor()
    for seq, line in enumerate(played(LIVES[name]).journal.take(), 1):
        for found in re.finditer(rb"\d", line):
            digit = b"%d" % ((int(found[0]) + 1) % 10)
            lie = lie_of(copy(auditor), line[: found.start()] + digit + line[found.end() :])
            assert lie is not None, (seq, line, found)
            assert lie.seq == seq
        auditor.feed(line)


@pytest.mark.parametrize("name", list(LIVES)[::3])
def test_every_number_of_every_record_with_the_chain_made_right(name: str) -> None:
    lines = played(LIVES[name]).journal.take()
    auditor = Auditor()
    for at, line in enumerate(lines):
        original = record(lines, at + 1)
        for path in numbers(original):
            for step in STEPS[:2]:
                if path == (2,) and (original[5] is None or original[4][0] == "evicted"):
                    continue  # judged with what comes after it, below
                if overwritten(original[6], path):
                    continue
                lie = lie_of(deepcopy(auditor), resealed(lines[: at + 1], at, altered(original, path, step))[at])
                assert lie is not None, (at + 1, path, step)
                assert lie.seq == at + 1
        auditor.feed(line)


@pytest.mark.parametrize("seed", range(6))
def test_any_number_with_the_whole_chain_made_right(seed: int) -> None:
    lines = lines_of(100 + seed, 60)
    rng = Random(seed)
    for _ in range(40):
        at = rng.randrange(len(lines))
        original = record(lines, at + 1)
        path = rng.choice(list(numbers(original)))
        step = rng.choice(STEPS)
        lie = first_lie(resealed(lines, at, altered(original, path, step)))
        if path == (2,) and untold_time(lines, at, original[2] + step):
            assert lie is None
        else:
            assert lie is not None, (at + 1, path, step)
            late = path == (2,) and original[5] is None  # a time that is too late is seen by the record after it
            assert lie.seq in ({at + 1, at + 2} if late else {at + 1}), (lie, path, step)


@pytest.mark.parametrize("seed", range(3))
def test_any_byte(seed: int) -> None:
    lines = lines_of(seed, 30)
    rng = Random(seed)
    for _ in range(60):
        at = rng.randrange(len(lines))
        place = rng.randrange(len(lines[at]))
        forged = bytearray(lines[at])
        forged[place] ^= 1 << rng.randrange(7)
        lie = first_lie([*lines[:at], bytes(forged), *lines[at + 1 :]])
        assert lie is not None
        assert lie.seq == at + 1


def test_the_command_names_the_record(tmp_path: Path) -> None:
    lines = lines_of(7, 40)
    rng = Random(7)
    for attempt in range(20):
        at = rng.randrange(len(lines))
        spot = rng.choice(list(re.finditer(rb"\d", lines[at])))
        digit = b"%d" % ((int(spot[0]) + rng.randrange(1, 10)) % 10)
        forged = [*lines[:at], lines[at][: spot.start()] + digit + lines[at][spot.end() :], *lines[at + 1 :]]
        filled(tmp_path / f"{attempt}.db", forged).close()
        result = CliRunner().invoke(cli, ["audit", str(tmp_path / f"{attempt}.db")])
        assert result.exit_code == exit_codes.FAILED
        assert re.search(rf"^BAD  \S+: record {at + 1}: ", result.output, re.MULTILINE)


@pytest.mark.parametrize("name", ["dropped", "repeated", "swapped"])
def test_lines_that_are_missing_or_moved(name: str) -> None:
    lines = small_history()
    forged = {
        "dropped": [lines[0], *lines[2:]],
        "repeated": [lines[0], lines[1], lines[1], *lines[2:]],
        "swapped": [lines[0], lines[2], lines[1], *lines[3:]],
    }[name]
    lie = first_lie(forged)
    assert lie is not None
    assert lie.seq == (3 if name == "repeated" else 2)


def test_the_lives_have_victims_and_never_go_back_in_time() -> None:
    journals = [[record(lines, at + 1) for at in range(len(lines))] for lines in map(journal, LIVES)]
    assert all(before[2] <= after[2] for records in journals for before, after in pairwise(records))
    assert sum(len(row[5][5][0]) for records in journals for row in records if row[4][0] == "decide" and row[5]) > 5


def journal(name: str) -> list[bytes]:
    return played(LIVES[name]).journal.take()
