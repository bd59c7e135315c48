"""One replica: takes part in the election and leads terms while it holds the lease.

The controller's process has a child that renews the lease (see ``client.election``).

Each term builds a new ledger. A term that ends through drift or a fault is followed by another of the same leader; one
that ends because the lease is lost is not. Shadow mode and dry run take no part in the election and write nothing, not
even events. A leader that shuts down ends its term, writes pending events while it still may, then releases the lease.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field

from bursar.kube.admission.predicate import LEASE
from bursar.kube.client.api import Api, Resource
from bursar.kube.client.election import ClusterAccess, Election, ElectionChild
from bursar.kube.client.errors import Fenced, KubeError
from bursar.kube.client.events import Recorder, Regarding
from bursar.kube.client.http import Backoff
from bursar.kube.client.lease import Elector, Timing
from bursar.kube.controller.leader_term import Fence, LeaderTerm, RebuildNeeded, TermOptions
from bursar.kube.controller.work_queue import LeadershipLost, Notice, cancelled
from bursar.policies.plugin import Registry

log = logging.getLogger(__name__)
CONTROLLER = "bursar.dev/controller"
SHADOW = -1  # the number of a term that is none
_SETTLE = 1.0  # seconds before a term, for writes of the previous leader to arrive
_PAUSE = 2.0  # seconds at most between two terms of one leader; twice as long after each that fails at once
_LONGEST_PAUSE = 60.0
_AT_ONCE = 20.0  # seconds, with the lists that each term begins with
_FLUSH_LIMIT = 3.0  # seconds for unwritten events on shutdown; the next leader waits as long


def own_identity() -> str:
    """A name that no other process has, ever."""
    return f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    term: TermOptions = field(default_factory=TermOptions)
    timing: Timing = field(default_factory=Timing)
    namespace: str = "bursar-system"
    lease: str = LEASE
    settle: float = _SETTLE
    identity: str = field(default_factory=own_identity)
    access: ClusterAccess | None = None  # of a child process that takes part in the election; None: this one does


class Replica:
    def __init__(self, api: Api, registry: Registry, options: ProcessOptions) -> None:
        self.api = api
        self.options = options
        self.term: LeaderTerm | None = None  # while leading
        self.ended: Counter[str] = Counter()  # terms, by why they ended
        self._past_differences = 0  # in terms that are over
        self.recorder = Recorder(api, CONTROLLER, options.identity)
        self._fence = Fence(api, options.namespace, options.lease, options.identity)
        self.election = self._election(options)
        self._registry = registry
        self._leading: asyncio.Task[None] | None = None
        if not options.term.dry_run:
            api.http.gate = self.election.remaining  # in shadow mode too, where it stops every write

    def _election(self, options: ProcessOptions) -> Election:
        names = (options.lease, options.namespace, options.identity)
        start, stop = self._elected, self._deposed
        if options.access is not None:
            http, timing = self.api.http, options.timing
            return ElectionChild(http, options.access, *names, timing=timing, started=start, stopped=stop)
        found = Elector(self.api, *names, timing=options.timing, started=start, stopped=stop)
        found.floor = self._fence.announced
        return found

    async def run(self) -> None:
        """Take part until cancelled."""
        if self.options.term.shadow:
            await self._lead(SHADOW)
        elif self.options.term.dry_run:
            await self._lead(None)
        else:
            await self._take_part()

    async def _take_part(self) -> None:
        recording = asyncio.create_task(self.recorder.run())
        election = asyncio.create_task(self.election.run())
        try:
            await asyncio.shield(election)  # it holds the lease until all events are written
        finally:
            try:
                await self._end_term()
                await self._flush_events()
            finally:
                await cancelled(recording)
                await cancelled(election)
                await self._end_term()  # of another election, meanwhile

    async def _end_term(self) -> None:
        if self._leading is not None:
            await cancelled(self._leading)

    async def _flush_events(self) -> None:
        if not self.election.leading:
            return
        try:
            async with asyncio.timeout(_FLUSH_LIMIT):
                await self.recorder.flush()
        except TimeoutError:
            log.warning("not all events were written in time")

    def _elected(self, number: int) -> None:
        self._leading = asyncio.get_running_loop().create_task(self._lead(number, after=self._leading))

    def _deposed(self) -> None:
        if self._leading is not None:
            self._leading.cancel()

    async def _lead(self, number: int | None, after: asyncio.Task[None] | None = None) -> None:
        """Terms of that number, or (None) of the current leader; once the task before is over."""
        if after is not None:
            await asyncio.gather(after, return_exceptions=True)
        pauses = Backoff(_PAUSE, _LONGEST_PAUSE)
        try:
            while True:
                began = time.monotonic()
                self.ended[await self._one_term(number)] += 1
                self._retire()
                if time.monotonic() - began > _AT_ONCE:
                    pauses.reset()
                await asyncio.sleep(pauses.next())
        finally:
            self._retire()

    def _retire(self) -> None:
        if self.term is not None:
            self._past_differences += self.term.differences
            self.term = None

    @property
    def differences(self) -> int:
        """Differences between ledger and cluster in all terms of this process."""
        return self._past_differences + (0 if self.term is None else self.term.differences)

    async def _one_term(self, number: int | None) -> str:
        try:
            options = self.options.term
            term = await self._announced(number)
            recall = None if options.shadow or options.dry_run else self.recorder.latest_events
            self.term = LeaderTerm(self.api, self._registry, term, self._record_event, options, recall)
            await self.term.run()
        except (LeadershipLost, Fenced) as error:
            log.warning("the term ends: %s", error)
            return "fenced"
        except RebuildNeeded as error:
            log.warning("the ledger is rebuilt: %s", error)
            return "rebuilt"
        except KubeError as error:
            log.warning("the term ends: %s", error)
            return "failed"
        except Exception:
            log.exception("the term failed")
            return "failed"
        return "ended"

    async def _announced(self, number: int | None) -> int:
        """The number of the term, once the fence has it; in a dry run, that of the current leader."""
        if number is None:
            return max(0, await self._fence.announced())
        if not self.options.term.shadow:
            await self._fence.announce(number)
            await asyncio.sleep(self.options.settle)
        return number

    def _record_event(self, notice: Notice, uid: str) -> None:
        term = self.term
        if term is None:
            return
        if self.options.term.dry_run:
            log.info("%s %s: %s: %s", notice.kind, notice.key, notice.reason, notice.message)
            return
        kind = term.mirror.cache.kinds.find(notice.kind)
        namespace, _, name = notice.key.rpartition("/")
        known = term.mirror.cache.find(notice.kind, notice.key)
        if known is not None:
            namespace, name = known.namespace, known.name
        about = Regarding(Resource.of(kind), name, namespace if kind.namespaced else "", uid)
        self.recorder.record(about, notice.type, notice.reason, notice.message)
