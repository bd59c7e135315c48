"""`bursar get`, `describe`, `explain` and `history`: read lists, one object, the reasons of a claim, and the past."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import click

from bursar.cli.change import field_lines
from bursar.cli.complete import (
    complete_explained,
    complete_kind,
    complete_name,
    complete_namespace,
    complete_node,
    complete_quota,
    complete_reference,
)
from bursar.cli.connection import Target, asks, at_option, fail
from bursar.cli.listing import ListQuery, pages
from bursar.cli.names import PODS, is_kind, pod_keys, references
from bursar.cli.output import (
    MACHINES,
    echo,
    echo_fitted,
    machine,
    names_option,
    output_option,
    painted,
    repeat,
    table,
    watch_options,
    wrapped,
)
from bursar.cli.tables import EVENT_COLUMNS, event_row, listing, row_key

if TYPE_CHECKING:
    from bursar.server import types
    from bursar.server.client import Client


@click.command()
@click.argument("what", metavar="WHAT", shell_complete=complete_kind)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_name)
@click.option(
    "-n", "--namespace", default="", help="Only what is in this namespace.", shell_complete=complete_namespace
)
@click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces, also if the context names one.")
@click.option("-l", "--label", default="", help="Only what has these labels: a=b,c!=d,e,!f.")
@click.option("--phase", type=click.Choice(["Pending", "Running", "Terminating", "Succeeded", "Evicted"]),
              help="Only pods in this phase.")  # fmt: skip
@click.option("--node", default="", help="Only pods or GPUs on this node.", shell_complete=complete_node)
@click.option(
    "--quota",
    default="",
    shell_complete=complete_quota,
    help="Only pods that count in this quota, as `get quotas` (team-a/quota) or `explain` (limits/team-a) calls it.",
)
@click.option("--limit", type=click.IntRange(1), help="At most so many; all if not given (events: 50).")
@at_option
@names_option
@watch_options
@asks
def get(  # noqa: PLR0913, PLR0917 each option is an argument
    what: str,
    names: tuple[str, ...],
    namespace: str,
    all_namespaces: bool,
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

    NAME is namespace/name, or a name within the namespace that -n gives; KIND/NAME works as well. -o yaml and -o json
    print pods, nodes and other objects as manifests that `bursar apply -f` takes, and -o name their names.
    """  # noqa: D301 click reads the escape
    what, _, first = what.partition("/")
    names = (first, *names) if first else names
    if all_namespaces and namespace:
        fail("-A means all namespaces, and -n one of them: give one of both")
    if not namespace and not all_namespaces and what.lower() in _NAMESPACED:
        namespace = target.own_namespace
    filters = {"namespace": namespace, "label": label, "phase": phase or "", "node": node, "quota": quota, "at": at}
    asked = ListQuery(
        what,
        names,
        {name: value for name, value in filters.items() if value},
        limit or 0,
        not at and target.data is None,
    )
    with target.looking(past=bool(at)) as opened:
        repeat(opened, lambda client: listing(client, asked, output), watch=watch, interval=interval)


@click.command()
@click.argument("what", metavar="NAMESPACE/POD|KIND/QUOTA|quota", shell_complete=complete_explained)
@click.argument("name", metavar="[QUOTA]", required=False, shell_complete=complete_quota)
@click.option("-n", "--namespace", default="", help="The namespace of a pod that is named without one.")
@click.option("--fixes/--no-fixes", default=True, show_default=True, help="Search for what would let it in.")
@at_option
@output_option
@asks
def explain(what: str, name: str | None, namespace: str, fixes: bool, at: str, output: str, target: Target) -> None:
    """Say why a pod is where it is, or why a quota has what it has.

    \b
    bursar explain NAMESPACE/POD          every check with its numbers, and the shortest fixes
    bursar explain quota NAME             the quota as `get quotas` calls it: its limits, who borrows
    bursar explain ElasticQuota/NS/NAME   the same, as `apply` calls it

    The first check that fails is marked. Each fix was tried on a copy of the cluster, with everybody who waits, before
    it is shown; `docs/explain.md` says what kinds there are.
    """  # noqa: D301 click reads the escape
    with target.open(past=bool(at)) as client:
        kind, key = _explained(client, what, name, namespace or target.own_namespace)
        if kind.lower() in PODS:
            namespace, _, pod = key.partition("/")
            found = client.explain(namespace, pod, at=at, fixes=fixes)
            lines = machine(found, output) if output in MACHINES else text(found, wide=output == "wide", searched=fixes)
        else:
            whole = client.explain_quota(kind, key, at=at)
            lines = machine(whole, output) if output in MACHINES else quota_text(whole)
    echo(lines)


_NAMESPACED = {*PODS, "claims", "claim", "queue", "quotas", "quota"}


