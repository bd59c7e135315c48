"""Plots as inline SVG: lines over time, and cumulative distributions. Nothing is loaded from anywhere.

Text is escaped, numbers are written with fixed digits, and colours come from a list in a fixed order, so that the same
figures make the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 12, 34
COLOURS = (
    "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2", "#bcbd22", "#7f7f7f",
)  # fmt: skip
_TICKS = 5
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Axis:
    """What a plot shows in one direction: its title, and how a number of it is written."""

    title: str
    show: Callable[[float], str]
    most: float | None = None  # the end of the axis; None: that of the points


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def line_plot(series: Mapping[str, Points], across: Axis, upwards: Axis, *, steps: bool = False) -> str:
    """One line for each series, with a legend. ``steps``: a value holds until the next point."""
    points = [point for line in series.values() for point in line]
    if not points:
        return '<p class="nothing">nothing to show</p>'
    least = min(x for x, _ in points)
    most = max((x for x, _ in points), default=0.0) if across.most is None else across.most
    top = max((y for _, y in points), default=0.0) if upwards.most is None else upwards.most
    frame = _Frame(least, max(most, least + 1e-9), max(top, 1e-9))
    parts = [_open(f"{upwards.title} by {across.title}"), *_grid(frame, across, upwards)]
    for index, line in enumerate(series.values()):
        parts.append(
            f'<polyline fill="none" stroke="{colour(index)}" stroke-width="1.5" points="{_path(frame, line, steps)}"/>'
        )
    return "".join([*parts, "</svg>", legend(list(series))])


def legend(names: Sequence[str]) -> str:
    entries = (
        f'<li><span style="background:{colour(index)}"></span>{escape(name)}</li>' for index, name in enumerate(names)
    )
    return f'<ul class="legend">{"".join(entries)}</ul>'


def bars(rows: Sequence[tuple[str, float]], unit: str) -> str:
    """Horizontal bars, as many as there are rows."""
    if not rows:
        return '<p class="nothing">nothing to show</p>'
    most = max((value for _, value in rows), default=0.0) or 1.0
    height = 20 * len(rows) + 8
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img"><title>{escape(unit)}</title>']
    for index, (name, value) in enumerate(rows):
        y, length = 20 * index + 4, (WIDTH - 320) * max(value, 0.0) / most
        parts.append(
            f'<text x="170" y="{y + 12}" text-anchor="end">{escape(_short(name))}</text>'
            f'<rect x="176" y="{y}" width="{length:.1f}" height="15" fill="{colour(index)}"/>'
            f'<text x="{180 + length:.1f}" y="{y + 12}">{number(value)} {escape(unit)}</text>'
        )
    return "".join([*parts, "</svg>"])


class _Frame:
    """Turns values into places on the picture."""

    def __init__(self, least: float, most: float, top: float) -> None:
        self.least, self.most, self.top = least, most, top

    def x(self, value: float) -> float:
        share = (value - self.least) / (self.most - self.least)
        return _LEFT + min(max(share, 0.0), 1.0) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - _BOTTOM - min(max(value / self.top, 0.0), 1.0) * (HEIGHT - _TOP - _BOTTOM)


def _open(title: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{escape(title)}</title>'


def _grid(frame: _Frame, across: Axis, upwards: Axis) -> list[str]:
    parts: list[str] = []
    for tick in range(_TICKS + 1):
        up = frame.top * tick / _TICKS
        y = frame.y(up)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(upwards.show(up))}</text>')
        along = frame.least + (frame.most - frame.least) * tick / _TICKS
        anchor = "end" if tick == _TICKS else "middle"
        parts.append(
            f'<text x="{frame.x(along):.1f}" y="{HEIGHT - 18}" text-anchor="{anchor}">'
            f"{escape(across.show(along))}</text>"
        )
    middle = (_LEFT + WIDTH - _RIGHT) // 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 3}" text-anchor="middle">{escape(across.title)}</text>')
    return parts


def _path(frame: _Frame, line: Points, steps: bool) -> str:
    found: list[str] = []
    before: float | None = None
    for x, y in line:
        if steps and before is not None:
            found.append(f"{frame.x(x):.1f},{before:.1f}")
        before = frame.y(y)
        found.append(f"{frame.x(x):.1f},{before:.1f}")
    return " ".join(found)


def _short(name: str) -> str:
    return name if len(name) <= 24 else name[:23] + "…"


def number(value: float) -> str:
    """Three digits, thousands set apart."""
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def share(value: float) -> str:
    return f"{100 * value:.0f} %"
