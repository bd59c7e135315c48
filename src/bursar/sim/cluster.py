"""The embedded cluster: the control loop over a store of objects and pods that run in virtual time.

A pod starts at once where it was placed, and runs until it is deleted or finished, or as long as its annotation says. A
deleted or evicted pod leaves at once, or after the time that its annotation says. An evicted pod stays visible and is
not created again. A pod applied with a node name runs there unconditionally.

Every call applies its whole step or nothing, and then settles. Settling never advances time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, cast

from bursar.control import actions as outside
from bursar.control.admission import Admission, ObjectChange, known_kinds
from bursar.control.controller import Controller
from bursar.control.suggestions.search import EFFORT, Found, find_fixes
from bursar.engine.decision import Decision
from bursar.engine.engine import Engine
from bursar.engine.session import EngineError
from bursar.ledger.claims import Claim
from bursar.objects.core import Pod
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import POD, Kind, TypedObject
from bursar.objects.manifests import Document
from bursar.policies.plugin import Registry, default_registry
from bursar.policies.results import Check, Output
from bursar.sim.apply import Staging, check_node
from bursar.sim.objects import Load, ManifestReader, ObjectStore, Stage, Stored
from bursar.sim.persistence import ObjectRow, changed_rows, load_objects, policy_outputs, resume_pods
from bursar.sim.pods import (
    PENDING,
    RUNNING,
    TERMINATING,
    Clock,
    Happening,
    PodEnd,
    PodLife,
    PodView,
    SimEvent,
    SimPod,
)

Result = Literal["created", "changed", "unchanged", "deleted"]


class Applied(NamedTuple):
    """What became of an object of a step."""

    kind: Kind
    key: str
    result: Result


class Cluster:
    """A cluster in memory, with the policies of a registry. It is its own ports."""

    controls: ClassVar[type[Controller]] = Controller

    def __init__(self, registry: Registry | None = None, start: int = 0, manifests: Load | None = None) -> None:
        """``manifests``: where those of pods can be read again; without it they all stay in memory."""
        registry = default_registry() if registry is None else registry
        self.registry = registry
        self.kinds = known_kinds(registry)
        self.engine = Engine(registry.policies())
        self.events: list[SimEvent] = []
        self._owned: dict[tuple[str, str], dict[str, Any]] = {}  # objects of policies, by kind and key, as last written
        self._clock = Clock(start)
        self._store = ObjectStore(ManifestReader(self.kinds, manifests))
        self.controller = self.controls(self.engine, registry, self)
        self._pods = PodLife(self._store, self._clock, self.controller)
        self.staging = Staging(self.kinds, Admission(registry, self.kinds), self._clock, self._pods)

    # Steps

    def apply(self, documents: Iterable[Document]) -> list[Applied]:
        """Create or update all objects, or none: ``ManifestError`` says why."""
        given = self.kinds.read_all(documents)
        applied = self._apply(given)
        overwritten = [self._noted(one) for one in given if (one.kind.name, one.key) in self._owned]
        self.settle()
        for kind, key in overwritten:
            if (kind, key) in self._owned:
                self._write_object(Output(kind, key, "object", self._owned[kind, key]))
        if overwritten:
            self.settle()
        return applied

    def _noted(self, given: TypedObject) -> tuple[str, str]:
        """An event says what was applied over an object that a policy owns; it is written again."""
        kind, key = given.kind.name, given.key
        message = outside.repair_note(given.body, self._owned[kind, key])
        if message:
            self.event(kind, key, outside.WARNING, outside.REPAIRED, message)
        return kind, key

    def delete(self, references: Iterable[tuple[Kind, str]]) -> list[Applied]:
        """Delete all of them, or none."""
        stage = self._store.stage()
        named = list(dict.fromkeys(references))
        self.staging.check_removals(stage, [self._existing(stage, kind, key) for kind, key in named])
        pods = [self._pods.by_key[key] for kind, key in named if kind.name == POD.name]
        changes = [ObjectChange(kind, key, None) for kind, key in named if kind.name != POD.name]
        for change in changes:
            stage.remove(change.kind.name, change.key)
        self.controller.apply(changes)
        self._store.take(stage)
        for pod in pods:
            self._pods.delete(pod)
        self.settle()
        return [Applied(kind, key, "deleted") for kind, key in named]

    def _existing(self, stage: Stage, kind: Kind, key: str) -> Stored:
        stored = stage.find(kind.name, key)
        if stored is None:
            raise ManifestError("does not exist", subject=f"{kind.kind} {key}")
        return stored

    def finish(self, keys: Iterable[str]) -> list[Applied]:
        """These pods succeed; all of them must be running."""
        pods = [self._pods.running(key) for key in dict.fromkeys(keys)]
        for pod in pods:
            self._pods.succeed(pod)
        self.settle()
        return [Applied(self.kinds.find(POD.name), pod.key, "changed") for pod in pods]

    def report(self, ends: Iterable[PodEnd]) -> list[Applied]:
        """Real pods ended. A report about one that has ended before, or was replaced, changes nothing."""
        applied: list[Applied] = []
        kind = self.kinds.find(POD.name)
        for end in ends:
            pod = self._pods.by_key.get(end.pod)
            if pod is None or pod.uid != end.uid or not pod.machine or pod.phase not in {RUNNING, TERMINATING}:
                applied.append(Applied(kind, end.pod, "unchanged"))
                continue
            stored = self._store.find(POD.name, pod.key)
            again = stored.applied if end.again and stored is not None and not pod.deleted else None
            self._pods.end(pod, end)
            if again is not None:
                self.settle()  # the old pod is gone before the new one comes
                self._apply([again])
            applied.append(Applied(kind, end.pod, "changed"))
        self.settle()
        return applied

    def advance(self, duration: int) -> None:
        """Let time pass, settling whenever something is due."""
        moment = self._clock.now + duration
        while self.step_to(moment):
            pass

    def step_to(self, moment: int) -> bool:
        """Let time pass until something is due, and settle; False: nothing was, and it is that moment now."""
        moment = max(moment, self._clock.now)
        wanted = self.engine.next_due(self._clock.now)
        fired = self._clock.pass_to(moment if wanted is None else min(moment, wanted))
        self.settle()
        return fired or self._clock.now < moment

    @property
    def next_due(self) -> int | None:
        """When a pod ends or has left by itself or a policy may take something back, if nothing happens before."""
        moments = [self._clock.next_due, self.engine.next_due(self._clock.now)]
        return min((moment for moment in moments if moment is not None), default=None)

    def settle(self) -> None:
        """Until nothing changes any more; no time passes."""
        while True:
            while self._pods.seen:  # what the controller must be notified of
                self._pods.seen.popleft()()
            self.controller.settle()
            if not self._pods.seen:
                return

    # Applying

    def _apply(self, given: list[TypedObject]) -> list[Applied]:
        stage = self._store.stage()
        staged = self.staging.changes(stage, given)
        changes = [change for change in staged if change is not None]
        applied = [self._outcome(one, change) for one, change in zip(given, staged, strict=True)]
        for change in changes:
            if change.is_pod:
                check_node(stage, cast("Pod", change.typed))
        self.controller.check(changes)
        self.controller.apply(changes)
        self._store.take(stage)
        for change in changes:
            if change.is_pod:
                self._pods.note(cast("Pod", change.typed), change.key)
        return applied

    def _outcome(self, given: TypedObject, change: ObjectChange | None) -> Applied:
        if change is None:
            return Applied(given.kind, given.key, "unchanged")
        known = self._store.find(given.kind.name, given.key)
        return Applied(given.kind, given.key, "created" if known is None else "changed")

    def staged(self, documents: Iterable[Document], without: Iterable[str] = ()) -> list[ObjectChange]:
        """The changes that these documents would be, checked as ``apply`` does; nothing changes. ``without``: pods that
        are deleted before.
        """
        stage = self._store.stage()
        for key in without:
            stage.remove(POD.name, key)
        staged = self.staging.changes(stage, self.kinds.read_all(documents))
        return [change for change in staged if change is not None]

    # Ports

    def now(self) -> int:
        return self._clock.now

    def start(self, claim: Claim) -> None:
        self._pods.start(claim)

    def evict(self, claim: Claim, decision: Decision) -> None:
        self._pods.evict(claim, decision)

    def write(self, output: Output) -> None:
        if output.part == "object":
            self._pods.seen.append(lambda: self._write_object(output))
        elif self._store.find(output.kind, output.key) is None:
            self._pods.seen.append(lambda: self._write_part(output))  # the object itself may be about to be written
        else:
            self._write_part(output)

    def _write_part(self, output: Output) -> None:
        stored = self._store.find(output.kind, output.key)
        if stored is not None:
            written = stored.with_written(output.part, output.value or {})
            if written.written != stored.written:
                self._store.write(written)

    def _write_object(self, output: Output) -> None:
        stored = self._store.find(output.kind, output.key)
        if output.value is not None:
            body: dict[str, Any] = output.value
            self._owned[output.kind, output.key] = body
            if stored is None or stored.body != body:
                self._apply(self.kinds.read_all([Document("", 0, body)]))
            return
        self._owned.pop((output.kind, output.key), None)
        if stored is not None:
            self.controller.apply([ObjectChange(stored.kind, stored.key, None)])
            self._store.remove(output.kind, output.key)

    def event(self, kind: str, key: str, type: str, reason: str, message: str) -> None:  # noqa: A002 as Kubernetes says
        self.events.append(SimEvent(self._clock.now, kind, key, type, reason, message))
        pod = self._pods.by_key.get(key) if kind == POD.name else None
        if pod is None or reason in {outside.ADMITTED, outside.EVICTED, outside.RESIZE_REFUSED}:
            return
        held = reason == outside.HELD
        claim = self.controller.claim(key)
        node = claim.place if held and claim is not None else ""
        line = Happening(self._clock.now, key, "held" if held else "waits", node, "" if held else reason)
        self._pods.happenings.append(line)

    # Stopping and starting again

    def take_changes(self) -> list[ObjectRow]:
        """Each object that changed since the last call, in the order of the versions."""
        return changed_rows(self._store, self._pods)

    def take_news(self) -> tuple[list[Happening], list[SimEvent]]:
        """What happened since the last call; it is returned once."""
        found = self._pods.happenings, self.events
        self._pods.happenings, self.events = [], []
        return found

    def resume(
        self, now: int, uids: int, version: int, records: Iterable[tuple[str, str, int, bytes]], *, summed: bool = False
    ) -> None:
        """Go on from records (kind, key, version, text) and an engine in the same state; only in a new cluster that
        knows where the manifests are. ``summed``: it will write objects.
        """
        outputs = policy_outputs(self.engine.policies, now)
        written = {(kind, key): value for (kind, key, part), value in outputs.items() if part == "object"}
        self._owned = {target: value for target, value in written.items() if value is not None}
        claims = self.engine.state.claims
        changes = load_objects(self._store, self._pods, self.kinds, claims, records, outputs, summed=summed)
        self._clock.now = now
        self._store.version, self._store.uids, self._store.taken = version, uids, version
        resume_pods(self._pods, self.controller, changes, now)

    # Answers

    @property
    def happenings(self) -> list[Happening]:
        """What happened to pods since the last ``take_news``."""
        return self._pods.happenings

    @property
    def objects(self) -> ObjectStore:
        """The objects, to read."""
        return self._store

    def kind_of(self, name: str, key: str, known: Callable[[Kind, str], bool] | None = None) -> Kind:
        """The kind that people call by this name; of several the one that has an object of this key.

        ``known``: what counts as having one, if not that it is there now.
        """
        known = known or (lambda kind, key: self._store.find(kind.name, key) is not None)
        called = self.kinds.called(name)
        there = [kind for kind in called if known(kind, key)] if len(called) > 1 else called
        return there[0] if len(there) == 1 else self.kinds.find(name)

    def kind_listed(self, name: str) -> Kind:
        """The kind to list by this name; of several the one that has objects."""
        called = self.kinds.called(name)
        there = [kind for kind in called if self._store.has(kind.name)]
        return there[0] if len(there) == 1 else self.kinds.find(name)

    def reference(self, text: str) -> tuple[Kind, str]:
        """The kind and key that ``Kind/namespace/name`` or ``Kind/name`` stands for; the object may be missing."""
        name, _, key = text.partition("/")
        kinds = self.kinds.called(name)
        return self.kinds.reference(f"{self.kind_of(name, key).name}/{key}" if len(kinds) > 1 else text)

    def find(self, kind: Kind, key: str) -> dict[str, Any] | None:
        """The whole manifest of an object; None if there is none."""
        stored = self._store.find(kind.name, key)
        return None if stored is None else stored.manifest()

    @property
    def pod_states(self) -> Mapping[str, SimPod]:
        """What the pods are doing, by key, to read."""
        return self._pods.by_key

    def doing(self, key: str) -> SimPod | None:
        """What the pod is doing, to read."""
        return self._pods.by_key.get(key)

    def pod(self, key: str) -> PodView | None:
        pod = self._pods.by_key.get(key)
        stored = self._store.find(POD.name, key)
        if pod is None or stored is None:
            return None
        reason, message = pod.reason, pod.message
        if pod.phase == PENDING:
            reason, message = self.controller.reason(pod.uid)
        metadata = stored.manifest()["metadata"]
        labels, annotations = metadata.get("labels", {}), metadata.get("annotations", {})
        return PodView(key, pod.phase, pod.node, reason, message, labels, annotations)

    def pods(self) -> list[str]:
        """The keys of all pods, in order."""
        return sorted(self._pods.by_key)

    def explain(self, key: str) -> Check | None:
        """Why the pod is where it is; None if the engine has forgotten it."""
        pod = self._pods.by_key.get(key)
        if pod is None:
            return None
        try:
            return self.controller.explain(pod.uid)
        except EngineError:
            return None


class ClusterSource:
    """What the search for fixes reads of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ends = {
            pod.uid: pod.due
            for pod in map(cluster.doing, cluster.pods())
            if pod is not None and pod.phase == RUNNING and pod.due is not None
        }

    def now(self) -> int:
        return self._cluster.now()

    def get(self, kind: str, key: str) -> dict[str, Any] | None:
        found = self._cluster.objects.find(kind, key)
        return None if found is None else found.body

    def staged(self, documents: Sequence[Document], without: Iterable[str]) -> list[ObjectChange]:
        return self._cluster.staged(documents, without)

    def list(self, kind: str, namespace: str | None = None) -> Iterator[dict[str, Any]]:
        return (found.body for found in self._cluster.objects.all(kind, namespace))

    def ends(self, uid: str) -> int | None:
        return self._ends.get(uid)


def fixes_for(cluster: Cluster, uid: str, effort: int = EFFORT) -> Found:
    """The fixes for a pending claim. The caller holds the cluster's lock."""
    controller = cluster.controller
    return find_fixes(cluster.engine, cluster.registry, controller.queue, ClusterSource(cluster), uid, effort)
