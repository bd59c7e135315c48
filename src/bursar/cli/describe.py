"""`bursar describe`: everything about one object."""

from typing import TYPE_CHECKING, Any

import click

from bursar.cli import explain
from bursar.cli.connection import Target, asks, at_option
from bursar.cli.kinds import complete_reference, reference
from bursar.cli.listings import listing, row_key
from bursar.cli.output import echo, machine, output_option
from bursar.cli.selection import Asked, pages

if TYPE_CHECKING:
    from bursar.server.client import Client

LAST = 8


@click.command()
@click.argument("object", metavar="KIND/NAMESPACE/NAME", shell_complete=complete_reference)
@at_option
@output_option
@asks
def describe(object: str, at: str, output: str, target: Target) -> None:  # noqa: A002 what it is
    """Show everything about one object: its manifest, what uses it, why it is so, and what happened to it.

    namespace/name alone is a pod.
    """
    with target.open(past=bool(at)) as client:
        kind, key = reference(client, object)
        body = client.get_object(kind, key, at=at)
        if output in {"json", "yaml"}:
            echo(machine(body, output))
            return
        lines = [f"{body.get('kind')} {key}", "", *_manifest(body)]
        if body.get("kind") == "Pod":
            lines += _pod(client, key, at)
        else:
            lines += _used_by(client, str(body.get("kind")), key, at)
        lines += _happened(client, kind, key)
    echo(lines)


def _manifest(body: dict[str, Any]) -> list[str]:
    return [f"  {line}" for part in machine(body, "yaml") for line in part.splitlines()]


def _pod(client: "Client", key: str, at: str) -> list[str]:
    from bursar.server.client import ApiError

    namespace, _, name = key.rpartition("/")
    try:
        found = client.explain(namespace, name, at=at)
    except ApiError as error:
        if error.status != 404:
            raise
        return []
    return ["", "Why:", *(f"  {line}" for line in explain.tree_text(found))]


def _used_by(client: "Client", kind: str, key: str, at: str) -> list[str]:
    """The rows about it in the tables."""
    query = {"at": at} if at else {}
    if kind == "Node":
        rows = listing(client, Asked("nodes", (key,), query, 0), "table")
        claims = listing(client, Asked("pods", (), {**query, "node": key}, 0), "table")
        return ["", *rows, "", *claims]
    quotas = [row for row in pages(client.quotas, query).items if row_key(row) == key]
    if not quotas or kind != quotas[0].kind.partition(".")[0]:
        return []
    return ["", *listing(client, Asked("quotas", (key,), query, 0), "table")]


def _happened(client: "Client", kind: str, key: str) -> list[str]:
    from bursar.cli.fields import field_lines

    found = client.history(kind, key)
    lines = ["", "History:"]
    for version in found.items[-LAST:]:
        fields = field_lines(version.fields)
        more = f": {fields[0]}{f' (and {len(fields) - 1} more)' if len(fields) > 1 else ''}" if fields else ""
        lines.append(f"  {version.time}  {version.result}{more}")
    return lines
