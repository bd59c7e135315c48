"""Kubernetes' own objects, reduced to the fields that quotas and placement read.

Unlisted fields are skipped. Quantities stay as the manifest has them (text or a number) and are parsed, with the path
of their field, where they are used. ``Manifest`` and ``Part`` are the strict bases for the kinds of the policies: a
misspelt limit must not mean no limit. ``frozen`` is repeated in every class because type checkers do not inherit it.
Empty fields are omitted when a struct is written. The structs hold plain values without cycles, hence ``gc=False``.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

Quantities = dict[str, str | int | float]
"""Resource name to quantity, unparsed."""

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Port = Annotated[int, Meta(ge=0, le=65535)]  # 0 is what a port that is not given looks like


class Lenient(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base of everything whose unknown fields are ignored."""


class Part(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Base of the inner parts of strict kinds and of the sections of the Configuration."""


class OwnerReference(Lenient, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Lenient, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    generation: int = 0
    owner_references: tuple[OwnerReference, ...] = ()


class Object(Lenient, frozen=True):
    """What every object has; the base of kinds whose unknown fields are ignored."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


class Manifest(Object, frozen=True, forbid_unknown_fields=True):
    """Base of strict kinds. Status is written by Bursar and never read from a manifest, so anything passes there."""

    status: object = None


class SelectorRequirement(Part, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Part, frozen=True):
    """A label selector, strict wherever it stands: ``matchLables`` would select everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[SelectorRequirement, ...] = ()


class Resources(Lenient, frozen=True):
    requests: Quantities = {}
    limits: Quantities = {}


class ContainerPort(Lenient, frozen=True):
    container_port: Port = 0
    host_port: Port = 0
    host_ip: str = field(name="hostIP", default="")
    protocol: str = "TCP"


class PodContainer(Lenient, frozen=True):
    name: str = ""
    resources: Resources = Resources()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""  # Always on an init container: a sidecar


class NodeSelectorTerm(Lenient, frozen=True):
    match_expressions: tuple[SelectorRequirement, ...] = ()
    match_fields: tuple[SelectorRequirement, ...] = ()


class NodeSelector(Lenient, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...]


class NodeAffinity(Lenient, frozen=True):
    required: NodeSelector | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class PodAffinityTerm(Lenient, frozen=True):
    topology_key: str = ""
    label_selector: LabelSelector | None = None  # None: no pod
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None  # None: none but those named; empty: all


class PodAffinity(Lenient, frozen=True):
    required: tuple[PodAffinityTerm, ...] = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=())


class Affinity(Lenient, frozen=True):
    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class TopologySpread(Lenient, frozen=True):
    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None


class VolumeSource(Lenient, frozen=True):
    """A source of a volume. Of any but a PersistentVolumeClaim only the presence is read."""

    claim_name: str = ""


Volume = dict[str, VolumeSource | tuple[object, ...] | str | float | bool | None]
"""The name of a volume, and its source by kind."""


class PodToleration(Lenient, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class SchedulingGate(Lenient, frozen=True):
    name: str


class PodResourceClaim(Lenient, frozen=True):
    """A claim of devices that the pod uses: one that is there by name, or one made from a template."""

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class PodSpec(Lenient, frozen=True):
    containers: tuple[PodContainer, ...] = ()
    init_containers: tuple[PodContainer, ...] = ()
    resources: Resources = Resources()
    overhead: Quantities = {}
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity = Affinity()
    tolerations: tuple[PodToleration, ...] = ()
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    scheduler_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    host_network: bool = False
    resource_claims: tuple[PodResourceClaim, ...] = ()
    termination_grace_period_seconds: int | None = None
    volumes: tuple[Volume, ...] = ()
    topology_spread_constraints: tuple[TopologySpread, ...] = ()


class PodStatus(Lenient, frozen=True):
    phase: str = ""


class Pod(Object, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NodeTaint(Lenient, frozen=True):
    key: str
    effect: str
    value: str = ""


class NodeSpec(Lenient, frozen=True):
    unschedulable: bool = False
    taints: tuple[NodeTaint, ...] = ()


class Condition(Lenient, frozen=True):
    type: str
    status: str
    reason: str = ""


class NodeStatus(Lenient, frozen=True):
    allocatable: Quantities = {}
    capacity: Quantities = {}
    conditions: tuple[Condition, ...] = ()


class Node(Object, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(Object, frozen=True):
    pass


class PriorityClass(Object, frozen=True, kw_only=True):
    value: Int32
    global_default: bool = False
    preemption_policy: str = ""


class PodDisruptionBudgetSpec(Lenient, frozen=True):
    selector: LabelSelector | None = None  # None: no pod; empty: all of the namespace
    min_available: int | str | None = None  # a number of pods or a percentage
    max_unavailable: int | str | None = None


class PodDisruptionBudget(Object, frozen=True):
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
