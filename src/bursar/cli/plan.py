"""`bursar plan`: what changed quotas would do, before they are applied; for people and for CI."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bursar.cli import exit_codes, manifests
from bursar.cli.connection import Target, asks
from bursar.cli.output import echo, machine, output_option
from bursar.cli.tables import painted, shortened_line, wrapped

if TYPE_CHECKING:
    from bursar.server import chronicle, verdicts


_STRANDED = [
    "  Their node would be gone. Here they run on, and count, until they end",
    "  or are deleted; Kubernetes deletes such pods about a minute later.",
    "  To let them end first, make the node unschedulable, and delete it then.",
]


@click.command()
@manifests.files_option(required=False)
@click.option("--delete", "deleted", multiple=True, metavar="KIND/NAMESPACE/NAME", help="Also delete this object.")
@click.option("--horizon", metavar="DURATION", default="", help="Look so far ahead (10m), for what comes only later.")
@click.option(
    "--fail-on-eviction", is_flag=True, help="Exit code 1 if a pod would be evicted or lose its node: for CI."
)
@output_option
@asks
def plan(
    files: tuple[Path, ...],
    deleted: tuple[str, ...],
    horizon: str,
    fail_on_eviction: bool,
    output: str,
    target: Target,
) -> None:
    """Say what these manifests would do: who starts, who is evicted, who loses what they borrow. Nothing is changed.

    Deleting a node evicts nobody: its pods are shown as stranded.
    """
    if not files and not deleted:
        raise click.UsageError("give manifests with -f, or objects to delete with --delete")
    given = manifests.read(files, target.namespace) if files else manifests.Manifests([])
    with target.open() as client, given.located():
        found = client.plan(given.text, delete=deleted, horizon=horizon)
    echo(machine(found, output) if output in {"json", "yaml"} else [shortened_line(line) for line in _text(found)])
    if fail_on_eviction and not found.harmless:
        stranded = f", {len(found.stranded)} would lose their node" if found.stranded else ""
        click.echo(f"error: {len(found.evicted)} would be evicted{stranded} (--fail-on-eviction)", err=True)
        sys.exit(exit_codes.FAILED)


def _text(found: "verdicts.Plan") -> list[str]:
    lines = [f"{one.kind.partition('.')[0]}/{one.key} {painted(one.result, one.result)}" for one in found.objects]
    lines += _part("starts", [*found.starts])
    lines += _part("evicted", [_news(one) for one in found.evicted])
    lines += _part("waits", [_news(one) for one in found.waits])
    lines += _part("gone", found.gone)
    lines += _part("stranded", [_news(one) for one in found.stranded])
    lines += _STRANDED if found.stranded else []
    lines += _part(
        "borrows less", [f"{one.quota}: {one.resource} {one.before} -> {one.after}" for one in found.borrowing]
    )
    ahead = f" within {found.horizon}" if found.horizon not in {"", "0s"} else ""
    counts = f"{len(found.starts)} would start, {len(found.evicted)} would be evicted, {len(found.waits)} would wait"
    counts += f", {len(found.stranded)} would lose their node" if found.stranded else ""
    return [*lines, "", *wrapped(f"Plan{ahead}: {counts}. Nothing was changed.", 0)]


def _part(title: str, items: list[str]) -> list[str]:
    return ["", f"{painted(title, title)}:", *(f"  {item}" for item in items)] if items else []


def _news(one: "chronicle.PodNews") -> str:
    return f"{one.pod}{f' on {one.node}' if one.node else ''}{f': {one.reason}' if one.reason else ''}"
