import json
from pathlib import Path

import pytest

from benchmarks.rows import AT_LEAST, AT_MOST, Row, number, table, write


@pytest.mark.parametrize(
    ("figure", "goal", "direction", "verdict"),
    [
        (10, 10, AT_LEAST, "holds"),
        (9, 10, AT_LEAST, "short"),
        (10, 10, AT_MOST, "holds"),
        (11, 10, AT_MOST, "short"),
        (11, None, AT_LEAST, ""),
    ],
)
def test_a_row_says_whether_its_goal_holds(figure: float, goal: float | None, direction: str, verdict: str) -> None:
    assert Row("x", figure, "u", goal, direction).verdict == verdict


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1234567.8, "1,234,568"), (123.4, "123"), (12.34, "12.3"), (1.234, "1.23"), (-0.456, "-0.46"), (3.0, "3")],
)
def test_numbers_are_short_and_readable(value: float, shown: str) -> None:
    assert number(value) == shown


def test_the_table_lines_its_columns_up() -> None:
    text = table([Row("decide", 250_000, "pairs/s", 200_000), Row("a longer name", 1.5, "GB", 1.25, AT_MOST)])
    assert text.splitlines() == [
        "name            figure  unit           goal",
        "decide         250,000  pairs/s  >= 200,000  holds",
        "a longer name     1.50  GB          <= 1.25  short",
    ]


def test_the_same_rows_are_written_as_json(tmp_path: Path) -> None:
    file = tmp_path / "bench" / "part.json"
    write([Row("decide", 250_000, "pairs/s", 200_000), Row("ratio", 2.5, "times")], file)
    assert json.loads(file.read_text()) == [
        {
            "name": "decide",
            "figure": 250_000,
            "unit": "pairs/s",
            "goal": 200_000,
            "direction": "at least",
            "verdict": "holds",
        },
        {"name": "ratio", "figure": 2.5, "unit": "times", "goal": None, "direction": None, "verdict": None},
    ]
    assert list(file.parent.iterdir()) == [file]
