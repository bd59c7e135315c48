"""`bursar undo`: take an applied change back, and say what cannot come back."""

import re

import click

from bursar.cli.changes import show_change
from bursar.cli.connection import Target, asks, fail
from bursar.cli.output import output_option

_CHANGE = re.compile(r"[1-9][0-9]{0,14}")


def _number(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    if not _CHANGE.fullmatch(text):
        raise click.BadParameter(f"{text!r:.60} is not the number of a change; `bursar get changes` lists them")
    return int(text)


@click.command()
@click.argument("change", metavar="[CHANGE]", callback=_number, required=False)
@click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")
@output_option
@asks
def undo(change: int | None, dry_run: bool, output: str, target: Target) -> None:
    """Take a change back by a new one that is its inverse: the last one, or the one with that number.

    `bursar get changes` lists them. A change is refused to be undone when its objects were changed since. What pods
    lost by it (their place, their work) does not come back; that is said, pod by pod.
    """
    with target.open(changes=True) as client:
        if change is None:
            newest = client.changes(limit=1).items
            if not newest:
                fail("nothing was applied yet")
            change = newest[0].id
        show_change(client.undo(change, dry_run=dry_run), output)
