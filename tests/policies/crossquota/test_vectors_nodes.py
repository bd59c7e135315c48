"""Vectors 4.2, 4.3, 4.4, 4.9, 4.14 and 4.17 of the notes: GPU nodes, CPU pods, and the quotas of nodes."""

from __future__ import annotations

import pytest

from bursar.policies.crossquota.arguments import PREFIX
from tests.policies.crossquota.world import GI, GPU, World, arguments, body, claim

AMD = "amd.com/gpu"
INTEL = "intel.com/gpu"


@pytest.mark.parametrize(
    ("allocatable", "names", "expected"),
    [
        pytest.param({"cpu": 8, "memory": "16Gi", GPU: 4}, None, True, id="4.2-nvidia"),
        pytest.param({"cpu": 8, "memory": "16Gi", AMD: 2}, None, True, id="4.2-amd"),
        pytest.param({"cpu": 8, "memory": "16Gi"}, None, False, id="4.2-none"),
        pytest.param({"cpu": 8, "memory": "16Gi", GPU: 0}, None, False, id="4.2-zero"),
        pytest.param({"cpu": 8, "memory": "16Gi", INTEL: 1}, None, False, id="4.2-other-vendor"),
        pytest.param({"cpu": 0, "memory": 0}, None, False, id="4.2-nothing"),
        pytest.param({"cpu": 0, "memory": 0, GPU: 4}, None, True, id="4.2-only-gpus"),
        pytest.param({"cpu": 8, GPU: 4}, "", False, id="4.2-no-names"),
        pytest.param({"cpu": 8, "nvidia.com/gpu.shared": 4}, None, False, id="whole-name"),
        pytest.param({"cpu": 8, "nvidia.com/mig-1g.5gb": 7}, r"nvidia\.com/(gpu|mig-.*)", True, id="alternatives"),
    ],
)
def test_gpu_nodes(allocatable: dict[str, object], names: str | None, expected: bool) -> None:
    world = World(arguments() if names is None else arguments(names))
    world.node("n", body(allocatable))
    facts = world.policy.index.node("n")
    assert facts is not None
    assert facts.is_gpu_node() == expected
    assert (PREFIX + "n" in world.ledger.state.accounts) == expected


@pytest.mark.parametrize(
    ("requests", "names", "expected"),
    [
        pytest.param({"cpu": 1, "memory": 1}, None, True, id="4.3-none"),
        pytest.param({"cpu": 1, GPU: 0}, None, True, id="4.3-zero"),
        pytest.param({"cpu": 1, GPU: 1}, None, False, id="4.3-nvidia"),
        pytest.param({"cpu": 1, AMD: 1}, None, False, id="4.3-amd"),
        pytest.param({"cpu": 1, INTEL: 1}, None, True, id="4.3-other-vendor"),
        pytest.param({}, None, True, id="4.3-no-requests"),
        pytest.param({"cpu": 1, "memory": "1Gi", GPU: 1}, None, False, id="4.3-with-memory"),
        pytest.param({"cpu": 1, GPU: 1}, "", False, id="4.3-no-names"),
        pytest.param({GPU: "10m"}, None, False, id="4.17-10m-asks-for-a-gpu"),
        pytest.param({GPU: "11m"}, None, False, id="4.17-11m"),
        pytest.param({"nvidia.com/mig-1g.5gb": 1}, None, False, id="a-mig-device"),
        pytest.param({"nvidia.com/gpu-10gb": 1}, None, False, id="a-slice"),
    ],
)
def test_cpu_pods(requests: dict[str, object], names: str | None, expected: bool) -> None:
    world = World(arguments() if names is None else arguments(names))
    assert world.limited(claim("c", requests)) == expected


