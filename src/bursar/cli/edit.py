"""`bursar edit`: change an object in an editor.

The manifest carries its resource version, so a change that came in between is not overwritten but reported. What is
refused can be corrected in the same text, and nothing that was typed is lost: a text that is given up stays in a file.
"""

from __future__ import annotations

import sys
import tempfile
from typing import TYPE_CHECKING, Any

import click

from bursar.cli import exit_codes
from bursar.cli.change import show_change
from bursar.cli.complete import complete_reference
from bursar.cli.connection import Target, asks, fail
from bursar.cli.names import references
from bursar.cli.output import echo, machine, names_option

if TYPE_CHECKING:
    from bursar.server import types
    from bursar.server.client import Client

_HEAD = """\
# Change it, save it and leave the editor. Lines that begin with # are left out. An empty text changes nothing.
"""
_BOOKKEEPING = ("uid", "generation", "creationTimestamp", "managedFields")


@click.command()
@click.argument("objects", nargs=-1, required=True, metavar="KIND/NAMESPACE/NAME", shell_complete=complete_reference)
@click.option("-n", "--namespace", default="", help="The namespace of a name that has none.")
@click.option("--editor", default=None, help="The editor to use (default: VISUAL, EDITOR, or vi).")
@names_option
@asks
def edit(objects: tuple[str, ...], namespace: str, editor: str | None, output: str, target: Target) -> None:
    """Change an object in an editor, and apply it.

    KIND NAME works as well, and namespace/name alone is a pod.
    """
    with target.open(changes=True) as client:
        named = references(client, objects, namespace or target.own_namespace)
        if len(named) != 1:
            fail("one object is edited at a time")
        text = before = _HEAD + _text(client.object(*named[0]))
        while True:
            edited = click.edit(text, editor=editor, extension=".yaml", require_save=False)
            if edited is None or edited.strip() == before.strip() or not _content(edited):
                echo(["nothing was changed"])
                return
            change, problem = _applied(client, edited)
            if change is not None:
                show_change(change, output)
                return
            if edited.strip() == text.strip():  # the same was refused before
                _give_up(edited, problem)
            text = f"# {problem}\n{_without_problems(edited)}"


def _text(body: dict[str, Any]) -> str:
    """The manifest as it can be changed: without what only Bursar writes."""
    metadata = {name: value for name, value in body.get("metadata", {}).items() if name not in _BOOKKEEPING}
    kept = {name: value for name, value in {**body, "metadata": metadata}.items() if name != "status"}
    return "\n".join(machine(kept, "yaml")) + "\n"


def _content(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.strip() and not line.startswith("#"))


def _without_problems(text: str) -> str:
    """The text with its heading, and without what was said of an earlier try."""
    lines = text.splitlines()
    while lines and lines[0].startswith("#"):
        lines.pop(0)
    return _HEAD + "\n".join(lines) + "\n"


def _applied(client: Client, text: str) -> tuple[types.Change | None, str]:
    """The change, or why there is none; other failures than a refusal go on."""
    from bursar.server.client import RequestFailedError

    try:
        return client.apply(_content(text), source="edited"), ""
    except RequestFailedError as error:
        if error.status not in {400, 404, 409, 422}:
            raise
        return None, error.problem.detail.replace("\n", " ")


def _give_up(text: str, problem: str) -> None:
    with tempfile.NamedTemporaryFile(
        "w", prefix="bursar-edit-", suffix=".yaml", delete=False, encoding="utf-8"
    ) as file:
        file.write(text)
    click.echo(f"error: {problem}\n  what you wrote is kept in {file.name}", err=True)
    sys.exit(exit_codes.FAILED)
