"""The least Kubernetes that a ledger can follow: objects in memory, a gate, an obedient scheduler, a kubelet.

It drives a ``Mirror`` by what it would see through the API server, and does what the mirror wants done. Time is
virtual. The scheduler puts each pod on the node that was decided.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from bursar.control.actions import repair_note
from bursar.engine.eviction import holders_of
from bursar.kube.admission.predicate import GATE
from bursar.kube.client.models import Meta
from bursar.kube.controller.informers import narrowed
from bursar.kube.controller.mirror import Mirror, MirrorOptions
from bursar.kube.controller.patches import (
    ENFORCED,
    GOVERNED_LABEL,
    HOLD,
    HistoryRecord,
    HoldRecord,
    admission_record,
    history_record,
    node_terms,
    start_patch,
    with_node_terms,
    written,
)
from bursar.kube.controller.pod_model import read_pod
from bursar.ledger.claims import RESERVED, Claim
from bursar.ledger.preemption_history import heir_key
from bursar.objects.constraints import unjudged
from bursar.objects.kinds import NAMESPACE, Kind, TypedObject
from bursar.objects.manifests import Document
from bursar.objects.pods import SYSTEM_CLASSES
from bursar.objects.validation import duration_ms
from bursar.policies.plugin import default_registry
from bursar.sim.pods import LEAVES_AFTER, RUNS_FOR

Body = dict[str, Any]
_FIRST = 1_000_000_000_000  # milliseconds: far from zero, as real times are


class PlainKubernetes:
    """Pods and objects as an API server has them, and a mirror of it."""

    def __init__(self) -> None:
        self.now = _FIRST
        self.mirror = Mirror(default_registry(), MirrorOptions())
        self.mirror.notes._clock = lambda: self.now
        self.pods: dict[str, Body] = {}
        self.phases: dict[str, str] = {}  # of pods that are or were there, as scenarios call them
        self.objects: dict[tuple[str, str], Body] = {}
        self._marks: dict[tuple[str, str, str], Body] = {}  # labels and annotations that were written on objects
        self._named: set[str] = set()  # namespaces that quotas name now, or do so no longer
        self.mirror.named = self._named.update
        self._owned: dict[tuple[str, str], Body] = {}  # objects of policies, as they want them
        self._timers: list[tuple[int, int, str, str]] = []  # (when, order, what, uid)
        self._made = 0

    # Steps of a scenario

    def apply(self, documents: Iterable[Document]) -> None:
        for given in self.mirror.cache.kinds.read_all(documents):
            if given.kind.name == "Pod":
                self._apply_pod(given)
            else:
                self._apply_object(given.kind, given.key, given.body)
        self.settle()

    def delete(self, references: Iterable[tuple[Kind, str]]) -> None:
        for kind, key in references:
            if kind.name == "Pod":
                if key in self.pods:
                    self._leave(key, "Absent")
                else:
                    self.phases.pop(key, None)
            else:
                self._delete_object(kind, key)
        self.settle()

    def finish(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._end(key, "Succeeded")
        self.settle()

    def advance(self, duration: int) -> None:
        end = self.now + duration
        while True:
            due = self.mirror.engine.next_due(self.now)
            moments = [when for when, *_ in self._timers] + ([due] if due is not None else [])
            self.now = min([end, *(moment for moment in moments if moment > self.now)])
            self._ring()
            self.settle()
            if self.now >= end:
                return

    def _ring(self) -> None:
        for timer in sorted(timer for timer in self._timers if timer[0] <= self.now):
            self._timers.remove(timer)
            _, _, what, uid = timer
            key = next((key for key, pod in self.pods.items() if pod["metadata"]["uid"] == uid), None)
            if key is None:
                continue
            if what == "ends" and self.phases[key] == "Running":
                self._end(key, "Succeeded")
            elif what == "left":
                self._gone(key, self.phases.get(f"{key} then", "Evicted"))

    # Objects

    def _apply_object(self, kind: Kind, key: str, body: Body) -> None:
        known = self.objects.get((kind.name, key))
        metadata = {"name": key.rpartition("/")[2], "uid": f"{kind.name} {key}", **(body.get("metadata") or {})}
        for part in ("labels", "annotations"):
            metadata[part] = {**self._marks.get((kind.name, key, part), {}), **(metadata.get(part) or {})}
        self.objects[kind.name, key] = {**body, "metadata": metadata, **_kept_status(known, body)}
        self._show(kind, key)

    def _show_named(self) -> None:
        """Namespaces have a label while quotas name them, as the namespace keeper writes it."""
        named = sorted(self._named)
        self._named.clear()
        for name in named:
            self._show(NAMESPACE, name)

    def _delete_object(self, kind: Kind, key: str) -> None:
        body = self.objects.pop((kind.name, key))
        for part in ("labels", "annotations"):
            self._marks.pop((kind.name, key, part), None)
        metadata = body["metadata"]
        meta = Meta(name=metadata["name"], namespace=metadata.get("namespace", ""), uid=metadata["uid"])
        self.mirror.object_gone(kind, meta)

    def _show(self, kind: Kind, key: str) -> None:
        body = self.objects.get((kind.name, key), {"metadata": {"name": key}})
        if kind == NAMESPACE and key in self.mirror.selection:
            marks = {"labels": {**(body["metadata"].get("labels") or {}), GOVERNED_LABEL: ENFORCED}}
            body = {**body, "metadata": {**body["metadata"], **marks}}
        self.mirror.object_seen(kind, narrowed(kind)(Meta(), msgspec.json.encode(body)))

    # Pods

    def _apply_pod(self, given: TypedObject) -> None:
        key = given.key
        if key in self.pods:
            self._change_pod(given)
            return
        self._made += 1
        spec = {**given.body.get("spec", {}), **self._priority(given.body.get("spec", {}))}
        if not spec.get("nodeName"):
            spec["schedulingGates"] = [{"name": GATE}]
        created = datetime.fromtimestamp(self.now / 1000, UTC).isoformat()
        metadata = {**given.body["metadata"], "uid": f"{key}#{self._made}", "creationTimestamp": created}
        status = {"phase": "Pending"}
        self.pods[key] = {**given.body, "metadata": metadata, "spec": spec, "status": status}
        self.phases[key] = "Pending"
        if spec.get("nodeName"):
            self._run(key)
        self._show_pod(key)

    def _change_pod(self, given: TypedObject) -> None:
        pod = self.pods[given.key]
        kept = {name: pod["spec"][name] for name in ("nodeName", "schedulingGates", "priority") if name in pod["spec"]}
        spec = {**given.body.get("spec", {}), **kept}
        if not pod["spec"].get("schedulingGates") and node_terms(pod):
            spec = with_node_terms({"spec": spec}, node_terms(pod))["spec"]
        metadata = {**pod["metadata"]}
        for part in ("labels", "annotations"):
            metadata[part] = {**(pod["metadata"].get(part) or {}), **(given.body["metadata"].get(part) or {})}
        self.pods[given.key] = {**pod, "metadata": metadata, "spec": spec}
        self._show_pod(given.key)

    def _priority(self, spec: Body) -> Body:
        """As the API server fills it in when a pod is created."""
        if spec.get("priority") is not None:
            return {}
        if spec.get("priorityClassName") in SYSTEM_CLASSES:
            return {"priority": SYSTEM_CLASSES[spec["priorityClassName"]]}
        classes = [body for (kind, _), body in self.objects.items() if kind == "PriorityClass"]
        named = [body for body in classes if body["metadata"]["name"] == spec.get("priorityClassName")]
        chosen = named or [body for body in classes if body.get("globalDefault")]
        if not chosen:
            return {"priority": 0}
        policy = chosen[0].get("preemptionPolicy")
        return {"priority": chosen[0]["value"], **({"preemptionPolicy": policy} if policy else {})}

    def _show_pod(self, key: str) -> None:
        raw = msgspec.json.encode(self.pods[key])
        self.mirror.pod_seen(read_pod(raw))

    def _run(self, key: str) -> None:
        pod = self.pods[key]
        pod["status"] = {"phase": "Running"}
        self.phases[key] = "Running"
        runs_for = (pod["metadata"].get("annotations") or {}).get(RUNS_FOR)
        if runs_for:
            self._timer("ends", pod, duration_ms(runs_for))

    def _timer(self, what: str, pod: Body, delay: int) -> None:
        self._timers.append((self.now + delay, len(self._timers), what, pod["metadata"]["uid"]))

    def _end(self, key: str, phase: str) -> None:
        self.pods[key]["status"] = {"phase": phase}
        self.phases[key] = phase
        self._show_pod(key)
        del self.pods[key]

    def _leave(self, key: str, then: str) -> None:
        """Told to leave: at once, or when its time is up."""
        pod = self.pods[key]
        delay = duration_ms((pod["metadata"].get("annotations") or {}).get(LEAVES_AFTER, "0s"))
        self.phases[f"{key} then"] = then
        if pod["metadata"].get("deletionTimestamp"):
            return
        if delay == 0 or self.phases[key] != "Running":
            self._gone(key, then)
            return
        pod["metadata"]["deletionTimestamp"] = datetime.fromtimestamp(self.now / 1000, UTC).isoformat()
        self.phases[key] = "Terminating"
        self._timer("left", pod, delay)
        self._show_pod(key)

    def _gone(self, key: str, then: str) -> None:
        del self.pods[key]
        self.mirror.pod_gone(key)
        self.phases.pop(f"{key} then", None)
        if then == "Absent":
            self.phases.pop(key, None)
        else:
            self.phases[key] = then

    # What the mirror wants

    def settle(self) -> None:
        notes = self.mirror.notes
        while True:
            self._show_named()
            self.mirror.controller.settle()
            if not (notes.starts or notes.evictions or notes.marks or notes.outputs or self._repair()):
                return
            marks, notes.marks = notes.marks, {}
            starts, notes.starts = notes.starts, {}
            evictions, notes.evictions = notes.evictions, {}
            outputs, notes.outputs = notes.outputs, {}
            for claim, _ in evictions.values():
                self._hold(claim)
                if claim.key in self.pods:
                    self._leave(claim.key, "Evicted")
            for key, parts in marks.items():
                self._mark(key, parts)
            for claim in starts.values():
                if claim.state == RESERVED and not claim.leaving:
                    self._start(claim)
            for (kind, key), written_parts in outputs.items():
                for output in written_parts.values():
                    self.mirror.cache.note_written(output)
                    self._write(self.mirror.cache.kinds.find(kind), key, output.part, output.value)

    def _hold(self, victim: Claim) -> None:
        """Before somebody is told to leave, it stands written for whom."""
        claims = self.mirror.engine.state.claims
        for uid in holders_of(self.mirror.engine.state, victim.uid):
            claimant = claims[uid]
            waits = tuple((other, heir_key(claims[other])) for other in claimant.waits_for if other in claims)
            history = msgspec.structs.asdict(self._history(claimant))
            marks: dict[str, str | None] = {HOLD: written(HoldRecord(claimant.place, waits, **history))}
            self._mark(claimant.key, {"annotations": marks})

    def _history(self, claim: Claim) -> HistoryRecord:
        return history_record(claim.uid, *self.mirror.engine.preemption_history(claim.uid))

    def _mark(self, key: str, parts: dict[str, dict[str, str | None]]) -> None:
        if key not in self.pods:
            return
        metadata = self.pods[key]["metadata"]
        for part, values in parts.items():
            metadata[part] = _merged(metadata.get(part) or {}, values)
        if not self.pods[key]["spec"].get("schedulingGates"):
            self._show_pod(key)

    def _start(self, claim: Claim) -> None:
        tracked = self.mirror.pods.by_uid[claim.uid]
        pod, reading = self.pods[claim.key], tracked.reading
        assert reading is not None
        filled = self.mirror.placement.restricted(claim, reading.filled)
        orders = self.mirror.placement.orders(claim, unjudged(tracked.seen.spec), expressible=filled.expressible)
        record = written(admission_record(claim, 1, 0, orders, self._history(claim)))
        pin = claim.place if orders.pin else ""
        marks = {"bursar.dev/admission": record}
        patch = start_patch(claim.uid, filled, marks, pin=pin, keep_off=orders.keep_off)
        metadata = pod["metadata"]
        metadata["annotations"] = _merged(metadata.get("annotations") or {}, patch["metadata"]["annotations"])
        pod["spec"] = {**pod["spec"], "schedulingGates": []}
        affinity = patch["spec"].get("affinity")
        if affinity:
            required = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            pod["spec"] = with_node_terms(pod, required["nodeSelectorTerms"])["spec"]
        self._show_pod(claim.key)
        pod = self.pods[claim.key]
        pod["spec"] = {**pod["spec"], "nodeName": claim.place} if claim.place else pod["spec"]
        self._run(claim.key)
        self._show_pod(claim.key)

    def _write(self, kind: Kind, key: str, part: str, value: dict[str, object] | None) -> None:
        if part == "object":
            if value is not None:
                self._owned[kind.name, key] = dict(value)
                self._apply_object(kind, key, _applied(self.objects.get((kind.name, key)) or {}, dict(value)))
                return
            self._owned.pop((kind.name, key), None)
            if (kind.name, key) in self.objects:
                self._delete_object(kind, key)
            return
        body = self.objects.get((kind.name, key))
        if body is None:
            return
        if part == "status":
            body["status"] = {**(body.get("status") or {}), **(value or {})}
        else:
            metadata = body["metadata"]
            metadata[part] = _merged(metadata.get(part) or {}, value or {})
            self._marks[kind.name, key, part] = _merged(self._marks.get((kind.name, key, part), {}), value or {})
        self._show(kind, key)

    def _repair(self) -> bool:
        """Puts an object of a policy right that somebody changed, as the object writer does; whether there was one."""
        for (kind, key), wanted in self._owned.items():
            found = self.objects.get((kind, key))
            if found is not None and repair_note(found, wanted):
                self.objects[kind, key] = _applied(found, wanted)
                self._show(self.mirror.cache.kinds.find(kind), key)
                return True
        return False


def _merged(before: Body, change: dict[str, Any]) -> Body:
    return {name: value for name, value in {**before, **change}.items() if value is not None}


def _applied(found: Body, wanted: Body) -> Body:
    """The object after a server-side apply of the wanted fields."""
    nested = {name: _applied(found.get(name) or {}, value) for name, value in wanted.items() if isinstance(value, dict)}
    return {**found, **wanted, **nested}


def _kept_status(known: Body | None, body: Body) -> Body:
    status = {**((known or {}).get("status") or {}), **(body.get("status") or {})}
    return {"status": status} if status else {}
