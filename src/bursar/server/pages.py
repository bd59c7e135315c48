"""The lists of the API, in pages.

All pages of a list are of the moment of the first one, whatever has changed since: the token of a page holds that
moment and where the next page begins. The cluster's lock is held while the rows are collected. Objects and the figures
of quotas cannot change afterwards, so their rows are made without the lock.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import msgspec

from bursar.objects.decode import ManifestError
from bursar.server import quotas as quota_views
from bursar.server import types
from bursar.server.problems import RefusedError
from bursar.server.request_query import RequestQuery, key_of, label_filter
from bursar.server.rows import claim_rows, gpu_rows, labels_of, node_rows, queue_rows, stored_objects
from bursar.server.time_travel import Revision, moment_of
from bursar.sim.cluster import Cluster

Row = TypeVar("Row")
Rows = tuple[list[Row], int, str]  # a page, how many more there are, and what the next one comes after
Part = Callable[[], Rows[Row]]  # makes a page without the lock
Take = Callable[[Cluster, str], Part[Row]]  # notes under the lock what the page after a text is made of
_FIELDS = ("kind", "namespace", "policy", "phase", "node")


def _objects(asked: RequestQuery) -> Take[dict[str, Any]]:
    namespace, matches = asked.text("namespace"), label_filter(asked.text("label"))

    def take(cluster: Cluster, after: str) -> Part[dict[str, Any]]:
        known = stored_objects(cluster, _kind(cluster, asked), namespace or None)

        def part() -> Rows[dict[str, Any]]:
            named = sorted((object_name(stored.kind.name, stored.key), stored) for stored in known)
            found = [(name, stored) for name, stored in named if name > after and matches(labels_of(stored))]
            shown = found[: asked.limit]
            last = shown[-1][0] if shown else ""
            return [stored.manifest() for _, stored in shown], len(found) - len(shown), last

        return part

    return take


def object_name(kind: str, key: str) -> str:
    """What a list of objects is in the order of."""
    return f"{kind} {key}"


def _claims(asked: RequestQuery) -> Take[types.ClaimRow]:
    matches = label_filter(asked.text("label"))
    quota = asked.text("quota")

    def take(cluster: Cluster, after: str) -> Part[types.ClaimRow]:
        account = _account(cluster, quota) if quota else ""

        def keep(row: types.ClaimRow) -> bool:
            return (not account or account in row.quotas) and matches(row.labels)

        rows, remaining = claim_rows(cluster, after, asked.limit, _wanted(asked), keep)
        last = key_of(rows[-1].namespace, rows[-1].name) if rows else ""
        return lambda: (rows, remaining, last)

    return take


def _account(cluster: Cluster, quota: str) -> str:
    """The account of that name; if there is none, the text itself, which selects nothing."""
    found = quota_views.accounts_called(cluster, quota)
    if len(found) > 1:
        raise RefusedError(400, f"the quota {quota!r:.200} may be {' or '.join(found)}: say which")
    return found[0] if found else quota


def _quotas(asked: RequestQuery) -> Take[types.QuotaRow]:
    def read(cluster: Cluster) -> Callable[[], Iterable[types.QuotaRow]]:
        gathered = quota_views.gather(cluster)
        return lambda: map(quota_views.row, gathered.quotas())

    return _table(asked, read)


def _made(make: Callable[[Cluster], Iterable[Row]]) -> Callable[[RequestQuery], Take[Row]]:
    """A table whose rows can only be made under the cluster's lock."""

    def read(cluster: Cluster) -> Callable[[], Iterable[Row]]:
        rows = list(make(cluster))
        return lambda: rows

    return lambda asked: _table(asked, read)


def _table(asked: RequestQuery, read: Callable[[Cluster], Callable[[], Iterable[Row]]]) -> Take[Row]:
    """A page of a table that is made as a whole."""
    matches = label_filter(asked.text("label"))

    def take(cluster: Cluster, after: str) -> Part[Row]:
        wanted, rows = _wanted(asked), read(cluster)
        if "kind" in wanted:
            wanted["kind"] = _kind(cluster, asked)
        begin = int(after) if after.isdecimal() else 0

        def part() -> Rows[Row]:
            found = [
                row
                for row in rows()
                if all(getattr(row, name) == value for name, value in wanted.items())
                and matches(getattr(row, "labels", {}))
            ]
            shown = found[begin : begin + asked.limit]
            return shown, max(0, len(found) - begin - len(shown)), str(begin + len(shown))

        return part

    return take


def _wanted(asked: RequestQuery) -> dict[str, str]:
    """The fields of a row that the request gives a value for."""
    return {name: asked.text(name) for name in _FIELDS if asked.text(name)}


def _kind(cluster: Cluster, asked: RequestQuery) -> str:
    try:
        return cluster.kind_listed(asked.text("kind")).name if asked.text("kind") else ""
    except ManifestError as error:
        raise RefusedError(400, str(error)) from None


LISTS: dict[str, Callable[[RequestQuery], Take[Any]]] = {
    "objects": _objects,
    "claims": _claims,
    "quotas": _quotas,
    "nodes": _made(node_rows),
    "gpus": _made(gpu_rows),
    "queue": _made(queue_rows),
}


class PageToken(msgspec.Struct, array_like=True, frozen=True):
    seq: int
    version: int
    at: int
    after: str

    @property
    def moment(self) -> Revision:
        return Revision(self.seq, self.version, self.at)

    def token(self) -> str:
        return urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


def read_token(token: str) -> PageToken:
    try:
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        page = msgspec.json.decode(urlsafe_b64decode(padded), type=PageToken)
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise RefusedError(400, "the parameter continue is not what a page before gave") from None
    if min(page.seq, page.version, page.at) < 0 or max(page.seq, page.version, page.at) >= 2**62:
        raise RefusedError(400, "the parameter continue is not what a page before gave")
    return page


def page(asked: RequestQuery, cluster: Cluster, after: str = "", at: int | None = None) -> Callable[[], Any]:
    """Notes what the page after a text is made of; the caller holds the cluster's lock. The result makes the page.

    ``at``: the time that the next page asks for, if it is not the cluster's.
    """
    part = LISTS[asked.operation.name](asked)(cluster, after)
    moment, when = moment_of(cluster), cluster.now() if at is None else at
    return lambda: made_page(asked, part(), moment, when)


def made_page(asked: RequestQuery, rows: Rows[Any], moment: types.Moment, when: int) -> Any:  # noqa: ANN401 of the operation's type
    items, remaining, last = rows
    make = cast("Any", asked.operation.answer)
    if not remaining:
        return make(items=items, moment=moment, remaining=0, next="")
    following = PageToken(moment.seq, int(moment.resource_version), when, last)
    return make(items=items, moment=moment, remaining=remaining, next=following.token())