def _explained(client: Client, what: str, name: str | None, namespace: str) -> tuple[str, str]:
    """The kind and key to explain: KIND NAME, KIND/NAMESPACE/NAME, KIND/NAME of a tree, or NAMESPACE/POD."""
    first, _, rest = what.partition("/")
    if name is not None:
        kind, key = what, name
    elif ("/" in rest and is_kind(client, first)) or (rest and first.lower() in {"quotatree", "quotatrees"}):
        kind, key = first, rest
    else:
        kind, key = "pod", what
    if kind.lower() not in PODS:
        return kind, key
    if "/" not in key and not namespace:
        fail(f"{what!r:.120} names no pod: write NAMESPACE/POD; for a quota: quota NAME; `bursar get pods` lists pods")
    return kind, pod_keys([key], namespace)[0]


def quota_text(found: types.QuotaExplanations) -> list[str]:
    """The explanations of quotas for people."""
    lines: list[str] = []
    for item in found.items:
        lines += [*([""] if lines else []), *_outline(item.tree, "")]
    return lines


def _outline(check: types.CheckNode, indent: str) -> list[str]:
    """What failed is marked; what holds needs no mark."""
    mark = "" if check.passed else painted("FAIL", "FAIL") + " "
    note = f": {check.note}" if check.note else ""
    code = f" [{check.reason}]" if check.reason else ""
    first, *more = wrapped(f"{check.title}{note}{code}", len(indent) + (0 if check.passed else 5))
    lines = [f"{indent}{mark}{first}", *more]
    for child in check.checks:
        lines.extend(_outline(child, indent + "  "))
    return lines


def text(found: types.Explanation, *, wide: bool, searched: bool) -> list[str]:
    """The explanation for people: the answer, what helps, and then the checks behind it."""
    lines = [*wrapped(answer(found), 0), *_fixes(found, searched=searched)]
    checks = tree_text(found, wide=wide)[1:]  # without its heading, which is the answer
    return [*lines, "", "Checks:", *(f"  {line.removeprefix('  ')}" for line in checks)] if checks else lines


def answer(found: types.Explanation) -> str:
    """One sentence: where the claim is, and what it waits for or was evicted for."""
    claim = found.claim
    key = f"{claim.namespace}/{claim.name}" if claim.namespace else claim.name
    first = _first_failing(found.tree)
    if claim.waits_for:
        return f"{key} has a place on {claim.node}, and waits for {', '.join(claim.waits_for)} to leave."
    where = f" on {claim.node}" if claim.node and claim.state != "pending" else ""
    state = claim.phase.lower() if claim.state == "gone" else claim.state
    head = f"{key} is {state}{where}"
    if first is not None and claim.state == "pending":
        return f"{head}: {_said(first)}  [{first.reason or claim.reason}]"
    if claim.message and claim.reason:
        return f"{head}: {claim.message}  [{claim.reason}]"
    return f"{head}, on quota that others lend" if claim.borrowing else head


def _said(check: types.CheckNode) -> str:
    return f"{check.title}: {check.note}" if check.note else check.title


def _first_failing(check: types.CheckNode) -> types.CheckNode | None:
    """The check that is the one to fix."""
    if check.binding:
        return check
    return next((found for child in check.checks if (found := _first_failing(child)) is not None), None)


def _fixes(found: types.Explanation, *, searched: bool) -> list[str]:
    lines: list[str] = []
    if found.fixes:
        lines += ["", "What would let it in (each was tried):"]
        for number, fix in enumerate(found.fixes, 1):
            when = f" (at {fix.ends_at})" if fix.ends_at else ""
            first, *more = wrapped(f"{fix.sentence}{when}  [{fix.code}]", 5)
            lines += [f"  {number}. {first}", *more]
    elif searched and found.claim.state == "pending" and found.fixes_complete:
        lines += ["", "No change of one thing was found that would let it in now."]
    if not found.fixes_complete:
        lines += ["", "The search for fixes was ended early: there may be more."]
    return lines


def tree_text(found: types.Explanation, *, wide: bool = False) -> list[str]:
    """The checks; what is below a check that passed is left out unless it is to be wide."""
    return _tree(found.tree, "", wide=wide)


def _tree(check: types.CheckNode, indent: str, *, wide: bool) -> list[str]:
    word = "ok" if check.passed else "FAIL"
    mark = " <- first" if check.binding else ""
    # What was said when it was last tried is older than the checks below it, which were made now.
    outdated = not indent and any(not child.passed for child in check.checks)
    note = f": {check.note}" if check.note and not outdated else ""
    code = f" [{check.reason}]" if check.reason else ""
    first, *more = wrapped(f"{mark} {check.title}{note}{code}".lstrip(), len(indent) + 5)
    lines = [f"{indent}{painted(word.ljust(4), word)} {first}", *more]
    for child in check.checks:
        if wide or not check.passed or not indent:
            lines.extend(_tree(child, indent + "  ", wide=wide))
    return lines


LAST = 8


