"""Pods into claims: requests, what a pod requires of its node, priority, gang, and whether it may be preempted.

Pods of one job have equal specs, so specs and their parts (resources, node needs, labels, annotations) are shared: a
``SpecCache`` keeps the last ones by content. The cache only saves memory and time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from sys import intern
from typing import TypeVar, cast

import msgspec

from bursar.ledger.claims import Claim, ClaimSpec
from bursar.objects import core
from bursar.objects.bounds import excess
from bursar.objects.constraints import CONSTRAINTS, REPELS, constraints_mark, repelled
from bursar.objects.core import ObjectMeta, Pod, PodSpec, PriorityClass
from bursar.objects.decode import ManifestError, check_choice
from bursar.objects.requests import is_sidecar, pod_resources
from bursar.objects.validation import node_terms_from
from bursar.selectors import NO_NEEDS, NodeNeeds, Toleration

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - how Kubernetes writes a port on all addresses; nothing is bound here
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_REQUIRED = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"


def node_needs(spec: core.PodSpec) -> NodeNeeds:
    """``NO_NEEDS`` itself when the pod requires nothing."""
    required = spec.affinity.node_affinity.required
    terms = None if required is None else node_terms_from(required, _REQUIRED)
    tolerations = tuple(_toleration(t, f"spec.tolerations[{i}]") for i, t in enumerate(spec.tolerations))
    ports = _host_ports(spec)
    if not (spec.node_name or spec.node_selector or required or tolerations or ports):
        return NO_NEEDS
    return NodeNeeds(spec.node_selector, terms, tolerations, ports, spec.node_name)


def _toleration(given: core.PodToleration, path: str) -> Toleration:
    check_choice(given.operator, ("", "Equal", "Exists"), f"{path}.operator")
    if given.operator == "Exists" and given.value:
        raise ManifestError("Exists takes no value", f"{path}.value")
    if not given.key and given.operator != "Exists":
        raise ManifestError("is required, unless the operator is Exists", f"{path}.key")
    check_choice(given.effect, ("", *TAINT_EFFECTS), f"{path}.effect")
    return Toleration(given.key, given.operator, given.value, given.effect)


def _host_ports(spec: core.PodSpec) -> tuple[tuple[str, str, int], ...]:
    """Ports on the node's own addresses: of what runs together, so not of ordinary init containers."""
    places = [(f"spec.containers[{i}]", container) for i, container in enumerate(spec.containers)]
    places += [(f"spec.initContainers[{i}]", c) for i, c in enumerate(spec.init_containers) if is_sidecar(c)]
    found: set[tuple[str, str, int]] = set()
    for place, container in places:
        for index, port in enumerate(container.ports):
            check_choice(port.protocol, _PROTOCOLS, f"{place}.ports[{index}].protocol")
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number:
                found.add((port.protocol, port.host_ip or EVERY_ADDRESS, number))
    return tuple(sorted(found))


SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
HIGHEST_OF_USERS = 1_000_000_000
_POLICIES = ("", "PreemptLowerPriority", "Never")


class Priorities:
    """The priority classes of a cluster; those of the system are always there."""

    def __init__(self, classes: Iterable[PriorityClass] = ()) -> None:
        self._classes: dict[str, tuple[int, bool]] = {name: (value, True) for name, value in SYSTEM_CLASSES.items()}
        self._default = (0, True)
        defaults: list[tuple[int, bool]] = []
        for given in classes:
            entry = (given.value, given.preemption_policy != "Never")
            self._classes[given.metadata.name] = entry
            if given.global_default:
                defaults.append(entry)
        if defaults:
            self._default = min(defaults)  # of several, Kubernetes takes the lowest

    def of(self, spec: PodSpec) -> tuple[int, bool]:
        """(priority, may preempt). A priority in the pod itself wins: the API server copied it from the class."""
        check_choice(spec.preemption_policy, _POLICIES, "spec.preemptionPolicy")
        value, preempts = self._of_class(spec)
        if spec.priority is not None:
            value = spec.priority
        if spec.preemption_policy:
            preempts = spec.preemption_policy != "Never"
        return value, preempts

    def _of_class(self, spec: PodSpec) -> tuple[int, bool]:
        name = spec.priority_class_name
        if not name:
            return self._default if spec.priority is None else (spec.priority, True)
        found = self._classes.get(name)
        if found is not None:
            return found
        if spec.priority is not None:  # the class was deleted after the pod was created
            return spec.priority, True
        raise ManifestError(f"there is no PriorityClass {name!r:.80}", "spec.priorityClassName")


