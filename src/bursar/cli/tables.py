"""The tables of `bursar get`: their columns, and where their rows come from.

JSON and YAML print the answer itself; columns are for people. A filter that the table does not have is an error, and so
is a name that is not there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click

from bursar.cli.connection import fail, refuse
from bursar.cli.output import CLAIMS, NODES, Column, age, amounts, shown, wall_time, without_domain

if TYPE_CHECKING:
    from bursar.server import types
    from bursar.server.client import Client


PAGE = 2000


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What to list; filters that the table does not have are an error."""

    what: str
    names: tuple[str, ...]
    filters: dict[str, str]
    limit: int
    live: bool = False  # the present, as a server has it: ages go on

    @property
    def most(self) -> int:
        """How many rows are enough; 0: all are read, as they must be where names are looked for among them."""
        return 0 if self.names else self.limit

    def only(self, *known: str) -> dict[str, str]:
        for name in self.filters:
            if name not in known:
                fail(f"{self.what} cannot be filtered by --{name}" if name != "at" else f"{self.what} takes no --at")
        return self.filters

    def wants(self, key: str) -> bool:
        namespace = self.filters.get("namespace", "")
        return key in self.names or (bool(namespace) and key.partition("/")[2] in self.names)


def selected(fetch: Callable[..., Any], asked: ListQuery, query: dict[str, str], key: Callable[[Any], str]) -> Any:  # noqa: ANN401 the list that fetch gives
    """The rows that were asked for; ``key`` says what a row is named by."""
    found = pages(fetch, query, asked.most)
    return _named(found, asked, key) if asked.names else found


def pages(fetch: Callable[..., Any], query: dict[str, str], most: int = 0) -> Any:  # noqa: ANN401 the list that fetch gives
    """All pages of a list as one, or so many that there are ``most`` rows; a bar on a terminal if there are several."""
    import msgspec

    first = fetch(**query, limit=min(most, PAGE) or PAGE)
    items = list(first.items)
    page = first
    if first.remaining and not (most and len(items) >= most):
        with click.progressbar(
            length=len(items) + first.remaining, label="reading", file=sys.stderr, hidden=not sys.stderr.isatty()
        ) as progress:
            while page.remaining and not (most and len(items) >= most):
                page = fetch(**{**query, "continue": page.next}, limit=PAGE)
                items.extend(page.items)
                progress.update(len(page.items))
    kept = items[:most] if most else items
    return msgspec.structs.replace(first, items=kept, remaining=len(items) - len(kept) + page.remaining, next="")


def _named(found: Any, asked: ListQuery, key: Callable[[Any], str]) -> Any:  # noqa: ANN401 a list of the API
    import msgspec

    items = [item for item in found.items if asked.wants(key(item))]
    keys = {key(item) for item in items}
    for name in asked.names:
        if name not in keys and not any(one.partition("/")[2] == name for one in keys):
            from bursar.server.types import Problem

            refuse(Problem(type="", title="", status=404, detail=f"there is no {asked.what} {name}"))
    return msgspec.structs.replace(found, items=items)


EVENTS = 50
Lines = list[str]


def listing(client: Client, asked: ListQuery, output: str) -> Lines:
    for names, lister in _TABLES:
        if asked.what in names:
            return lister(client, asked, output)
    return _objects(client, asked, output)


def _now(found: Any, asked: ListQuery) -> str:  # noqa: ANN401 a list of the API
    """What ages are counted to: a server's own time stands still while nothing happens."""
    moment: str = found.moment.time
    return max(moment, wall_time()) if asked.live else moment


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def row_key(row: types.ClaimRow | types.QueueRow | types.QuotaRow) -> str:
    return _key(row.namespace, row.name)


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def _claims(client: Client, asked: ListQuery, output: str) -> Lines:
    query = asked.only("namespace", "label", "phase", "node", "quota", "at")
    found = selected(client.claims, asked, query, row_key)
    columns = (
        Column("NAMESPACE", name=True), Column("NAME", name=True), Column("PHASE", fixed=True), Column("ASKS FOR"),
        Column("NODE"), Column("PRIORITY", wide=True, right=True), Column("AGE", fixed=True, right=True),
        Column("QUOTAS", wide=True), Column("NOTE"),
    )  # fmt: skip
    now = _now(found, asked)
    rows = [
        (row.namespace, row.name, row.phase, _asked_for(row), row.node, row.priority, age(row.created, now),
         ", ".join(row.quota_names or row.quotas), _claim_note(row, output))
        for row in found.items
    ]  # fmt: skip
    return shown(found, output, columns, rows, "no claims found")


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
    found = selected(client.queue, asked, query, row_key)
    columns = (
        Column("#", fixed=True, right=True), Column("NAMESPACE", name=True), Column("NAME", name=True),
        Column("ASKS FOR"),
        Column("PRIORITY", wide=True, right=True), Column("AGE", fixed=True, right=True), Column("WHY"),
    )  # fmt: skip
    now = _now(found, asked)
    rows = [
        (row.position, row.namespace, row.name, _asked_for(row), row.priority, age(row.created, now),
         row.message if output == "wide" else row.reason)
        for row in found.items
    ]  # fmt: skip
    return shown(found, output, columns, rows, "no pending pods")


