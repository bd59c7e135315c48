"""`bursar apply`: create or update objects from manifests, all of them or none."""

from pathlib import Path

import click

from bursar.cli import manifests
from bursar.cli.changes import show_change
from bursar.cli.connection import Target, asks
from bursar.cli.output import output_option


@click.command()
@manifests.files_option(required=True)
@click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")
@output_option
@asks
def apply(files: tuple[Path, ...], dry_run: bool, output: str, target: Target) -> None:
    """Create or update all objects of the manifests, or none.

    What is there already as it is given stays as it is. The answer says what became of each object and of pods, and
    the number by which `bursar undo` takes the change back.
    """
    given = manifests.read(files)
    source = str(files[0]) if len(files) == 1 else ""
    with target.open(changes=True) as client, given.located():
        show_change(client.apply(given.text, source=source, dry_run=dry_run), output)
