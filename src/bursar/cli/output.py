"""Printing: tables for people, JSON, YAML and names for programs, repeated with --watch.

A table is as wide as its content; on a narrower terminal cells are shortened and sentences wrapped. Colours are only
written to a terminal without NO_COLOR; other output is neither coloured nor shortened.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from bursar.cli.connection import Opened
    from bursar.server.client import Client
    from bursar.server.types import Answer


ENDLESS = 1 << 30
_GAP = "  "
_SHORTEST = 6
_LONGEST_NAME = 45  # a longer one gives way to other columns
_COLOURS = {
    "Running": "green", "now": "green", "ok": "green", "admitted": "green", "created": "green", "started": "green",
    "Pending": "yellow", "held": "yellow", "waiting": "yellow", "queued": "yellow", "changed": "yellow",
    "after-evictions": "yellow", "Terminating": "yellow", "waits": "yellow",
    "Evicted": "red", "never": "red", "evicted": "red", "FAIL": "red", "deleted": "red", "over": "red",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """``wide``: only with -o wide. ``fixed``: is never shortened. ``right``: numbers.

    ``name``: can be typed again, and is shortened last. ``items``: a list, which is cut between its items.
    """

    title: str
    wide: bool = False
    fixed: bool = False
    right: bool = False
    name: bool = False
    items: bool = False
    spare: int = 0  # left out where the terminal is too narrow for the rest: the highest first; 1: only if it is empty
    brief: Callable[[str], str] | None = None  # how its cells are written where the terminal is narrow

    def least(self, width: int) -> int:
        """How narrow it may become while other columns can give way."""
        return width if self.fixed else min(width, _LONGEST_NAME if self.name else _SHORTEST)


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
    columns, cells = [columns[index] for index in shown], [[_text(row[index]) for index in shown] for row in rows]
    widths = _widths(columns, cells)
    if _sum(widths) > terminal_width():
        columns, cells = _narrowed(columns, cells)
        widths = _fitted(columns, _widths(columns, cells), terminal_width())
    lines = [_line([column.title for column in columns], columns, widths, plain=True)]
    lines.extend(_line(row, columns, widths) for row in cells)
    return lines


def _widths(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> list[int]:
    return [max([len(column.title), *(len(row[i]) for row in cells)]) for i, column in enumerate(columns)]


def _sum(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _narrowed(columns: Sequence[Column], cells: list[list[str]]) -> tuple[list[Column], list[list[str]]]:
    """The table in brief, without as many spare columns as it takes to keep the names whole: empty ones first."""
    cells = [[one if column.brief is None else column.brief(one) for column, one in zip(columns, row, strict=True)]
             for row in cells]  # fmt: skip
    widths = _widths(columns, cells)
    kept = list(range(len(columns)))
    empty = [all(row[index] == "-" for row in cells) for index in kept]
    for index in sorted(kept, key=lambda index: (not empty[index], -columns[index].spare)):
        if _sum([columns[i].least(widths[i]) for i in kept]) <= terminal_width():
            break
        if columns[index].spare > (0 if empty[index] else 1):
            kept.remove(index)
    return [columns[i] for i in kept], [[row[i] for i in kept] for row in cells]


def _text(value: object) -> str:
    text = str(value) if value not in {None, ""} else "-"
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)


def _fitted(columns: Sequence[Column], widths: list[int], width: int) -> list[int]:
    """Take from the widest column that may be shortened, until it fits or nothing can be taken; names come last."""
    for names in (False, True):
        able = [i for i, column in enumerate(columns) if not column.fixed and (names or not column.name)]
        widths = _shrunk(able, widths, _sum(widths) - width)
    return widths


def _shrunk(able: list[int], widths: list[int], over: int) -> list[int]:
    widths = list(widths)
    while over > 0:
        able = [i for i in able if widths[i] > _SHORTEST]
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
        text = shortened_list(cell, width) if column.items else shortened(cell, width)
        last = index == len(cells) - 1
        padded = text.rjust(width) if column.right else text if last else text.ljust(width)
        parts.append(padded if plain else painted(padded, cell))
    return shortened_line(_GAP.join(parts).rstrip())


def shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def shortened_list(text: str, width: int) -> str:
    """A list of names, without those that there is no room for."""
    if len(text) <= width or ", " not in text:
        return shortened(text, width)
    whole = text[: max(width - 2, 0)].rpartition(", ")[0]
    return f"{whole}, …" if whole else shortened(text, width)


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


F = TypeVar("F", bound=Callable[..., Any])
MACHINES = ("json", "yaml")
FORMATS = ("table", "wide", *MACHINES)
NAMES = "name"
INTERVAL = 2.0
REST = 4.0  # the pause between looks, in times of what the last one took, where that is longer than the interval


def output_option(command: F) -> F:
    return _output_option(FORMATS)(command)


def names_option(command: F) -> F:
    """For commands that can also print only the names of objects, for other commands to take."""
    return _output_option((*FORMATS, NAMES))(command)


def _output_option(formats: tuple[str, ...]) -> Callable[[F], F]:
    return click.option(
        "-o", "--output", type=click.Choice(formats), default="table", show_default=True, help="How to print it."
    )


def watch_options(command: F) -> F:
    command = click.option(
        "--interval", type=click.FloatRange(min=0.1), default=INTERVAL, show_default=True, help="Seconds between looks."
    )(command)
    return click.option("-w", "--watch", is_flag=True, help="Look again and again, until interrupted.")(command)


def machine(value: object, output: str) -> list[str]:
    import msgspec

    if output == "json":
        return [msgspec.json.format(msgspec.json.encode(value), indent=2).decode()]
    import yaml

    return [yaml.safe_dump(msgspec.to_builtins(value), sort_keys=False, allow_unicode=True, width=1000).rstrip("\n")]


def shown(
    answer: Answer | dict[str, Any] | list[Any],
    output: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[object]],
    nothing: str = "nothing found",
    names: Sequence[str] = (),
) -> list[str]:
    """An answer in the format that was asked for; ``names``: of the objects in it."""
    if output in MACHINES:
        return machine(answer, output)
    if output == NAMES:
        return list(dict.fromkeys(names))
    return table(columns, rows, wide=output == "wide") if rows else [nothing]


def echo(lines: Sequence[str]) -> None:
    if lines:
        click.echo("\n".join(lines))


def warn(sentences: Sequence[str]) -> None:
    """As kubectl does: beside the output."""
    for sentence in sentences:
        click.echo(f"Warning: {sentence}", err=True)


def echo_fitted(lines: Sequence[str]) -> None:
    """Lines of text, each cut where the terminal ends."""
    echo([shortened_line(line) for line in lines])


def repeat(opened: Opened, ask: Callable[[Client], list[str]], *, watch: bool, interval: float) -> None:
    """Print what ``ask`` finds; with ``watch`` whenever it is something else.

    After a slow request the pause is longer, to spare the server.
    """
    before, took = _timed(opened, ask)
    _again(before, watch)
    while watch:
        try:
            time.sleep(max(interval, REST * took))
            lines, took = _timed(opened, ask)
        except KeyboardInterrupt:
            return
        if lines != before:
            before = lines
            _again(lines, watch)


def _timed(opened: Opened, ask: Callable[[Client], list[str]]) -> tuple[list[str], float]:
    began = time.monotonic()
    with opened() as client:
        lines = ask(client)
    return lines, time.monotonic() - began


def _again(lines: list[str], watch: bool) -> None:
    if watch and sys.stdout.isatty():
        click.clear()
    echo(lines)


def age(since: str, now: str) -> str:
    """How long ago something was: 5s, 3m, 2h, 4d."""
    from datetime import datetime

    if not since or not now:
        return ""
    seconds = int((datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds())
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{max(seconds, 0)}s"


def wall_time() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def amounts(found: dict[str, str]) -> str:
    """As in "cpu 2, gpu 1": what is asked for, with the domain of a resource left out."""
    return ", ".join(f"{without_domain(name)} {amount}" for name, amount in sorted(found.items()))


def without_domain(resource: str) -> str:
    return resource.rpartition("/")[2]


def brief_reason(code: str) -> str:
    """A reason without the domain of its resource, which `bursar reasons` knows as well."""
    domain, slash, resource = code.rpartition("/")
    return f"{'.'.join(domain.split('.')[:2])}.{resource}" if slash and " " not in code else code


def brief_time(text: str) -> str:
    """A time without its year and milliseconds."""
    return f"{text[5:10]} {text[11:19]}" if len(text) > 19 else text
