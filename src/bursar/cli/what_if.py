"""`bursar what-if`: what would become of pods if they came now."""

import sys
from pathlib import Path

import click

from bursar.cli import exit_codes, manifests
from bursar.cli.connection import Target, asks
from bursar.cli.manifests import Manifests
from bursar.cli.output import echo, output_option, shown
from bursar.cli.tables import Column


@click.command("what-if")
@manifests.files_option(required=True)
@click.option("--count", type=click.IntRange(1, 1000), default=1, help="Try so many copies of each pod.")
@click.option("--fail-unless-now", is_flag=True, help="Exit code 1 if one of them would not start now.")
@output_option
@asks
def what_if(files: tuple[Path, ...], count: int, fail_unless_now: bool, output: str, target: Target) -> None:
    """Say what would become of pods, or the pods of jobs, if they came now. Nothing is changed.

    now: it starts at once; after-evictions: others leave for it; queued: it waits; never: it must change, or a quota.
    """
    given = copies(manifests.read(files, target.namespace), count)
    with target.open() as client, given.located():
        found = client.what_if(given.text)
    columns = (
        Column("POD"), Column("VERDICT", fixed=True), Column("NODE"), Column("AHEAD", wide=True, right=True),
        Column("TAKES THE PLACE OF"), Column("WHY"),
    )  # fmt: skip
    rows = [
        (row.pod, row.verdict, row.node, row.ahead, ", ".join(row.victims),
         "" if row.verdict in {"now", "after-evictions"} else row.message if output == "wide" else row.reason)
        for row in found.pods
    ]  # fmt: skip
    echo(shown(found, output, columns, rows, "no pods to try"))
    if fail_unless_now and any(row.verdict != "now" for row in found.pods):
        sys.exit(exit_codes.FAILED)


def copies(given: Manifests, count: int) -> Manifests:
    """Each document as often as wanted, under names of their own."""
    from bursar.objects.manifests import Document

    if count == 1:
        return given
    found: list[Document] = []
    for document in given.documents:
        metadata = document.body.get("metadata")
        named = metadata if isinstance(metadata, dict) else {}
        for number in range(1, count + 1):
            body = {**document.body, "metadata": {**named, "name": f"{named.get('name', '')}-{number}"}}
            found.append(Document(document.source, document.number, body, document.item))
    return Manifests(found)
