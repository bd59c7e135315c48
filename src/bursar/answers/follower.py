"""A ledger that follows the cluster, and with it the leader, to answer questions.

Every replica that answers has one. It is built from lists and kept in sync by watches, by the same code as a leader's,
and writes nothing. What the leader decided arrives as what it wrote: an ungated pod enters with its admission record,
and a pending one with a hold gets its hold, as a new leader would take them over. So the ledger is the one with which a
new leader would begin at that moment.

``behind`` says for how long it has not been up to date: since an event waits to be applied, or since a watch fails.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import cast

from bursar.control.observing import ObservingController
from bursar.kube.client.api import Api
from bursar.kube.client.models import Meta
from bursar.kube.controller import drift
from bursar.kube.controller.informers import Watches
from bursar.kube.controller.mirror import Mirror, MirrorOptions
from bursar.kube.controller.patches import hold_of
from bursar.kube.controller.pod_model import SeenPod
from bursar.kube.controller.work_queue import Parts, add_output, cancelled
from bursar.ledger.claims import PENDING
from bursar.objects.kinds import NODE, Kind
from bursar.policies.plugin import Registry
from bursar.policies.results import Output

log = logging.getLogger(__name__)
_TURN = 0.02  # seconds for the ledger before questions are answered
_GATHER = 0.05  # seconds after a turn in which events are gathered
_TICK = 1.0
_COMPARED_EVERY = 30.0

WrittenParts = dict[tuple[str, str], Parts]
"""What policies write on objects, by kind and key of the object."""


class LedgerDiffersError(Exception):
    """Ledger and cluster differ in a way that only a new ledger repairs."""


class ClusterFollower:
    """Follows one cluster until cancelled."""

    def __init__(self, api: Api, registry: Registry, options: MirrorOptions) -> None:
        self._registry = registry
        self._options = options
        self._watches = Watches(api, Mirror(registry, options).kinds, self, self._take)
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = asyncio.Event()
        self._listed = False
        self._fresh = 0.0  # when the ledger was last known to be up to date, on the monotonic clock
        self.ready = False
        self.rebuilt = 0  # how often the ledger was built again
        self.applied = 0  # events
        self.mirror = self._new_mirror()
        self.written: WrittenParts = {}
        self._unheld: dict[str, None] = {}  # keys of pods whose hold is not in force here

    def _new_mirror(self) -> Mirror:
        mirror = Mirror(self._registry, self._options, ObservingController)
        mirror.pods.sliced = True
        return mirror

    @property
    def controller(self) -> ObservingController:
        return cast("ObservingController", self.mirror.controller)

    def behind(self) -> float:
        """Seconds for which the ledger has not been up to date."""
        return time.monotonic() - self._fresh

    # Running

    async def run(self) -> None:
        """Follow the cluster until cancelled. A ledger that differs from it is built again."""
        self._fresh = time.monotonic()
        tasks = [asyncio.create_task(one) for one in self._watches.work()]
        try:
            await _first_of(self._watches.synced(), tasks)
            while True:
                await _first_of(self._build(), tasks)
                await _first_of(self._follow(), tasks)
                self.rebuilt += 1
        finally:
            self.ready = False
            await cancelled(*tasks)

    async def _build(self) -> None:
        """Build the ledger from what the watches have. Events that arrive meanwhile wait."""
        self._inbox.clear()
        self._listed = True
        self.written, self._unheld = {}, {}
        mirror = self.mirror = self._new_mirror()
        for _ in mirror.building(self._watches.objects(), self._watches.pods()):
            await asyncio.sleep(0)
        self._wake.set()

    async def _follow(self) -> None:
        """Apply events as they arrive; returns when the ledger has to be built again."""
        ticking = asyncio.create_task(self._tick())
        try:
            await self._pump()
        except LedgerDiffersError as error:
            log.warning("the ledger is built again: %s", error)
        except Exception:
            log.exception("the ledger is built again")
            await asyncio.sleep(_TICK)
        finally:
            await cancelled(ticking)

    async def _tick(self) -> None:
        """Look at the clock: limits change with it, and expected pods are tried again."""
        while True:
            await asyncio.sleep(_TICK)
            for key in list(self._unheld):
                self._hold(key)
            self._wake.set()

    async def _pump(self) -> None:
        compared = time.monotonic()
        while True:
            await self._wake.wait()
            self._wake.clear()
            at_rest = self._turn()
            if at_rest:
                self.ready = True
                if not self._watches.problems():
                    self._fresh = time.monotonic()
                if time.monotonic() - compared >= _COMPARED_EVERY:
                    self._compare()
                    compared = time.monotonic()
                await asyncio.sleep(_GATHER)
            else:
                self._wake.set()
                await asyncio.sleep(0)

    def _turn(self) -> bool:
        """Apply events and come to rest, for a limited time; whether it rests."""
        end = time.monotonic() + _TURN

        def over() -> bool:
            return time.monotonic() >= end

        self.mirror.end_refusals()
        while self._inbox and not over():
            self._inbox.popleft()()
            self.applied += 1
        again = self.mirror.pods.read_again(over)
        at_rest = self.controller.observe(over)
        self._take_notes()
        return at_rest and not again and not self._inbox

    def _take_notes(self) -> None:
        """What a leader would do is dropped; what policies would write is kept, to be shown."""
        notes, mirror = self.mirror.notes, self.mirror
        mirror.engine.journal.drop()
        for (kind, key), parts in notes.outputs.items():
            for output in parts.values():
                self._note(kind, key, output)
        notes.outputs, notes.starts, notes.evictions, notes.marks, notes.events = {}, {}, {}, {}, []

    def _note(self, kind: str, key: str, output: Output) -> None:
        self.mirror.cache.note_written(output)
        if kind != NODE.name and output.part != "object":
            add_output(self.written.setdefault((kind, key), {}), output)

    def _compare(self) -> None:
        mirror = self.mirror
        for difference in drift.differences(mirror.controller, mirror.pods):
            if not drift.repair(mirror.controller, mirror.pods, difference):
                raise LedgerDiffersError(f"{difference.key} {difference.problem}")
        wrong = next(drift.wrong_sums(mirror.engine.state), "")
        if wrong:
            raise LedgerDiffersError(wrong)

    # Watch events, applied in the order of their arrival

    def _take(self, event: Callable[..., None], *given: object) -> None:
        if self._listed:
            self._inbox.append(partial(event, *given))
            self._wake.set()

    def object_seen(self, kind: Kind, meta: Meta, raw: bytes) -> None:
        self.mirror.object_seen(kind, raw)

    def object_gone(self, kind: Kind, meta: Meta) -> None:
        key = self.mirror.cache.key_at(kind.name, meta.namespace, meta.name)
        self.mirror.object_gone(kind, meta)
        if key is not None:
            self.written.pop((kind.name, key), None)

    def pod_seen(self, pod: SeenPod) -> None:
        mirror = self.mirror
        known = mirror.pods.by_key.get(pod.key)
        hold = hold_of(pod.metadata.annotations) if pod.gated else None
        decided = known is not None and known.pending and known.uid == pod.metadata.uid
        if known is not None and decided and (not pod.gated or hold != known.hold):
            mirror.pod_gone(pod.key)  # the leader decided over it: it enters as a new leader would take it over
        mirror.pod_seen(pod)
        if hold is not None and hold.place and mirror.pods.by_key.get(pod.key) is not known:
            self._hold(pod.key)

    def _hold(self, key: str) -> None:
        """Gives a pod the hold that the leader wrote; where that cannot be now, it is tried again."""
        self._unheld.pop(key, None)
        tracked = self.mirror.pods.by_key.get(key)
        if tracked is None or tracked.hold is None or tracked.counted is None or not tracked.pending:
            return
        claim = self.mirror.engine.state.claims.get(tracked.uid)
        if claim is not None and claim.state == PENDING:
            victims = [uid for uid, _ in tracked.hold.victims]
            if not self.controller.held_before(tracked.uid, tracked.hold.place, victims):
                self._unheld[key] = None

    def pod_gone(self, meta: Meta) -> None:
        self.mirror.pod_gone(meta.key)


async def _first_of(goal: object, tasks: list[asyncio.Task[None]]) -> None:
    """Wait for the goal; a task that ends before it has failed, and so has all of it."""
    waited = asyncio.ensure_future(cast("asyncio.Future[None]", goal))
    try:
        done, _ = await asyncio.wait([waited, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()
    finally:
        waited.cancel()