def check_priority_class(given: PriorityClass) -> None:
    name = given.metadata.name
    check_choice(given.preemption_policy, _POLICIES, "preemptionPolicy")
    if name.startswith("system-"):
        if SYSTEM_CLASSES.get(name) != given.value:
            raise ManifestError("names that start with system- are Kubernetes' own", "metadata.name")
    elif given.value > HIGHEST_OF_USERS:
        raise ManifestError(f"{given.value} is more than {HIGHEST_OF_USERS}, the highest for users", "value")


PREEMPTIBLE_LABEL = "bursar.dev/preemptible"
GROUP_LABEL = "bursar.dev/group"
GROUP_SIZE_LABEL = "bursar.dev/group-size"
GPU_NODE_LABEL = "bursar.dev/gpu-node"  # Bursar keeps it on GPU nodes where pods have to be kept off them
DEVICES = "bursar.dev/devices"  # annotation of a node: driver=count, with commas between them; from its ResourceSlices
PRIORITY_CLASS_DETAIL = "priorityClass"  # in ``ClaimSpec.details``: what to call its priority
DEVICE_DETAILS = "devices"  # in ``ClaimSpec.details`` of pods with claims of devices: see ``control.device_book``

Unpreemptible = Callable[[Mapping[str, str], Mapping[str, str]], bool]
"""(labels, annotations) -> whether a dialect's own mark forbids to preempt the pod."""

T = TypeVar("T")
_ENCODER = msgspec.msgpack.Encoder(order="sorted")


CACHED_BYTES = 128 * 1024 * 1024
_ENTRY = 512  # bytes of any entry
_GROWTH = 4  # how much larger objects are than the content that is their key


class SpecCache:
    """Specs and their parts by content, the least recently used dropped first.

    It is bounded by bytes, estimated from the keys, not by entries: users decide how large a spec is, and deleted pods
    leave theirs behind.
    """

    def __init__(self, most: int = CACHED_BYTES) -> None:
        self._most = most
        self.bytes = 0
        self._entries: OrderedDict[Hashable, object] = OrderedDict()

    def get(self, key: Hashable, build: Callable[[], T]) -> T:
        """What was built for an equal key; built now if there is none. Keys name what they stand for."""
        if key in self._entries:
            self._entries.move_to_end(key)
            return cast("T", self._entries[key])
        built = build()
        self._entries[key] = built
        self.bytes += _weight(key)
        while self.bytes > self._most and len(self._entries) > 1:
            oldest, _ = self._entries.popitem(last=False)
            self.bytes -= _weight(oldest)
        return built


def _weight(key: Hashable) -> int:
    return _ENTRY + _GROWTH * _length(key)


def _length(key: object) -> int:
    if isinstance(key, bytes | str):
        return len(key)
    return sum(_length(part) for part in key) if isinstance(key, tuple) else 8


def claim_from_pod(
    pod: Pod,
    created: int,
    priorities: Priorities,
    unpreemptible: Sequence[Unpreemptible] = (),
    cache: SpecCache | None = None,
) -> Claim:
    """A pending claim, by the pod's uid or else its key; raises ``ManifestError`` with the pod and the path."""
    namespace, name = intern(pod.metadata.namespace), pod.metadata.name  # the namespace of many claims
    try:
        spec = _spec(pod, priorities, unpreemptible, SpecCache() if cache is None else cache)
    except ManifestError as error:
        raise error.located(subject=f"Pod {namespace}/{name}") from None
    return Claim(pod.metadata.uid or f"{namespace}/{name}", spec, created, namespace, name)


