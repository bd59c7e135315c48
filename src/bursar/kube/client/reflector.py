"""The reflector keeps a store equal to a collection on the server.

It lists, then watches from where the list ended. Lists are streamed where the server supports it (objects come as
watch events, ended by an annotated bookmark), else read in pages. Rules:

* The version to continue from is that of the last event or bookmark, or of a complete list, never one inside a list.
* 410, as a status or as an event, causes a relist. So does a watch that fails three times without progress.
* 404 means that an optional resource is gone.
* A connection that is silent for ``silence`` seconds is dead: servers send bookmarks about once a minute.
* Back-off after failures grows, is jittered, and starts small again after a calm minute.
* Work is done in slices, so that a list of thousands of objects does not block the event loop.
* An error of the handler is a bug and ends ``run``. Errors of the server never do.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import Generic, NamedTuple, TypeVar

import msgspec

from bursar.kube.client.api import Api, Query, Resource
from bursar.kube.client.connections import Connection, Lines
from bursar.kube.client.errors import ApiError, BadRequest, Gone, Invalid, KubeError, Malformed, NotFound, Unanswered
from bursar.kube.client.http import Backoff, Call, apart
from bursar.kube.client.models import Meta, meta_of, read_any
from bursar.kube.client.watch import (
    DELETED,
    Bookmark,
    Decode,
    Following,
    Handler,
    Progress,
    Typed,
    WatchEvent,
    WatchStore,
    read_event,
)

T = TypeVar("T")
log = logging.getLogger(__name__)

SLICE = 100
STUCK = 3  # failures in a row, without getting on, after which the version is given up and the collection relisted
CALM = 60.0  # seconds without a failure after which the pauses start small again
BUSY = 64 * 1024  # bytes in one read after which the next follows at once
CONNECTING = 30.0  # seconds within which a watch must have begun to answer


class _Waiter(NamedTuple):
    after: int  # satisfied by a list that was begun later than this many
    done: asyncio.Future[None]


class Reflector(Generic[T]):
    """Follows one collection. ``run`` it in a task; the handler is called from there."""

    def __init__(
        self, api: Api, resource: Resource, decode: Decode[T], handler: Handler[T], how: Following | None = None
    ) -> None:
        self.resource = resource
        self.store: WatchStore[T] = WatchStore(decode, handler)
        self._typed = decode if isinstance(decode, Typed) else None
        self.progress = Progress()
        self._api = api
        self._how = how or Following()
        self._path = resource.path(self._how.namespace)
        self._call = Call("watch", resource.group, resource.plural)
        self._streaming = self._how.stream_lists
        self._version: str | None = None  # to continue from; None: list first
        self._seen: set[str] | None = None  # keys of the list under way
        self._begun = 0  # lists
        self._stuck = 0
        self._failed_at = 0.0
        self._backoff = Backoff(self._how.pause, self._how.longest_pause)
        self._synced = asyncio.Event()
        self._waiters: list[_Waiter] = []
        self._hurry = asyncio.Event()  # a caller waits for a new list
        self._patience: asyncio.Timeout | None = None  # of the connection that is being read

    @property
    def synced(self) -> bool:
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Return when the first list is complete."""
        await self._synced.wait()

    async def refresh(self) -> None:
        """Relist. Returns when a list that began after this call is complete and the handler has it."""
        waiter = _Waiter(self._begun, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self._hurry.set()
        if self._patience is not None and not self._patience.expired():
            self._patience.reschedule(0.0)
        await waiter.done

    async def run(self) -> None:
        """Follow the collection until cancelled."""
        while True:
            if self._hurry.is_set():
                self._hurry.clear()
                self._version = None
            started, before = time.monotonic(), self.progress.counts["events"]
            try:
                await self._connect()
            except KubeError as error:
                await self._failed(error)
            else:  # ended by the server, by silence, or by a caller in a hurry
                idle = self.progress.counts["events"] == before and time.monotonic() - started < 1.0
                if idle and not self._hurry.is_set():
                    await self._rest(self._backoff.next())

    async def _failed(self, error: KubeError) -> None:
        self.progress.counts["failures"] += 1
        if time.monotonic() - self._failed_at > CALM:
            self._backoff.reset()
        self._failed_at = time.monotonic()
        pause = self._backoff.next()
        if isinstance(error, Gone):
            log.info("%s: relisting: %s", self._path, error)
            self._version = None
        elif isinstance(error, Invalid | BadRequest) and self._version is None and self._streaming:
            log.info("%s: the server streams no lists (%s): reading pages", self._path, error)
            self._streaming = False
            return
        elif isinstance(error, NotFound) and self._how.optional and await self._is_absent():
            self._absent()
        else:
            self._note(error)
        if isinstance(error, ApiError) and error.retry_after is not None:
            pause = max(pause, apart(min(error.retry_after, self._how.longest_pause)))
        await self._rest(pause)

    async def _is_absent(self) -> bool:
        """Whether the resource is gone; checked only if the store has objects to lose."""
        return not len(self.store) or await self._api.lacks(self.resource)

    def _absent(self) -> None:
        self._version = None
        self.progress.problem = ""
        if len(self.store) or self._waiters or not self.synced:
            self._begin_list()
            self._end_list()

    def _note(self, error: KubeError) -> None:
        self.progress.problem = str(error)
        problem = self.progress.problem  # a failed call names the path already
        log.warning("%s", problem if self._path in problem else f"{self._path}: {problem}")
        self._stuck += 1
        if self._stuck >= STUCK:
            self._version = None
            self._stuck = 0

    async def _rest(self, pause: float) -> None:
        try:
            async with asyncio.timeout(pause):
                await self._hurry.wait()
        except TimeoutError:
            pass

    async def _connect(self) -> None:
        if self._version is None and not self._streaming:
            await self._list_pages()
        listing = self._version is None
        if listing:
            self._begin_list()
        query = self._query(listing)
        self.progress.counts["connections"] += 1
        patience = min(self._how.silence, CONNECTING)
        async with self._api.http.stream(self._call, self._path, query, patience=patience) as content:
            if not listing:
                self.progress.problem = ""  # the server goes on from where this watch was
            try:
                async with asyncio.timeout(self._how.silence) as self._patience:
                    await self._read(content, self._patience)
            except TimeoutError:
                self.progress.counts["silences"] += not self._hurry.is_set()
            except OSError as error:
                raise Unanswered(f"watch {self._path}: {str(error) or type(error).__name__}", sent=False) from error
            finally:
                self._patience = None
        if self._version is None and not self._hurry.is_set():
            raise Unanswered(f"watch {self._path}: the list ended before it was complete", sent=False)

    def _query(self, listing: bool) -> Query:
        seconds = random.randint(300, 600)  # noqa: S311 keeps many watches from ending at once
        query: Query = (
            *self._how.select.query(),
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(seconds)),
        )
        if listing:
            return (*query, ("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan"))
        return (*query, ("resourceVersion", self._version or ""))

    async def _read(self, content: Connection, patience: asyncio.Timeout) -> None:
        lines = Lines()
        now = asyncio.get_running_loop().time
        taken = 0
        # Moving the deadline with each piece would cost more than most pieces, so it is moved less often.
        longest = self._how.silence * 17 / 16
        put_off = 0.0
        if self._hurry.is_set():  # since before this connection was opened
            return
        while piece := await content.piece():
            for line in lines.feed(piece):
                self._take(line)
                taken += 1
                if taken % SLICE == 0:
                    await asyncio.sleep(0)
            if self._hurry.is_set():
                return
            at = now()
            if at >= put_off:
                patience.reschedule(at + longest)
                put_off = at + longest - self._how.silence
            if len(piece) < BUSY and self._seen is None:
                await content.rest(self._how.rest)

    def _take(self, line: bytes) -> None:
        found = self._event(line)
        if isinstance(found, Bookmark):
            self._take_bookmark(found)
        else:
            self._take_event(*found)

    def _event(self, line: bytes) -> WatchEvent[T] | Bookmark:
        found = None if self._typed is None else self._typed.line(line)
        return read_any(lambda line: read_event(line, self._path), line)[0] if found is None else found

    def _take_event(self, type_: str, meta: Meta, item: T | None, raw: bytes | msgspec.Raw) -> None:
        """An object, read already or (None) to be read."""
        gone = type_ == DELETED
        if gone:
            self.store.remove(meta, raw, item)
        else:
            self.store.put(meta, raw, item)
        if self._seen is None:
            self._version = meta.resource_version
        elif gone:
            self._seen.discard(meta.key)
        else:
            self._seen.add(meta.key)
        self._got_on("events")

    def _take_bookmark(self, bookmark: Bookmark) -> None:
        if self._seen is not None:
            if not bookmark.ends_list:
                return
            self._end_list()
        self._version = bookmark.resource_version
        self._got_on("bookmarks")

    def _got_on(self, what: str) -> None:
        self.progress.counts[what] += 1
        self.progress.problem = ""
        self._stuck = 0

    async def _list_pages(self) -> None:
        """A list in pages; unpaged if it takes so long that its continue token expires."""
        self._begin_list()
        try:
            self._version = await self._take_pages(self._how.page)
        except Gone:
            self._begin_list()
            self._version = await self._take_pages(0)
        self._end_list()

    async def _take_pages(self, limit: int) -> str:
        seen = self._seen if self._seen is not None else set()
        version = ""
        async for page in self._api.pages(self.resource, self._how.namespace, self._how.select, limit=limit):
            version = version or page.metadata.resource_version
            if not version:
                raise Malformed(f"list {self._path}: no list, because it has no resourceVersion")
            for index, item in enumerate(page.items or ()):
                try:
                    meta, raw = read_any(meta_of, bytes(item))
                except msgspec.DecodeError as error:
                    raise Malformed(f"list {self._path}: {error}") from None
                self.store.put(meta, raw)
                seen.add(meta.key)
                self.progress.counts["events"] += 1
                if index % SLICE == SLICE - 1:
                    await asyncio.sleep(0)
        return version

    def _begin_list(self) -> None:
        self._begun += 1
        self._seen = set()

    def _end_list(self) -> None:
        seen, self._seen = self._seen or set(), None
        self.progress.counts["swept"] += self.store.sweep(seen)
        self.progress.counts["lists"] += 1
        self._got_on("listed")
        self._synced.set()
        waiting = [waiter for waiter in self._waiters if waiter.after >= self._begun]
        for waiter in self._waiters:
            if waiter.after < self._begun and not waiter.done.done():
                waiter.done.set_result(None)
        self._waiters = waiting
