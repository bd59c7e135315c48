"""`bursar apply`, `delete` and `undo` change objects; `bursar diff` shows what differs between two moments."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bursar.cli import exit_codes, manifests
from bursar.cli.complete import complete_change, complete_pod, complete_reference
from bursar.cli.connection import Target, asks, fail
from bursar.cli.names import pod_keys, references
from bursar.cli.output import (
    MACHINES,
    NAMES,
    echo,
    echo_fitted,
    machine,
    names_option,
    output_option,
    painted,
    shortened_line,
    warn,
)

if TYPE_CHECKING:
    from bursar.server import types


def show_change(change: types.Change, output: str) -> None:
    warn(change.warnings)
    if output in MACHINES:
        echo(machine(change, output))
        return
    if output == NAMES:
        echo([f"{one.kind}/{one.key}" for one in change.objects])
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


@click.command()
@manifests.files_option(required=True)
@click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")
@names_option
@asks
def apply(files: tuple[Path, ...], dry_run: bool, output: str, target: Target) -> None:
    """Create or update all objects of the manifests, or none.

    What is there already as it is given stays as it is. The answer says what became of each object and of pods, and
    the number by which `bursar undo` takes the change back.
    """
    given = manifests.read(files, target.namespace)
    source = str(files[0]) if len(files) == 1 else ""
    with target.open(changes=True) as client, given.located():
        show_change(client.apply(given.text, source=source, dry_run=dry_run), output)


@click.command()
@click.argument("objects", nargs=-1, metavar="[KIND/NAMESPACE/NAME]...", shell_complete=complete_reference)
@click.option("-n", "--namespace", default="", help="The namespace of names that have none.")
@manifests.files_option(required=False)
@click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")
@names_option
@asks
def delete(
    objects: tuple[str, ...],
    namespace: str,
    files: tuple[Path, ...],
    dry_run: bool,
    output: str,
    target: Target,
) -> None:
    """Delete all of the objects, or none: those named, or those that manifests describe.

    An object is Pod/team-a/train-1, or Node/gpu-1 where the kind has no namespaces. KIND NAME... works as well, and
    namespace/name alone is a pod.
    """
    if bool(objects) == bool(files):
        fail("name objects (Pod/team-a/train-1), or give manifests with -f, one of both")
    with target.open(changes=True) as client:
        if objects:
            named = references(client, objects, namespace or target.own_namespace)
            wanted = [f"{kind}/{key}" for kind, key in named]
        else:
            wanted = _named_in(files, target.namespace)
        show_change(client.delete(wanted, dry_run=dry_run), output)


@click.command()
@click.argument("pods", nargs=-1, required=True, metavar="NAMESPACE/POD...", shell_complete=complete_pod)
@click.option("-n", "--namespace", default="", help="The namespace of pods that are named without one.")
@names_option
@asks
def finish(pods: tuple[str, ...], namespace: str, output: str, target: Target) -> None:
    """Let running pods succeed, as if their work were done. All of them, or none.

    Only for servers of Bursar: on Kubernetes pods end by themselves.
    """
    with target.open(changes=True) as client:
        show_change(client.finish(pod_keys(pods, namespace or target.own_namespace)), output)


def _named_in(files: tuple[Path, ...], namespace: str) -> list[str]:
    from bursar.control.admission import known_kinds
    from bursar.objects.decode import ManifestError
    from bursar.policies.plugin import default_registry

    kinds = known_kinds(default_registry())
    try:
        found = kinds.read_all(manifests.read(files, namespace).documents)
    except ManifestError as error:
        fail(str(error))
    return [f"{one.kind.name}/{one.key}" for one in found]


_CHANGE = re.compile(r"[1-9][0-9]{0,14}")


def _number(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    if not _CHANGE.fullmatch(text):
        raise click.BadParameter(f"{text!r:.60} is not the number of a change; `bursar get changes` lists them")
    return int(text)


@click.command()
@click.argument("change", metavar="[CHANGE]", callback=_number, required=False, shell_complete=complete_change)
@click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Take the last change back without asking, also one of another user.")
@names_option
@asks
def undo(change: int | None, dry_run: bool, yes: bool, output: str, target: Target) -> None:
    """Take a change back by a new one that is its inverse: the one with that number, or the last one.

    `bursar get changes` lists them. The last one may be anybody's, so a terminal is asked first. A change is refused to
    be undone when its objects were changed since. What pods lost by it (their place, their work) does not come back;
    that is said, pod by pod.
    """
    with target.open(changes=True) as client:
        if change is None:
            newest = client.changes(limit=1).items
            if not newest:
                fail("nothing was applied yet")
            change = newest[0].id
            if not dry_run and not yes:
                _confirm(newest[0])
        show_change(client.undo(change, dry_run=dry_run), output)


def _is_asked() -> bool:
    """Whether a person can answer."""
    return sys.stdin.isatty()


def _confirm(change: types.Change) -> None:
    """Ask whether the last change is the one that is meant; without a terminal, its number must be given."""
    from bursar.objects.validation import few

    names = few([f"{one.kind.partition('.')[0]}/{one.key}" for one in change.objects if one.result != "unchanged"])
    about = f"change {change.id} of {change.moment.time}: {change.verb} {names}"
    if not _is_asked():
        fail(f"the last is {about}; to take it back: bursar undo {change.id}")
    if not click.confirm(f"take back {about}?", err=True):
        sys.exit(exit_codes.FAILED)


_LONGEST = 60


def field_lines(fields: Sequence[types.FieldChange]) -> list[str]:
    return [f"{one.path}: {_shown(one.before)} -> {_shown(one.after)}" for one in fields]


def _shown(value: object) -> str:
    import json

    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


@click.command()
@click.option("--from", "start", metavar="TIME", required=True, help="The earlier moment: a time, -1h, or a record.")
@click.option("--to", "end", metavar="TIME", default="", help="The later moment; now if not given.")
@click.option("--status/--no-status", default=False, help="Also changes of status.")
@output_option
@asks
def diff(start: str, end: str, status: bool, output: str, target: Target) -> None:
    """Show what differs between two moments: objects, their fields, and what became of pods."""
    with target.open(past=True) as client:
        found = client.diff(start, end)
    if output in {"json", "yaml"}:
        echo(machine(found, output))
        return
    lines = [f"from record {found.start.seq} ({found.start.time}) to record {found.end.seq} ({found.end.time})"]
    for one in found.objects:
        fields = [field for field in one.fields if status or not field.path.startswith("status")]
        if one.result != "changed" or fields:
            lines.append(f"{one.kind.partition('.')[0]}/{one.key} {painted(one.result, one.result)}")
            lines.extend(f"    {line}" for line in field_lines(fields))
    counts = ", ".join(f"{count} {what}" for what, count in found.pods.items() if count)
    echo_fitted([*lines, f"pods: {counts}" if counts else "pods: no difference"])
