"""`bursar plan` and `bursar what-if`: what changed quotas or new pods would do, before they are applied."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bursar.cli import exit_codes, manifests
from bursar.cli.complete import complete_reference
from bursar.cli.connection import Target, asks, fail
from bursar.cli.manifests import Manifests
from bursar.cli.names import reference
from bursar.cli.output import (
    Column,
    brief_reason,
    echo,
    machine,
    output_option,
    painted,
    shortened_line,
    shown,
    warn,
    wrapped,
)

if TYPE_CHECKING:
    from bursar.server import types


_STRANDED = [
    "  Their node would be gone. Here they run on, and count, until they end",
    "  or are deleted; Kubernetes deletes such pods about a minute later.",
    "  To let them end first, make the node unschedulable, and delete it then.",
]


@click.command()
@manifests.files_option(required=False)
@click.option("--delete", "deleted", multiple=True, metavar="KIND/NAMESPACE/NAME", shell_complete=complete_reference,
              help="Also delete this object.")  # fmt: skip
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

    Deleting a node evicts no pods: they are shown as stranded.
    """
    if not files and not deleted:
        raise click.UsageError("give manifests with -f, or objects to delete with --delete")
    given = manifests.read(files, target.namespace) if files else manifests.Manifests([])
    with target.open() as client, given.located():
        named = ["/".join(reference(client, text)) for text in deleted]
        found = client.plan(given.text, delete=named, horizon=horizon)
    warn(found.warnings)
    echo(machine(found, output) if output in {"json", "yaml"} else [shortened_line(line) for line in _text(found)])
    if fail_on_eviction and not found.harmless:
        stranded = f", {len(found.stranded)} would lose their node" if found.stranded else ""
        fail(f"{len(found.evicted)} would be evicted{stranded} (--fail-on-eviction)", exit_codes.FAILED)


def _text(found: types.Plan) -> list[str]:
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
    late = [one for one in found.evicted if one.time != found.moment.time]
    if found.evictions_within and late:
        counts += f". Evictions because of over-use ({len(late)}) come within {found.evictions_within}"
    return [*lines, "", *wrapped(f"Plan{ahead}: {counts}. Nothing was changed.", 0)]


def _part(title: str, items: list[str]) -> list[str]:
    return ["", f"{painted(title, title)}:", *(f"  {item}" for item in items)] if items else []


def _news(one: types.PodNews) -> str:
    return f"{one.pod}{f' on {one.node}' if one.node else ''}{f': {one.reason}' if one.reason else ''}"


@click.command("what-if")
@manifests.files_option(required=True)
@click.option("--count", type=click.IntRange(1, 1000), default=1, help="Try so many copies of each pod.")
@click.option("--fail-unless-now", is_flag=True, help="Exit code 1 if one of them would not start now.")
@output_option
@asks
def what_if(files: tuple[Path, ...], count: int, fail_unless_now: bool, output: str, target: Target) -> None:
    """Say what would become of pods, or the pods of jobs, if they came now, together. Nothing is changed.

    now: it starts at once; after-evictions: others leave for it; queued: it waits; never: it must change, or a quota;
    evicted: it starts, and another one takes its place.

    Below are other pods that start, are held (start when others have left), are evicted, or wait again because of that.
    """
    given = copies(manifests.read(files, target.namespace), count)
    with target.open() as client, given.located():
        found = client.what_if(given.text)
    warn(found.warnings)
    columns = (
        Column("POD", name=True), Column("VERDICT", fixed=True), Column("NODE", name=True, spare=2),
        Column("AHEAD", wide=True, right=True, spare=4), Column("TAKES THE PLACE OF", items=True, spare=1),
        Column("WHY", brief=brief_reason),
    )  # fmt: skip
    rows = [
        (row.pod, row.verdict, row.node, row.ahead, ", ".join(row.victims),
         "" if row.verdict == "now" else row.message if output == "wide" else row.reason)
        for row in found.pods
    ]  # fmt: skip
    echo(shown(found, output, columns, rows, "no pods to try"))
    knock_on = [shortened_line(line) for line in _knock_on(found)]
    if knock_on and output not in {"json", "yaml"}:
        echo(knock_on)
    if fail_unless_now and any(row.verdict != "now" for row in found.pods):
        sys.exit(exit_codes.FAILED)


def _knock_on(found: types.WhatIf) -> list[str]:
    """What becomes of other pods, beyond the victims that the table shows."""
    shown_already = {victim for row in found.pods for victim in row.victims}
    shown_already |= {row.pod for row in found.pods}
    return [
        *_part("starts", found.starts),
        *_part("held", found.held),
        *_part("evicted", [pod for pod in found.evicted if pod not in shown_already]),
        *_part("waits", found.waits),
    ]


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
