"""What gated pods want, read as the embedded cluster would have admitted them.

Pods of one job want the same. What is read of a pod follows from the fields that make up its likeness, and from the
objects that are in force: the manifest that admission sees is made of these fields, and of nothing else but the pod's
name. So it is read once for all pods that are alike, until an object comes, changes or goes.

A pod whose node the scheduler decides over, by constraints that Bursar does not judge, can be given no parts of GPUs
and no share of a GPU node: both need a node to be chosen. Who wants the first waits with that reason; all are kept off.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any, cast

import msgspec

from bursar.control.admission import Admission
from bursar.control.loop import Controller
from bursar.control.translation import ObjectChange
from bursar.kube.controller.patches import Filled, filled_in, narrowed, node_terms, with_node_terms
from bursar.kube.controller.placement import Placement
from bursar.kube.controller.seenpod import SeenPod, SeenSpec, unjudged, wished_annotations, wished_labels
from bursar.kube.controller.world import World
from bursar.objects.core import Affinity, Pod, PodSpec
from bursar.objects.corekinds import POD
from bursar.objects.errors import ManifestError
from bursar.objects.kindset import TypedObject
from bursar.objects.manifests import Document
from bursar.policies.crossquota.names import CLAIMS_DEVICES
from bursar.policies.tensorfusion.worker import is_worker

Body = dict[str, Any]
_KEPT = 4096  # readings
_FIELDS = tuple(field.name for field in msgspec.structs.fields(PodSpec) if field.name != "affinity")
_fields_of = attrgetter(*_FIELDS)
_encode = msgspec.json.Encoder().encode


class UnjudgedError(ManifestError):
    """A pod that needs a node to be chosen, with constraints that only the scheduler judges."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a pod wants, with what admission filled in; the same for all pods that are alike."""

    labels: dict[str, str]
    annotations: dict[str, str]
    spec: PodSpec
    filled: Filled
    unjudged: tuple[str, ...]


class Wishes:
    """Reads gated pods."""

    def __init__(self, controller: Controller, world: World, admission: Admission, placement: Placement) -> None:
        self._controller = controller
        self._world = world
        self._admission = admission
        self._placement = placement
        self._readings: dict[bytes, Reading] = {}  # by likeness, as of the world's version
        self._version = -1

    def read(self, pod: SeenPod) -> Reading:
        """What the pod wants; raises ``ManifestError``."""
        if self._version != self._world.version or len(self._readings) >= _KEPT:
            self._readings.clear()
            self._version = self._world.version
        like = likeness(pod)
        found = self._readings.get(like)
        if found is None:
            found = self._readings[like] = self._read(pod)
        return found

    def _read(self, pod: SeenPod) -> Reading:
        manifest = manifest_of(pod)
        given = self._world.kinds.read(Document("", 0, manifest))
        given = self._admission.admit(self._world, None, given)
        others = unjudged(pod.spec)
        if others:
            given = self._judge(given, others)
        typed = cast("Pod", given.typed)
        filled = filled_in(manifest, given.body)
        return Reading(typed.metadata.labels, typed.metadata.annotations, typed.spec, filled, others)

    def _judge(self, given: TypedObject, others: tuple[str, ...]) -> TypedObject:
        """A pod whose node the scheduler decides over: no GPUs can be chosen for it, and no share of a GPU node."""
        metadata = given.body.get("metadata") or {}
        if is_worker(metadata.get("labels") or {}, metadata.get("annotations") or {}):
            problem = f"its {' and '.join(others)} cannot be judged, and parts of GPUs need a node to be chosen"
            raise UnjudgedError(problem, "spec", subject=f"Pod {given.key}")
        claim = self._controller.read(ObjectChange(POD, given.key, given))
        if claim is None or not self._placement.must_stay_off(claim):
            return given
        terms = node_terms(given.body)
        fenced = narrowed(terms, terms, pin="", keep_off=True)
        return given if fenced is None else self._world.kinds.read(Document("", 0, with_node_terms(given.body, fenced)))


def likeness(pod: SeenPod) -> bytes:
    """Equal for pods of which the same is read: all that ``manifest_of`` writes, without the name, and what only the
    scheduler judges.
    """
    meta, spec = pod.metadata, pod.spec
    marks = wished_labels(meta.labels), wished_annotations(meta.annotations)
    return _encode((meta.namespace, marks, unjudged(spec), spec.affinity.node_affinity, _fields_of(spec)))


def manifest_of(pod: SeenPod) -> Body:
    """The pod as admission sees it: without what Bursar wrote, and without what only others read."""
    meta, spec = pod.metadata, pod.spec
    asked = PodSpec(affinity=Affinity(spec.affinity.node_affinity), **dict(zip(_FIELDS, _fields_of(spec), strict=True)))
    metadata = {
        "name": meta.name,
        "namespace": meta.namespace,
        "labels": wished_labels(meta.labels),
        "annotations": wished_annotations(meta.annotations) | claimed_devices(spec),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": msgspec.json.decode(_encode(asked))}


def claimed_devices(spec: SeenSpec) -> dict[str, str]:
    """A mark for policies: the pod claims devices, of which its requests say nothing."""
    return {CLAIMS_DEVICES: "true"} if spec.resource_claims else {}
