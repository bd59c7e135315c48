"""The service: one embedded cluster in real time, durable, for many callers.

All changes run one after another under one lock: time is brought up to now, the change runs in memory until the cluster
is at rest, and what changed (journal lines, objects) is handed to the group committer before the lock is let go, so
that the file has the order of the memory. The caller is answered when its batch is on the disk. Readers see the
memory, and are answered when what they saw is on the disk.

A change that is refused leaves no trace. Anything else that goes wrong (a batch that cannot be written, a defect that
leaves a change half made) ends the taking of changes: memory is then not what the disk says, and only a restart, which
goes on from the disk, mends that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from threading import Event, RLock
from typing import TypeVar

from bursar.objects.errors import ManifestError
from bursar.objects.manifests import Document
from bursar.policies.plugin import Registry, default_registry
from bursar.server import actions, archive, changelog, chronicle, moments
from bursar.server.actions import Action
from bursar.server.changelog import Answers, GivenAnswer
from bursar.server.hub import Hub, News
from bursar.server.moments import Clock, wall_clock
from bursar.server.tally import Tally
from bursar.server.undoing import inverse_of
from bursar.sim.cluster import Cluster
from bursar.sim.news import Event as Notice
from bursar.sim.news import Happening
from bursar.store.batches import Batch, ObjectWrite
from bursar.store.committer import GroupCommitter
from bursar.store.store import Store

T = TypeVar("T")


class StoppedError(RuntimeError):
    """The service takes no changes any more."""


class KeyReusedError(ValueError):
    """An idempotency key came with another request than the first time."""


class NoSuchChangeError(LookupError):
    """No change has that number."""


@dataclass(frozen=True, slots=True)
class Pending:
    """An answer that may be given when ``durable`` is done."""

    answer: chronicle.Change
    durable: Future[int] | None


class Alarm:
    """When somebody looks next whether something is due; rings when that is too late."""

    def __init__(self) -> None:
        self.at = 0
        self.ring = Event()

    def due(self, moment: int | None) -> None:
        if moment is not None and moment < self.at:
            self.ring.set()


class Service:
    """Owns the cluster, the store and its writing thread."""

    def __init__(self, store: Store, *, clock: Clock = wall_clock, registry: Registry | None = None) -> None:
        registry = default_registry() if registry is None else registry
        self.store = store
        self.lock = RLock()
        self.tally = Tally()
        self.hub = Hub()
        self.alarm = Alarm()
        self.archive = archive.Archive(store, registry)
        self.error: BaseException | None = None
        self._clock = clock
        self._changes = archive.counters(store).changes
        self._answers = Answers(store)
        self.cluster = archive.present(store, registry)
        self.committer = GroupCommitter(store)
        self._shelved: deque[tuple[Future[int], list[ObjectWrite]]] = deque()  # batches, with manifests that are new
        self._last: Future[int] | None = None  # of the batch that was handed over last
        self.started = self.now()
        with self.lock:
            self._catch_up()

    @classmethod
    def open(cls, path: Path, *, clock: Clock = wall_clock, registry: Registry | None = None) -> Service:
        """On an existing store file, or a new one."""
        store = Store.open(path) if path.exists() else Store.create(path)
        try:
            return cls(store, clock=clock, registry=registry)
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        """Write what was handed over, and stop."""
        with self.lock:
            self.error = self.error or StoppedError("the server is shutting down")
        self.committer.close()

    # Time

    def now(self) -> int:
        """Wall time, except that it never goes back."""
        return max(self._clock(), self.cluster.now())

    def latest(self) -> int:
        """The last time that can be asked about: what follows is the future."""
        return self.now()

    def tick(self) -> int | None:
        """Let time pass until now; when something is due next, in milliseconds from 1970."""
        with self.lock:
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

    def apply(
        self, documents: Sequence[Document], *, dry_run: bool = False, key: str = "", request: str = ""
    ) -> Pending:
        return self._change(Action("apply", actions.applying(documents), key, request), dry_run)

    def delete(self, references: Sequence[str], *, dry_run: bool = False, key: str = "", request: str = "") -> Pending:
        return self._change(Action("delete", actions.deleting(references), key, request), dry_run)

    def finish(self, pods: Sequence[str], *, key: str = "", request: str = "") -> Pending:
        return self._change(Action("finish", actions.finishing(pods), key, request), dry_run=False)

    def undo(self, number: int, *, dry_run: bool = False) -> Pending:
        with self.lock:
            self._wait()
            record = changelog.load_change(self.store, number)
            if record is None:
                raise NoSuchChangeError(f"there is no change {number}")
            inverse = inverse_of(record, self.cluster, self.store)
            if inverse.mixed and not dry_run:  # two steps: the second must not be refused when the first is made
                inverse.run(self.scratch())
            return self._change(Action("undo", inverse.run, inverse=inverse), dry_run)

    def _change(self, action: Action, dry_run: bool) -> Pending:
        with self.lock:
            self._check_running()
            known = self._answers.find(action.key) if action.key else None
            if known is not None:
                if known.request != action.fingerprint:
                    raise KeyReusedError(f"the idempotency key {action.key!r:.80} was used for another request")
                return Pending(known.change, self._last)
            self._guarded(self._catch_up)
            if dry_run:
                return Pending(self._dry_run(action), None)
            return self._guarded(lambda: self._make(action))

    def _make(self, action: Action) -> Pending:
        outcomes = action.run(self.cluster)
        happenings, events = self.cluster.take_news()
        changed = [outcome for outcome in outcomes if outcome[2] != "unchanged"]
        self._changes += bool(changed)
        number = self._changes if changed else 0
        change = actions.described(self.cluster, number, action, outcomes, happenings)
        meta: dict[str, str] = {}
        if changed:
            meta |= actions.logged(self.cluster, change, changed, happenings).meta()
        if action.key:
            meta |= self._answers.keep(GivenAnswer(action.key, action.fingerprint, change))
        return Pending(change, self._flush(meta, happenings, events))

    def _dry_run(self, action: Action) -> chronicle.Change:
        scratch = self.scratch()
        outcomes = action.run(scratch)
        return actions.described(scratch, 0, action, outcomes, scratch.take_news()[0], dry_run=True)

    # Durability

    def _flush(
        self, meta: dict[str, str], happenings: Sequence[Happening] = (), events: Sequence[Notice] = ()
    ) -> Future[int] | None:
        """Hand what changed to the committer; the future of the last batch, for who must wait for it."""
        cluster = self.cluster
        self.alarm.due(cluster.next_due)
        late_happenings, late_events = cluster.take_news()
        self.tally.note(cluster.engine.journal.records, [*happenings, *late_happenings])
        lines = cluster.engine.journal.take()
        objects = [ObjectWrite(*row) for row in cluster.take_changes()]
        self._let_go()
        if not lines and not objects and not meta:
            return self._last
        known = archive.Counters(cluster.now(), cluster.objects.uids, cluster.objects.version, self._changes)
        batch = Batch(lines, objects, cluster.now(), {**meta, archive.META: known.text()})
        future = self.committer.submit(batch)
        news = News(cluster.engine.version, cluster.now(), lines, objects, [*events, *late_events])
        future.add_done_callback(lambda done: self._written(done, news))
        self._last = future
        self._shelved.append((future, [one for one in objects if one.text is not None]))
        return future

    def _let_go(self) -> None:
        """Manifests that are on the disk by now need not be in memory."""
        while self._shelved and self._shelved[0][0].done():
            for one in self._shelved.popleft()[1]:
                self.cluster.objects.let_go(one.kind, one.key, one.manifest)

    def _written(self, done: Future[int], news: News) -> None:
        """Runs in the writing thread, in the order of the batches."""
        error = done.exception()
        if error is not None:
            self.error = self.error or error
        else:
            self.hub.publish(news)

    def _wait(self) -> None:
        """Until everything that was handed over is on the disk."""
        if self._last is not None:
            self._last.result()

    def _check_running(self) -> None:
        if self.error is not None:
            raise StoppedError(f"no changes are taken any more, restart the server: {self.error}") from self.error

    def _guarded(self, work: Callable[[], T]) -> T:
        """Run it; if it fails and something has changed, memory is no longer what the disk will say."""
        before = self._position()
        try:
            return work()
        except BaseException as error:
            if self._position() != before:
                trace = RuntimeError("a refused change left a trace") if isinstance(error, ManifestError) else error
                self.error = self.error or trace
            raise

    def _position(self) -> tuple[int, int]:
        return self.cluster.engine.version, self.cluster.objects.version

    # Reading

    def scratch(self) -> Cluster:
        """A copy of the cluster of now, to try changes on."""
        return self.archive.scratch(self.position())

    def read(self, look: Callable[[Cluster], T], at: str = "") -> tuple[T, Future[int] | None]:
        """Look at the cluster of now, or of a moment; the future says when what was seen is durable."""
        if not at:
            with self.lock:
                return look(self.cluster), self._last
        return self.read_past(look, self.moment(at)), None

    def read_past(self, look: Callable[[Cluster], T], moment: moments.Moment) -> T:
        lock, cluster = self.archive.at(moment)
        with lock:
            return look(cluster)

    def moment(self, text: str, option: str = "at") -> moments.Moment:
        """The moment that a text, given for an option, names; all up to now is on the disk when this returns."""
        with self.lock:
            self._wait()
            now, latest = self.now(), self.latest()
        return moments.find(self.store, text, now, latest, option)

    def position(self) -> moments.Moment:
        """The present moment; all of it is on the disk when this returns."""
        with self.lock:
            self._wait()
            return moments.Moment(*self._position(), self.cluster.now())
