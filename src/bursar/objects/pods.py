"""Pods into claims.

Pods of one job ask for the same, so what is read from them is shared: a ``SpecCache`` keeps the last specs, and the
parts of specs (resources, node needs, labels, annotations), by the content of the fields that they came from. A
cache only saves memory and time; it never changes a result.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from sys import intern
from typing import TypeVar, cast

import msgspec

from bursar.ledger.claims import Claim, ClaimSpec
from bursar.objects.core import ObjectMeta, Pod
from bursar.objects.errors import ManifestError
from bursar.objects.needs import node_needs
from bursar.objects.priorities import Priorities, check_preemption_policy
from bursar.objects.requests import pod_resources

PREEMPTIBLE_LABEL = "bursar.dev/preemptible"
GROUP_LABEL = "bursar.dev/group"
GROUP_SIZE_LABEL = "bursar.dev/group-size"

Unpreemptible = Callable[[Mapping[str, str], Mapping[str, str]], bool]
"""(labels, annotations) -> whether a dialect's own mark forbids to preempt the pod."""

T = TypeVar("T")
_ENCODER = msgspec.msgpack.Encoder(order="sorted")


class SpecCache:
    """Specs and their parts by content, the least recently used dropped first."""

    def __init__(self, size: int = 65_536) -> None:
        self._size = size
        self._entries: OrderedDict[Hashable, object] = OrderedDict()

    def get(self, key: Hashable, build: Callable[[], T]) -> T:
        """What was built for an equal key; built now if there is none. Keys name what they stand for."""
        if key in self._entries:
            self._entries.move_to_end(key)
            return cast("T", self._entries[key])
        built = build()
        self._entries[key] = built
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)
        return built


def claim_from_pod(
    pod: Pod,
    created: int,
    priorities: Priorities,
    unpreemptible: Sequence[Unpreemptible] = (),
    cache: SpecCache | None = None,
    uid: str = "",
) -> Claim:
    """A pending claim. ``uid`` stands in where the pod has none of its own, and else its namespace/name."""
    meta = pod.metadata
    spec = spec_from_pod(pod, priorities, unpreemptible, cache)
    namespace = intern(meta.namespace)  # that of many claims
    return Claim(meta.uid or uid or f"{namespace}/{meta.name}", spec, created, namespace, meta.name)


def spec_from_pod(
    pod: Pod,
    priorities: Priorities,
    unpreemptible: Sequence[Unpreemptible] = (),
    cache: SpecCache | None = None,
) -> ClaimSpec:
    """What a pod asks for; raises ``ManifestError`` with the pod's name and the field's path."""
    try:
        return _spec(pod, priorities, unpreemptible, SpecCache() if cache is None else cache)
    except ManifestError as error:
        raise error.located(subject=f"Pod {pod.metadata.namespace}/{pod.metadata.name}") from None


def check_pod(pod: Pod) -> None:
    """All that can be wrong with a pod by itself."""
    pod_resources(pod.spec)
    node_needs(pod.spec)
    check_preemption_policy(pod.spec.preemption_policy, "spec.preemptionPolicy")
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
        )

    return cache.get((placed, labels, annotations, priority, preemptible, preempts, owner, group, group_size), build)


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
