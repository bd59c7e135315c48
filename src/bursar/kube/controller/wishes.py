"""What a gated pod wants, read as the embedded cluster would have admitted it.

A pod whose node the scheduler decides over, by constraints that Bursar does not judge, can be given no parts of GPUs
and no share of a GPU node: both need a node to be chosen. Who wants the first waits with that reason; all are kept off.
"""

from __future__ import annotations

from typing import Any

from bursar.control.admission import Admission
from bursar.control.loop import Controller
from bursar.control.translation import ObjectChange
from bursar.kube.controller.patches import narrowed, node_terms, with_node_terms
from bursar.kube.controller.placement import Placement
from bursar.kube.controller.sight import SeenSpec, unjudged, wished_annotations, wished_labels
from bursar.kube.controller.world import World
from bursar.objects.corekinds import POD
from bursar.objects.errors import ManifestError
from bursar.objects.kindset import TypedObject
from bursar.objects.manifests import Document
from bursar.policies.crossquota.names import CLAIMS_DEVICES
from bursar.policies.tensorfusion.worker import is_worker

Body = dict[str, Any]


class UnjudgedError(ManifestError):
    """A pod that needs a node to be chosen, with constraints that only the scheduler judges."""


class Wishes:
    """Reads the manifests of gated pods."""

    def __init__(self, controller: Controller, world: World, admission: Admission, placement: Placement) -> None:
        self._controller = controller
        self._world = world
        self._admission = admission
        self._placement = placement

    def read(self, spec: SeenSpec, body: Body) -> TypedObject:
        """The pod with what admission fills in; raises ``ManifestError``."""
        metadata = body["metadata"]
        wished = {
            **metadata,
            "labels": wished_labels(metadata.get("labels") or {}),
            "annotations": wished_annotations(metadata.get("annotations") or {}) | claimed_devices(spec),
        }
        given = self._world.kinds.read(Document("", 0, {**body, "metadata": wished}))
        given = self._admission.admit(self._world, None, given)
        others = unjudged(spec)
        return self._judge(given, others) if others else given

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


def claimed_devices(spec: SeenSpec) -> dict[str, str]:
    """A mark for policies: the pod claims devices, of which its requests say nothing."""
    return {CLAIMS_DEVICES: "true"} if spec.resource_claims else {}
