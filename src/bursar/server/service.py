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
from bursar.objects.kinds import Kind
from bursar.objects.manifests import Document
from bursar.policies.plugin import Registry, default_registry
from bursar.server import answers, archive, changelog, moments
from bursar.server.changelog import Answers, ChangeRecord, GivenAnswer
from bursar.server.hub import Hub, News
from bursar.server.moments import Clock, wall_clock
from bursar.server.tally import Tally
from bursar.server.undoing import Inverse, inverse_of
from bursar.sim.cluster import Cluster
from bursar.sim.news import Event as Notice
from bursar.sim.news import Happening
from bursar.sim.store import timestamp
from bursar.store.batches import Batch, ObjectWrite
from bursar.store.committer import GroupCommitter
from bursar.store.store import Store

T = TypeVar("T")
Outcomes = list[tuple[Kind, str, changelog.Result]]
Reference = tuple[Kind, str]


class StoppedError(RuntimeError):
    """The service takes no changes any more."""


class KeyReusedError(ValueError):
    """An idempotency key came with another request than the first time."""


class NoSuchChangeError(LookupError):
    """No change has that number."""


@dataclass(frozen=True, slots=True)
class Pending:
    """An answer that may be given when ``durable`` is done."""

    answer: answers.Change
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
        def act(cluster: Cluster) -> Outcomes:
            return [(one.kind, one.key, one.result) for one in cluster.apply(documents)]

        return self._change("apply", act, dry_run, key, request)

    def delete(self, references: Sequence[str], *, dry_run: bool = False, key: str = "", request: str = "") -> Pending:
        def act(cluster: Cluster) -> Outcomes:
            found = [cluster.kinds.reference(text) for text in dict.fromkeys(references)]
            cluster.delete(found)
            return [(kind, name, "deleted") for kind, name in found]

        return self._change("delete", act, dry_run, key, request)

    def finish(self, pods: Sequence[str], *, key: str = "", request: str = "") -> Pending:
        def act(cluster: Cluster) -> Outcomes:
            cluster.finish(pods)
            kind = cluster.kinds.find("Pod")
            return [(kind, pod, "changed") for pod in dict.fromkeys(pods)]

        return self._change("finish", act, False, key, request)

    def undo(self, number: int, *, dry_run: bool = False) -> Pending:
        with self.lock:
            self._wait()
            record = changelog.load_change(self.store, number)
            if record is None:
                raise NoSuchChangeError(f"there is no change {number}")
            inverse = inverse_of(record, self.cluster, self.store)
            if inverse.mixed and not dry_run:  # two steps: the second must not be refused when the first is made
                inverse.run(self.scratch())
            return self._change("undo", inverse.run, dry_run, "", "", inverse)

    def _change(
        self,
        verb: str,
        act: Callable[[Cluster], Outcomes],
        dry_run: bool,
        key: str,
        request: str,
        inverse: Inverse | None = None,
    ) -> Pending:
        with self.lock:
            self._check_running()
            known = self._answers.find(key) if key else None
            if known is not None:
                if known.request != f"{verb} {request}":
                    raise KeyReusedError(f"the idempotency key {key!r:.80} was used for another request")
                return Pending(known.change, self._last)
            self._guarded(self._catch_up)
            if dry_run:
                return Pending(self._dry_run(verb, act, inverse), None)
            return self._guarded(lambda: self._make(verb, act, key, request, inverse))

    def _make(
        self, verb: str, act: Callable[[Cluster], Outcomes], key: str, request: str, inverse: Inverse | None
    ) -> Pending:
        outcomes = act(self.cluster)
        happenings, events = self.cluster.take_news()
        changed = any(result != "unchanged" for _, _, result in outcomes)
        self._changes += changed
        number = self._changes if changed else 0
        change = describe(self.cluster, number, verb, outcomes, happenings, inverse)
        meta: dict[str, str] = {}
        if changed:
            objects = [self._object_change(*outcome) for outcome in outcomes if outcome[2] != "unchanged"]
            evicted = [happening.pod for happening in happenings if happening.what == "evicted"]
            meta |= ChangeRecord(change, objects, evicted).meta()
        if key:
            meta |= self._answers.keep(GivenAnswer(key, f"{verb} {request}", change))
        return Pending(change, self._flush(meta, happenings, events))

    def _object_change(self, kind: Kind, key: str, result: changelog.Result) -> changelog.ObjectChange:
        version = self.cluster.objects.touched.get((kind.name, key), 0)
        return changelog.ObjectChange(kind.name, key, result, version)

    def _dry_run(self, verb: str, act: Callable[[Cluster], Outcomes], inverse: Inverse | None) -> answers.Change:
        scratch = self.scratch()
        outcomes = act(scratch)
        return describe(scratch, 0, verb, outcomes, scratch.take_news()[0], inverse, dry_run=True)

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

    def _guarded(self, action: Callable[[], T]) -> T:
        """Run it; if it fails and something has changed, memory is no longer what the disk will say."""
        before = self._position()
        try:
            return action()
        except ManifestError:
            self._check_untouched(before)
            raise
        except BaseException as error:
            if self._position() != before:
                self.error = self.error or error
            raise

    def _check_untouched(self, before: tuple[int, int]) -> None:
        if self._position() != before:
            self.error = self.error or RuntimeError("a refused change left a trace")

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

    def moment(self, text: str) -> moments.Moment:
        """The moment that a text names; everything up to now is on the disk when this returns."""
        with self.lock:
            self._wait()
            now = self.now()
        return moments.find(self.store, text, now)

    def position(self) -> moments.Moment:
        """The present moment; all of it is on the disk when this returns."""
        with self.lock:
            self._wait()
            return moments.Moment(*self._position(), self.cluster.now())


def describe(
    cluster: Cluster,
    number: int,
    verb: str,
    outcomes: Outcomes,
    happenings: Sequence[Happening],
    inverse: Inverse | None,
    *,
    dry_run: bool = False,
) -> answers.Change:
    """A change as it is answered."""
    objects: list[answers.ObjectOutcome] = []
    for kind, key, result in outcomes:
        stored = cluster.objects.find(kind.name, key)
        version = "" if stored is None else str(stored.version)
        objects.append(answers.ObjectOutcome(kind=kind.name, key=key, result=result, resource_version=version))
    return answers.Change(
        id=number,
        moment=moments.moment_of(cluster),
        verb=verb,
        objects=objects,
        pods=[pod_news(happening) for happening in happenings],
        dry_run=dry_run,
        undoes=0 if inverse is None else inverse.number,
        lost=[] if inverse is None else inverse.lost,
    )


def pod_news(happening: Happening) -> answers.PodNews:
    return answers.PodNews(
        time=timestamp(happening.at),
        pod=happening.pod,
        what=happening.what,
        node=happening.node,
        reason=happening.reason,
    )
