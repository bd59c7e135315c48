"""`bursar get`: list claims, quotas, nodes, GPUs, events or objects of any kind."""

import click

from bursar.cli.connection import Target, asks, at_option
from bursar.cli.kinds import complete_kind
from bursar.cli.listings import listing
from bursar.cli.output import output_option, repeat, watch_options
from bursar.cli.selection import Asked


@click.command()
@click.argument("what", metavar="WHAT", shell_complete=complete_kind)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("-n", "--namespace", default="", help="Only what is in this namespace.")
@click.option("-l", "--label", default="", help="Only what has these labels: a=b,c!=d,e,!f.")
@click.option("--phase", type=click.Choice(["Pending", "Running", "Terminating", "Succeeded", "Evicted"]),
              help="Only pods in this phase.")  # fmt: skip
@click.option("--node", default="", help="Only pods or GPUs on this node.")
@click.option(
    "--quota",
    default="",
    help="Only pods that count in this quota, as `get quotas` (team-a/quota) or `explain` (limits/team-a) calls it.",
)
@click.option("--limit", type=click.IntRange(1), help="At most so many; all if not given (events: 50).")
@at_option
@output_option
@watch_options
@asks
def get(  # noqa: PLR0913, PLR0917 each option is an argument
    what: str,
    names: tuple[str, ...],
    namespace: str,
    label: str,
    phase: str | None,
    node: str,
    quota: str,
    limit: int | None,
    at: str,
    output: str,
    watch: bool,
    interval: float,
    target: Target,
) -> None:
    """List claims, quotas, nodes, GPUs, events or objects.

    \b
    WHAT is one of
      pods, claims   what asks for resources, and what became of it
      queue          who waits, the most urgent first, and why
      quotas         of all dialects: used, min, max, borrowed, lent
      trees          quota trees, as trees
      nodes, gpus    what there is and what is used of it
      events         decisions and changes, the newest first
      changes        what was applied, deleted and undone
      kinds          the kinds of objects
    or any kind of objects: Pod, Node, quotatrees, ElasticQuota.n8s.nebuly.ai ...

    NAME is namespace/name, or a name within the namespace that -n gives.
    """  # noqa: D301 click reads the escape
    filters = {"namespace": namespace, "label": label, "phase": phase or "", "node": node, "quota": quota, "at": at}
    asked = Asked(
        what,
        names,
        {name: value for name, value in filters.items() if value},
        limit or 0,
        not at and target.data is None,
    )
    with target.looking(past=bool(at)) as opened:
        repeat(opened, lambda client: listing(client, asked, output), watch=watch, interval=interval)
