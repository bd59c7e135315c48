from typing import Any

import pytest

from bursar.objects.decode import ManifestError
from bursar.objects.kinds import int_or_percent
from tests.builders import disruption_budget, namespace_named, node, pod, priority_class, read

VALID: list[dict[str, Any]] = [
    pod(requests={"cpu": 1}),
    node(allocatable={"cpu": 8, "nvidia.com/gpu": "4"}, taints=[{"key": "gpu", "effect": "NoSchedule"}]),
    namespace_named("team-a", {"bursar.dev/quota": "enforced"}),
    priority_class("high", 1_000_000_000),
    priority_class("system-node-critical", 2_000_001_000),
    disruption_budget("b", "team-a", {"app": "x"}, minAvailable=1),
    disruption_budget("b", "team-a", {"app": "x"}, maxUnavailable="50%"),
    disruption_budget("b", "team-a", {}),
]


@pytest.mark.parametrize("manifest", VALID, ids=[f"{m['kind']}-{i}" for i, m in enumerate(VALID)])
def test_valid_objects_are_read(manifest: dict[str, Any]) -> None:
    found = read(manifest)
    assert found.kind.kind == manifest["kind"]
    assert found.name == manifest["metadata"]["name"]


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (node(allocatable={"cpu": "12x"}), "Node n1: status.allocatable.cpu: '12x' is not a quantity"),
        (node() | {"status": {"capacity": {"cpu": -1}}}, "Node n1: status.capacity.cpu: '-1' must not be negative"),
        (node(taints=[{"key": "a"}]), "Node n1: spec.taints[0].effect: is required"),
        (node(taints=[{"key": "", "effect": "NoExecute"}]), "Node n1: spec.taints[0].key: must not be empty"),
        (node(taints=[{"key": "a", "effect": "No"}]), "Node n1: spec.taints[0].effect: 'No' is none of NoSchedule"),
        (namespace_named("a.b"), "Namespace a.b: metadata.name: 'a.b' is not a namespace"),
        (priority_class("p", 1_000_000_001), "PriorityClass p: value: 1000000001 is more than 1000000000"),
        (priority_class("system-x", 1), "PriorityClass system-x: metadata.name: names that start with system-"),
        (priority_class("p", 1, preemptionPolicy="x"), "PriorityClass p: preemptionPolicy: 'x' is none of"),
        (
            {k: v for k, v in priority_class("p", 1).items() if k != "value"},
            "PriorityClass p: value: is required",
        ),
        (
            disruption_budget("b", "a", {}, minAvailable=1, maxUnavailable=1),
            "PodDisruptionBudget a/b: spec.maxUnavailable: cannot be given together with minAvailable",
        ),
        (
            disruption_budget("b", "a", {}, minAvailable="half"),
            "PodDisruptionBudget a/b: spec.minAvailable: 'half' is neither a number of pods nor a percentage",
        ),
        (
            disruption_budget("b", "a", {}, maxUnavailable=1.5),
            "PodDisruptionBudget a/b: spec.maxUnavailable: expected a whole number or text, not a number",
        ),
        (
            disruption_budget("b", "a", {"x": "y z"}, maxUnavailable=1),
            "PodDisruptionBudget a/b: spec.selector.matchLabels.x: 'y z' is not a label value",
        ),
        (
            disruption_budget("b", "a", {}) | {"spec": {"selector": {"matchLables": {}}}},
            "PodDisruptionBudget a/b: spec.selector.matchLables: is not a known field; did you mean matchLabels?",
        ),
    ],
)
def test_bad_objects_are_named(manifest: dict[str, Any], problem: str) -> None:
    with pytest.raises(ManifestError) as caught:
        read(manifest)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("value", "expected"), [(0, (0, False)), (7, (7, False)), ("50%", (50, True)), ("0%", (0, True))]
)
def test_bound_of_a_budget(value: int | str, expected: tuple[int, bool]) -> None:
    assert int_or_percent(value, "p") == expected


@pytest.mark.parametrize("value", [-1, 2**31, "5", "101%", "5.5%", "%", "\u0665%"])
def test_no_bound_of_a_budget(value: int | str) -> None:
    with pytest.raises(ManifestError):
        int_or_percent(value, "p")