def _quotas(client: Client, asked: ListQuery, output: str) -> Lines:
    query = asked.only("namespace", "at")
    found = selected(client.quotas, asked, query, row_key)
    limited = any(one.runtime for row in found.items for one in row.resources.values())
    columns = (
        Column("KIND", name=True, spare=4), Column("QUOTA", name=True), Column("RESOURCE", brief=without_domain),
        Column("USED", fixed=True, right=True), Column("RUNTIME", wide=not limited, fixed=True, right=True),
        Column("MIN", fixed=True, right=True, spare=3), Column("MAX", fixed=True, right=True, spare=2),
        Column("BORROWED", fixed=True, right=True, spare=5), Column("LENT", wide=True, right=True, spare=6),
        Column("NOTE", spare=1),
    )  # fmt: skip
    rows = [
        (row.kind if output == "wide" else row.kind.partition(".")[0], quota_name(row), resource, one.used,
         one.runtime, one.min, one.max, _none_if_zero(one.borrowed), _none_if_zero(one.lent),
         "over" if row.exceeded else row.message)
        for row in found.items
        for resource, one in row.resources.items()
    ]  # fmt: skip
    return shown(found, output, columns, rows, "no quotas found")


def quota_name(row: types.QuotaRow) -> str:
    key = row_key(row)
    return f"{key}:{row.node}" if row.node else key


def _none_if_zero(amount: str) -> str:
    return "" if amount == "0" else amount


def _trees(client: Client, asked: ListQuery, output: str) -> Lines:
    query = asked.only("at")
    found = selected(client.quotas, asked, {**query, "policy": "trees"}, attrgetter("name"))
    columns = (
        Column("TREE"), Column("NODE"), Column("RESOURCE"), Column("USED", fixed=True, right=True),
        Column("QUOTA", fixed=True, right=True), Column("HARD", fixed=True), Column("BORROWED", fixed=True, right=True),
    )  # fmt: skip
    rows = [
        (row.tree, "  " * depth + row.node, resource, one.used, one.min, "yes" if one.max else "",
         _none_if_zero(one.borrowed))
        for row, depth in _by_depth(found.items)
        for resource, one in row.resources.items()
    ]  # fmt: skip
    return shown(found, output, columns, rows, "no quota trees found")


def _by_depth(rows: Sequence[types.QuotaRow]) -> list[tuple[types.QuotaRow, int]]:
    """Each node under its parent."""
    below: dict[tuple[str, str], list[types.QuotaRow]] = {}
    for row in rows:
        below.setdefault((row.tree, row.parent), []).append(row)
    found: list[tuple[types.QuotaRow, int]] = []

    def add(tree: str, parent: str, depth: int) -> None:
        for row in below.get((tree, parent), []):
            found.append((row, depth))
            add(tree, row.node, depth + 1)

    for tree in dict.fromkeys(row.tree for row in rows):
        add(tree, "", 0)
    return found


def _nodes(client: Client, asked: ListQuery, output: str) -> Lines:
    found = selected(client.nodes, asked, asked.only("label", "at"), attrgetter("name"))
    columns = (
        Column("NODE"), Column("READY", fixed=True), Column("PODS", fixed=True, right=True), Column("USED"),
        Column("LEAVING", wide=True), Column("LABELS", wide=True),
    )  # fmt: skip
    rows = [
        (row.name, "yes" if row.ready else "no", row.pods, _parts(row.used, row.allocatable), amounts(row.leaving),
         _labels(row.labels))
        for row in found.items
    ]  # fmt: skip
    return shown(found, output, columns, rows, "no nodes found")


