"""One term as leader: a ledger built from the cluster, kept in step with it, and acted upon until the term ends.

A term begins with fresh lists of everything, so it knows all that its predecessor wrote. Nothing of it outlives it:
whoever leads next starts from the cluster again. Everything runs in one event loop; the control loop is told of what
was seen in slices, and settles in slices, so that the lease is renewed in time however much there is to decide.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from bursar.control.admission import Admission
from bursar.control.kinds import known_kinds
from bursar.control.loop import Controller
from bursar.engine.engine import Engine
from bursar.kube.admission.governed import Governed
from bursar.kube.admission.options import Options as AdmissionOptions
from bursar.kube.admission.terms import PodFacts
from bursar.kube.client.api import Api
from bursar.kube.client.following import Following
from bursar.kube.client.models import Meta
from bursar.kube.client.reflector import Reflector
from bursar.kube.client.resources import PODS, Resource
from bursar.kube.controller import comparing, pinning
from bursar.kube.controller.desk import Desk
from bursar.kube.controller.intake import ObjectIntake
from bursar.kube.controller.namespaces import NamespaceKeeper
from bursar.kube.controller.objectwriter import ObjectWriter
from bursar.kube.controller.placement import Placement
from bursar.kube.controller.pods import PodIntake
from bursar.kube.controller.podwriter import PodWriter
from bursar.kube.controller.ports import Notes, Told
from bursar.kube.controller.reclaiming import Reclaimer
from bursar.kube.controller.sight import SeenPod, read_pod
from bursar.kube.controller.world import World
from bursar.objects.corekinds import NAMESPACE, POD
from bursar.objects.kinds import Kind
from bursar.policies.plugin import Registry

log = logging.getLogger(__name__)
SLICE = 200  # events told to the loop before it settles
ROUNDS = 500  # rounds of settling before others get their turn
TICK = 1.0  # seconds between looks at the clock
COMPARED_EVERY = 30.0


@dataclass(frozen=True, slots=True)
class TermOptions:
    """How a term is conducted."""

    admission: AdmissionOptions = field(default_factory=AdmissionOptions)
    dry_run: bool = False  # everything is sent, for the server to check and not to keep
    pin_all: bool = False
    pin_patience: int = pinning.PATIENCE
    compared_every: float = COMPARED_EVERY


class RebuildNeeded(Exception):  # noqa: N818 an answer to a fault, not the fault
    """Ledger and cluster differ in a way that cannot be put right piece by piece."""


@dataclass(frozen=True, slots=True)
class SeenItem:
    """What is kept of a pod: its manifest only while it is gated."""

    pod: SeenPod
    raw: bytes


def _read_item(_meta: Meta, raw: bytes) -> SeenItem:
    pod = read_pod(raw)
    return SeenItem(pod, raw if pod.gated else b"")


class Term:
    """A ledger and everything around it, for as long as this process leads."""

    def __init__(
        self, api: Api, registry: Registry, number: int, tell: Callable[[Told, str], None], options: TermOptions
    ) -> None:
        self.number = number
        self.notes = Notes(lambda: time.time_ns() // 1_000_000)
        self.engine = Engine(registry.policies())
        self.controller = Controller(self.engine, registry, self.notes)
        kinds = known_kinds(registry)
        self.world = World(kinds)
        admission = Admission(registry, kinds)
        placement = Placement(self.engine.policies, pin_all=options.pin_all)
        governed = Governed(options.admission)
        dry = options.dry_run
        self.pods = PodIntake(
            self.controller, self.world, admission, placement, lambda pod: self._governs(governed, pod), self._report
        )
        self.objects = ObjectIntake(self.controller, self.world, admission, self._report)
        self.writer = PodWriter(api, self.engine, self.pods, placement, number, self._report, dry_run=dry)
        self.reclaimer = Reclaimer(api, self.engine, self.pods, self.writer, self._report, self.notes.now, dry_run=dry)
        self.statuses = ObjectWriter(api, self.world, self._report, dry_run=dry)
        self.namespaces = NamespaceKeeper(api, registry, self._report, options.admission.never, dry_run=dry)
        self.pins = pinning.PinWatch(self.pods, self.notes.now, options.pin_patience)
        self.reclaimer.changed = self._wake_up
        self._options = options
        self._api = api
        self._tell = tell
        self._kinds = [kind for kind in kinds if kind.name != POD.name]
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = asyncio.Event()
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ready = False
        self.differences = 0  # found since the term began: must stay 0
        self._reflectors: dict[str, Reflector[object]] = {}
        for desk in self._desks():
            desk.broken = self._failed

    def _desks(self) -> list[Desk[object]]:
        return [self.writer.desk, self.reclaimer.desk, self.statuses.desk, self.namespaces.desk]  # type: ignore[list-item]

    # Running

    async def run(self) -> None:
        """Lead until cancelled; raises ``Dethroned`` or ``RebuildNeeded`` when the term is over."""
        tasks = [asyncio.create_task(one) for one in self._follow()]
        try:
            await self._first_of(self._synced(), tasks)
            self._build()
            tasks += [asyncio.create_task(self._pump()), asyncio.create_task(self._watch_the_clock())]
            self.ready = True
            self._wake_up()
            await self._first_of(asyncio.wait_for(asyncio.shield(self._broken), None), tasks)
        finally:
            self.ready = False
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for desk in self._desks():
                await desk.close()

    async def _first_of(self, goal: Awaitable[None], tasks: list[asyncio.Task[None]]) -> None:
        """Wait for the goal; a task that ends before it has failed, and so has the term."""
        waited = asyncio.ensure_future(goal)
        try:
            done, _ = await asyncio.wait([waited, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        finally:
            waited.cancel()

    def _follow(self) -> list[Coroutine[Any, Any, None]]:
        for kind in self._kinds:
            handler = _ObjectHandler(self, kind)
            optional = Following(optional=bool(kind.group))
            self._reflectors[kind.name] = Reflector(self._api, Resource.of(kind), _raw, handler, optional)
        self._reflectors[POD.name] = Reflector(self._api, PODS, _read_item, _PodHandler(self))  # type: ignore[arg-type]
        return [reflector.run() for reflector in self._reflectors.values()]

    async def _synced(self) -> None:
        for reflector in self._reflectors.values():
            await reflector.wait_synced()

    def _failed(self, key: object, error: BaseException) -> None:
        if not self._broken.done():
            self._broken.set_exception(error)

    # Building the ledger

    def _build(self) -> None:
        """Everything that the lists showed: objects first, then facts in the order of their admission, then wishes."""
        self._inbox.clear()
        items = [
            (kind, raw)
            for kind in self._kinds
            for raw in self._reflectors[kind.name].store.items()
            if isinstance(raw, bytes)
        ]
        self.objects.start(items)
        for kind in self._kinds:
            for given in self.world.objects(kind.name):
                self._note_namespaces(kind, given.key)
        seen = [item for item in self._reflectors[POD.name].store.items() if isinstance(item, SeenItem)]
        now = self.notes.now()
        for item in sorted(seen, key=lambda item: self.pods.order(item.pod)):
            self.pods.seen(item.pod, item.raw, now)
        self._resume_holds(now)

    def _resume_holds(self, now: int) -> None:
        for sight in list(self.pods.by_uid.values()):
            hold = sight.hold
            if hold is None or sight.counted is None or not hold.place:
                continue
            decision = self.engine.resume_hold(sight.uid, hold.place, [uid for uid, _ in hold.victims], now)
            if decision.admitted:
                self.writer.resume(sight.uid, hold.victims)

    # What is seen

    def take(self, event: Callable[[], None]) -> None:
        """Something was seen: tell the loop when it is its turn."""
        if self.ready:
            self._inbox.append(event)
            self._wake.set()

    def object_seen(self, kind: Kind, meta: Meta, raw: bytes) -> None:
        if self.objects.seen(kind, raw):
            self.pods.retry()
        key = self.world.key_at(kind.name, meta.namespace, meta.name)
        if key is not None:
            self._note_namespaces(kind, key)

    def object_gone(self, kind: Kind, meta: Meta) -> None:
        key = self.world.key_at(kind.name, meta.namespace, meta.name)
        if self.objects.gone(kind, meta.namespace, meta.name):
            self.pods.retry()
        if kind.name == NAMESPACE.name:
            self.namespaces.namespace_gone(meta.name)
        elif key is not None:
            self.namespaces.quota_gone(kind.name, key)

    def _note_namespaces(self, kind: Kind, key: str) -> None:
        known = self.world.find(kind.name, key)
        if known is None:
            return
        if kind.name == NAMESPACE.name:
            labels = (known.given.body.get("metadata") or {}).get("labels") or {}
            self.namespaces.namespace_seen(known.name, labels)
        else:
            self.namespaces.quota_seen(known.given)

    def pod_seen(self, item: SeenItem) -> None:
        self.pods.seen(item.pod, item.raw, self.notes.now())

    def pod_gone(self, key: str, uid: str) -> None:
        self.writer.forget(uid)
        self.pods.gone(key)

    # The loop

    def _wake_up(self) -> None:
        self._wake.set()

    async def _pump(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            for _ in range(min(SLICE, len(self._inbox))):
                self._inbox.popleft()()
            at_rest = self.controller.settle(ROUNDS)
            self._flush()
            if self._inbox or not at_rest:
                self._wake.set()
            await asyncio.sleep(0)

    def _flush(self) -> None:
        """Hand what the loop wants done to those who do it. Marks first: they travel with the start."""
        notes = self.notes
        marks, notes.marks = notes.marks, {}
        for key, parts in marks.items():
            self.writer.mark(key, parts.get("labels", {}), parts.get("annotations", {}))
        starts, notes.starts = notes.starts, {}
        for claim in starts.values():
            self.writer.start(claim)
        evictions, notes.evictions = notes.evictions, {}
        for claim, _ in evictions.values():
            self.reclaimer.evict(claim)
        outputs, notes.outputs = notes.outputs, {}
        self.statuses.write(outputs)
        events, notes.events = notes.events, []
        for told in events:
            self._tell(told, self._uid_of(told))
        self.engine.journal.take()

    def _uid_of(self, told: Told) -> str:
        if told.kind == POD.name:
            sight = self.pods.by_key.get(told.key)
            return "" if sight is None else sight.uid
        known = self.world.find(told.kind, told.key)
        return "" if known is None else known.uid

    async def _watch_the_clock(self) -> None:
        """What time brings: revocations that are due, shields that end, places that turn out to be lost, and checks."""
        compared = time.monotonic()
        while True:
            await asyncio.sleep(TICK)
            self.reclaimer.unshield()
            for sight, why in self.pins.lost():
                await self._take_back(sight.uid, why)
            if time.monotonic() - compared >= self._options.compared_every and not self._inbox:
                compared = time.monotonic()
                self._compare()
            self._wake_up()

    async def _take_back(self, uid: str, why: str) -> None:
        sight = self.pods.by_uid[uid]
        self._report(POD.name, sight.key, pinning.UNPLACED, why)
        await self.reclaimer.take_back(sight)

    def _compare(self) -> None:
        for difference in comparing.differences(self.controller, self.pods):
            self.differences += 1
            self._report(POD.name, difference.key, comparing.DIFFERENT, difference.problem)
            if not comparing.repair(self.controller, self.pods, difference):
                raise RebuildNeeded(f"{difference.key} {difference.problem}")

    # Telling people

    def _report(self, kind: str, key: str, reason: str, message: str) -> None:
        log.warning("%s %s: %s: %s", kind, key, reason, message)
        self.notes.event(kind, key, "Warning", reason, message)
        self._wake_up()

    def _governs(self, governed: Governed, pod: SeenPod) -> bool:
        namespace = self.world.get(NAMESPACE.name, pod.metadata.namespace) or {}
        labels = (namespace.get("metadata") or {}).get("labels") or {}
        meta = pod.metadata
        gates = tuple(gate.name for gate in pod.spec.scheduling_gates)
        owners = tuple((owner.api_version, owner.kind) for owner in meta.owner_references if owner.controller)
        return governed.holds(meta.namespace, labels, PodFacts(meta.labels, meta.annotations, gates, owners))


def _raw(_meta: Meta, raw: bytes) -> bytes:
    return raw


class _ObjectHandler:
    """Puts what a reflector sees into the term's inbox."""

    def __init__(self, term: Term, kind: Kind) -> None:
        self._term = term
        self._kind = kind

    def added(self, meta: Meta, item: object) -> None:
        raw = item if isinstance(item, bytes) else b""
        self._term.take(lambda: self._term.object_seen(self._kind, meta, raw))

    def modified(self, meta: Meta, item: object, before: object) -> None:
        self.added(meta, item)

    def deleted(self, meta: Meta, item: object) -> None:
        self._term.take(lambda: self._term.object_gone(self._kind, meta))

    def undecodable(self, meta: Meta, problem: str) -> None:
        log.error("%s %s cannot be read: %s", self._kind.name, meta.key, problem)

    def synced(self) -> None:
        """The term waits for the reflector itself."""


class _PodHandler:
    def __init__(self, term: Term) -> None:
        self._term = term

    def added(self, meta: Meta, item: SeenItem) -> None:
        self._term.take(lambda: self._term.pod_seen(item))

    def modified(self, meta: Meta, item: SeenItem, before: SeenItem) -> None:
        self.added(meta, item)

    def deleted(self, meta: Meta, item: SeenItem) -> None:
        self._term.take(lambda: self._term.pod_gone(meta.key, meta.uid))

    def undecodable(self, meta: Meta, problem: str) -> None:
        log.error("Pod %s cannot be read: %s", meta.key, problem)

    def synced(self) -> None:
        """The term waits for the reflector itself."""
