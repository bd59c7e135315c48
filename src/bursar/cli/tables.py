"""The tables of `bursar get`: their columns, and where their rows come from.

Columns are for people. JSON and YAML are the answer itself, but of pods, nodes and other objects they are manifests. A
filter that the table does not have is an error, and so is a name that is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bursar.cli.connection import fail
from bursar.cli.listing import ListQuery, selected
from bursar.cli.manifest_lists import now_of, object_table, print_manifests, shown_labels
from bursar.cli.names import CLAIMS, NODES, PODS, QUOTAS, quota_forms, quota_label
from bursar.cli.output import (
    MACHINES,
    NAMES,
    Column,
    age,
    amounts,
    brief_reason,
    brief_time,
    shown,
    without_domain,
)

if TYPE_CHECKING:
    from bursar.server import types
    from bursar.server.client import Client


def _claim_forms(row: types.ClaimRow | types.QueueRow) -> tuple[str, ...]:
    key = row_key(row)
    return key, row.name, f"Pod/{key}", *(f"{kind}/{key}" for kind in PODS)


def _node_forms(row: types.NodeRow) -> tuple[str, ...]:
    return row.name, f"Node/{row.name}", *(f"{kind}/{row.name}" for kind in NODES)


def _tree_forms(row: types.QuotaRow) -> tuple[str, ...]:
    return *quota_forms(row), row.tree


def _gpu_forms(row: types.GpuRow) -> tuple[str, ...]:
    return row.name, f"GPU/{row.name}"


EVENTS = 50
Lines = list[str]


def listing(client: Client, asked: ListQuery, output: str) -> Lines:
    for names, lister in _TABLES:
        if asked.what.lower() in names:
            return lister(client, asked, output)
    return object_table(client, asked, output)


def _unprintable(asked: ListQuery, output: str) -> None:
    if output == NAMES:
        fail(f"{asked.what} are no objects: -o name prints the names of objects")


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def row_key(row: types.ClaimRow | types.QueueRow | types.QuotaRow) -> str:
    return _key(row.namespace, row.name)


def _pods(client: Client, asked: ListQuery, output: str) -> Lines:
    """Pods are claims in tables, and manifests for programs."""
    if output not in MACHINES:
        return _claims(client, asked, output)
    query = asked.only("namespace", "label", "phase", "node", "quota", "at")
    keys = None
    if asked.names or query.keys() & {"phase", "node", "quota"}:
        keys = {row_key(row) for row in selected(client.claims, asked, query, _claim_forms).items}
    return print_manifests(client, asked, "Pod", keys, output)


def _claims(client: Client, asked: ListQuery, output: str) -> Lines:
    query = asked.only("namespace", "label", "phase", "node", "quota", "at")
    found = selected(client.claims, asked, query, _claim_forms)
    columns = (
        Column("NAMESPACE", name=True), Column("NAME", name=True), Column("PHASE", fixed=True),
        Column("ASKS FOR", spare=3), Column("NODE", name=True, spare=2),
        Column("PRIORITY", wide=True, right=True, spare=5), Column("AGE", fixed=True, right=True),
        Column("QUOTAS", wide=True, spare=4), Column("NOTE", brief=brief_reason),
    )  # fmt: skip
    now = now_of(found, asked)
    rows = [
        (row.namespace, row.name, row.phase, _asked_for(row), row.node, row.priority, age(row.created, now),
         ", ".join(row.quota_names or row.quotas), _claim_note(row, output))
        for row in found.items
    ]  # fmt: skip
    return shown(found, output, columns, rows, "no claims found", [f"Pod/{row_key(row)}" for row in found.items])


def _asked_for(row: types.ClaimRow | types.QueueRow) -> str:
    return ", ".join(part for part in (amounts(row.requests), amounts(row.gpus)) if part)


def _claim_note(row: types.ClaimRow, output: str) -> str:
    if row.waits_for:
        return f"waits for {', '.join(row.waits_for)} to leave"
    if row.reason:
        return row.message if output == "wide" else row.reason
    return "borrows" if row.borrowing else ""


def _queue(client: Client, asked: ListQuery, output: str) -> Lines:
    query = asked.only("namespace", "at")
    found = selected(client.queue, asked, query, _claim_forms)
    columns = (
        Column("#", fixed=True, right=True), Column("NAMESPACE", name=True), Column("NAME", name=True),
        Column("ASKS FOR", spare=2), Column("PRIORITY", wide=True, right=True, spare=4),
        Column("AGE", fixed=True, right=True, spare=3), Column("WHY", name=output != "wide", brief=brief_reason),
    )  # fmt: skip
    now = now_of(found, asked)
    rows = [
        (row.position, row.namespace, row.name, _asked_for(row), row.priority, age(row.created, now),
         row.message if output == "wide" else row.reason)
        for row in found.items
    ]  # fmt: skip
    return shown(found, output, columns, rows, "no pending pods", [f"Pod/{row_key(row)}" for row in found.items])


def _quotas(client: Client, asked: ListQuery, output: str) -> Lines:
    query = asked.only("namespace", "at")
    found = selected(client.quotas, asked, query, quota_forms)
    limited = any(one.runtime for row in found.items for one in row.resources.values())
    wide = output == "wide"
    columns = (
        Column("KIND", name=True, spare=5), Column("QUOTA", name=True), Column("RESOURCE", brief=without_domain),
        Column("USED", fixed=True, right=True), Column("RUNTIME", wide=not limited, fixed=True, right=True),
        Column("MIN", fixed=True, right=True, spare=3), Column("MAX", fixed=True, right=True, spare=2),
        Column("BORROWED", fixed=True, right=True, spare=6), Column("LENT", wide=True, right=True, spare=7),
        Column("NOTE", spare=1),
    )  # fmt: skip
    folded, nodes = (found.items, []) if wide or asked.names else _node_quotas(found.items)
    rows = [
        (row.kind if wide else row.kind.partition(".")[0], quota_label(row), resource, one.used,
         one.runtime, one.min, one.max, _none_if_zero(one.borrowed), _none_if_zero(one.lent),
         "over" if row.exceeded else row.message)
        for row in folded
        for resource, one in row.resources.items()
    ]  # fmt: skip
    names = [f"{row.kind}/{row_key(row)}" for row in found.items]
    return shown(found, output, columns, [*rows, *nodes], "no quotas found", names)


def _node_quotas(rows: list[types.QuotaRow]) -> tuple[list[types.QuotaRow], list[tuple[object, ...]]]:
    """The rows without the quotas of single nodes, if there are several, and one row a resource for all of these."""
    from bursar.resources import dimension

    nodes = [row for row in rows if row.kind == "Node"]
    if len(nodes) < 2:
        return rows, []
    found: list[tuple[object, ...]] = []
    for resource in dict.fromkeys(name for row in nodes for name in row.resources):
        of = [row.resources[resource] for row in nodes if resource in row.resources]
        show, parse = dimension(resource).show, dimension(resource).parse
        most = show(sum(parse(one.max) for one in of)) if all(one.max for one in of) else ""
        full = [row.name for row in nodes if row.exceeded]
        note = f"over: {', '.join(full)}" if full else "-o wide lists them"
        used = show(sum(parse(one.used) for one in of))
        found.append(("Node", f"({len(of)} nodes)", resource, used, "", "", most, "", "", note))
    return [row for row in rows if row.kind != "Node"], found


def _none_if_zero(amount: str) -> str:
    return "" if amount == "0" else amount


def _trees(client: Client, asked: ListQuery, output: str) -> Lines:
    query = asked.only("at")
    found = selected(client.quotas, asked, {**query, "policy": "trees"}, _tree_forms)
    columns = (
        Column("TREE", name=True), Column("NODE", name=True), Column("RESOURCE", brief=without_domain),
        Column("USED", fixed=True, right=True), Column("QUOTA", fixed=True, right=True),
        Column("HARD", fixed=True, spare=3), Column("BORROWED", fixed=True, right=True, spare=2),
    )  # fmt: skip
    rows = [
        (row.tree, "  " * depth + row.node, resource, one.used, one.min, "yes" if one.max else "",
         _none_if_zero(one.borrowed))
        for row, depth in _by_depth(found.items)
        for resource, one in row.resources.items()
    ]  # fmt: skip
    return shown(found, output, columns, rows, "no quota trees found", [f"QuotaTree/{row.tree}" for row in found.items])


def _by_depth(rows: Sequence[types.QuotaRow]) -> list[tuple[types.QuotaRow, int]]:
    """Each node under its parent, if that is there."""
    there = {(row.tree, row.node) for row in rows}
    below: dict[tuple[str, str], list[types.QuotaRow]] = {}
    for row in rows:
        below.setdefault((row.tree, row.parent if (row.tree, row.parent) in there else ""), []).append(row)
    found: list[tuple[types.QuotaRow, int]] = []

    def add(tree: str, parent: str, depth: int) -> None:
        for row in below.get((tree, parent), []):
            found.append((row, depth))
            add(tree, row.node, depth + 1)

    for tree in dict.fromkeys(row.tree for row in rows):
        add(tree, "", 0)
    return found


def _nodes(client: Client, asked: ListQuery, output: str) -> Lines:
    found = selected(client.nodes, asked, asked.only("label", "at"), _node_forms)
    if output in MACHINES:
        return print_manifests(client, asked, "Node", {row.name for row in found.items}, output)
    columns = (
        Column("NODE", name=True), Column("READY", fixed=True, spare=2), Column("PODS", fixed=True, right=True),
        Column("USED"), Column("LEAVING", wide=True, spare=4), Column("LABELS", wide=True, spare=3),
    )  # fmt: skip
    rows = [
        (row.name, "yes" if row.ready else "no", row.pods, _parts(row.used, row.allocatable), amounts(row.leaving),
         shown_labels(row.labels))
        for row in found.items
    ]  # fmt: skip
    return shown(found, output, columns, rows, "no nodes found", [f"Node/{row.name}" for row in found.items])


def _parts(used: dict[str, str], of: dict[str, str]) -> str:
    return ", ".join(f"{without_domain(name)} {used.get(name, '0')}/{most}" for name, most in sorted(of.items()))


def _gpus(client: Client, asked: ListQuery, output: str) -> Lines:
    found = selected(client.gpus, asked, asked.only("node", "at"), _gpu_forms)
    columns = (
        Column("GPU", name=True), Column("NODE", name=True, spare=2), Column("MODEL", spare=4),
        Column("USED", spare=3), Column("CLAIMS", items=True),
    )  # fmt: skip
    rows = [
        (row.name, row.node, row.model, _parts(row.used, row.capacity), ", ".join(row.claims)) for row in found.items
    ]
    names = [f"GPU/{row.name}" for row in found.items]
    return shown(found, output, columns, rows, "no GPUs that are handed out in parts", names)


def _events(client: Client, asked: ListQuery, output: str) -> Lines:
    asked.only()
    _unprintable(asked, output)
    if len(asked.names) > 1:
        fail("events are of all pods, or of one: NAMESPACE/POD")
    claim = "/".join(asked.names[0].split("/")[-2:]) if asked.names else ""  # without the kind, if it is there
    found = client.decisions(limit=asked.limit or EVENTS, claim=claim)
    return shown(found, output, EVENT_COLUMNS, [event_row(row, output) for row in found.items], "nothing happened yet")


EVENT_COLUMNS = (
    Column("RECORD", fixed=True, right=True), Column("TIME", fixed=True, brief=brief_time), Column("WHAT", fixed=True),
    Column("WHO", name=True, items=True), Column("NODE", name=True, spare=2), Column("WHY", brief=brief_reason),
)  # fmt: skip


def event_row(row: types.DecisionRow, output: str) -> tuple[object, ...]:
    victims = f"takes the place of {', '.join(row.victims)}" if row.victims else ""
    why = victims or (row.message if output == "wide" else row.reason)
    if row.cause == "observe":
        return row.seq, row.time, row.subjects[-1], row.subjects[0], "", ""
    if row.cause == "evicted" and row.reason != "engine.preempted":
        return row.seq, row.time, "left", row.claim, row.node, ""  # the record of its revocation was its eviction
    return row.seq, row.time, row.outcome or row.cause, row.claim or ", ".join(row.subjects), row.node, why


def _changes(client: Client, asked: ListQuery, output: str) -> Lines:
    asked.only()
    _unprintable(asked, output)
    found = client.changes(limit=asked.limit or EVENTS)
    named = any(one.actor for one in found.items)  # a server without tokens knows no names
    columns = (
        Column("CHANGE", fixed=True, right=True), Column("TIME", fixed=True, brief=brief_time),
        Column("VERB", fixed=True), *([Column("BY")] if named else []), Column("OBJECTS", items=True),
        Column("EVICTED", items=True, spare=1),
    )  # fmt: skip
    rows = [
        (one.id, one.moment.time, f"undo of {one.undoes}" if one.undoes else one.verb, *([one.actor] if named else []),
         _touched(one), ", ".join(news.pod for news in one.pods if news.what == "evicted"))
        for one in found.items
    ]  # fmt: skip
    return shown(found, output, columns, rows, "nothing was applied yet")


def _touched(change: types.Change) -> str:
    objects = [one for one in change.objects if one.result != "unchanged"]
    from bursar.objects.validation import few

    return few([f"{one.kind.partition('.')[0]}/{one.key}" for one in objects])


def _kinds(client: Client, asked: ListQuery, output: str) -> Lines:
    asked.only()
    found = client.kinds()
    columns = (
        Column("KIND", name=True), Column("API VERSION", name=True, spare=4), Column("PLURAL", name=True, spare=3),
        Column("SHORT", name=True), Column("NAMESPACED", fixed=True, spare=2),
    )  # fmt: skip
    rows = [
        (one.name, one.api_version, one.plural, ",".join(one.short_names), "yes" if one.namespaced else "no")
        for one in sorted(found.items, key=lambda one: one.name)
    ]
    return shown(found, output, columns, rows, names=[str(row[0]) for row in rows])


_TABLES: tuple[tuple[tuple[str, ...], Callable[[Client, ListQuery, str], Lines]], ...] = (
    (PODS, _pods),
    (CLAIMS, _claims),
    (("queue",), _queue),
    (QUOTAS, _quotas),
    (("trees", "tree"), _trees),
    (NODES, _nodes),
    (("gpus", "gpu"), _gpus),
    (("events", "event", "decisions"), _events),
    (("changes", "change"), _changes),
    (("kinds", "kind"), _kinds),
)
