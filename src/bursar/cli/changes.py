"""What became of a change, as `apply`, `delete` and `undo` print it."""

from typing import TYPE_CHECKING

import click

from bursar.cli.output import echo, machine
from bursar.cli.tables import painted, shortened_line

if TYPE_CHECKING:
    from bursar.server import chronicle


def show_change(change: "chronicle.Change", output: str) -> None:
    if output in {"json", "yaml"}:
        echo(machine(change, output))
        return
    trial = " (dry run)" if change.dry_run else ""
    for one in change.objects:
        click.echo(f"{one.kind.partition('.')[0]}/{one.key} {painted(one.result, one.result)}{trial}")
    for news in change.pods:
        node = f" on {news.node}" if news.node else ""
        reason = f": {news.reason}" if news.reason else ""
        line = f"  {news.pod} {painted(news.what, news.what)}{node}{reason}"
        click.echo(shortened_line(line) if output == "table" else line)
    for sentence in change.lost:
        click.echo(f"not brought back: {sentence}", err=True)
    if change.id:
        click.echo(f"change {change.id}; take it back with: bursar undo {change.id}")