@click.command()
@click.argument("objects", nargs=-1, required=True, metavar="KIND/NAMESPACE/NAME", shell_complete=complete_reference)
@click.option("-n", "--namespace", default="", help="The namespace of names that have none.")
@at_option
@output_option
@asks
def describe(objects: tuple[str, ...], namespace: str, at: str, output: str, target: Target) -> None:
    """Show everything about an object: its manifest, what uses it, why it is so, and what happened to it.

    KIND NAME... works as well, `quota` is any quota, and namespace/name alone is a pod.
    """
    with target.open(past=bool(at)) as client:
        named = references(client, objects, namespace or target.own_namespace)
        if output in MACHINES:
            for kind, key in named:
                echo(machine(client.object(kind, key, at=at), output))
            return
        for number, (kind, key) in enumerate(named):
            echo([*([""] if number else []), *_described(client, kind, key, at)])


def _described(client: Client, kind: str, key: str, at: str) -> list[str]:
    body = client.object(kind, key, at=at)
    manifest = "\n".join(machine(body, "yaml"))
    about = _pod(client, key, at) if body.get("kind") == "Pod" else _used_by(client, body, key, at)
    heading = [f"{body.get('kind')} {key}", "", textwrap.indent(manifest, "  ")]
    return [*heading, *about, *_happened(client, kind, key)]


def _pod(client: Client, key: str, at: str) -> list[str]:
    from bursar.server.client import RequestFailedError

    namespace, _, name = key.rpartition("/")
    try:
        found = client.explain(namespace, name, at=at)
    except RequestFailedError as error:
        if error.status != 404:
            raise
        return []
    return ["", "Why:", *(f"  {line}" for line in tree_text(found))]


def _used_by(client: Client, body: dict[str, Any], key: str, at: str) -> list[str]:
    """The rows about it in the tables; of a quota also why it has what it has."""
    query = {"at": at} if at else {}
    if body.get("kind") == "Node":
        rows = listing(client, ListQuery("nodes", (key,), query, 0), "table")
        claims = listing(client, ListQuery("pods", (), {**query, "node": key}, 0), "table")
        return ["", *rows, "", *claims]
    kind = ".".join(part for part in (body.get("kind"), str(body.get("apiVersion")).rpartition("/")[0]) if part)
    if not any(row_key(row) == key for row in pages(client.quotas, {**query, "kind": kind}).items):
        return []
    rows = listing(client, ListQuery("quotas", (key,), query, 0), "table")
    why = quota_text(client.explain_quota(kind, key, at=at))
    return ["", *rows, "", "Why:", *(f"  {line}".rstrip() for line in why)]


def _happened(client: Client, kind: str, key: str) -> list[str]:
    found = client.history(kind, key)
    lines = ["", "History:"]
    for version in found.items[-LAST:]:
        fields = field_lines(version.fields)
        more = f": {fields[0]}{f' (and {len(fields) - 1} more)' if len(fields) > 1 else ''}" if fields else ""
        lines.append(f"  {version.time}  {version.result}{more}")
    return lines


CHUNK = 500


@click.command()
@click.argument("objects", nargs=-1, metavar="[KIND/NAMESPACE/NAME]", shell_complete=complete_reference)
@click.option("-n", "--namespace", default="", help="The namespace of a name that has none.")
@click.option(
    "--since", metavar="TIME", default="", help="Only what happened after this moment (-1h, a time, a record)."
)
@click.option("--at", metavar="TIME", default="", help="Print the object as it was at this moment.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many decisions.")
@output_option
@asks
def history(
    objects: tuple[str, ...], namespace: str, since: str, at: str, limit: int, output: str, target: Target
) -> None:
    """Show what happened: decisions and changes, the newest first; or all versions of one object.

    KIND NAME works as well, and namespace/name alone is a pod. What differs between two moments: `bursar diff`.
    """
    if at and not objects:
        raise click.UsageError("--at wants an object; for the rest: bursar get WHAT --at TIME")
    with target.open(past=True) as client:
        named = references(client, objects, namespace or target.own_namespace) if objects else []
        if len(named) > 1:
            fail("history is of one object at a time")
        if not named:
            _change_happened(client, since, limit, output)
        elif at:
            echo(machine(client.object(*named[0], at=at), "json" if output == "json" else "yaml"))
        else:
            _of_object(client, *named[0], since, limit, output)


def _change_happened(client: Client, since: str, limit: int, output: str) -> None:
    first = _record_after(client, since)
    rows: list[types.DecisionRow] = []
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


def _record_after(client: Client, since: str) -> int:
    """The last record that is too old."""
    return client.objects(at=since, kind="Namespace", limit=1).moment.seq if since else 0


def _of_object(client: Client, kind: str, key: str, since: str, limit: int, output: str) -> None:
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
        by = f" by {version.actor}" if version.actor else ""
        number = f"version {version.resource_version}{f', change {version.change}' if version.change else ''}"
        lines.append(f"{version.time}  {painted(version.result, version.result)}{by} ({number})")
        lines.extend(f"    {line}" for line in field_lines(version.fields))
    if decisions:
        lines += ["", *table(EVENT_COLUMNS, [event_row(row, output) for row in decisions], wide=output == "wide")]
    echo_fitted(lines or ["nothing happened to it since then"])
