"""Looking at a service's cluster, of now or of a moment, for one request: as a whole, or a list page by page.

The look itself runs in a worker thread under the cluster's lock; what it saw is answered when it is durable. All pages
of a list are of the moment of the first one, whatever has changed since.

The lists of the API: which rows of a cluster a request asks for, and which of them are on a page.

What rows are made of is noted under the cluster's lock. Where what was noted cannot change afterwards (objects, the
figures of quotas) the rows are made without the lock, so that a long list keeps nobody waiting.

Pages of lists: a token names the moment that the first page was of, and where the next one begins.
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

import msgspec

from bursar.server import quotas as quota_views
from bursar.server import types
from bursar.server.problems import RefusedError, in_thread
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


def objects(asked: RequestQuery, kind: str) -> Take[dict[str, Any]]:
    namespace, matches = asked.text("namespace"), label_filter(asked.text("label"))

    def take(cluster: Cluster, after: str) -> Part[dict[str, Any]]:
        known = stored_objects(cluster, kind, namespace or None)

        def part() -> Rows[dict[str, Any]]:
            named = sorted((f"{stored.kind.name} {stored.key}", stored) for stored in known)
            found = [(name, stored) for name, stored in named if name > after and matches(labels_of(stored))]
            shown = found[: asked.limit]
            last = shown[-1][0] if shown else ""
            return [stored.manifest() for _, stored in shown], len(found) - len(shown), last

        return part

    return take


def claims(asked: RequestQuery) -> Take[types.ClaimRow]:
    matches = label_filter(asked.text("label"))
    wanted = _given(asked, "namespace", "phase", "node")
    quota = asked.text("quota")

    def take(cluster: Cluster, after: str) -> Part[types.ClaimRow]:
        account = _account(cluster, quota) if quota else ""

        def keep(row: types.ClaimRow) -> bool:
            return (not account or account in row.quotas) and matches(row.labels)

        rows, remaining = claim_rows(cluster, after, asked.limit, wanted, keep)
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


def quotas(asked: RequestQuery, kind: str) -> Take[types.QuotaRow]:
    wanted = _given(asked, "namespace", "policy") | ({"kind": kind} if kind else {})

    def take(cluster: Cluster) -> Callable[[], list[types.QuotaRow]]:
        gathered = quota_views.gather(cluster)

        def rows() -> list[types.QuotaRow]:
            found = (quota_views.row(quota) for quota in gathered.quotas())
            return [row for row in found if all(getattr(row, name) == value for name, value in wanted.items())]

        return rows

    return _cut(asked, take)


def nodes(asked: RequestQuery) -> Take[types.NodeRow]:
    matches = label_filter(asked.text("label"))
    return _made(asked, lambda cluster: [row for row in node_rows(cluster) if matches(row.labels)])


def gpus(asked: RequestQuery) -> Take[types.GpuRow]:
    node = asked.text("node")
    return _made(asked, lambda cluster: [row for row in gpu_rows(cluster) if not node or row.node == node])


def queue(asked: RequestQuery) -> Take[types.QueueRow]:
    namespace = asked.text("namespace")
    return _made(
        asked, lambda cluster: [row for row in queue_rows(cluster) if not namespace or row.namespace == namespace]
    )


def _given(asked: RequestQuery, *names: str) -> dict[str, str]:
    return {name: asked.text(name) for name in names if asked.text(name)}


def _made(asked: RequestQuery, look: Callable[[Cluster], list[Row]]) -> Take[Row]:
    """A page of a table whose rows can only be made under the cluster's lock."""

    def take(cluster: Cluster) -> Callable[[], list[Row]]:
        rows = look(cluster)
        return lambda: rows

    return _cut(asked, take)


def _cut(asked: RequestQuery, take: Callable[[Cluster], Callable[[], list[Row]]]) -> Take[Row]:
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
Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)
Look = Callable[[Cluster], T]


class ListType(Protocol[Row, Answer_co]):
    """The type of a list of rows, called to make one."""

    def __call__(self, *, items: list[Row], moment: types.Moment, remaining: int, next: str) -> Answer_co: ...  # noqa: A002 as answers name it


class Reader:
    """Looks at the cluster of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def look(self, look: Look[T], at: str = "") -> T:
        found, written = await in_thread(self._service.read, look, at)
        await durable(written)
        return found

    async def page(self, asked: RequestQuery, take: Take[Row], make: ListType[Row, Answer]) -> Answer:
        """A page after what the token says, of the token's moment, with the token of the next one."""
        token, at = asked.text("continue"), asked.text("at")
        if not token:
            rows, moment = await self.look(lambda cluster: (take(cluster, ""), moment_of(cluster)), at)
            start = await in_thread(self._service.moment, at) if at else None
        else:
            page = read_token(token)
            start = page.moment
            rows, moment = await in_thread(
                self._again, page, lambda cluster: (take(cluster, page.after), moment_of(cluster))
            )
        items, remaining, last = await in_thread(rows)
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


async def durable(written: Future[int] | None) -> None:
    """Wait until it is on the disk; None: nothing has to be."""
    if written is not None and not written.done():
        await asyncio.wrap_future(written)
    if written is not None:
        written.result()
