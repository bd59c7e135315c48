"""`bursar top`: who uses how much, by quota, team or node, with bars."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from bursar.cli.connection import Target, asks, at_option
from bursar.cli.output import Column, bar, machine, output_option, repeat, table, watch_options
from bursar.cli.tables import pages, quota_name

if TYPE_CHECKING:
    from bursar.server.client import Client


@click.command()
@click.argument("by", type=click.Choice(["quotas", "teams", "nodes"]), default="quotas")
@click.option("-r", "--resource", default="", help="Only this resource: nvidia.com/gpu, or gpu for short.")
@at_option
@output_option
@watch_options
@asks
def top(by: str, resource: str, at: str, output: str, watch: bool, interval: float, target: Target) -> None:
    """Show who uses how much: by quota, by team (namespace) or by node; the fullest first."""
    with target.looking(past=bool(at)) as opened:
        repeat(opened, lambda client: _look(client, by, resource, at, output), watch=watch, interval=interval)


Row = tuple[str, str, int, int, int]
"""(who, resource, used, the bound of it or 0, how many claims)"""


def _look(client: Client, by: str, resource: str, at: str, output: str) -> list[str]:
    make = {"quotas": _quotas, "teams": _teams, "nodes": _nodes}[by]
    rows = [row for row in make(client, {"at": at} if at else {}) if _wanted(row[1], resource)]
    rows.sort(key=lambda row: (-(row[2] * 10_000 // row[3] if row[3] else -1), -row[2], row[0], row[1]))
    if output in {"json", "yaml"}:
        return machine([_plain(row) for row in rows], output)
    title = {"quotas": "QUOTA", "teams": "TEAM", "nodes": "NODE"}[by]
    of = {"quotas": "LIMIT", "teams": "WANTED", "nodes": "HAS"}[by]
    columns = (
        Column(title), Column("RESOURCE"), Column("USED", fixed=True, right=True), Column(of, fixed=True, right=True),
        Column("%", fixed=True, right=True), Column("", fixed=True), Column("CLAIMS", wide=True, right=True),
    )  # fmt: skip
    if not rows:
        return ["nothing is used, and nothing is limited"]
    return table(columns, [_cells(row) for row in rows], wide=output == "wide")


def _wanted(name: str, resource: str) -> bool:
    return not resource or resource in {name, name.rpartition("/")[2]}


def _cells(row: Row) -> tuple[object, ...]:
    from bursar.resources import dimension

    who, resource, used, limit, claims = row
    show = dimension(resource).show
    percent = f"{used * 100 // limit}" if limit else ""
    return who, resource, show(used), show(limit) if limit else "", percent, bar(used, limit), claims or ""


def _plain(row: Row) -> dict[str, object]:
    who, resource, used, limit, percent, _, claims = _cells(row)
    return {"name": who, "resource": resource, "used": used, "limit": limit, "percent": percent, "claims": claims}


def _amount(resource: str, text: str) -> int:
    from bursar.resources import dimension

    return dimension(resource).parse(text) if text else 0


def _quotas(client: Client, query: dict[str, str]) -> Iterator[Row]:
    for row in pages(client.quotas, query).items:
        for resource, one in row.resources.items():
            limit = one.max or one.runtime or one.min
            yield quota_name(row), resource, _amount(resource, one.used), _amount(resource, limit), 0


def _nodes(client: Client, query: dict[str, str]) -> Iterator[Row]:
    for row in pages(client.nodes, query).items:
        for resource, most in row.allocatable.items():
            used = row.used.get(resource, "")
            yield row.name, resource, _amount(resource, used), _amount(resource, most), row.pods


def _teams(client: Client, query: dict[str, str]) -> Iterator[Row]:
    """What runs of a team, and (as its bound) that and what waits together."""
    used: dict[tuple[str, str], int] = {}
    wanted: dict[tuple[str, str], int] = {}
    counts: dict[tuple[str, str], int] = {}
    for row in pages(client.claims, query).items:
        if row.state == "gone":
            continue
        for resource, text in row.requests.items():
            key = row.namespace, resource
            amount = _amount(resource, text)
            wanted[key] = wanted.get(key, 0) + amount
            counts[key] = counts.get(key, 0) + 1
            if row.state != "pending":
                used[key] = used.get(key, 0) + amount
    for (team, resource), amount in sorted(wanted.items()):
        yield team, resource, used.get((team, resource), 0), amount, counts[team, resource]
