"""Looking at a service's cluster, of now or of a moment, for one request: as a whole, or a list page by page.

The look itself runs in a worker thread under the cluster's lock; what it saw is answered when it is durable. All pages
of a list are of the moment of the first one, whatever has changed since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from bursar.server import answers
from bursar.server.asking import Asked
from bursar.server.lists import Take
from bursar.server.moments import MomentError, moment_of
from bursar.server.paging import Page, read_token
from bursar.server.problems import RefusedError
from bursar.server.service import Service
from bursar.server.threads import in_thread
from bursar.sim.cluster import Cluster
from bursar.store.errors import StoreError

T = TypeVar("T")
Row = TypeVar("Row")
Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)
Look = Callable[[Cluster], T]


class ListType(Protocol[Row, Answer_co]):
    """The type of a list of rows, called to make one."""

    def __call__(self, *, items: list[Row], moment: answers.Moment, remaining: int, next: str) -> Answer_co: ...  # noqa: A002 as answers name it


class Reader:
    """Looks at the cluster of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def look(self, look: Look[T], at: str = "") -> T:
        found, written = await in_thread(self._service.read, look, at)
        await durable(written)
        return found

    async def page(self, asked: Asked, take: Take[Row], make: ListType[Row, Answer]) -> Answer:
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
        following = Page(moment.seq, int(moment.resource_version), when, last)
        return make(items=items, moment=moment, remaining=remaining, next=following.token())

    def _again(self, page: Page, look: Look[T]) -> T:
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