@pytest.mark.parametrize(
    ("labels", "annotations", "expected"),
    [
        ({}, {"tensor-fusion.ai/vram-request": "4Gi"}, False),
        ({"tensor-fusion.ai/component": "worker"}, {}, False),
        ({"tensor-fusion.ai/component": "client"}, {"tensor-fusion.ai/vram-request": "4Gi"}, True),
        ({}, {"example.com/vram-request": "4Gi"}, True),
    ],
)
def test_a_worker_asks_for_a_gpu_without_requesting_one(
    labels: dict[str, str], annotations: dict[str, str], expected: bool
) -> None:
    assert World(arguments()).limited(claim("c", {"cpu": 1}, labels, annotations)) == expected


@pytest.mark.parametrize(
    ("more", "given", "expected"),
    [
        ({"owner": "DaemonSet/u-1"}, {}, False),
        ({"owner": "DaemonSet/u-1"}, {"exempt_daemonsets": False}, True),
        ({"owner": "ReplicaSet/u-1"}, {}, True),
        ({"annotations": {"kubernetes.io/config.mirror": "x"}}, {}, False),
        ({"annotations": {"kubernetes.io/config.mirror": "x"}}, {"exempt_mirror_pods": "false"}, True),
        ({"namespace": "kube-system"}, {}, False),
        ({"namespace": "kube-system"}, {"exempt_namespaces": ""}, True),
        ({"namespace": "infra"}, {"exempt_namespaces": "infra, kube-system"}, False),
    ],
)
def test_exemptions(more: dict[str, object], given: dict[str, object], expected: bool) -> None:
    world = World(arguments(**given))
    assert world.limited(claim("c", {"cpu": 1}, **more)) == expected  # type: ignore[arg-type]


NODE: dict[str, object] = {"cpu": 8, "memory": "16Gi", "ephemeral-storage": "20Gi", GPU: 4}
THREE = "cpu,memory,ephemeral-storage"


@pytest.mark.parametrize(
    ("annotations", "given", "resource", "expected", "source"),
    [
        pytest.param({}, {}, "cpu", 8000, "allocatable", id="4.4-all-cpu"),
        pytest.param({}, {}, "memory", 16 * GI, "allocatable", id="4.4-all-memory"),
        pytest.param({}, {}, "ephemeral-storage", 20 * GI, "allocatable", id="4.4-all-storage-in-bytes"),
        pytest.param({"cpu": "6"}, {}, "cpu", 6000, "annotation volcano.sh/crossquota-cpu", id="4.4-annotated"),
        pytest.param(
            {"percentage-memory": "75"},
            {},
            "memory",
            12 * GI,
            "annotation volcano.sh/crossquota-percentage-memory",
            id="4.4-annotated-percentage",
        ),
        pytest.param(
            {"ephemeral-storage": "10Gi"},
            {},
            "ephemeral-storage",
            10 * GI,
            "annotation volcano.sh/crossquota-ephemeral-storage",
            id="4.4-annotated-storage",
        ),
        pytest.param({"cpu": "invalid"}, {}, "cpu", 8000, "allocatable", id="4.4-bad-annotation-falls-through"),
        pytest.param({"cpu": "invalid"}, {"quota.cpu": 4}, "cpu", 4000, "argument quota.cpu", id="next-level"),
        pytest.param({"percentage-memory": "150"}, {}, "memory", 16 * GI, "allocatable", id="4.4-bad-percentage"),
        pytest.param(
            {"cpu": "abc", "percentage-cpu": "25"},
            {"quota.cpu": 4},
            "cpu",
            2000,
            "annotation volcano.sh/crossquota-percentage-cpu",
            id="bad-amount-then-percentage",
        ),
        pytest.param(
            {},
            {"quota.ephemeral-storage": "10Gi", "quota-percentage.ephemeral-storage": "10"},
            "ephemeral-storage",
            10 * GI,
            "argument quota.ephemeral-storage",
            id="4.4-amount-before-percentage",
        ),
        pytest.param({}, {"quota.cpu": "4"}, "cpu", 4000, "argument quota.cpu", id="4.4-argument"),
        pytest.param({}, {"quota.memory": "8Gi"}, "memory", 8 * GI, "argument quota.memory", id="4.4-memory"),
        pytest.param(
            {}, {"quota-percentage.cpu": 50}, "cpu", 4000, "argument quota-percentage.cpu", id="percentage-argument"
        ),
        pytest.param({"cpu": "  "}, {"quota.cpu": "4"}, "cpu", 4000, "argument quota.cpu", id="4.17-blank-is-skipped"),
        pytest.param({"cpu": "-1"}, {"quota.cpu": "4"}, "cpu", 4000, "argument quota.cpu", id="4.17-negative"),
        pytest.param({"cpu": "0"}, {"quota.cpu": "4"}, "cpu", 0, "annotation volcano.sh/crossquota-cpu", id="zero"),
        pytest.param({}, {"quota.cpu": "99"}, "cpu", 99000, "argument quota.cpu", id="not-clamped"),
    ],
)
def test_quota_of_a_node(
    annotations: dict[str, str], given: dict[str, object], resource: str, expected: int, source: str
) -> None:
    world = World(arguments(quota_resources=THREE) | given)
    world.node("n", body(NODE, annotations))
    assert world.quota("n")[resource] == expected
    assert world.sources("n")[resource] == source


