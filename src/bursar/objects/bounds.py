"""How much is read of a pod. What its creator writes there must not decide how long a decision takes.

The API server accepts pods of a megabyte, with thousands of node selector terms. A pending pod beyond one of these
bounds is not decided; it is refused with the field and both numbers. A pod that runs counts with its resources all
the same, and nothing else is kept of it.

The bounds are far above what people and their tools write: an affinity that names every node of a large cluster
passes. They hold in the embedded cluster, too, where such a pod cannot be applied.

Nothing here is read from a configuration: widening a bound needs a look at what the loops cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bursar.objects.core import NodeSelector, Pod, PodSpec
from bursar.objects.decode import ManifestError

MOST_TERMS = 256  # of the required node affinity
MOST_EXPRESSIONS = 1_024  # of all its terms
MOST_VALUES = 8_192  # of all its expressions
MOST_SELECTED = 256  # labels of the node selector
MOST_TOLERATIONS = 256
MOST_CONTAINERS = 256  # with init containers
MOST_RESOURCES = 64  # that its containers request or limit
MOST_PORTS = 512
MOST_CLAIMS = 128  # of devices
MOST_VOLUMES = 512
MOST_POD_TERMS = 64  # of required pod affinity and anti-affinity, and of topology spread
MOST_LABEL_BYTES = 32 * 1024
MOST_ANNOTATION_BYTES = 64 * 1024  # of those that policies read

_REQUIRED = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"


def excess(pod: Pod, annotations: Mapping[str, str]) -> ManifestError | None:
    """The first bound that the pod exceeds, as an error that names the field; None if it keeps all of them.

    ``annotations`` are those that policies read: the others are dropped.
    """
    for path, what, count, most in _counts(pod, annotations):
        if count > most:
            return ManifestError(f"{count} {what}, and at most {most} are read", path)
    return None


Count = tuple[str, str, int, int]
"""Field, what is counted, how many there are, how many are read."""


def _counts(pod: Pod, annotations: Mapping[str, str]) -> Iterator[Count]:
    spec, meta = pod.spec, pod.metadata
    yield from _terms(spec.affinity.node_affinity.required)
    yield "spec.nodeSelector", "labels", len(spec.node_selector), MOST_SELECTED
    yield "spec.tolerations", "tolerations", len(spec.tolerations), MOST_TOLERATIONS
    yield "spec.resourceClaims", "claims", len(spec.resource_claims), MOST_CLAIMS
    yield from _containers(spec)
    yield "spec.volumes", "volumes", len(spec.volumes), MOST_VOLUMES
    yield from _about_pods(spec)
    yield "metadata.labels", "bytes", _bytes(meta.labels), MOST_LABEL_BYTES
    yield "metadata.annotations", "bytes that policies read", _bytes(annotations), MOST_ANNOTATION_BYTES


def _terms(required: NodeSelector | None) -> Iterator[Count]:
    if required is None:
        return
    terms = required.node_selector_terms
    expressions = [one for term in terms for one in (*term.match_expressions, *term.match_fields)]
    path = f"{_REQUIRED}.nodeSelectorTerms"
    yield path, "terms", len(terms), MOST_TERMS
    yield path, "expressions", len(expressions), MOST_EXPRESSIONS
    yield path, "values", sum(len(one.values) for one in expressions), MOST_VALUES


def _about_pods(spec: PodSpec) -> Iterator[Count]:
    affinity = (*spec.affinity.pod_affinity.required, *spec.affinity.pod_anti_affinity.required)
    spread = spec.topology_spread_constraints
    path = "spec.affinity and spec.topologySpreadConstraints"
    yield path, "terms about pods", len(affinity) + len(spread), MOST_POD_TERMS
    selectors = [selector for one in affinity for selector in (one.label_selector, one.namespace_selector)]
    selectors += [one.label_selector for one in spread]
    expressions = [one for selector in selectors if selector is not None for one in selector.match_expressions]
    labels = sum(len(selector.match_labels) for selector in selectors if selector is not None)
    yield path, "expressions about pods", labels + len(expressions), MOST_EXPRESSIONS
    values = sum(len(one.values) for one in expressions) + sum(len(one.namespaces) for one in affinity)
    yield path, "values about pods", values, MOST_VALUES


def _containers(spec: PodSpec) -> Iterator[Count]:
    containers = (*spec.containers, *spec.init_containers)
    yield "spec.containers", "containers with init containers", len(containers), MOST_CONTAINERS
    yield "spec.containers", "ports", sum(len(one.ports) for one in containers), MOST_PORTS
    names = {name for one in containers for name in (*one.resources.requests, *one.resources.limits)}
    yield "spec.containers", "names of resources", len(names | spec.overhead.keys()), MOST_RESOURCES


def _bytes(marks: Mapping[str, str]) -> int:
    return sum(len(name.encode()) + len(value.encode()) for name, value in marks.items())