def check_pod(pod: Pod) -> None:
    """All that can be wrong with a pod by itself. One that names its node runs there, whatever else it says."""
    too_much = None if pod.spec.node_name else excess(pod, {})
    if too_much is not None:
        raise too_much
    pod_resources(pod.spec)
    node_needs(pod.spec)
    check_choice(pod.spec.preemption_policy, _POLICIES, "spec.preemptionPolicy")
    _marked_preemptible(pod.metadata.labels)
    _group(pod.metadata)


def _spec(pod: Pod, priorities: Priorities, unpreemptible: Sequence[Unpreemptible], cache: SpecCache) -> ClaimSpec:
    spec, meta = pod.spec, pod.metadata
    priority, preempts = priorities.of(spec)
    preemptible = _marked_preemptible(meta.labels) and not any(
        forbids(meta.labels, meta.annotations) for forbids in unpreemptible
    )
    group, group_size = _group(meta)
    asked = _content("resources", spec.containers, spec.init_containers, spec.resources, spec.overhead)
    details = _details(spec, meta.namespace)
    placed = _content(
        "needs", asked, spec.node_name, spec.node_selector, spec.affinity, spec.tolerations, spec.host_network
    )
    labels, annotations = _content("marks", meta.labels), _content("marks", meta.annotations)
    owner = owner_of(meta)

    def build() -> ClaimSpec:
        resources = cache.get(asked, lambda: pod_resources(spec))
        return ClaimSpec(
            resources.requests,
            resources.limits,
            resources.containers,
            cache.get(labels, lambda: meta.labels),
            cache.get(annotations, lambda: meta.annotations),
            priority,
            preemptible,
            preempts,
            owner,
            group,
            group_size,
            cache.get(placed, lambda: node_needs(spec)),
            details,
        )

    marks = (priority, preemptible, preempts, owner, group, group_size)
    return cache.get((placed, labels, annotations, *marks, _content("details", details) if details else b""), build)


def _details(spec: PodSpec, namespace: str) -> dict[str, object]:
    """What policies and the device book read of a few pods only."""
    found: dict[str, object] = {}
    if spec.priority_class_name:
        found[PRIORITY_CLASS_DETAIL] = spec.priority_class_name
    if spec.resource_claims:
        rows = [[one.name, one.resource_claim_name, one.resource_claim_template_name] for one in spec.resource_claims]
        found[DEVICE_DETAILS] = {"claims": rows}
    mark = constraints_mark(spec)
    if mark:
        found[CONSTRAINTS] = mark
        terms = repelled(spec, namespace)
        if terms:
            found[REPELS] = terms
    return found


def _content(*parts: object) -> Hashable:
    try:
        return _ENCODER.encode(parts)
    except (OverflowError, TypeError):  # a quantity that cannot be one; reading it says what is wrong
        return repr(parts)


def _marked_preemptible(labels: Mapping[str, str]) -> bool:
    mark = labels.get(PREEMPTIBLE_LABEL, "true")
    if mark not in {"true", "false"}:
        raise ManifestError(f"{mark!r:.40} is neither 'true' nor 'false'", f"metadata.labels.{PREEMPTIBLE_LABEL}")
    return mark == "true"


def _group(meta: ObjectMeta) -> tuple[str, int]:
    """(group, size). Groups of different namespaces are different groups, whatever their labels say."""
    name, size = meta.labels.get(GROUP_LABEL), meta.labels.get(GROUP_SIZE_LABEL)
    if name is None and size is None:
        return "", 0
    if not name:
        raise ManifestError("is required beside the size of a group", f"metadata.labels.{GROUP_LABEL}")
    path = f"metadata.labels.{GROUP_SIZE_LABEL}"
    if size is None:
        raise ManifestError("is required: the number of pods that group starts with", path)
    if not (size.isascii() and size.isdigit() and len(size) <= 6 and int(size) > 0):
        raise ManifestError(f"{size!r:.40} is not a number of pods from 1 to 999999", path)
    return f"{meta.namespace}/{name}", int(size)


def owner_of(meta: ObjectMeta) -> str:
    """The controller: its kind, which policies may look at (pods of a DaemonSet), and what tells it from others."""
    for reference in meta.owner_references:
        if reference.controller:
            return f"{reference.kind}/{reference.uid or f'{meta.namespace}/{reference.name}'}"
    return ""