def _parts(used: dict[str, str], of: dict[str, str]) -> str:
    return ", ".join(f"{without_domain(name)} {used.get(name, '0')}/{most}" for name, most in sorted(of.items()))


def _gpus(client: Client, asked: ListQuery, output: str) -> Lines:
    found = selected(client.gpus, asked, asked.only("node", "at"), attrgetter("name"))
    columns = (Column("GPU"), Column("NODE"), Column("MODEL"), Column("USED"), Column("CLAIMS"))
    rows = [
        (row.name, row.node, row.model, _parts(row.used, row.capacity), ", ".join(row.claims)) for row in found.items
    ]
    return shown(found, output, columns, rows, "no GPUs that are handed out in parts")


def _events(client: Client, asked: ListQuery, output: str) -> Lines:
    asked.only()
    claim = asked.names[0] if asked.names else ""
    found = client.decisions(limit=asked.limit or EVENTS, claim=claim)
    return shown(found, output, EVENT_COLUMNS, [event_row(row, output) for row in found.items], "nothing happened yet")


EVENT_COLUMNS = (
    Column("RECORD", fixed=True, right=True), Column("TIME", fixed=True), Column("WHAT", fixed=True), Column("WHO"),
    Column("NODE"), Column("WHY"),
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
    found = client.changes(limit=asked.limit or EVENTS)
    columns = (
        Column("CHANGE", fixed=True, right=True), Column("TIME", fixed=True), Column("VERB", fixed=True),
        Column("OBJECTS"), Column("EVICTED"),
    )  # fmt: skip
    rows = [
        (one.id, one.moment.time, f"undo of {one.undoes}" if one.undoes else one.verb, _touched(one),
         ", ".join(news.pod for news in one.pods if news.what == "evicted"))
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
    columns = (Column("KIND"), Column("API VERSION"), Column("PLURAL"), Column("SHORT"), Column("NAMESPACED"))
    rows = [
        (one.name, one.api_version, one.plural, ",".join(one.short_names), "yes" if one.namespaced else "no")
        for one in sorted(found.items, key=lambda one: one.name)
    ]
    return shown(found, output, columns, rows)


def _objects(client: Client, asked: ListQuery, output: str) -> Lines:
    query = {**asked.only("namespace", "label", "at"), "kind": asked.what}
    found = selected(client.objects, asked, query, _object_key)
    spaced = any(_metadata(body).get("namespace") for body in found.items)
    columns = (
        Column("KIND", wide=True), Column("NAMESPACE", wide=not spaced), Column("NAME"),
        Column("AGE", fixed=True, right=True), Column("VERSION", wide=True, right=True), Column("LABELS", wide=True),
    )  # fmt: skip
    now = _now(found, asked)
    rows = [_object_row(body, now) for body in found.items]
    return shown(found, output, columns, rows, f"no {asked.what} found")


def _object_row(body: dict[str, Any], now: str) -> tuple[object, ...]:
    meta = _metadata(body)
    born = age(meta.get("creationTimestamp", ""), now)
    labels = _labels(meta.get("labels") or {})
    return body.get("kind"), meta.get("namespace") or "", _object_name(body), born, meta.get("resourceVersion"), labels


def _object_key(body: dict[str, Any]) -> str:
    return _key(_metadata(body).get("namespace") or "", _object_name(body))


def _object_name(body: dict[str, Any]) -> str:
    """Some kinds are named by an id in their spec."""
    name: str = _metadata(body).get("name") or (body.get("spec") or {}).get("id") or ""
    return name


def _metadata(body: dict[str, Any]) -> dict[str, Any]:
    return body.get("metadata") or {}


_TABLES: tuple[tuple[tuple[str, ...], Callable[[Client, ListQuery, str], Lines]], ...] = (
    (CLAIMS, _claims),
    (("queue",), _queue),
    (("quotas", "quota"), _quotas),
    (("trees", "tree"), _trees),
    (NODES, _nodes),
    (("gpus", "gpu"), _gpus),
    (("events", "event", "decisions"), _events),
    (("changes", "change"), _changes),
    (("kinds", "kind"), _kinds),
)
