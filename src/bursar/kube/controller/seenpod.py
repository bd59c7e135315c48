"""Pods as the API server shows them: what the ledger reads of them, and what only Kubernetes itself judges.

``unjudged`` names the constraints of a pod that decide over nodes and that Bursar does not judge. A pod that has some
is never pinned: its node is the scheduler's choice.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import field

from bursar.kube.client.models import Meta
from bursar.kube.controller.names import GATE, OWN_LABELS, is_own_annotation
from bursar.objects.core import Affinity, Condition, Lenient, ObjectMeta, Pod, PodSpec, PodStatus

ENDED = ("Succeeded", "Failed")
_LOCAL_VOLUMES = frozenset(
    {"name", "emptyDir", "configMap", "secret", "downwardAPI", "projected", "hostPath", "image", "nfs", "gitRepo"}
)


class _Unread(Lenient, frozen=True):
    """Something that is there, and of which nobody reads more. (``Raw`` would keep the text of the whole pod.)"""


_Anything = _Unread | tuple[object, ...] | str | float | bool | None


class _PodRules(Lenient, frozen=True):
    required: tuple[_Unread, ...] = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=())


class SeenAffinity(Affinity, frozen=True):
    pod_affinity: _PodRules = _PodRules()
    pod_anti_affinity: _PodRules = _PodRules()


class _Spread(Lenient, frozen=True):
    when_unsatisfiable: str = "DoNotSchedule"


class SeenSpec(PodSpec, frozen=True):
    affinity: SeenAffinity = SeenAffinity()
    volumes: tuple[dict[str, _Anything], ...] = ()
    topology_spread_constraints: tuple[_Spread, ...] = ()
    resource_claims: tuple[_Unread, ...] = ()


class SeenStatus(PodStatus, frozen=True):
    conditions: tuple[Condition, ...] = ()


class SeenMeta(ObjectMeta, frozen=True):
    resource_version: str = ""


class SeenPod(Pod, frozen=True):
    """A pod with everything that the controller looks at."""

    metadata: SeenMeta = SeenMeta()
    spec: SeenSpec = SeenSpec()
    status: SeenStatus = SeenStatus()

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
    def unschedulable(self) -> bool:
        """Whether the scheduler tried it and found no node."""
        return any(
            condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable"
            for condition in self.status.conditions
        )

    @property
    def preempted(self) -> bool:
        """Whether the scheduler itself takes its place for another pod."""
        for condition in self.status.conditions:
            if condition.type == "DisruptionTarget":
                return condition.status == "True" and condition.reason == "PreemptionByScheduler"
        return False


read_pod = msgspec.json.Decoder(SeenPod).decode


def identity(pod: SeenPod) -> Meta:
    """What the client knows a pod by."""
    meta = pod.metadata
    return Meta(meta.name, meta.namespace, meta.uid, meta.resource_version)


def unjudged(spec: SeenSpec) -> tuple[str, ...]:
    """What decides over the pod's node besides that which Bursar judges, in people's words."""
    found: list[str] = []
    if any(not _LOCAL_VOLUMES.issuperset(volume) for volume in spec.volumes):
        found.append("volumes")
    if any(spread.when_unsatisfiable == "DoNotSchedule" for spread in spec.topology_spread_constraints):
        found.append("topology spread")
    if spec.affinity.pod_affinity.required or spec.affinity.pod_anti_affinity.required:
        found.append("pod affinity")
    if spec.resource_claims:
        found.append("resource claims")
    return tuple(found)


def anywhere(spec: SeenSpec) -> SeenSpec:
    """The spec without what decides over nodes: for a pod whose node is a fact."""
    return msgspec.structs.replace(spec, node_selector={}, affinity=SeenAffinity(), tolerations=())


def wished_labels(labels: dict[str, str]) -> dict[str, str]:
    """The labels without those that Bursar writes."""
    if OWN_LABELS.isdisjoint(labels):
        return labels
    return {name: value for name, value in labels.items() if name not in OWN_LABELS}


def wished_annotations(annotations: dict[str, str]) -> dict[str, str]:
    """The annotations without those that Bursar writes."""
    if not annotations:
        return annotations
    return {name: value for name, value in annotations.items() if not is_own_annotation(name)}


def milliseconds(timestamp: str) -> int:
    """A timestamp of the API server in milliseconds; 0 for none."""
    if not timestamp:
        return 0
    return round(datetime.fromisoformat(timestamp).timestamp() * 1000)


def asks(pod: SeenPod) -> tuple[object, ...]:
    """All that a gated pod may change and that a decision reads."""
    return pod.spec, *_marks(pod)


def grew(before: SeenPod, pod: SeenPod) -> bool:
    """Whether anything changed that a pod without a gate may change and that a decision reads."""
    was, now = before.spec, pod.spec
    if (was.containers, was.init_containers, was.resources) != (now.containers, now.init_containers, now.resources):
        return True
    if before.metadata.labels == pod.metadata.labels and before.metadata.annotations == pod.metadata.annotations:
        return False
    return _marks(before) != _marks(pod)


def _marks(pod: SeenPod) -> tuple[dict[str, str], dict[str, str]]:
    """What whoever made the pod wrote on it."""
    return wished_labels(pod.metadata.labels), wished_annotations(pod.metadata.annotations)
