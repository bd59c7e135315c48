"""Vectors 4.7, 4.8, 4.12, 4.15, 4.16 and 4.17 of the notes, and the seed's worked numbers: filter and score."""

from __future__ import annotations

import pytest

from bursar.resources import parse_vector
from tests.policies.crossquota.world import GI, GPU, World, arguments, body, claim

LEAST = {"volcano.sh/crossquota-scoring-strategy": "least-allocated"}
BOTH = "cpu,memory"


def filled(used: dict[str, object] | None, given: dict[str, object], quota: dict[str, str] | None = None) -> World:
    """Node ``g`` with a quota by annotation, of which that much is used, and a node ``c`` without a GPU."""
    world = World(arguments(quota_resources=BOTH) | given)
    world.node("g", body({"cpu": 64, "memory": "256Gi", GPU: 4}, quota))
    world.node("c", body({"cpu": 8, "memory": "16Gi"}))
    if used:
        assert world.place(claim("there", used), "g", forced=True) is None
    return world


@pytest.mark.parametrize(
    ("requests", "node", "reason", "message"),
    [
        pytest.param({"cpu": 1, "memory": "1Gi", GPU: 1}, "g", "", "", id="4.8-gpu-pod"),
        pytest.param({"cpu": 1, "memory": "1Gi"}, "c", "", "", id="4.8-cpu-node"),
        pytest.param({"cpu": 3, "memory": "1Gi"}, "g", "crossquota.quota.cpu", "cpu quota exceeded", id="4.8-cpu"),
        pytest.param(
            {"cpu": 1, "memory": "6Gi"}, "g", "crossquota.quota.memory", "memory quota exceeded", id="4.8-memory"
        ),
        pytest.param({"cpu": 1, "memory": "2Gi"}, "g", "", "", id="4.8-fits"),
        pytest.param({"cpu": 2, "memory": "4Gi"}, "g", "", "", id="equality-fits"),
        pytest.param({"cpu": 9, "memory": "9Gi"}, "g", "crossquota.quota.cpu", "cpu quota", id="first-in-order"),
        # The nodes policy refuses what it does not know; there is no GPU node without a quota here.
        pytest.param({"cpu": 1, "memory": "1Gi"}, "unknown", "", "", id="4.8-untracked"),
    ],
)
def test_filter(requests: dict[str, object], node: str, reason: str, message: str) -> None:
    world = filled(None, {}, {"cpu": "4", "memory": "8Gi"})
    for uid in ("one", "two"):
        world.place(claim(uid, {"cpu": 1, "memory": "2Gi"}), "g")
    asked = claim("asked", requests)
    refusal = world.policy.explain_node(asked, node)
    assert ("" if refusal is None else refusal.reason) == reason
    assert refusal is None or message in refusal.sentence()
    assert node == "unknown" or (node in world.open_for(asked)) == (not reason)
    assert world.place(asked, node) == refusal or refusal is not None


def test_the_seeds_rejection_names_cpu_with_its_numbers() -> None:
    world = filled({"cpu": 28, "memory": "50Gi"}, {"quota.cpu": 32, "quota.memory": "64Gi"})
    refusal = world.policy.explain_node(claim("task", {"cpu": 6, "memory": "10Gi"}), "g")
    assert refusal is not None
    assert (refusal.reason, refusal.requested, refusal.used, refusal.limit) == ("crossquota.quota.cpu", "6", "28", "32")
    assert refusal.sentence() == (
        "cpu quota exceeded on GPU node g: pods without a GPU use 28 of 32, 6 more are wanted (argument quota.cpu)"
    )


@pytest.mark.parametrize(
    ("least", "request_", "used", "total", "expected"),
    [
        pytest.param(False, 2000, 3000, 10000, 500_000, id="4.12-most"),
        pytest.param(False, 2000, 8000, 10000, 1_000_000, id="4.12-most-exact-fit"),
        pytest.param(False, 1000, 0, 10000, 100_000, id="4.12-most-empty"),
        pytest.param(False, 3000, 8000, 10000, 0, id="4.12-most-over-is-nothing"),
        pytest.param(False, 1000, 0, 0, 0, id="4.12-most-of-nothing"),
        pytest.param(False, 64 * GI, 128 * GI, 256 * GI, 750_000, id="4.12-most-large"),
        pytest.param(True, 2000, 3000, 10000, 500_000, id="4.12-least"),
        pytest.param(True, 1000, 0, 10000, 900_000, id="4.12-least-empty"),
        pytest.param(True, 1000, 8000, 10000, 100_000, id="4.12-least-full"),
        pytest.param(True, 3000, 8000, 10000, 0, id="4.12-least-over-is-nothing"),
        pytest.param(True, 1000, 0, 0, 0, id="4.12-least-of-nothing"),
        pytest.param(True, 2000, 8000, 10000, 0, id="4.12-least-exact-fit"),
    ],
)
def test_score_of_one_resource(least: bool, request_: int, used: int, total: int, expected: int) -> None:
    world = World(arguments(quota_resources="memory", quota__memory=total) | {"crossQuotaWeight": 1})
    world.node("g", body({"memory": 2**50, GPU: 1}))
    if used:
        world.place(claim("there", {"memory": used}), "g", forced=True)
    assert world.score(claim("c", {"memory": request_}, annotations=LEAST if least else None), "g") == expected