def test_qualified_resources_are_spelt_with_two_underscores() -> None:
    world = World(arguments(quota_resources="a.dev/x,a.dev/y__z") | {"quota.a.dev__x": 3, "quota.a.dev/y__z": 4})
    world.node("n", body({"a.dev/x": 9, "a.dev/y__z": 9, GPU: 1}))
    assert world.quota("n") == {"a.dev/x": 3, "a.dev/y__z": 4}
    world.node("n", body({"a.dev/x": 9, GPU: 1}, {"a.dev__x": "2", "percentage-a.dev__y__z": "50"}))
    assert world.quota("n") == {"a.dev/x": 2, "a.dev/y__z": 0}  # of what the node does not list it has none


def test_vector_4_9_only_gpu_nodes_have_a_quota() -> None:
    world = World(arguments(quota_resources="cpu,memory"))
    world.node("a", body({"cpu": 8, "memory": "16Gi", GPU: 4}))
    world.node("b", body({"cpu": 4, "memory": "8Gi", GPU: 2}))
    world.node("c", body({"cpu": 8, "memory": "16Gi"}))
    assert [world.quota(name) for name in "abc"] == [
        {"cpu": 8000, "memory": 16 * GI},
        {"cpu": 4000, "memory": 8 * GI},
        {},
    ]
    for name in "ab":
        world.node(name, None)
    assert not world.ledger.state.accounts


def test_vector_4_14_usage_counts_selected_cpu_pods() -> None:
    chosen = {"quota-controlled": "true"}
    world = World(arguments(quota_resources="cpu,memory", label_selector={"matchLabels": chosen}))
    world.node("n", body({"cpu": 32, "memory": "64Gi", GPU: 4}))
    world.place(claim("a", {"cpu": 4, "memory": "8Gi"}, chosen), "n")
    world.place(claim("b", {"cpu": 2, "memory": "4Gi"}, {"quota-controlled": "false"}), "n")
    world.place(claim("c", {"cpu": 2, "memory": "4Gi"}, chosen), "n")
    world.tx.add_claim(claim("pending", {"cpu": 4, "memory": "8Gi"}, chosen))
    world.place(claim("d", {"cpu": 4, "memory": "8Gi", GPU: 1}, chosen), "n")
    assert world.used("n") == {"cpu": "6", "memory": "12Gi"}


def test_pods_can_have_a_quota() -> None:
    world = World(arguments(quota_resources="pods", quota__pods=2))
    world.node("n", body({"pods": 110, GPU: 1}))
    assert [world.place(claim(uid), "n") is None for uid in "abc"] == [True, True, False]
