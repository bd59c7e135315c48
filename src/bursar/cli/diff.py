"""`bursar diff`: what differs between two moments."""

import click

from bursar.cli.connection import Target, asks
from bursar.cli.fields import field_lines
from bursar.cli.output import echo, echo_fitted, machine, output_option
from bursar.cli.tables import painted


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
