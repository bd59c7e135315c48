"""One leader term: builds a ledger from the cluster, keeps it in sync and acts on it until the term ends.

A term begins with fresh lists, so it sees all writes of the previous leader. Nothing outlives it: the next leader
starts from the cluster again. Everything runs in one event loop. Events are applied and decisions made in slices, so
that the lease is renewed in time.

``Fence`` is the fencing token: an annotation of Bursar's own namespace that holds the number of the current term. A
leader writes it before it lists anything. It reads the namespace, checks that it holds the lease, then writes with the
version it read. A successor takes the lease after that check and writes its own token later, so one of the two writes
fails with a conflict or stands last. No clock is involved. A conflict caused by another writer is retried.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from bursar.control.admission import ControlSection
from bursar.kube.client.api import LEASES, NAMESPACES, Api, PatchKind
from bursar.kube.client.errors import Conflict
from bursar.kube.client.lease import announced_term
from bursar.kube.client.models import Lease, Meta, RawObject
from bursar.kube.controller import drift
from bursar.kube.controller.events import EventDeduplicator, Recall, Tell
from bursar.kube.controller.eviction import Evictor
from bursar.kube.controller.informers import Watches
from bursar.kube.controller.mirror import Mirror, MirrorOptions
from bursar.kube.controller.object_writer import NamespaceKeeper, ObjectWriter
from bursar.kube.controller.patches import TERM
from bursar.kube.controller.place_recovery import PATIENCE, PlaceRecovery, UnboundWatch
from bursar.kube.controller.pod_model import SeenPod
from bursar.kube.controller.pod_writer import PodWriter
from bursar.kube.controller.work_queue import KeyedWorkQueue, LeadershipLost, cancelled
from bursar.objects.kinds import NAMESPACE, POD, Kind
from bursar.policies.plugin import Registry

log = logging.getLogger(__name__)
GATHER = 0.02  # seconds after settling in which events are gathered, because settling has a fixed cost
TURN = 0.02  # seconds for the ledger before other tasks run (the lease!)
TICK = 1.0  # seconds between checks of what is due
COMPARED_EVERY = 30.0


class JournalKeeper(Protocol):
    """Keeps the journal of a term."""

    def keep(self, lines: list[bytes], now: int) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class TermOptions:
    mirror: MirrorOptions = field(default_factory=MirrorOptions)
    dry_run: bool = False  # everything is sent, for the server to check and not to keep
    pin_patience: int = PATIENCE
    compared_every: float = COMPARED_EVERY
    journal: Callable[[int], JournalKeeper] | None = None  # makes one for the term of that number; None: not kept

    @property
    def shadow(self) -> bool:
        return self.mirror.shadow


class RebuildNeeded(Exception):  # noqa: N818 an answer to a fault, not the fault
    """Ledger and cluster differ in a way that only a new ledger repairs."""


class LeaderTerm:
    """A ledger and the writers that act on it, for as long as this process leads."""

    def __init__(
        self,
        api: Api,
        registry: Registry,
        number: int,
        tell: Tell,
        options: TermOptions,
        recall: Recall | None = None,
    ) -> None:
        self.number = number
        self.ready = False
        self.differences = 0  # found since the term began: must stay 0
        self.mirror = mirror = Mirror(registry, options.mirror)
        dry, report, now = options.dry_run, mirror.report, mirror.notes.now
        if dry:
            mirror.cache.unmarked = None  # a dry run never sees its marks
        self.writer = PodWriter(api, mirror.engine, mirror.pods, mirror.placement, number, report, now, dry_run=dry)
        self.evictor = Evictor(api, mirror.engine, mirror.pods, self.writer, report, now, self._control, dry_run=dry)
        self.statuses = ObjectWriter(api, mirror.cache, report, dry_run=dry)
        self.namespaces = NamespaceKeeper(api, mirror.selection, report, options.mirror.admission.never, dry_run=dry)
        schedulers = options.mirror.admission.known_schedulers
        deadline = lambda: mirror.controller.options.deadline()  # noqa: E731, PLW0108 the options change
        watch = UnboundWatch(mirror.pods, now, options.pin_patience, *schedulers, deadline=deadline)
        self.places = PlaceRecovery(api, mirror, self.writer, self.evictor, watch, options.pin_patience)
        self._journal = None if options.journal is None else options.journal(number)
        self._watches = Watches(api, mirror.kinds, self, self._take)
        self._options = options
        self._events = EventDeduplicator(mirror, tell, recall)
        self._acts = not options.shadow
        self._listed = False  # whether the lists were taken in, so that watch events are new
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = asyncio.Event()
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        mirror.pods.sliced = True
        mirror.news = self.evictor.changed = self._wake.set
        if self._acts:
            mirror.condition = lambda kind, key, problem: self.statuses.invalid((kind, key), problem)
        for queue in self._queues():
            queue.broken = self._failed

    def _control(self) -> ControlSection:
        return self.mirror.controller.options

    def _queues(self) -> tuple[KeyedWorkQueue[str] | KeyedWorkQueue[tuple[str, str]], ...]:
        pods = self.writer.queue, self.evictor.queue, self.places.queue
        return *pods, self.statuses.queue, self.namespaces.queue

    # Running

    async def run(self) -> None:
        """Lead until cancelled; raises ``LeadershipLost`` or ``RebuildNeeded`` when the term is over."""
        tasks = [asyncio.create_task(one) for one in self._watches.work()]
        try:
            await self._first_of(self._watches.synced(), tasks)
            await self._first_of(self._build(), tasks)
            self._events.begin(self._wake.set)
            tasks += [asyncio.create_task(self._pump()), asyncio.create_task(self._watch_the_clock())]
            await self._first_of(self._broken, tasks)
        finally:
            self.ready = False
            await cancelled(*tasks)
            await self._events.end()
            for queue in self._queues():
                await queue.close()
            if self._journal is not None:
                await asyncio.to_thread(self._journal.close)

    async def _first_of(self, goal: Awaitable[None], tasks: list[asyncio.Task[None]]) -> None:
        """Wait for the goal; a task that ends before it has failed, and so has the term."""
        waited = asyncio.ensure_future(goal)
        try:
            done, _ = await asyncio.wait([waited, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        finally:
            waited.cancel()

    def _failed(self, _key: object, error: BaseException) -> None:
        if not self._broken.done():
            self._broken.set_exception(error)

    async def _build(self) -> None:
        """Build the ledger from the lists, in steps: the lease is renewed meanwhile. Later events wait in the inbox."""
        self._listed = True
        watches = self._watches
        for _ in self.mirror.building(watches.objects(), watches.pods()):
            await asyncio.sleep(0)
        if self._acts:
            self._take_over()
        self.ready = True
        self._wake.set()

    def _take_over(self) -> None:
        """Take over what the previous leader wrote."""
        for tracked in self.mirror.pods.by_uid.values():
            self.writer.resume(tracked)
        for given in self.mirror.cache.objects(NAMESPACE.name):
            self._namespace_seen(given.key)
        self.namespaces.take_over()
        self.mirror.named = self.namespaces.named

    # Watch events, applied in the order of their arrival

    def _take(self, event: Callable[..., None], *given: object) -> None:
        if self._listed:
            self._inbox.append(partial(event, *given))
            self._wake.set()

    def object_seen(self, kind: Kind, meta: Meta, raw: bytes) -> None:
        self.mirror.object_seen(kind, raw)
        if kind.name == NAMESPACE.name:
            self._namespace_seen(meta.name)

    def object_gone(self, kind: Kind, meta: Meta) -> None:
        key = self.mirror.cache.key_at(kind.name, meta.namespace, meta.name)
        self.mirror.object_gone(kind, meta)
        if kind.name == NAMESPACE.name:
            self.namespaces.namespace_gone(meta.name)
        elif key is not None:
            self.statuses.forget((kind.name, key))

    def pod_seen(self, pod: SeenPod) -> None:
        self.mirror.pod_seen(pod)
        self.writer.seen(pod.metadata.uid)

    def pod_gone(self, meta: Meta) -> None:
        self.writer.forget(meta.uid)
        self.evictor.forget(meta.uid)
        self.mirror.pod_gone(meta.key)

    def _namespace_seen(self, name: str) -> None:
        known = self.mirror.cache.find(NAMESPACE.name, name)
        if known is not None and self._acts:
            labels = (known.given.body.get("metadata") or {}).get("labels") or {}
            self.namespaces.namespace_seen(name, labels)

    # The loop

    async def _pump(self) -> None:
        rested = 0.0  # when the ledger is next settled, if there are events
        while True:
            await self._wake.wait()
            early = rested - time.monotonic()
            if early > 0:
                await asyncio.sleep(early)
            self._wake.clear()
            over = _after(TURN)
            while self._inbox and not over():
                self._inbox.popleft()()
            again = self.mirror.pods.read_again(over)
            at_rest = self.mirror.controller.settle(over)
            self._flush(at_rest=at_rest)
            if self._inbox or again or not at_rest:
                self._wake.set()
                await asyncio.sleep(0)  # let other tasks run
            else:
                rested = time.monotonic() + GATHER

    def _flush(self, *, at_rest: bool) -> None:
        """Hand the actions of the loop to their writers. Marks come first: they travel with the start."""
        notes = self.mirror.notes
        self._keep_journal()
        if self.mirror.shadow is not None:
            self.mirror.shadow.take(notes)
            return
        marks, notes.marks = notes.marks, {}
        for key, parts in marks.items():
            self.writer.mark(key, parts.get("labels", {}), parts.get("annotations", {}))
        starts, notes.starts = notes.starts, {}
        for claim in starts.values():
            self.writer.start(claim)
        evictions, notes.evictions = notes.evictions, {}
        for claim, _ in evictions.values():
            self.evictor.evict(claim)
        outputs, notes.outputs = notes.outputs, {}
        self.statuses.write(outputs)
        self._events.tell(at_rest=at_rest)

    def _keep_journal(self) -> None:
        journal = self.mirror.engine.journal
        if self._journal is None:
            journal.drop()
        elif lines := journal.take():
            self._journal.keep(lines, self.mirror.notes.now())

    async def _watch_the_clock(self) -> None:
        """Act on what is due: changed limits, revocations, ended back-offs, lost places, and checks for drift."""
        compared = time.monotonic()
        while True:
            await asyncio.sleep(self._until_due())
            if self._acts:
                self._tidy_up()
            if time.monotonic() - compared >= self._options.compared_every and not self._inbox:
                compared = time.monotonic()
                self._compare()
            self._wake.set()

    def _until_due(self) -> float:
        """Seconds until a policy wants to act, at most until the next look at the clock."""
        now = self.mirror.notes.now()
        due = self.mirror.engine.next_due(now)
        return TICK if due is None else min(TICK, max(1, due - now) / 1000)

    def _tidy_up(self) -> None:
        self.evictor.unshield()
        self.writer.tidy()
        self.places.tidy()

    def _compare(self) -> None:
        mirror = self.mirror
        for difference in drift.differences(mirror.controller, mirror.pods):
            self.differences += 1
            mirror.report(POD.name, difference.key, drift.DIFFERENT, difference.problem)
            if not drift.repair(mirror.controller, mirror.pods, difference):
                raise RebuildNeeded(f"{difference.key} {difference.problem}")
        wrong = next(drift.wrong_sums(mirror.engine.state), "")
        if wrong:
            self.differences += 1
            raise RebuildNeeded(wrong)


def _after(seconds: float) -> Callable[[], bool]:
    """Says when so many seconds are over."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


