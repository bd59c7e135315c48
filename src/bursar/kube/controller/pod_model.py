"""Pods as the API server shows them, and what gated pods request.

A pod with constraints that only the scheduler judges (``constraints.unjudged``) is never pinned, so it gets no GPU
fraction (it waits with that reason) and no share of a GPU node.

``GatedPodReader`` reads a gated pod as the embedded cluster would admit it. The result depends only on the fields of
its equivalence class and on the objects in force. So it is read once per class, until an object changes.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import msgspec
from msgspec import field

from bursar.control.admission import Admission, ObjectChange
from bursar.control.controller import Controller
from bursar.kube.client.models import Meta
from bursar.kube.controller.object_cache import ObjectCache
from bursar.kube.controller.patches import (
    GATE,
    OWN_LABELS,
    Filled,
    PlacementRuleSet,
    filled_in,
    is_own_annotation,
    narrowed,
    node_terms,
    with_node_terms,
)
from bursar.objects.constraints import unjudged, without_preferences
from bursar.objects.core import Affinity, Condition, ObjectMeta, Pod, PodSpec, PodStatus
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import POD, TypedObject
from bursar.objects.manifests import Document
from bursar.objects.validation import few

ENDED = ("Succeeded", "Failed")
_WORDS = 400  # characters that are kept of what the scheduler says


class PodCondition(Condition, frozen=True):
    message: str = ""


class SeenStatus(PodStatus, frozen=True):
    conditions: tuple[PodCondition, ...] = ()


class SeenMeta(ObjectMeta, frozen=True):
    resource_version: str = ""


class SeenPod(Pod, frozen=True):
    """A pod with all fields that the controller reads."""

    metadata: SeenMeta = SeenMeta()
    status: SeenStatus = SeenStatus()
    excess: str = field(name="", default="")  # how it exceeds what is read of a pod; not of the API server

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def gated(self) -> bool:
        gates = self.spec.scheduling_gates
        return bool(gates) and any(gate.name == GATE for gate in gates)

    @property
    def leaving(self) -> bool:
        return bool(self.metadata.deletion_timestamp)

    @property
    def ended(self) -> bool:
        return self.status.phase in ENDED

    @property
    def unschedulable(self) -> str:
        """What the scheduler said, if it tried the pod and found no node; else empty."""
        for condition in self.status.conditions:
            if condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable":
                return condition.message[:_WORDS] or "no node fits"
        return ""

    @property
    def foreign_gates(self) -> tuple[str, ...]:
        """The scheduling gates of others."""
        return tuple(gate.name for gate in self.spec.scheduling_gates if gate.name != GATE)

    @property
    def preempted(self) -> bool:
        """Whether the scheduler itself takes its place for another pod."""
        for condition in self.status.conditions:
            if condition.type == "DisruptionTarget":
                return condition.status == "True" and condition.reason == "PreemptionByScheduler"
        return False


read_pod = msgspec.json.Decoder(SeenPod).decode


def identity(pod: SeenPod) -> Meta:
    """The metadata by which the client identifies a pod."""
    meta = pod.metadata
    return Meta(meta.name, meta.namespace, meta.uid, meta.resource_version)


def other_gates(pod: SeenPod, ignored: Container[str]) -> str:
    """Says which scheduling gates of others hold the pod back; empty if none does."""
    found = [name for name in pod.foreign_gates if name not in ignored]
    return f"other scheduling gates hold it back: {few(found)}" if found else ""


def anywhere(spec: PodSpec) -> PodSpec:
    """The spec without node constraints, for a bound pod."""
    return msgspec.structs.replace(spec, node_selector={}, affinity=Affinity(), tolerations=())


def user_labels(labels: dict[str, str]) -> dict[str, str]:
    """The labels without those that Bursar writes."""
    if OWN_LABELS.isdisjoint(labels):
        return labels
    return {name: value for name, value in labels.items() if name not in OWN_LABELS}


def user_annotations(annotations: dict[str, str]) -> dict[str, str]:
    """The annotations without those that Bursar writes."""
    if not annotations:
        return annotations
    return {name: value for name, value in annotations.items() if not is_own_annotation(name)}


def milliseconds(timestamp: str) -> int:
    """A timestamp of the API server in milliseconds; 0 for none."""
    if not timestamp:
        return 0
    return round(datetime.fromisoformat(timestamp).timestamp() * 1000)


def decision_input(pod: SeenPod) -> tuple[object, ...]:
    """The fields that a gated pod may change and that a decision reads."""
    return pod.spec, pod.excess, *_marks(pod)


def input_changed(before: SeenPod, pod: SeenPod) -> bool:
    """Whether fields changed that an ungated pod may change and that a decision reads."""
    was, now = before.spec, pod.spec
    if (was.containers, was.init_containers, was.resources) != (now.containers, now.init_containers, now.resources):
        return True
    if before.metadata.labels == pod.metadata.labels and before.metadata.annotations == pod.metadata.annotations:
        return False
    return _marks(before) != _marks(pod)


def _marks(pod: SeenPod) -> tuple[dict[str, str], dict[str, str]]:
    """The labels and annotations of the pod's creator."""
    return user_labels(pod.metadata.labels), user_annotations(pod.metadata.annotations)


