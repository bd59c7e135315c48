"""How much is read of a pod: at a bound it passes, beyond it the error names field and both numbers."""

from __future__ import annotations

from typing import Any

import pytest

from bursar.objects import bounds
from bursar.objects.bounds import excess
from bursar.objects.decode import ManifestError
from tests.builders import container, pod, read_pod

TERMS = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
Spec = dict[str, Any]


def affinity(terms: int, expressions: int = 1, values: int = 1) -> Spec:
    """The first term has more expressions, the first expression more values, so that these are the totals."""
    one = {"key": "zone", "operator": "In", "values": ["a"]}
    many = {"key": "zone", "operator": "In", "values": ["a"] * (values - expressions + 1)}
    first = {"matchExpressions": [many] + [one] * (expressions - terms)}
    required = {"nodeSelectorTerms": [first] + [{"matchExpressions": [one]}] * (terms - 1)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def tolerations(count: int) -> Spec:
    return {"tolerations": [{"operator": "Exists"}] * count}


def selector(count: int) -> Spec:
    return {"nodeSelector": {f"key-{number}": "a" for number in range(count)}}


def claims(count: int) -> Spec:
    return {"resourceClaims": [{"name": f"c{number}"} for number in range(count)]}


def containers(count: int) -> Spec:
    return {"containers": [container()], "initContainers": [container()] * (count - 1)}


def resources(count: int) -> Spec:
    return {"containers": [container({f"example.com/r{number}": 1 for number in range(count)})]}


def ports(count: int) -> Spec:
    return {"containers": [{**container(), "ports": [{"hostPort": 1}] * count}]}


def volumes(count: int) -> Spec:
    return {"volumes": [{"name": f"v{number}", "emptyDir": {}} for number in range(count)]}


def about_pods(terms: int, labels: int = 0, namespaces: int = 0) -> Spec:
    """Half of the terms are spread; the first of the others has all labels and namespaces."""
    selector = {"matchLabels": {f"key-{number}": "a" for number in range(labels)}}
    first = {"topologyKey": "zone", "labelSelector": selector, "namespaces": ["n"] * namespaces}
    repelled = [first] + [{"topologyKey": "zone"}] * ((terms - 1) // 2)
    spread = [{"topologyKey": "zone"}] * (terms - len(repelled))
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": repelled}
    return {"affinity": {"podAntiAffinity": rules}, "topologySpreadConstraints": spread}


ABOUT_PODS = "spec.affinity and spec.topologySpreadConstraints"
CASES = [
    (volumes, bounds.MOST_VOLUMES, "spec.volumes", "volumes"),
    (about_pods, bounds.MOST_POD_TERMS, ABOUT_PODS, "terms about pods"),
    (lambda n: about_pods(1, n), bounds.MOST_EXPRESSIONS, ABOUT_PODS, "expressions about pods"),
    (lambda n: about_pods(1, 1, n), bounds.MOST_VALUES, ABOUT_PODS, "values about pods"),
    (lambda n: affinity(n, n, n), bounds.MOST_TERMS, TERMS, "terms"),
    (lambda n: affinity(1, n, n), bounds.MOST_EXPRESSIONS, TERMS, "expressions"),
    (lambda n: affinity(1, 1, n), bounds.MOST_VALUES, TERMS, "values"),
    (selector, bounds.MOST_SELECTED, "spec.nodeSelector", "labels"),
    (tolerations, bounds.MOST_TOLERATIONS, "spec.tolerations", "tolerations"),
    (claims, bounds.MOST_CLAIMS, "spec.resourceClaims", "claims"),
    (containers, bounds.MOST_CONTAINERS, "spec.containers", "containers with init containers"),
    (resources, bounds.MOST_RESOURCES, "spec.containers", "names of resources"),
    (ports, bounds.MOST_PORTS, "spec.containers", "ports"),
]


@pytest.mark.parametrize(("spec", "most", "path", "what"), CASES, ids=[f"{case[2][-12:]} {case[3]}" for case in CASES])
def test_a_pod_beyond_a_bound_is_refused_with_the_field_and_both_numbers(
    spec: Any,  # noqa: ANN401 a function of the number
    most: int,
    path: str,
    what: str,
) -> None:
    assert excess(read_pod(pod(**spec(most))), {}) is None
    error = excess(read_pod(pod(nodeName="n", **spec(most + 1))), {})
    assert error is not None
    assert (error.path, error.problem) == (path, f"{most + 1} {what}, and at most {most} are read")


@pytest.mark.parametrize(
    ("part", "most"), [("labels", bounds.MOST_LABEL_BYTES), ("annotations", bounds.MOST_ANNOTATION_BYTES)]
)
def test_labels_and_annotations_are_bounded_in_bytes(part: str, most: int) -> None:
    marks = {f"key-{number:05}": "x" * 53 for number in range(most // 62)}
    marks["y"] = "y" * (most - len(marks) * 62 - 1)
    given = read_pod(pod(labels=marks)) if part == "labels" else read_pod(pod())
    read = marks if part == "annotations" else {}
    assert excess(given, read) is None
    given.metadata.labels.update({"z": ""} if part == "labels" else {})
    error = excess(given, {**read, "z": ""} if part == "annotations" else {})
    assert error is not None
    assert error.path == f"metadata.{part}"


def test_annotations_that_no_policy_reads_do_not_count() -> None:
    assert excess(read_pod(pod(annotations={"note": "x" * 200_000})), {}) is None


def test_a_pod_beyond_a_bound_cannot_be_applied_unless_it_runs_already() -> None:
    with pytest.raises(ManifestError, match="300 tolerations"):
        read_pod(pod(**tolerations(300)))
    assert len(read_pod(pod(nodeName="n", **tolerations(300))).spec.tolerations) == 300
