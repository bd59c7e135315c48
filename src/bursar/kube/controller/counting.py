"""How a pod counts that is no wish any more: as what it asks for, where it is.

Its own labels and annotations count, and the devices that it claims; those that nobody asked Bursar to govern are never
taken away for others. While it runs, requests, labels and annotations may change; where it is and may be stays as it
was when it was admitted, because its node constraints now contain what was decided.
"""

from __future__ import annotations

import msgspec

from bursar.kube.controller.seenpod import SeenPod, anywhere, wished_annotations, wished_labels
from bursar.kube.controller.wishes import claimed_devices
from bursar.objects.core import ObjectMeta, Pod
from bursar.objects.pods import GROUP_LABEL, GROUP_SIZE_LABEL, PREEMPTIBLE_LABEL

_FOREIGN = {PREEMPTIBLE_LABEL: "false"}
_OUR_LABELS = (GROUP_LABEL, GROUP_SIZE_LABEL, PREEMPTIBLE_LABEL)


def fact(pod: SeenPod, governed: bool, place: str) -> Pod:
    """The pod as it was seen, on the node where it is or will be."""
    spec = msgspec.structs.replace(pod.spec, node_name=place)
    return msgspec.structs.replace(pod, metadata=_meta(pod, governed, pod.metadata.annotations), spec=spec)


def bare(counted: Pod, pod: SeenPod) -> Pod:
    """Whatever is wrong with its marks, or new about how nodes are chosen, it takes room: the pod without those."""
    labels = {name: value for name, value in pod.metadata.labels.items() if name not in _OUR_LABELS}
    meta = msgspec.structs.replace(counted.metadata, labels=labels | _FOREIGN)
    spec = msgspec.structs.replace(pod.spec, node_name=counted.spec.node_name)
    return msgspec.structs.replace(counted, metadata=meta, spec=anywhere(spec))


def adjusted(counted: Pod, pod: SeenPod, governed: bool) -> Pod:
    """As it counted, with what may change while it runs."""
    ours = {k: v for k, v in counted.metadata.annotations.items() if k not in wished_annotations({k: v})}
    annotations = wished_annotations(pod.metadata.annotations) | ours
    spec = msgspec.structs.replace(
        counted.spec,
        containers=pod.spec.containers,
        init_containers=pod.spec.init_containers,
        resources=pod.spec.resources,
    )
    return msgspec.structs.replace(counted, metadata=_meta(pod, governed, annotations), spec=spec)


def _meta(pod: SeenPod, governed: bool, annotations: dict[str, str]) -> ObjectMeta:
    labels = wished_labels(pod.metadata.labels)
    if not governed:
        labels = labels | _FOREIGN
    return msgspec.structs.replace(pod.metadata, labels=labels, annotations=annotations | claimed_devices(pod.spec))
