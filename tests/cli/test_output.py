"""Tables: as wide as they must be, as narrow as the terminal, coloured only where that can be seen."""

from __future__ import annotations

import sys

import pytest

from bursar.cli.output import Column, age, amounts, bar, painted, table

COLUMNS = (
    Column("NAME"),
    Column("PHASE", fixed=True),
    Column("MORE", wide=True),
    Column("N", right=True),
    Column("WHY"),
)
ROWS = [("a-name", "Running", "x", 5, ""), ("b", "Pending", None, 12, "because of a long reason")]


def test_columns_are_as_wide_as_their_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert table(COLUMNS, ROWS) == [
        "NAME    PHASE     N  WHY",
        "a-name  Running   5  -",
        "b       Pending  12  because of a long reason",
    ]


def test_wide_has_all_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert table(COLUMNS, ROWS, wide=True)[0].split() == ["NAME", "PHASE", "MORE", "N", "WHY"]


@pytest.mark.parametrize("columns", [10, 20, 30, 38, 45])
def test_a_narrow_terminal_shortens_the_longest(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = table(COLUMNS, ROWS)
    assert max(map(len, lines)) <= columns
    if columns >= 30:
        assert "Pending" in lines[2]
        assert lines[2].endswith("…") == (columns < 45)


def test_what_cannot_be_printed_is_not() -> None:
    assert "\x1b" not in "".join(table((Column("A"),), [("\x1b[31mred\n",)]))


@pytest.mark.parametrize(
    ("terminal", "environment", "is_coloured"),
    [(True, {}, True), (False, {}, False), (True, {"NO_COLOR": "1"}, False), (True, {"TERM": "dumb"}, False)],
)
def test_colours_only_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, environment: dict[str, str], is_coloured: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    assert ("\x1b[" in painted("Running", "Running")) == is_coloured
    assert painted("whatever", "whatever") == "whatever"


@pytest.mark.parametrize(
    ("used", "limit", "full"), [(0, 4, 0), (1, 4, 5), (4, 4, 20), (9, 4, 20), (3, 0, 0), (1, 1000, 0)]
)
def test_bars(used: int, limit: int, full: int) -> None:
    drawn = bar(used, limit)
    assert len(drawn) == 20
    assert drawn.count(drawn[0]) in {full, 20} if full else drawn.count(drawn[0]) == 20


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172800, "2d")]
)
def test_ages(seconds: int, shown: str) -> None:
    from datetime import UTC, datetime, timedelta

    start = datetime(2027, 1, 1, tzinfo=UTC)
    assert age(start.isoformat(), (start + timedelta(seconds=seconds)).isoformat()) == shown


def test_amounts() -> None:
    assert amounts({"nvidia.com/gpu": "2", "cpu": "500m"}) == "cpu 500m, gpu 2"
