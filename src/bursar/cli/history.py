"""`bursar history`: what happened, to everybody or to one object, and what an object was at a moment."""

from typing import TYPE_CHECKING

import click

from bursar.cli.connection import Target, asks
from bursar.cli.fields import field_lines
from bursar.cli.kinds import complete_reference, reference
from bursar.cli.listings import EVENT_COLUMNS, event_row
from bursar.cli.output import echo, echo_fitted, machine, output_option
from bursar.cli.tables import painted, table

if TYPE_CHECKING:
    from bursar.server import chronicle
    from bursar.server.client import Client

CHUNK = 500


@click.command()
@click.argument("object", metavar="[KIND/NAMESPACE/NAME]", required=False, shell_complete=complete_reference)
@click.option(
    "--since", metavar="TIME", default="", help="Only what happened after this moment (-1h, a time, a record)."
)
@click.option("--at", metavar="TIME", default="", help="Print the object as it was at this moment.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many decisions.")
@output_option
@asks
def history(object: str | None, since: str, at: str, limit: int, output: str, target: Target) -> None:  # noqa: A002
    """Show what happened: decisions and changes, the newest first; or all versions of one object.

    namespace/name alone is a pod. What differs between two moments: `bursar diff`.
    """
    with target.open(past=True) as client:
        if object is None:
            if at:
                raise click.UsageError("--at wants an object; for the rest: bursar get WHAT --at TIME")
            _happened(client, since, limit, output)
        elif at:
            kind, key = reference(client, object)
            echo(machine(client.get_object(kind, key, at=at), "json" if output == "json" else "yaml"))
        else:
            _of_object(client, *reference(client, object), since, limit, output)


def _happened(client: "Client", since: str, limit: int, output: str) -> None:
    first = _record_after(client, since)
    rows: list[chronicle.DecisionRow] = []
    before = 0
    while len(rows) < limit:
        found = client.decisions(before=before, limit=min(CHUNK, limit))
        rows.extend(row for row in found.items if row.seq > first)
        before = found.next
        if not before or before <= first:
            break
    if output in {"json", "yaml"}:
        echo(machine(rows[:limit], output))
    else:
        echo(table(EVENT_COLUMNS, [event_row(row, output) for row in rows[:limit]], wide=output == "wide"))


def _record_after(client: "Client", since: str) -> int:
    """The last record that is too old."""
    return client.objects(at=since, kind="Namespace", limit=1).moment.seq if since else 0


def _of_object(client: "Client", kind: str, key: str, since: str, limit: int, output: str) -> None:
    found = client.history(kind, key)
    first = _record_after(client, since)
    versions = [version for version in found.items if version.seq > first or not since]
    decisions = [row for row in found.decisions if row.seq > first][:limit]
    if output in {"json", "yaml"}:
        import msgspec

        echo(machine(msgspec.structs.replace(found, items=versions, decisions=decisions), output))
        return
    lines: list[str] = []
    for version in versions:
        lines.append(f"{version.time}  {painted(version.result, version.result)} (version {version.resource_version})")
        lines.extend(f"    {line}" for line in field_lines(version.fields))
    if decisions:
        lines += ["", *table(EVENT_COLUMNS, [event_row(row, output) for row in decisions], wide=output == "wide")]
    echo_fitted(lines or ["nothing happened to it since then"])
