"""Kubernetes' own kinds, as far as Bursar handles them, and what is checked when one is read."""

from __future__ import annotations

import re

from bursar.objects import core
from bursar.objects.errors import ManifestError
from bursar.objects.kinds import Kind
from bursar.objects.names import check_namespace
from bursar.objects.needs import check_effect
from bursar.objects.pods import check_pod
from bursar.objects.priorities import check_priority_class
from bursar.objects.quantities import amounts_from
from bursar.objects.selectors import selector_from

_PERCENT = re.compile(r"[0-9]{1,3}%", re.ASCII)


def int_or_percent(value: int | str, path: str) -> tuple[int, bool]:
    """(number, whether it is a percentage) of a bound of a disruption budget."""
    if isinstance(value, int) and 0 <= value < 2**31:
        return value, False
    if isinstance(value, str) and _PERCENT.fullmatch(value) and int(value[:-1]) <= 100:
        return int(value[:-1]), True
    raise ManifestError(f"{value!r:.40} is neither a number of pods nor a percentage such as 50%", path)


def check_node(node: core.Node) -> None:
    amounts_from(node.status.allocatable, "status.allocatable")
    amounts_from(node.status.capacity, "status.capacity")
    for index, taint in enumerate(node.spec.taints):
        if not taint.key:
            raise ManifestError("must not be empty", f"spec.taints[{index}].key")
        check_effect(taint.effect, f"spec.taints[{index}].effect")


def check_budget(budget: core.PodDisruptionBudget) -> None:
    spec = budget.spec
    if spec.min_available is not None and spec.max_unavailable is not None:
        raise ManifestError("cannot be given together with minAvailable", "spec.maxUnavailable")
    if spec.min_available is not None:
        int_or_percent(spec.min_available, "spec.minAvailable")
    if spec.max_unavailable is not None:
        int_or_percent(spec.max_unavailable, "spec.maxUnavailable")
    if spec.selector is not None:
        selector_from(spec.selector, "spec.selector")


def _check_namespace(namespace: core.Namespace) -> None:
    check_namespace(namespace.metadata.name, "metadata.name")


POD = Kind("", "v1", "Pod", "pods", True, core.Pod, short_names=("po",), check=check_pod)
NODE = Kind("", "v1", "Node", "nodes", False, core.Node, short_names=("no",), check=check_node)
NAMESPACE = Kind(
    "", "v1", "Namespace", "namespaces", False, core.Namespace, short_names=("ns",), check=_check_namespace
)
PRIORITY_CLASS = Kind(
    "scheduling.k8s.io",
    "v1",
    "PriorityClass",
    "priorityclasses",
    False,
    core.PriorityClass,
    short_names=("pc",),
    qualified=False,
    check=check_priority_class,
)
DISRUPTION_BUDGET = Kind(
    "policy",
    "v1",
    "PodDisruptionBudget",
    "poddisruptionbudgets",
    True,
    core.PodDisruptionBudget,
    short_names=("pdb",),
    qualified=False,
    check=check_budget,
)
CORE_KINDS = (POD, NODE, NAMESPACE, PRIORITY_CLASS, DISRUPTION_BUDGET)