_PAUSE = 0.1  # seconds after a conflict


class Fence:
    """The fencing token, read and written by one replica."""

    def __init__(self, api: Api, namespace: str, lease: str, identity: str) -> None:
        self._api = api
        self._namespace = namespace
        self._lease = lease
        self._identity = identity

    async def announce(self, term: int) -> None:
        """Write the token of this term: only its patches are accepted. Raises ``LeadershipLost`` if it is over."""
        while True:
            found = await self._api.get(NAMESPACES, self._namespace)
            if _written(found) == str(term):
                return
            await self._check_lease(term)
            version = found.meta.resource_version
            patch = {"metadata": {"resourceVersion": version, "annotations": {TERM: str(term)}}}
            try:
                await self._api.patch(NAMESPACES, self._namespace, "", PatchKind.MERGE, patch)
            except Conflict:
                await asyncio.sleep(_PAUSE)
            else:
                return

    async def announced(self) -> int:
        """The term whose patches are accepted."""
        return await announced_term(self._api, self._namespace, TERM)

    async def _check_lease(self, term: int) -> None:
        found = await self._api.find(LEASES, self._lease, self._namespace)
        spec = None if found is None else found.into(Lease).spec
        if spec is None or (spec.holder_identity, spec.lease_transitions) != (self._identity, term):
            raise LeadershipLost(f"term {term} is over: the lease {self._namespace}/{self._lease} is not ours any more")


def _written(namespace: RawObject) -> str:
    annotations: dict[str, str] = namespace.plain()["metadata"].get("annotations") or {}
    return annotations.get(TERM, "")
