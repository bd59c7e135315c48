"""Rows of a benchmark table: one figure each, with the goal it is held against, printed and written as JSON.

A goal that is missed is a row that says ``short``, never an error: figures depend on the machine and on what else
runs on it, and hiding them would help nobody.
"""

import json
from pathlib import Path
from typing import NamedTuple

AT_LEAST = "at least"
AT_MOST = "at most"

_HEADINGS = ("name", "figure", "unit", "goal", "")


class Row(NamedTuple):
    """One figure; ``goal`` None: printed for comparison only."""

    name: str
    figure: float
    unit: str
    goal: float | None = None
    direction: str = AT_LEAST

    @property
    def verdict(self) -> str:
        """``holds``, ``short``, or nothing where there is no goal."""
        if self.goal is None:
            return ""
        met = self.figure >= self.goal if self.direction == AT_LEAST else self.figure <= self.goal
        return "holds" if met else "short"

    def cells(self) -> tuple[str, str, str, str, str]:
        sign = ">=" if self.direction == AT_LEAST else "<="
        goal = "" if self.goal is None else f"{sign} {number(self.goal)}"
        return self.name, number(self.figure), self.unit, goal, self.verdict

    def plain(self) -> dict[str, object]:
        return {
            "name": self.name,
            "figure": self.figure,
            "unit": self.unit,
            "goal": self.goal,
            "direction": self.direction if self.goal is not None else None,
            "verdict": self.verdict or None,
        }


def number(value: float) -> str:
    """At least three digits, thousands set apart: 1,234,567 or 12.3 or 0.25."""
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def table(rows: list[Row]) -> str:
    """The rows as aligned text: names and units to the left, numbers to the right."""
    lines = [_HEADINGS, *[row.cells() for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    name, figure, unit, goal, verdict = widths
    return "\n".join(
        f"{line[0]:<{name}}  {line[1]:>{figure}}  {line[2]:<{unit}}  {line[3]:>{goal}}  {line[4]:<{verdict}}".rstrip()
        for line in lines
    )


def write(rows: list[Row], file: Path) -> None:
    """The same rows as JSON, replaced as a whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    scratch = file.with_suffix(".tmp")
    scratch.write_text(json.dumps([row.plain() for row in rows], indent=1) + "\n")
    scratch.replace(file)