Body = dict[str, Any]
_KEPT = 16 * 1024 * 1024  # bytes of the keys of readings, which weigh a few times as much
_encode = msgspec.json.Encoder().encode


class UnjudgedError(ManifestError):
    """A pod that needs a node to be chosen, with constraints that only the scheduler judges."""


@dataclass(frozen=True, slots=True)
class PodRequest:
    """The request of a pod with what admission filled in: one for each equivalence class."""

    labels: dict[str, str]
    annotations: dict[str, str]
    spec: PodSpec
    filled: Filled
    unjudged: tuple[str, ...]


class GatedPodReader:
    def __init__(
        self, controller: Controller, cache: ObjectCache, admission: Admission, placement: PlacementRuleSet
    ) -> None:
        self._controller = controller
        self._cache = cache
        self._admission = admission
        self._placement = placement
        self._readings: dict[bytes, PodRequest] = {}  # by equivalence class, at one version of the object cache
        self._version = -1
        self.bytes = 0  # of the keys

    def read(self, pod: SeenPod) -> PodRequest:
        """The request of the pod; raises ``ManifestError``."""
        if self._version != self._cache.version or self.bytes > _KEPT:
            self._readings.clear()
            self._version, self.bytes = self._cache.version, 0
        key = class_key(pod)
        found = self._readings.get(key)
        if found is None:
            found = self._readings[key] = self._read(pod)
            self.bytes += len(key)
        return found

    def _read(self, pod: SeenPod) -> PodRequest:
        manifest = manifest_of(pod)
        given = self._cache.kinds.read(Document("", 0, manifest))
        given = self._admission.admit(self._cache, None, given)
        others = unjudged(pod.spec)
        if others:
            given = self._judge(given, others)
        typed = cast("Pod", given.typed)
        filled = filled_in(manifest, given.body)
        return PodRequest(typed.metadata.labels, typed.metadata.annotations, typed.spec, filled, others)

    def _judge(self, given: TypedObject, others: tuple[str, ...]) -> TypedObject:
        """A pod whose node only the scheduler can choose gets no GPU fraction and no share of a GPU node."""
        metadata = given.body.get("metadata") or {}
        if self._placement.needs_node(metadata.get("labels") or {}, metadata.get("annotations") or {}):
            problem = f"its {' and '.join(others)} cannot be judged, and parts of GPUs need a node to be chosen"
            raise UnjudgedError(problem, "spec", subject=f"Pod {given.key}")
        claim = self._controller.read(ObjectChange(POD, given.key, given))
        if claim is None or not self._placement.must_stay_off(claim):
            return given
        terms = node_terms(given.body)
        fenced = narrowed(terms, terms, pin="", keep_off=True)
        return given if fenced is None else self._cache.kinds.read(Document("", 0, with_node_terms(given.body, fenced)))


def class_key(pod: SeenPod) -> bytes:
    """The equivalence class of a pod: the fields of ``manifest_of``."""
    meta = pod.metadata
    marks = user_labels(meta.labels), user_annotations(meta.annotations)
    return _encode((meta.namespace, marks, without_preferences(pod.spec)))


def manifest_of(pod: SeenPod) -> Body:
    """The pod as admission sees it: without what Bursar wrote, and without what only others read."""
    meta, asked = pod.metadata, without_preferences(pod.spec)
    metadata = {
        "name": meta.name,
        "namespace": meta.namespace,
        "labels": user_labels(meta.labels),
        "annotations": user_annotations(meta.annotations),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": msgspec.json.decode(_encode(asked))}