@pytest.mark.parametrize(
    ("requests", "least", "given", "node", "expected"),
    [
        pytest.param({"cpu": 4, "memory": "8Gi"}, False, {}, "g", 6_250_000, id="4.15-most"),
        pytest.param({"cpu": 4, "memory": "8Gi"}, True, {}, "g", 3_750_000, id="4.15-least"),
        pytest.param({"cpu": 4, "memory": "8Gi", GPU: 1}, False, {}, "g", 0, id="4.15-gpu-pod"),
        pytest.param({"cpu": 4, "memory": "8Gi"}, False, {}, "c", 0, id="4.15-cpu-node"),
        pytest.param({"cpu": 4}, False, {}, "g", 6_250_000, id="4.15-memory-skipped"),
        pytest.param(
            {"cpu": 8, "memory": "16Gi"}, False, {"weight.cpu": 5, "weight.memory": 5}, "g", 7_500_000, id="4.15-equal"
        ),
        pytest.param({"cpu": 4, "memory": "8Gi"}, False, {"crossQuotaWeight": 0}, "g", 0, id="4.15-weight-0"),
        pytest.param(
            {"cpu": 4, "memory": "8Gi"}, False, {"weight.cpu": 0, "weight.memory": 0}, "g", 0, id="4.17-weights-0"
        ),
        pytest.param({"cpu": 4, "memory": "60Gi"}, False, {}, "g", 0, id="4.17-memory-over"),
    ],
)
def test_score(requests: dict[str, object], least: bool, given: dict[str, object], node: str, expected: int) -> None:
    world = filled({"cpu": 16, "memory": "32Gi"}, given, {"cpu": "32", "memory": "64Gi"})
    assert world.score(claim("c", requests, annotations=LEAST if least else None), node) == expected


@pytest.mark.parametrize(
    ("used", "least", "quota", "expected"),
    [
        # 9.5 / 11 * 10 = 8.636363..., which the seed rounds to 8.64
        pytest.param({"cpu": 24, "memory": "40Gi"}, False, "64Gi", 8_636_363, id="seed-8.64"),
        pytest.param({"cpu": 8, "memory": "16Gi"}, True, "64Gi", 6_250_000, id="seed-6.25"),
        pytest.param({"cpu": 16}, False, "0", 5_681_818, id="4.17-quota-of-nothing"),
    ],
)
def test_the_seeds_scores(used: dict[str, object], least: bool, quota: str, expected: int) -> None:
    world = filled(used, {}, {"cpu": "32", "memory": quota})
    task = claim("task", {"cpu": 4, "memory": "8Gi"}, annotations=LEAST if least else None)
    assert world.score(task, "g") == expected


def test_vector_4_7_amounts() -> None:
    vector = parse_vector({"cpu": 1, "memory": "1Gi", "ephemeral-storage": "5Gi", "custom-resource": 100})
    assert (vector.amount("cpu"), vector.amount("memory")) == (1000, GI)
    assert (vector.amount("ephemeral-storage"), vector.amount("custom-resource")) == (5 * GI, 100)  # bytes, units
    assert parse_vector({"cpu": 2, "memory": "4Gi"}).amount("ephemeral-storage") == 0
    assert parse_vector({}).amount("cpu") == 0
    assert parse_vector({"cpu": 1, GPU: 1}).amount(GPU) == 1


@pytest.mark.parametrize(("cpu", "fits"), [("500m", True), (1, True), (2, False)])
def test_vector_4_7_arithmetic(cpu: object, fits: bool) -> None:
    world = filled({"cpu": 3}, {"quota.cpu": 4})
    assert (world.place(claim("c", {"cpu": cpu}), "g") is None) == fits


def test_vector_4_16_only_cpu_pods_on_gpu_nodes_move_the_usage() -> None:
    world = filled({"cpu": 1, "memory": "2Gi"}, {})
    gpu, cpu, elsewhere = (
        claim("gpu", {"cpu": 2, "memory": "3Gi", GPU: 1}),
        claim("cpu", {"cpu": 2, "memory": "3Gi"}),
        claim("elsewhere", {"cpu": 2, "memory": "3Gi"}),
    )
    world.place(gpu, "g")
    assert world.used("g") == {"cpu": "1", "memory": "2Gi"}
    world.place(cpu, "g")
    world.place(elsewhere, "c")
    assert world.used("g") == {"cpu": "3", "memory": "5Gi"}
    world.release(gpu)
    world.release(elsewhere)
    assert world.used("g") == {"cpu": "3", "memory": "5Gi"}
    world.release(cpu)
    assert world.used("g") == {"cpu": "1", "memory": "2Gi"}


@pytest.mark.parametrize(
    ("annotation", "used", "requests", "reason"),
    [
        pytest.param("abc", {}, {"cpu": "100m"}, "", id="4.17-bad-annotation-is-no-quota-of-0"),
        pytest.param("-1", {}, {}, "", id="4.17-negative-annotation"),
        pytest.param("1", {"cpu": 2}, {"memory": "1Gi"}, "", id="4.17-what-is-not-requested-is-not-checked"),
        pytest.param("1", {"cpu": 2}, {"cpu": "1m"}, "crossquota.quota.cpu", id="over-quota"),
        pytest.param("0", {}, {"cpu": "1m"}, "crossquota.quota.cpu", id="zero-is-none"),
    ],
)
def test_vector_4_17_odd_annotations(
    annotation: str, used: dict[str, object], requests: dict[str, object], reason: str
) -> None:
    world = filled(used, {}, {"cpu": annotation})
    assert world.reason(claim("c", requests), "g") == reason


def test_cpu_pods_prefer_nodes_without_a_gpu() -> None:
    world = filled(None, {})
    pod = claim("c", {"cpu": 1})
    assert (world.rank(pod, "g"), world.rank(pod, "c")) == (1, 0)
    assert world.rank(claim("gpu", {GPU: 1}), "g") == 0
    world.configure(arguments(prefer_non_gpu_nodes=False))
    assert world.rank(pod, "g") == 0
