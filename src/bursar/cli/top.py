"""`bursar top`: who uses how much, by quota, team or node, with bars."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import click

from bursar.cli.connection import Target, asks, at_option, fail
from bursar.cli.listing import pages
from bursar.cli.names import quota_label
from bursar.cli.output import Column, bar, machine, output_option, repeat, table, watch_options, without_domain

if TYPE_CHECKING:
    from bursar.server.client import Client


@click.command()
@click.argument("by", type=click.Choice(["quotas", "teams", "nodes", "gpus", "idle"]), default="quotas")
@click.option("-r", "--resource", default="", help="Only this resource: nvidia.com/gpu, or gpu for short.")
@click.option("--limit", type=click.IntRange(0), default=50, show_default=True, help="Rows of the table; 0: all.")
@at_option
@output_option
@watch_options
@asks
def top(by: str, resource: str, limit: int, at: str, output: str, watch: bool, interval: float, target: Target) -> None:
    """Show who uses how much: by quota, by team (namespace) or by node; the fullest first.

    gpus: what jobs on GPU servers have booked of each GPU, and what they use; also processes that belong to no job.
    idle: jobs whose GPUs did nothing for some time (idleAfter in the Configuration).

    The LIMIT of a quota is what it may use now: its runtime if it has one, else its max, else its min. What pods
    request of GPUs by annotation (tflops, vram) counts for teams as well.
    """
    with target.looking(past=bool(at)) as opened:
        repeat(opened, lambda client: _look(client, by, resource, limit, at, output), watch=watch, interval=interval)


class UsageRow(NamedTuple):
    """One resource of a quota, team or node."""

    who: str
    resource: str
    used: int
    limit: int | None  # what it may use now
    claims: int = 0
    most: str = ""  # its max, where the limit is its runtime

    @property
    def share(self) -> int:
        """How full it is, in hundredths of a percent; without a limit it is the emptiest of all."""
        if not self.limit:
            return -1 if self.limit is None else min(self.used, 1) << 62
        return self.used * 10_000 // self.limit


def _look(client: Client, by: str, resource: str, limit: int, at: str, output: str) -> list[str]:
    if by in {"gpus", "idle"}:
        from bursar.cli.top_gpus import look

        if at:
            fail(f"what {by} shows is not in the history: it is known of now only")
        return look(client, limit, output, idle=by == "idle")
    make = {"quotas": _quotas, "teams": _teams, "nodes": _nodes}[by]
    found = list(make(client, {"at": at} if at else {}))
    rows = [row for row in found if _wanted(row.resource, resource)]
    if resource and found and not rows:
        _unknown_resource(resource, [row.resource for row in found])
    rows.sort(key=lambda row: (-row.share, -row.used, row.who, row.resource))
    if output in {"json", "yaml"}:
        return machine([_plain(row) for row in rows], output)
    title = {"quotas": "QUOTA", "teams": "TEAM", "nodes": "NODE"}[by]
    of = {"quotas": "LIMIT", "teams": "WANTED", "nodes": "HAS"}[by]
    bounded = any(row.most for row in rows)
    columns = (
        Column(title, name=True), Column("RESOURCE", brief=without_domain), Column("USED", fixed=True, right=True),
        Column(of, fixed=True, right=True), Column("MAX", fixed=True, right=True, wide=not bounded, spare=2),
        Column("%", fixed=True, right=True), Column("", fixed=True, spare=3),
        Column("CLAIMS", wide=True, right=True, spare=1),
    )  # fmt: skip
    if not rows:
        return ["nothing is used, and nothing is limited"]
    shown = rows[:limit] if limit else rows
    more = [f"and {len(rows) - len(shown)} more: --limit 0 shows all"] if len(rows) > len(shown) else []
    return [*table(columns, [_cells(row) for row in shown], wide=output == "wide"), *more]


def _unknown_resource(resource: str, known: list[str]) -> NoReturn:
    from bursar.objects.decode import nearest

    names = sorted({*known, *map(without_domain, known)})
    close = nearest(resource, names)
    hint = f"did you mean {close}?" if close else f"known are {', '.join(sorted(set(known)))}"
    fail(f"nothing here has the resource {resource!r:.60}; {hint}")


def _wanted(name: str, resource: str) -> bool:
    return not resource or resource in {name, without_domain(name)}


def _cells(row: UsageRow) -> tuple[object, ...]:
    from bursar.resources import dimension

    show = dimension(row.resource).show
    limit = "" if row.limit is None else show(row.limit)
    percent = f"{row.used * 100 // row.limit}" if row.limit else ""
    drawn = bar(row.used, row.limit or 0) if row.limit != 0 else bar(row.used, row.used)
    return row.who, row.resource, show(row.used), limit, row.most, percent, drawn, row.claims or ""


def _plain(row: UsageRow) -> dict[str, object]:
    names = ("name", "resource", "used", "limit", "max", "percent", "bar", "claims")
    plain = dict(zip(names, _cells(row), strict=True))
    return {name: value for name, value in plain.items() if name != "bar" and (name != "max" or value)}


def _amount(resource: str, text: str) -> int:
    from bursar.resources import dimension

    return dimension(resource).parse(text) if text else 0


def _quotas(client: Client, query: dict[str, str]) -> Iterator[UsageRow]:
    for row in pages(client.quotas, query).items:
        for resource, one in row.resources.items():
            text = one.runtime or one.max or one.min
            limit = _amount(resource, text) if text else None
            most = one.max if one.runtime else ""
            yield UsageRow(quota_label(row), resource, _amount(resource, one.used), limit, most=most)


def _nodes(client: Client, query: dict[str, str]) -> Iterator[UsageRow]:
    for row in pages(client.nodes, query).items:
        for resource, most in row.allocatable.items():
            used = row.used.get(resource, "")
            yield UsageRow(row.name, resource, _amount(resource, used), _amount(resource, most), row.pods)


def _shares(gpus: dict[str, str]) -> Iterator[tuple[str, str]]:
    """What is requested of GPUs by annotation and is an amount."""
    return ((name, text) for name, text in gpus.items() if not text.endswith("%"))


def _teams(client: Client, query: dict[str, str]) -> Iterator[UsageRow]:
    """What runs of a team, and (as its bound) that and what waits together."""
    used: dict[tuple[str, str], int] = {}
    wanted: dict[tuple[str, str], int] = {}
    counts: dict[tuple[str, str], int] = {}
    for row in pages(client.claims, query).items:
        if row.state == "gone":
            continue
        for resource, text in [*row.requests.items(), *_shares(row.gpus)]:
            key = row.namespace, resource
            amount = _amount(resource, text)
            wanted[key] = wanted.get(key, 0) + amount
            counts[key] = counts.get(key, 0) + 1
            if row.state != "pending":
                used[key] = used.get(key, 0) + amount
    for (team, resource), amount in sorted(wanted.items()):
        yield UsageRow(team, resource, used.get((team, resource), 0), amount, counts[team, resource])
