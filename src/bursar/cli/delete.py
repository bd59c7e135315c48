"""`bursar delete`: delete objects, all of them or none."""

from pathlib import Path

import click

from bursar.cli import manifests
from bursar.cli.changes import show_change
from bursar.cli.connection import Target, asks, fail
from bursar.cli.kinds import complete_reference
from bursar.cli.output import output_option


@click.command()
@click.argument("references", nargs=-1, metavar="[KIND/NAMESPACE/NAME]...", shell_complete=complete_reference)
@manifests.files_option(required=False)
@click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")
@output_option
@asks
def delete(references: tuple[str, ...], files: tuple[Path, ...], dry_run: bool, output: str, target: Target) -> None:
    """Delete all of the objects, or none: those named, or those that manifests describe.

    An object is Pod/team-a/train-1, or Node/gpu-1 where the kind has no namespaces.
    """
    if bool(references) == bool(files):
        fail("name objects (Pod/team-a/train-1), or give manifests with -f, one of both")
    wanted = list(references) if references else _named_in(files)
    with target.open(changes=True) as client:
        show_change(client.delete(wanted, dry_run=dry_run), output)


def _named_in(files: tuple[Path, ...]) -> list[str]:
    from bursar.control.kinds import known_kinds
    from bursar.objects.errors import ManifestError
    from bursar.policies.plugin import default_registry

    kinds = known_kinds(default_registry())
    try:
        found = kinds.read_all(manifests.read(files).documents)
    except ManifestError as error:
        fail(str(error))
    return [f"{one.kind.name}/{one.key}" for one in found]
