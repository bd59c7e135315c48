"""The embedded cluster: the control loop over a store of objects and pods that run in virtual time.

Pods start at once where they were placed, run until they are deleted or finished (or as long as their annotation says),
and leave at once when deleted or evicted (unless their annotation says otherwise: then they are physically there until
then). An evicted pod stays visible, and nobody but the user creates it anew. A pod applied with a node name is a fact:
it runs there, whoever would have refused it.

Every call applies its whole step or nothing, and then settles. Settling never advances time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import msgspec

from bursar.control import ports as outside
from bursar.control.admission import Admission
from bursar.control.kinds import known_kinds
from bursar.control.loop import Controller
from bursar.control.translation import ObjectChange
from bursar.engine.decisions import Decision
from bursar.engine.engine import Engine, EngineError
from bursar.engine.what_if import Outlook
from bursar.ledger.claims import Claim
from bursar.objects.core import Pod
from bursar.objects.corekinds import NODE, POD
from bursar.objects.errors import ManifestError
from bursar.objects.kinds import Kind
from bursar.objects.kindset import TypedObject
from bursar.objects.manifests import Document
from bursar.policies.checks import Check
from bursar.policies.plugin import Registry, default_registry
from bursar.policies.settings import Output
from bursar.sim import updates
from bursar.sim.clock import Clock
from bursar.sim.news import Event, Happening
from bursar.sim.pods import ENDED, EVICTED, PENDING, RUNNING, SUCCEEDED, TERMINATING, PodView, SimPod, pod_times
from bursar.sim.records import decode, encode
from bursar.sim.store import Stage, Store


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of an object that was applied."""

    kind: Kind
    key: str
    result: Literal["created", "changed", "unchanged"]


