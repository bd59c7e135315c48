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
from typing import Any, cast

import msgspec

from bursar.control import ports as outside
from bursar.control.admission import Admission
from bursar.control.kinds import known_kinds
from bursar.control.loop import Controller
from bursar.control.translation import ObjectChange
from bursar.engine.decisions import Decision
from bursar.engine.engine import Engine, EngineError
from bursar.ledger.claims import Claim
from bursar.objects.core import Pod
from bursar.objects.corekinds import NODE, POD
from bursar.objects.errors import ManifestError
from bursar.objects.kinds import Kind
from bursar.objects.kindset import TypedObject
from bursar.objects.manifests import Document
from bursar.objects.needs import node_needs
from bursar.policies.checks import Check
from bursar.policies.plugin import Registry, default_registry
from bursar.policies.settings import Output
from bursar.sim.clock import Clock
from bursar.sim.pods import ENDED, EVICTED, PENDING, RUNNING, SUCCEEDED, TERMINATING, PodView, SimPod, pod_times
from bursar.sim.store import Stage, Store, Stored


@dataclass(frozen=True, slots=True)
class Event:
    """Something people were told about an object."""

    at: int
    kind: str
    key: str
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Happening:
    """One line of what happened to pods."""

    at: int
    pod: str
    what: str  # started, held, waits, evicted, left, finished
    node: str
    reason: str


class Cluster:
    """A cluster in memory, with the policies of a registry. It is its own ports."""

    def __init__(self, registry: Registry | None = None, start: int = 0) -> None:
        registry = default_registry() if registry is None else registry
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

    def apply(self, documents: Iterable[Document]) -> None:
        """Create or update all objects, or none: ``ManifestError`` says why."""
        self._apply(self.kinds.read_all(documents))
        self.settle()

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
        while self._clock.pass_to(moment):
            self.settle()
        self.settle()

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

    def _apply(self, given: Iterable[TypedObject]) -> None:
        stage = self._store.stage()
        changes = [self._stage(stage, one) for one in given]
        for change in changes:
            if change.is_pod:
                self._check_node(stage, cast("Pod", change.typed))
        self.controller.check(changes)
        self.controller.apply(changes)
        self._store.take(stage)
        for change in changes:
            if change.is_pod:
                self._note_pod(cast("Pod", change.typed), change.key)

    def _stage(self, stage: Stage, given: TypedObject) -> ObjectChange:
        known = stage.find(given.kind.name, given.key)
        pod = self._pods.get(given.key) if given.kind.name == POD.name else None
        anew = pod is not None and pod.phase in ENDED
        if pod is not None and known is not None and not anew:
            given = self.kinds.read(Document("", 0, _unpinned(given.body, known)))
        old = None if known is None or anew else known.manifest()
        admitted = self._admission.admit(stage, old, given)
        if pod is not None and known is not None and not anew:
            _check_update(known, admitted, pod)
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
        found = SimPod(pod.metadata.uid, key, runs_for, leaves_after)
        self._pods[key] = found
        self._by_uid[found.uid] = found
        self._write_phase(found)

    # What becomes of pods

    def _delete_pod(self, pod: SimPod) -> None:
        pod.deleted = True
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
        self._clock.after(pod.leaves_after, lambda: self._has_left(pod))
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
        self._write_phase(pod)
        self._happened(pod, "finished")
        self._seen.append(lambda: self.controller.gone(pod.uid))

    def _run_out(self, pod: SimPod) -> None:
        if pod.phase == RUNNING:
            self._succeed(pod)

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
            self._clock.after(pod.runs_for, lambda: self._run_out(pod))

    def evict(self, claim: Claim, decision: Decision) -> None:
        pod = self._by_uid.get(claim.uid)
        if pod is None or pod.phase in ENDED or pod.evicted:
            return
        pod.evicted = True
        pod.reason = decision.reason
        pod.message = decision.sentence()
        by = f" by {decision.by}" if decision.by else ""
        self._happened(pod, "evicted", f"{decision.reason}{by}")
        if pod.phase != TERMINATING:
            self._leave(pod)

    def write(self, output: Output) -> None:
        if output.part == "object":
            self._seen.append(lambda: self._write_object(output))
            return
        stored = self._store.find(output.kind, output.key)
        if stored is not None:
            self._store.write(stored.with_written(output.part, output.value or {}))

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

    # Answers

    def find(self, kind: Kind, key: str) -> dict[str, Any] | None:
        """The whole manifest of an object; None if there is none."""
        stored = self._store.find(kind.name, key)
        return None if stored is None else stored.manifest()

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


def _unpinned(body: dict[str, Any], known: Stored) -> dict[str, Any]:
    """A manifest that was read from the cluster repeats the node that the pod got; that is no wish of the user."""
    spec = body.get("spec") or {}
    asked = (known.applied.body.get("spec") or {}).get("nodeName")
    if asked or spec.get("nodeName") != (known.node or None):
        return body
    return {**body, "spec": {name: value for name, value in spec.items() if name != "nodeName"}}


def _check_update(known: Stored, given: TypedObject, pod: SimPod) -> None:
    """A pod that has its place cannot ask for another one."""
    before = node_needs(cast("Pod", known.applied.typed).spec)
    after = node_needs(cast("Pod", given.typed).spec)
    subject = f"Pod {given.key}"
    if after.node_name != before.node_name:
        raise ManifestError("a pod cannot be moved: delete it and create it anew", "spec.nodeName", subject=subject)
    if pod.phase != PENDING and after.record() != before.record():
        problem = f"the pod is {pod.phase}: what it requires of its node can no longer change"
        raise ManifestError(problem, "spec", subject=subject)
