"""The lists of the API: which rows of a cluster a request asks for, and which of them are on a page.

What rows are made of is noted under the cluster's lock. Where what was noted cannot change afterwards (objects, the
figures of quotas) the rows are made without the lock, so that a long list keeps nobody waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from bursar.server import answers, views
from bursar.server import quotas as quota_views
from bursar.server.asking import Asked, label_filter
from bursar.server.problems import RefusedError
from bursar.sim.cluster import Cluster

Row = TypeVar("Row")
Rows = tuple[list[Row], int, str]  # a page, how many more there are, and what the next one comes after
Part = Callable[[], Rows[Row]]  # makes a page without the lock
Take = Callable[[Cluster, str], Part[Row]]  # notes under the lock what the page after a text is made of


def objects(asked: Asked, kind: str) -> Take[dict[str, Any]]:
    namespace, matches = asked.text("namespace"), label_filter(asked.text("label"))

    def take(cluster: Cluster, after: str) -> Part[dict[str, Any]]:
        known = views.stored_objects(cluster, kind, namespace or None)

        def part() -> Rows[dict[str, Any]]:
            named = sorted((f"{stored.kind.name} {stored.key}", stored) for stored in known)
            found = [(name, stored) for name, stored in named if name > after and matches(views.labels_of(stored))]
            shown = found[: asked.limit]
            last = shown[-1][0] if shown else ""
            return [stored.manifest() for _, stored in shown], len(found) - len(shown), last

        return part

    return take


def claims(asked: Asked) -> Take[answers.ClaimRow]:
    matches = label_filter(asked.text("label"))
    wanted = _given(asked, "namespace", "phase", "node")
    quota = asked.text("quota")

    def take(cluster: Cluster, after: str) -> Part[answers.ClaimRow]:
        account = _account(cluster, quota) if quota else ""

        def keep(row: answers.ClaimRow) -> bool:
            return (not account or account in row.quotas) and matches(row.labels)

        rows, remaining = views.claim_rows(cluster, after, asked.limit, wanted, keep)
        last = claim_key(rows[-1].namespace, rows[-1].name) if rows else ""
        return lambda: (rows, remaining, last)

    return take


def _account(cluster: Cluster, quota: str) -> str:
    """The account that is called so; if there is none, what was asked for, in which nobody counts."""
    found = quota_views.accounts_called(cluster, quota)
    if len(found) > 1:
        raise RefusedError(400, f"the quota {quota!r:.200} may be {' or '.join(found)}: say which")
    return found[0] if found else quota


def claim_key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def quotas(asked: Asked, kind: str) -> Take[answers.QuotaRow]:
    wanted = _given(asked, "namespace", "policy") | ({"kind": kind} if kind else {})

    def take(cluster: Cluster) -> Callable[[], list[answers.QuotaRow]]:
        gathered = quota_views.gather(cluster)

        def rows() -> list[answers.QuotaRow]:
            found = (quota_views.row(quota) for quota in gathered.quotas())
            return [row for row in found if all(getattr(row, name) == value for name, value in wanted.items())]

        return rows

    return _cut(asked, take)


def nodes(asked: Asked) -> Take[answers.NodeRow]:
    matches = label_filter(asked.text("label"))
    return _made(asked, lambda cluster: [row for row in views.node_rows(cluster) if matches(row.labels)])


def gpus(asked: Asked) -> Take[answers.GpuRow]:
    node = asked.text("node")
    return _made(asked, lambda cluster: [row for row in views.gpu_rows(cluster) if not node or row.node == node])


def queue(asked: Asked) -> Take[answers.QueueRow]:
    namespace = asked.text("namespace")
    return _made(
        asked, lambda cluster: [row for row in views.queue_rows(cluster) if not namespace or row.namespace == namespace]
    )


def _given(asked: Asked, *names: str) -> dict[str, str]:
    return {name: asked.text(name) for name in names if asked.text(name)}


def _made(asked: Asked, look: Callable[[Cluster], list[Row]]) -> Take[Row]:
    """A page of a table whose rows can only be made under the cluster's lock."""

    def take(cluster: Cluster) -> Callable[[], list[Row]]:
        rows = look(cluster)
        return lambda: rows

    return _cut(asked, take)


def _cut(asked: Asked, take: Callable[[Cluster], Callable[[], list[Row]]]) -> Take[Row]:
    """A page of a table that is made as a whole."""

    def take_part(cluster: Cluster, after: str) -> Part[Row]:
        begin = int(after) if after.isdecimal() else 0
        rows = take(cluster)

        def part() -> Rows[Row]:
            found = rows()
            shown = found[begin : begin + asked.limit]
            return shown, max(0, len(found) - begin - len(shown)), str(begin + len(shown))

        return part

    return take_part
