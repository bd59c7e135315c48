"""How answers are printed: tables for people, JSON and YAML for programs, again and again with --watch."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bursar.cli.tables import Column, shortened_line, table

if TYPE_CHECKING:
    from bursar.cli.connection import Opened
    from bursar.server.answers import Answer
    from bursar.server.client import Client

F = TypeVar("F", bound=Callable[..., Any])
FORMATS = ("table", "wide", "json", "yaml")
INTERVAL = 2.0
REST = 4.0  # the pause between looks, in times of what the last one took, where that is longer than the interval


def output_option(command: F) -> F:
    return click.option(
        "-o", "--output", type=click.Choice(FORMATS), default="table", show_default=True, help="How to print it."
    )(command)


def watch_options(command: F) -> F:
    command = click.option(
        "--interval", type=click.FloatRange(min=0.1), default=INTERVAL, show_default=True, help="Seconds between looks."
    )(command)
    return click.option("-w", "--watch", is_flag=True, help="Look again and again, until interrupted.")(command)


def plain(value: object) -> Any:  # noqa: ANN401 whatever can be JSON
    import msgspec

    return msgspec.to_builtins(value)


def machine(value: object, output: str) -> list[str]:
    """An answer as JSON or YAML."""
    if output == "json":
        import msgspec

        return [msgspec.json.format(msgspec.json.encode(value), indent=2).decode()]
    import yaml

    return [yaml.safe_dump(plain(value), sort_keys=False, allow_unicode=True, width=1000).rstrip("\n")]


def shown(
    answer: "Answer | dict[str, Any] | list[Any]",
    output: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[object]],
    nothing: str = "nothing found",
) -> list[str]:
    """An answer in the format that was asked for."""
    if output in {"json", "yaml"}:
        return machine(answer, output)
    return table(columns, rows, wide=output == "wide") if rows else [nothing]


def echo(lines: Sequence[str]) -> None:
    click.echo("\n".join(lines))


def echo_fitted(lines: Sequence[str]) -> None:
    """Lines of text, each cut where the terminal ends."""
    echo([shortened_line(line) for line in lines])


def repeat(opened: "Opened", ask: Callable[["Client"], list[str]], *, watch: bool, interval: float) -> None:
    """Print what ``ask`` finds; with ``watch`` whenever it is something else.

    After a look that took long the pause is longer: whoever is asked has others to answer, too.
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


def _timed(opened: "Opened", ask: Callable[["Client"], list[str]]) -> tuple[list[str], float]:
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
    return ", ".join(f"{name.rpartition('/')[2]} {amount}" for name, amount in sorted(found.items()))