class Cluster:
    """A cluster in memory, with the policies of a registry. It is its own ports."""

    def __init__(self, registry: Registry | None = None, start: int = 0) -> None:
        registry = default_registry() if registry is None else registry
        self.registry = registry
        self.kinds = known_kinds(registry)
        self.engine = Engine(registry.policies())
        self.events: list[Event] = []
        self.happenings: list[Happening] = []
        self._clock = Clock(start)
        self._store = Store()
        self._admission = Admission(registry, self.kinds)
        self._pods: dict[str, SimPod] = {}  # by key
        self._by_uid: dict[str, SimPod] = {}
        self._seen: deque[Callable[[], None]] = deque()  # for the controller, once it has finished what it does
        self.controller = Controller(self.engine, registry, self)

    # Steps

    def apply(self, documents: Iterable[Document]) -> list[Applied]:
        """Create or update all objects, or none: ``ManifestError`` says why."""
        applied = self._apply(self.kinds.read_all(documents))
        self.settle()
        return applied

    def delete(self, references: Iterable[tuple[Kind, str]]) -> None:
        """Delete all of them, or none."""
        stage = self._store.stage()
        changes: list[ObjectChange] = []
        pods: list[SimPod] = []
        for kind, key in dict.fromkeys(references):
            stored = stage.find(kind.name, key)
            if stored is None:
                raise ManifestError("does not exist", subject=f"{kind.kind} {key}")
            self._admission.check_removal(stage, kind, key, stored.manifest())
            if kind.name == POD.name:
                pods.append(self._pods[key])
            else:
                stage.remove(kind.name, key)
                changes.append(ObjectChange(kind, key, None))
        self.controller.apply(changes)
        self._store.take(stage)
        for pod in pods:
            self._delete_pod(pod)
        self.settle()

    def finish(self, keys: Iterable[str]) -> None:
        """These pods succeed; all of them must be running."""
        pods = [self._running_pod(key) for key in dict.fromkeys(keys)]
        for pod in pods:
            self._succeed(pod)
        self.settle()

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
        self._tell_controller()
        self.controller.settle()
        while self._seen:
            self._tell_controller()
            self.controller.settle()

    def _tell_controller(self) -> None:
        """Tell the controller what was seen since it last heard."""
        while self._seen:
            self._seen.popleft()()

    # Applying

    def _apply(self, given: list[TypedObject]) -> list[Applied]:
        stage = self._store.stage()
        staged = [self._stage(stage, one) for one in given]
        changes = [change for change in staged if change is not None]
        applied = [self._outcome(one, change) for one, change in zip(given, staged, strict=True)]
        for change in changes:
            if change.is_pod:
                self._check_node(stage, cast("Pod", change.typed))
        self.controller.check(changes)
        self.controller.apply(changes)
        self._store.take(stage)
        for change in changes:
            if change.is_pod:
                self._note_pod(cast("Pod", change.typed), change.key)
        return applied

    def _outcome(self, given: TypedObject, change: ObjectChange | None) -> Applied:
        if change is None:
            return Applied(given.kind, given.key, "unchanged")
        known = self._store.find(given.kind.name, given.key)
        return Applied(given.kind, given.key, "created" if known is None else "changed")

    def trial(self, documents: Iterable[Document]) -> tuple[list[Claim], Outlook]:
        """What would become of these new pods if they came now; nothing changes."""
        given = self.kinds.read_all(documents)
        stage = self._store.stage()
        for one in given:
            pod = self._pods.get(one.key)
            if one.kind.name != POD.name or (pod is not None and pod.phase not in ENDED):
                problem = "exists already" if one.kind.name == POD.name else "is no pod"
                raise ManifestError(f"{problem}: only new pods can be tried", subject=f"{one.kind.kind} {one.key}")
        changes = [change for change in (self._stage(stage, one) for one in given) if change is not None]
        return self.controller.trial(changes)

    def staged(self, documents: Iterable[Document], without: Iterable[str] = ()) -> list[ObjectChange]:
        """The changes that these documents would be, checked as ``apply`` does; nothing changes. ``without``: pods that
        are deleted before.
        """
        stage = self._store.stage()
        for key in without:
            stage.remove(POD.name, key)
        given = self.kinds.read_all(documents)
        return [change for change in (self._stage(stage, one) for one in given) if change is not None]

    def _stage(self, stage: Stage, given: TypedObject) -> ObjectChange | None:
        """The change that the object means; None when it is there already as it was given."""
        known = stage.find(given.kind.name, given.key)
        pod = self._pods.get(given.key) if given.kind.name == POD.name else None
        anew = pod is not None and pod.phase in ENDED
        updates.check_version(given, known)
        body = updates.wishes(given.body, None if anew else known)
        if body != given.body:
            given = self.kinds.read(Document("", 0, body))
        old = None if known is None or anew else known.manifest()
        admitted = self._admission.admit(stage, old, given)
        if known is not None and not anew:
            if admitted.body == known.applied.body:
                return None
            if pod is not None:
                updates.check_pod_update(known, admitted, pod)
        stored = stage.apply(admitted, self._clock.now, anew=anew)
        if given.kind.name != POD.name:
            return ObjectChange(given.kind, given.key, admitted)
        typed = cast("Pod", admitted.typed)
        pod_times(typed)
        named = msgspec.structs.replace(typed.metadata, namespace=admitted.namespace, uid=stored.uid)
        whole = msgspec.structs.replace(typed, metadata=named, status=type(typed.status)())
        return ObjectChange(given.kind, given.key, replace(admitted, typed=whole), stored.created)

    def _check_node(self, stage: Stage, pod: Pod) -> None:
        node = pod.spec.node_name
        if node and stage.find(NODE.name, node) is None:
            subject = f"Pod {pod.metadata.namespace}/{pod.metadata.name}"
            raise ManifestError(f"there is no node {node!r:.80}", "spec.nodeName", subject=subject)

    def _note_pod(self, pod: Pod, key: str) -> None:
        runs_for, leaves_after = pod_times(pod)
        known = self._pods.get(key)
        if known is not None and known.uid == pod.metadata.uid:
            known.leaves_after = leaves_after
            return
        if known is not None:
            del self._by_uid[known.uid]
        found = SimPod(pod.metadata.uid, key, runs_for, leaves_after)
        self._pods[key] = found
        self._by_uid[found.uid] = found
        self._write_phase(found)

    # What becomes of pods

    def _delete_pod(self, pod: SimPod) -> None:
        pod.deleted = True
        self._store.touch(POD.name, pod.key)
        if pod.phase == RUNNING:
            self._leave(pod)
        elif pod.phase != TERMINATING:
            self._has_left(pod)

    def _leave(self, pod: SimPod) -> None:
        """It was told to leave, and takes its time."""
        if pod.leaves_after == 0:
            self._has_left(pod)
            return
        pod.phase = TERMINATING
        self._write_phase(pod)
        self._set_timer(pod, pod.leaves_after)
        self._seen.append(lambda: self.controller.terminating(pod.uid))

    def _has_left(self, pod: SimPod) -> None:
        if pod.phase == TERMINATING:
            self._happened(pod, "left")
        if pod.phase not in ENDED:
            self._seen.append(lambda: self.controller.gone(pod.uid))
        if pod.evicted and pod.phase not in ENDED:
            pod.phase = EVICTED
            self._write_phase(pod)
        if pod.deleted:
            self._store.remove(POD.name, pod.key)
            del self._pods[pod.key]
            del self._by_uid[pod.uid]

    def _succeed(self, pod: SimPod) -> None:
        pod.phase = SUCCEEDED
        pod.due = None
        self._write_phase(pod)
        self._happened(pod, "finished")
        self._seen.append(lambda: self.controller.gone(pod.uid))

    def _set_timer(self, pod: SimPod, delay: int) -> None:
        pod.due = self._clock.now + delay
        pod.order = self._clock.at(pod.due, lambda: self._time_is_up(pod))

    def _time_is_up(self, pod: SimPod) -> None:
        """A pod that was told to leave while it ran has two timers; only the one it waits for now counts."""
        if pod.due != self._clock.now:
            return
        pod.due = None
        if pod.phase == RUNNING:
            self._succeed(pod)
        elif pod.phase == TERMINATING:
            self._has_left(pod)

    def _running_pod(self, key: str) -> SimPod:
        pod = self._pods.get(key)
        if pod is None:
            raise ManifestError("does not exist", subject=f"Pod {key}")
        if pod.phase != RUNNING:
            raise ManifestError(f"is {pod.phase}: only a running pod can finish", subject=f"Pod {key}")
        return pod

    def _write_phase(self, pod: SimPod) -> None:
        stored = self._store.find(POD.name, pod.key)
        if stored is not None and stored.uid == pod.uid:
            status = {"phase": pod.phase, "reason": pod.reason or None, "message": pod.message or None}
            leaves_since = self._clock.now if pod.phase == TERMINATING else None
            placed = replace(stored, node=pod.node, leaves_since=leaves_since)
            self._store.write(placed.with_written("status", status))

    # Ports

    def now(self) -> int:
        return self._clock.now

    def start(self, claim: Claim) -> None:
        pod = self._by_uid.get(claim.uid)
        if pod is None or pod.phase != PENDING:
            return
        pod.phase = RUNNING
        pod.node = claim.place
        self._write_phase(pod)
        self._happened(pod, "started")
        self._seen.append(lambda: self.controller.running(pod.uid))
        if pod.runs_for is not None:
            self._set_timer(pod, pod.runs_for)

    def evict(self, claim: Claim, decision: Decision) -> None:
        pod = self._by_uid.get(claim.uid)
        if pod is None or pod.phase in ENDED or pod.evicted:
            return
        pod.evicted = True
        pod.reason = decision.reason
        pod.message = decision.sentence()
        self._store.touch(POD.name, pod.key)
        by = f" by {decision.by}" if decision.by else ""
        self._happened(pod, "evicted", f"{decision.reason}{by}")
        if pod.phase != TERMINATING:
            self._leave(pod)

    def write(self, output: Output) -> None:
        if output.part == "object":
            self._seen.append(lambda: self._write_object(output))
        elif self._store.find(output.kind, output.key) is None:
            self._seen.append(lambda: self._write_part(output))  # the object itself may be about to be written
        else:
            self._write_part(output)

    def _write_part(self, output: Output) -> None:
        stored = self._store.find(output.kind, output.key)
        if stored is not None:
            written = stored.with_written(output.part, output.value or {})
            if written != stored:
                self._store.write(written)

    def _write_object(self, output: Output) -> None:
        stored = self._store.find(output.kind, output.key)
        if output.value is not None:
            body: dict[str, Any] = output.value
            if stored is None or stored.applied.body != body:
                self._apply(self.kinds.read_all([Document("", 0, body)]))
        elif stored is not None:
            self.controller.apply([ObjectChange(stored.kind, stored.key, None)])
            self._store.remove(output.kind, output.key)

    def event(self, kind: str, key: str, type: str, reason: str, message: str) -> None:  # noqa: A002 as Kubernetes says
        self.events.append(Event(self._clock.now, kind, key, type, reason, message))
        pod = self._pods.get(key) if kind == POD.name else None
        if pod is None or reason in {outside.ADMITTED, outside.EVICTED, outside.RESIZE_REFUSED}:
            return
        held = reason == outside.HELD
        claim = self.controller.claim(key)
        node = claim.place if held and claim is not None else ""
        line = Happening(self._clock.now, key, "held" if held else "waits", node, "" if held else reason)
        self.happenings.append(line)

    def _happened(self, pod: SimPod, what: str, reason: str = "") -> None:
        self.happenings.append(Happening(self._clock.now, pod.key, what, pod.node, reason))

    # Stopping and starting again

    def take_changes(self) -> list[tuple[str, str, int, bytes | None]]:
        """(kind, key, version, record) of each object that changed since the last call, in the order of the versions;
        no record: it is gone.
        """
        found: list[tuple[str, str, int, bytes | None]] = []
        for (kind, key), version in sorted(self._store.touched.items(), key=lambda item: item[1]):
            stored = self._store.find(kind, key)
            pod = self._pods.get(key) if kind == POD.name else None
            found.append((kind, key, version, None if stored is None else encode(stored, pod)))
        self._store.touched.clear()
        return found

    def take_news(self) -> tuple[list[Happening], list[Event]]:
        """What happened since the last call; the cluster forgets it."""
        found = self.happenings, self.events
        self.happenings, self.events = [], []
        return found

    def resume(self, now: int, uids: int, version: int, records: Iterable[tuple[str, str, int, bytes]]) -> None:
        """Go on from records (kind, key, version, text) and an engine in the same state; only in a new cluster.

        Nothing is written anew: the cluster was at rest, so what the policies want written was written.
        """
        changes: list[ObjectChange] = []
        timed: list[SimPod] = []
        for kind, key, number, text in records:
            stored, pod = decode(self.kinds, kind, key, number, text)
            self._store.load(stored)
            if pod is None:
                changes.append(ObjectChange(stored.kind, key, stored.applied))
            else:
                self._pods[key] = pod
                self._by_uid[pod.uid] = pod
                timed.extend([pod] if pod.due is not None else [])
        self._clock.now = now
        self._store.version, self._store.uids = version, uids
        for pod in sorted(timed, key=lambda pod: (pod.due, pod.order)):
            self._set_timer(pod, (pod.due or 0) - now)
        self.controller.resume(changes, [(pod.key, pod.uid) for pod in self._pods.values() if pod.phase not in ENDED])
        self.engine.outputs(now)

    # Answers

    @property
    def objects(self) -> Store:
        """The objects, to read."""
        return self._store

    def find(self, kind: Kind, key: str) -> dict[str, Any] | None:
        """The whole manifest of an object; None if there is none."""
        stored = self._store.find(kind.name, key)
        return None if stored is None else stored.manifest()

    def doing(self, key: str) -> SimPod | None:
        """What the pod is doing, to read."""
        return self._pods.get(key)

    def pod(self, key: str) -> PodView | None:
        pod = self._pods.get(key)
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
        return sorted(self._pods)

    def explain(self, key: str) -> Check | None:
        """Why the pod is where it is; None when nobody remembers it."""
        pod = self._pods.get(key)
        if pod is None:
            return None
        try:
            return self.controller.explain(pod.uid)
        except EngineError:
            return None
