"""The service: one embedded cluster in real time, durable, for many callers.

Changes run one after another under one lock. Time is brought up to now, the change runs in memory until the cluster is
at rest, and what changed (journal lines, objects) goes to the group committer before the lock is released, so that the
file has the order of the memory. A caller is answered once its batch is on the disk, and a reader once what it read is.

A refused change leaves no trace. After any other failure (a batch that cannot be written, a defect that leaves a change
half made) memory is ahead of the disk. It is then thrown away and made again from the file. Callers learn that their
change is lost, reads show the last durable state, and changes are refused until the file can be written again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import RLock
from typing import TypeVar

from bursar.objects.decode import ManifestError
from bursar.objects.manifests import Document
from bursar.objects.validation import timestamp
from bursar.policies.plugin import Registry, default_registry
from bursar.server import time_travel, types
from bursar.server.batches import Alarm, DurableBatch, Hub, RequestCounters, WriteRetry
from bursar.server.changes import (
    CHANGE_PREFIX,
    Answers,
    ChangeRecord,
    GivenAnswer,
    Inverse,
    LoggedObject,
    inverse_of,
    load_change,
)
from bursar.server.machines import MachineBoard
from bursar.server.object_audit import change_hash
from bursar.server.steady_clock import Clock, SteadyClock
from bursar.sim.cluster import Applied, Cluster
from bursar.sim.persistence import sum_text
from bursar.sim.pods import Happening, PodEnd, SimEvent
from bursar.sim.rehearsal import rehearse
from bursar.store.committer import GroupCommitter
from bursar.store.schema import StoreError
from bursar.store.store import Batch, ObjectWrite, Store

OBJECTS = "objects"  # the cause of a record that only vouches for objects
_NAMED = 3  # objects in it
MACHINE = "machine"  # the actor of what happens to real jobs


@dataclass(frozen=True, slots=True)
class Action:
    """One change that is asked for; a repetition of it has the same ``key``, if the caller gave one."""

    verb: str
    run: Callable[[Cluster], list[Applied]]
    key: str = ""
    request: str = ""  # what was asked, as a fingerprint
    inverse: Inverse | None = None  # of the change that this one takes back
    actor: str = ""

    @property
    def fingerprint(self) -> str:
        return f"{self.verb} {self.request}"


def deleting(references: Sequence[str]) -> Callable[[Cluster], list[Applied]]:
    return lambda cluster: cluster.delete(cluster.reference(text) for text in references)


def described(
    cluster: Cluster,
    number: int,
    action: Action,
    outcomes: Sequence[Applied],
    happenings: Sequence[Happening],
    *,
    dry_run: bool = False,
) -> types.Change:
    """A change as it is answered."""
    inverse = action.inverse
    return types.Change(
        id=number,
        moment=time_travel.moment_of(cluster),
        verb=action.verb,
        actor=action.actor,
        objects=[_object_outcome(cluster, outcome) for outcome in outcomes],
        pods=[
            types.PodNews(time=timestamp(one.at), pod=one.pod, what=one.what, node=one.node, reason=one.reason)
            for one in happenings
        ],
        dry_run=dry_run,
        undoes=0 if inverse is None else inverse.number,
        lost=[] if inverse is None else inverse.lost,
    )


def _object_outcome(cluster: Cluster, one: Applied) -> types.ObjectOutcome:
    stored = cluster.objects.find(one.kind.name, one.key)
    version = "" if stored is None else str(stored.version)
    return types.ObjectOutcome(kind=one.kind.name, key=one.key, result=one.result, resource_version=version)


def logged(
    cluster: Cluster, change: types.Change, changed: Sequence[Applied], happenings: Sequence[Happening]
) -> ChangeRecord:
    """A change as it is kept, so that it can be taken back; ``changed``: the outcomes that are not "unchanged"."""
    touched = cluster.objects.touched
    objects = [LoggedObject(kind.name, key, result, touched.get((kind.name, key), 0)) for kind, key, result in changed]
    return ChangeRecord(change, objects, [happening.pod for happening in happenings if happening.what == "evicted"])


T = TypeVar("T")


LOG = logging.getLogger("bursar.server")


class StoppedError(RuntimeError):
    """The service takes no changes."""


class DegradedError(StoppedError):
    """It takes none until the store can be written again, which it tries by itself."""


class NotDoneError(StoppedError):
    """The change is lost, as if it had never been asked for."""


class KeyReusedError(ValueError):
    """An idempotency key came with another request than the first time."""


class NoSuchChangeError(LookupError):
    """No change has that number."""


@dataclass(frozen=True, slots=True)
class Pending:
    """An answer that may be given when ``durable`` is done."""

    answer: types.Change
    durable: Future[int] | None


class Service:
    """Owns the cluster, the store and its writing thread."""

    def __init__(self, store: Store, *, clock: Clock, registry: Registry) -> None:
        self.store = store
        self.lock = RLock()
        self.tally = RequestCounters()
        self.hub = Hub()
        self.machines = MachineBoard()
        self.alarm = Alarm()
        self.error: StoppedError | None = None  # why no changes are taken
        self._closing = False
        self._clock = clock
        self._changes = time_travel.counters(store).changes
        self._answers = Answers(store)
        self.cluster = time_travel.present(store, registry)
        if isinstance(clock, SteadyClock):
            clock.not_before(self.cluster.now())
        self.committer = GroupCommitter(store)
        self.rebuilds = 0
        self._registry = registry
        self._half_made: BaseException | None = None  # what left a change half made in memory
        self._retry = WriteRetry()
        self._unwritten: deque[tuple[Future[int], list[ObjectWrite]]] = deque()  # batches, with manifests that are new
        self._last: Future[int] | None = None  # of the batch that was handed over last
        self.started = self.now()
        with self.lock:
            self._catch_up()

    @classmethod
    def open(cls, path: Path, *, clock: Clock | None = None, registry: Registry | None = None) -> Service:
        """On an existing store file, or a new one."""
        registry = default_registry() if registry is None else registry  # before a file is made
        store = Store.open(path) if path.exists() else Store.create(path)
        try:
            return cls(store, clock=clock or SteadyClock(), registry=registry)
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        """Write what was handed over, and stop."""
        with self.lock:
            self._closing = True
            self.error = self.error or StoppedError("the server is shutting down")
        self.committer.close()

    # Time

    def now(self) -> int:
        """The time, which never goes back."""
        return max(self._clock(), self.cluster.now())

    @property
    def ahead(self) -> int:
        """How far time is ahead of the clock of the machine, in milliseconds."""
        return self._clock.ahead if isinstance(self._clock, SteadyClock) else 0

    def say_offset(self) -> None:
        """Log how far time is ahead, now and then."""
        if isinstance(self._clock, SteadyClock):
            self._clock.say_offset()

    def latest(self) -> int:
        """The last time that can be asked about: what follows is the future."""
        return self.now()

    def tick(self) -> int | None:
        """Let time pass until now; when something is due next, in milliseconds from 1970."""
        with self.lock:
            self._back_in_step()
            if isinstance(self.error, DegradedError) and self._retry.due():
                self._try_writing()
            if self.error is None:
                self._guarded(self._catch_up)
            return self.cluster.next_due

    def _catch_up(self) -> None:
        """One batch for each moment at which something was due, so that history has their times."""
        moment = self.now()
        while self.cluster.step_to(moment):
            self._flush({})
        self._flush({})

    # Changes

    def apply(self, documents: Sequence[Document], *, key: str = "", request: str = "", actor: str = "") -> Pending:
        return self._change(Action("apply", lambda cluster: cluster.apply(documents), key, request, actor=actor))

    def delete(self, references: Sequence[str], *, key: str = "", request: str = "", actor: str = "") -> Pending:
        return self._change(Action("delete", deleting(references), key, request, actor=actor))

    def finish(self, pods: Sequence[str], *, key: str = "", request: str = "", actor: str = "") -> Pending:
        return self._change(Action("finish", lambda cluster: cluster.finish(pods), key, request, actor=actor))

    def report(self, ends: Sequence[PodEnd]) -> Pending:
        """Pods whose processes are on a machine ended there; a repeated report changes nothing."""
        return self._change(Action("report", lambda cluster: cluster.report(ends), actor=MACHINE))

    def event(self, kind: str, key: str, type_: str, reason: str, message: str) -> None:
        """Record an event about an object of a machine, for those who follow the stream."""
        with self.lock:
            self._back_in_step()
            self._check_running()
            self.cluster.event(kind, key, type_, reason, message)
            self._flush({"last machine event": f"{reason} {kind}/{key}: {message}"})

    def undo(self, number: int, *, actor: str = "") -> Pending:
        with self.lock:
            self._wait()
            record = load_change(self.store, number)
            if record is None:
                raise NoSuchChangeError(f"there is no change {number}")
            inverse = inverse_of(record, self.cluster, self.store)
            if inverse.mixed:  # two steps: the second must not be refused when the first is made
                with rehearse(self.cluster) as trial:
                    inverse.run(trial)
            return self._change(Action("undo", inverse.run, inverse=inverse, actor=actor))

    def _change(self, action: Action) -> Pending:
        with self.lock:
            self._back_in_step()
            self._check_running()
            known = self._answers.find(action.key) if action.key else None
            if known is not None:
                if known.request != action.fingerprint:
                    raise KeyReusedError(f"the idempotency key {action.key!r:.80} was used for another request")
                return Pending(known.change, self._last)
            self._guarded(self._catch_up)
            return self._guarded(lambda: self._make(action))

    def _make(self, action: Action) -> Pending:
        outcomes = action.run(self.cluster)
        happenings, events = self.cluster.take_news()
        changed = [outcome for outcome in outcomes if outcome.result != "unchanged"]
        if changed and not self.cluster.engine.journal.records:
            self._note_objects((one.kind.name, one.key) for one in changed)
        self._changes += bool(changed)
        number = self._changes if changed else 0
        change = described(self.cluster, number, action, outcomes, happenings)
        meta: dict[str, str] = {}
        if changed:
            meta |= logged(self.cluster, change, changed, happenings).meta()
        if action.key:
            meta |= self._answers.keep(GivenAnswer(action.key, action.fingerprint, change))
        return Pending(change, self._flush(meta, happenings, events))

    # Durability

    def _flush(
        self, meta: dict[str, str], happenings: Sequence[Happening] = (), events: Sequence[SimEvent] = ()
    ) -> Future[int] | None:
        """Hand what changed to the committer; the future of the last batch, for who must wait for it."""
        cluster = self.cluster
        self.alarm.due(cluster.next_due)
        late_happenings, late_events = cluster.take_news()
        self.tally.note(cluster.engine.journal.records, [*happenings, *late_happenings])
        objects = [ObjectWrite(*row) for row in cluster.take_changes()]
        lines = cluster.engine.journal.take(self._voucher(objects, meta))
        self._drop_manifests()
        if not lines and not objects and not meta:
            return self._last
        known = time_travel.Counters(cluster.now(), cluster.objects.uids, cluster.objects.version, self._changes)
        batch = Batch(lines, objects, cluster.now(), {**meta, time_travel.META: known.text()})
        future = self.committer.submit(batch)
        durable = DurableBatch(cluster.engine.version, cluster.now(), lines, objects, [*events, *late_events])
        future.add_done_callback(lambda done: self._written(done, durable))
        self._last = future
        self._unwritten.append((future, [one for one in objects if one.text is not None]))
        return future

    def _voucher(self, objects: Sequence[ObjectWrite], meta: dict[str, str]) -> list[object] | None:
        """What the last record of the batch vouches for; there is a record then."""
        change = next((text for name, text in meta.items() if name.startswith(CHANGE_PREFIX)), None)
        if not objects and change is None:
            return None
        if not self.cluster.engine.journal.records:
            self._note_objects((one.kind, one.key) for one in objects)
        known = [0, ""] if change is None else [self._changes, change_hash(change)]
        return [sum_text(self.cluster.objects.sum), *known]

    def _note_objects(self, changed: Iterable[tuple[str, str]]) -> None:
        """A record for objects that changed without the ledger; it names some of them."""
        names = [f"{kind}/{key}" for kind, key in islice(changed, _NAMED)]
        self.cluster.engine.note(self.cluster.now(), (OBJECTS, *names))

    def _drop_manifests(self) -> None:
        """Manifests that are on the disk by now need not be in memory."""
        while self._unwritten and self._unwritten[0][0].done():
            for one in self._unwritten.popleft()[1]:
                self.cluster.objects.drop_manifest(one.kind, one.key, one.manifest)

    def _written(self, done: Future[int], batch: DurableBatch) -> None:
        """Runs in the writing thread, in the order of the batches."""
        if done.exception() is None:
            self.hub.publish(batch)
        else:
            self.alarm.ring.set()

    def _wait(self) -> None:
        """Until everything that was handed over is on the disk, or is lost and out of memory again."""
        self._back_in_step()
        while self._last is not None and wait([self._last]).done and self._last.exception() is not None:
            self._back_in_step()

    def _check_running(self) -> None:
        if self.error is not None:
            raise type(self.error)(str(self.error)) from self.error

    # After a failure

    def _back_in_step(self) -> None:
        """If memory is ahead of the disk, make it again from the disk."""
        failure = self._half_made or self.committer.error
        if failure is None or self._closing:
            return
        LOG.error("no changes are taken until the store can be written: %s", failure)
        self.error = DegradedError(f"no changes are taken until the store can be written again: {failure}")
        self.committer.stop()
        self._unwritten.clear()
        self._last = None
        self.store.reconnect()
        self.cluster = time_travel.present(self.store, self._registry)
        self._changes = time_travel.counters(self.store).changes
        self._answers = Answers(self.store)
        self.committer = GroupCommitter(self.store)
        self._half_made = None
        self.rebuilds += 1
        self._retry.failed()
        message = "what was shown is durable, and what was under way is lost: read the state again"
        notice = SimEvent(self.cluster.now(), "Server", "", "Warning", "StateReloaded", message)
        self.hub.publish(DurableBatch(self.cluster.engine.version, notice.at, (), (), [notice]))

    def _try_writing(self) -> None:
        try:
            self.store.try_writing()
        except StoreError as error:
            self._retry.failed()
            self.error = DegradedError(f"no changes are taken until the store can be written again: {error}")
            return
        self.error = None
        LOG.warning("changes are taken again")

    def _guarded(self, work: Callable[[], T]) -> T:
        """Run it; if it fails and something has changed, memory is no longer what the disk will say."""
        before = self._position()
        try:
            return work()
        except BaseException as error:
            if self._position() != before:
                trace = RuntimeError("a refused change left a trace") if isinstance(error, ManifestError) else error
                self._half_made = trace
                if isinstance(error, StoreError):
                    raise NotDoneError(f"not done, and nothing of it is kept: {error}") from error
            raise

    def _position(self) -> tuple[int, int]:
        return self.cluster.engine.version, self.cluster.objects.version

    # Reading

    def read(self, look: Callable[[Cluster], T]) -> tuple[T, Future[int] | None]:
        """Look at the cluster of now; the future says when what was seen is durable, or that it is lost."""
        with self.lock:
            self._back_in_step()
            return look(self.cluster), self._last

    def read_durable(self, look: Callable[[Cluster], T]) -> T:
        """Look at the cluster of now, and wait until what was seen is durable."""
        while True:
            found, written = self.read(look)
            if written is None or (wait([written]).done and written.exception() is None):
                return found

    def moment(self, text: str, option: str = "at") -> time_travel.Revision:
        """The moment that a text, given for an option, names; all up to now is on the disk when this returns."""
        with self.lock:
            self._wait()
            now, latest = self.now(), self.latest()
        return time_travel.find(self.store, text, now, latest, option)

    def position(self) -> time_travel.Revision:
        """The present moment; all of it is on the disk when this returns."""
        with self.lock:
            self._wait()
            return time_travel.Revision(*self._position(), self.cluster.now())
