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
from bursar.server.requests import RequestQuery, label_filter
from bursar.server.rows import claim_rows, gpu_rows, labels_of, node_rows, queue_rows, stored_objects
from bursar.server.service import Service
from bursar.server.time_travel import MomentError, Revision, moment_of
from bursar.sim.cluster import Cluster
from bursar.store.schema import StoreError

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
            named = sorted((f"{stored.kind.name} {stored.key}", stored) for stored in known)
            found = [(name, stored) for name, stored in named if name > after and matches(labels_of(stored))]
            shown = found[: asked.limit]
            last = shown[-1][0] if shown else ""
            return [stored.manifest() for _, stored in shown], len(found) - len(shown), last

        return part

    return take


def _claims(asked: RequestQuery) -> Take[types.ClaimRow]:
    matches = label_filter(asked.text("label"))
    quota = asked.text("quota")

    def take(cluster: Cluster, after: str) -> Part[types.ClaimRow]:
        account = _account(cluster, quota) if quota else ""

        def keep(row: types.ClaimRow) -> bool:
            return (not account or account in row.quotas) and matches(row.labels)

        rows, remaining = claim_rows(cluster, after, asked.limit, _wanted(asked), keep)
        last = claim_key(rows[-1].namespace, rows[-1].name) if rows else ""
        return lambda: (rows, remaining, last)

    return take


def _account(cluster: Cluster, quota: str) -> str:
    """The account of that name; if there is none, the text itself, which selects nothing."""
    found = quota_views.accounts_called(cluster, quota)
    if len(found) > 1:
        raise RefusedError(400, f"the quota {quota!r:.200} may be {' or '.join(found)}: say which")
    return found[0] if found else quota


def claim_key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


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


T = TypeVar("T")
Look = Callable[[Cluster], T]


class Reader:
    def __init__(self, service: Service) -> None:
        self._service = service

    def look(self, look: Look[T], at: str = "") -> T:
        found, written = self._service.read(look, at)
        if written is not None:
            written.result()
        return found

    def page(self, asked: RequestQuery, take: Take[Row]) -> Any:  # noqa: ANN401 of the operation's type
        """A page after what the token says, of the token's moment, with the token of the next one."""
        token, at, make = asked.text("continue"), asked.text("at"), cast("Any", asked.operation.answer)
        if not token:
            rows, moment = self.look(lambda cluster: (take(cluster, ""), moment_of(cluster)), at)
            start = self._service.moment(at) if at else None
        else:
            page = read_token(token)
            start = page.moment
            rows, moment = self._again(page, lambda cluster: (take(cluster, page.after), moment_of(cluster)))
        items, remaining, last = rows()
        if not remaining:
            return make(items=items, moment=moment, remaining=0, next="")
        when = start.at if start is not None else self._service.cluster.now()
        following = PageToken(moment.seq, int(moment.resource_version), when, last)
        return make(items=items, moment=moment, remaining=remaining, next=following.token())

    def _again(self, page: PageToken, look: Look[T]) -> T:
        """The state of an earlier page: the present one if nothing changed since, else from the archive."""
        service = self._service
        with service.lock:
            now = service.cluster
            if (now.engine.version, now.objects.version) == (page.seq, page.version):
                return look(now)
        if page.seq > service.store.last_seq:
            raise RefusedError(400, "the parameter continue is not what a page before gave")
        try:
            return service.read_past(look, page.moment)
        except (MomentError, StoreError) as error:
            raise RefusedError(410, str(error)) from None
