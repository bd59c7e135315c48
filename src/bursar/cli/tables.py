"""Tables that fit: columns as wide as what they hold, shortened where the terminal is narrower; sentences are wrapped.

Colours are only written to a terminal, and not if NO_COLOR is set; text that goes elsewhere is neither coloured nor
shortened.
"""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click

ENDLESS = 1 << 30
_GAP = "  "
_SHORTEST = 6
_COLOURS = {
    "Running": "green", "now": "green", "ok": "green", "admitted": "green", "created": "green", "started": "green",
    "Pending": "yellow", "held": "yellow", "waiting": "yellow", "queued": "yellow", "changed": "yellow",
    "after-evictions": "yellow", "Terminating": "yellow", "waits": "yellow",
    "Evicted": "red", "never": "red", "evicted": "red", "FAIL": "red", "deleted": "red", "over": "red",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """``wide``: only with -o wide. ``fixed``: is never shortened. ``right``: numbers."""

    title: str
    wide: bool = False
    fixed: bool = False
    right: bool = False


def terminal_width() -> int:
    """Of the terminal; what goes elsewhere has no width, unless COLUMNS says so."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size().columns
    return ENDLESS


def coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def table(columns: Sequence[Column], rows: Iterable[Sequence[object]], *, wide: bool = False) -> list[str]:
    """The lines of a table; rows have a cell for each column, shown or not."""
    shown = [index for index, column in enumerate(columns) if wide or not column.wide]
    kept = [columns[index] for index in shown]
    cells = [[_text(row[index]) for index in shown] for row in rows]
    widths = [max([len(column.title), *(len(row[i]) for row in cells)]) for i, column in enumerate(kept)]
    widths = _fitted(kept, widths, terminal_width())
    lines = [_line([column.title for column in kept], kept, widths, plain=True)]
    lines.extend(_line(row, kept, widths) for row in cells)
    return lines


def _text(value: object) -> str:
    text = str(value) if value not in {None, ""} else "-"
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)


def _fitted(columns: Sequence[Column], widths: list[int], width: int) -> list[int]:
    """Take from the widest column that may be shortened, until it fits or nothing can be taken."""
    widths = list(widths)
    over = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    while over > 0:
        able = [i for i, column in enumerate(columns) if not column.fixed and widths[i] > _SHORTEST]
        if not able:
            break
        widest = max(able, key=lambda i: (widths[i], i))
        second = max((widths[i] for i in able if i != widest), default=_SHORTEST)
        taken = min(over, max(1, widths[widest] - max(second, _SHORTEST)))
        widths[widest] -= taken
        over -= taken
    return widths


def _line(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int], *, plain: bool = False) -> str:
    parts: list[str] = []
    for index, (cell, column, width) in enumerate(zip(cells, columns, widths, strict=True)):
        text = shortened(cell, width)
        last = index == len(cells) - 1
        padded = text.rjust(width) if column.right else text if last else text.ljust(width)
        parts.append(padded if plain else painted(padded, cell))
    return shortened_line(_GAP.join(parts).rstrip())


def shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def shortened_line(line: str) -> str:
    """A line that is too long even so is cut, if it has no colours in it to be cut through."""
    return line if "\x1b" in line else shortened(line, terminal_width())


def wrapped(text: str, indent: int) -> list[str]:
    """The lines of a sentence that begins at a column; those after the first are set in by as much."""
    width = max(terminal_width() - indent, 20)
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
    return [lines[0], *(" " * indent + line for line in lines[1:])]


def painted(text: str, word: str) -> str:
    colour = _COLOURS.get(word) if coloured() else None
    return text if colour is None else click.style(text, fg=colour)


def bar(used: int, limit: int, width: int = 20) -> str:
    """How full something is; over-full is full."""
    full, empty = ("█", "░") if (sys.stdout.encoding or "").lower().startswith("utf") else ("#", ".")
    filled = 0 if limit <= 0 else min(width, (used * width + limit // 2) // limit)
    return full * filled + empty * (width - filled)
