"""Pods that come, change, move and leave: C15, A9, A10, A15 to A18, E2 and M1's series of the notes.

Through the embedded cluster, except where a vector is about the ledger alone.
"""

from __future__ import annotations

import pytest

from bursar.engine.session import EngineError
from bursar.policies.pools.settings import DEFAULT, QUOTA_OF_POD
from bursar.server.metrics import _quota_metrics
from bursar.server.quotas import quotas
from tests.builders import Manifest, container, node, pod
from tests.policies.pools.tree_builder import cm
from tests.policies.pools.world import BIG, World
from tests.sim.steps import TestBed

GPU = "nvidia.com/gpu"
KIND = "ElasticQuota.scheduling.sigs.k8s.io"
SLOWLY = {"sim.bursar.dev/leaves-after": "30s"}


def quota(name: str, most: Manifest, least: Manifest | None = None) -> Manifest:
    """Of the namespace of its name."""
    head = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota"}
    return {**head, "metadata": {"namespace": name, "name": name}, "spec": {"max": most, "min": least or {}}}


def used(bed: TestBed, name: str) -> Manifest:
    found: Manifest = bed.whole(f"{KIND}/{name}/{name}")["status"]["used"]
    return found


def evicted(bed: TestBed) -> list[str]:
    return [line.pod for line in bed.happenings if line.what == "evicted"]


def test_c15_nothing_falls_below_zero() -> None:
    """The original clamps; here only what was counted can be given back, and only once."""
    world = World(BIG)
    world.quota("q", cm(100, 100))
    claim = world.start(cm(40, 40), "q")
    world.engine.release(claim.uid)
    with pytest.raises(EngineError):
        world.engine.release(claim.uid)
    assert (world.request("q"), world.used("q")) == ({}, {})


# What a pod asks for


def test_a9_overhead_counts() -> None:
    """Without the original's gate to leave it out."""
    bed = TestBed(node("n1", {"cpu": 10, "memory": "20Gi"}), quota("q", {"cpu": 10, "memory": "20Gi"}))
    bed.give(pod("p", "q", {"cpu": 4, "memory": "8Gi"}, overhead={"cpu": 1, "memory": "1Gi"}))
    assert used(bed, "q") == {"cpu": "5", "memory": "9Gi"}


def test_a10_the_largest_init_container_counts_where_it_is_more() -> None:
    bed = TestBed(node("n1", {"cpu": 10, "memory": 10}), quota("q", {"cpu": 10, "memory": 10}))
    made = pod("p", "q", initContainers=[container({"cpu": 2, "memory": 1}), container({"cpu": 2, "memory": 3})])
    made["spec"]["containers"] = [container({"cpu": 2, "memory": 1}), container({"cpu": 1, "memory": 1})]
    bed.give(made)
    assert used(bed, "q") == {"cpu": "3", "memory": "3"}


# Leaving


def test_a15_ruled_a_pod_counts_until_it_is_gone() -> None:
    bed = TestBed(node("n1", {GPU: 4}), quota("q", {GPU: 4}), pod("p", "q", {GPU: 2}, annotations=SLOWLY))
    bed.take("Pod/q/p")
    bed.advance(10_000)
    assert (bed.phases(), used(bed, "q")) == ({"q/p": "Terminating"}, {GPU: "2"})
    bed.advance(30_000)
    assert (bed.phases(), used(bed, "q")) == ({}, {})


def test_a16_ruled_only_a_victim_stops_counting_at_once() -> None:
    """Its claimant has its place already."""
    bed = TestBed(node("n1", {GPU: 2}), quota("q", {GPU: 2}), pod("low", "q", {GPU: 2}, annotations=SLOWLY))
    bed.give(pod("high", "q", {GPU: 2}, priority=9))
    assert bed.phases() == {"q/low": "Terminating", "q/high": "Pending"}
    assert used(bed, "q") == {GPU: "2"}


def test_a17_a_pod_moves_by_its_label_also_between_trees() -> None:
    """Without the original's gate, who names no quota belongs to the default one."""
    world = World(BIG)
    for pool in "ab":
        world.node(f"n-{pool}", BIG, {"pool": pool})
        world.profile(pool, {"pool": pool})
        world.quota(f"test-{pool}", cm(100, 100), parent=f"{pool}-root", tree=f"tree-{pool}")
    claim = world.submit(cm(10, 10), "test-a")
    spec = claim.spec
    for label, expected in (
        ("test-b", ({}, cm(10, 10), {})),
        ("", ({}, {}, cm(10, 10))),
        ("unknown", ({}, {}, cm(10, 10))),
        ("test-a", (cm(10, 10), {}, {})),
    ):
        world.engine.adjust(claim.uid, type(spec)(spec.requests, labels={QUOTA_OF_POD: label} if label else {}))
        found = world.request("test-a", "tree-a"), world.request("test-b", "tree-b"), world.request(DEFAULT)
        assert found == expected, label


def test_a18_the_end_of_a_pod_that_nobody_knows_changes_nothing() -> None:
    bed = TestBed(node("n1", {GPU: 4}), quota("q", {GPU: 4}), pod("p", "q", {GPU: 2}))
    before = bed.engine.digest
    bed.controller.gone("nobody")
    bed.settle()
    assert bed.engine.digest == before


# E2: who may preempt (again)


def two_nodes(*more: Manifest) -> TestBed:
    """Two pods of low priority fill both nodes and their quota; they take 30 seconds to leave."""
    bed = TestBed(node("n1", {GPU: 2}), node("n2", {GPU: 2}), quota("q", {GPU: 4}), *more)
    bed.give(*(pod(name, "q", {GPU: 2}, annotations=SLOWLY, priority=1) for name in ("l1", "l2")))
    return bed


def test_e2_no_nominated_node_it_may() -> None:
    bed = two_nodes()
    bed.give(pod("high", "q", {GPU: 2}, priority=9))
    assert len(evicted(bed)) == 1


def test_e2_whom_it_takes_the_place_of_is_leaving_it_waits() -> None:
    bed = two_nodes()
    bed.give(pod("high", "q", {GPU: 2}, priority=9))
    first = evicted(bed)
    bed.give(pod("other", "q", {GPU: 1}, priority=1))  # every change could be a reason to look again
    bed.give(quota("q", {GPU: 4}, {GPU: 1}))
    bed.advance(29_000)
    assert (evicted(bed), bed.see("q/high").phase) == (first, "Pending")
    bed.advance(1000)
    assert (evicted(bed), bed.see("q/high").phase) == (first, "Running")


@pytest.mark.parametrize("how", ["deleted", "cordoned", "too small"])
def test_e2_its_node_can_no_longer_take_it_it_may_elsewhere(how: str) -> None:
    bed = two_nodes()
    bed.give(pod("high", "q", {GPU: 2}, priority=9))
    lost = "n1" if evicted(bed) == ["q/l1"] else "n2"
    if how == "deleted":
        bed.take(f"Node/{lost}")
    else:
        bed.give(node(lost, {GPU: 2 if how == "cordoned" else 1}, unschedulable=how == "cordoned"))
    bed.advance(30_000)
    high = bed.see("q/high")
    assert (sorted(evicted(bed)), high.phase) == (["q/l1", "q/l2"], "Running")
    assert high.node not in ("", lost)


@pytest.mark.parametrize(
    ("namespace", "priority"), [("else", 0), ("q", 9)], ids=["of another quota", "of higher priority"]
)
def test_e2_somebody_else_is_leaving_it_may(namespace: str, priority: int) -> None:
    """Only whom it could itself displace is worth waiting for."""
    bed = TestBed(node("n1", {GPU: 4}), quota("q", {GPU: 4}), quota("else", {GPU: 4}))
    bed.give(pod("going", namespace, {GPU: 2}, annotations=SLOWLY, priority=priority), pod("low", "q", {GPU: 2}))
    bed.take(f"Pod/{namespace}/going")
    bed.give(pod("high", "q", {GPU: 2}, priority=8))
    assert evicted(bed) == ["q/low"]


def test_e2_a_node_with_room_needs_no_victim() -> None:
    bed = two_nodes(node("n3", {GPU: 2}))
    bed.give(quota("q", {GPU: 6}))
    bed.give(pod("high", "q", {GPU: 2}, priority=9))
    assert (evicted(bed), bed.see("q/high").node) == ([], "n3")


# M1


def test_m1_the_series_of_a_root_quota() -> None:
    """Two resources: used, min and runtime of each; its max has no end, and a parent lends nothing itself."""
    profile = {
        "apiVersion": "quota.koordinator.sh/v1alpha1",
        "kind": "ElasticQuotaProfile",
        "metadata": {"namespace": "pools", "name": "a"},
        "spec": {
            "quotaName": "a",
            "quotaLabels": {"quota.scheduling.koordinator.sh/is-parent": "true"},
            "nodeSelector": {"matchLabels": {"pool": "a"}},
        },
    }
    bed = TestBed(node("n1", {"cpu": 10, "memory": 1000}, labels={"pool": "a"}), profile)
    series = [
        (family.name.removeprefix("bursar_quota_"), sample.labels["resource"], sample.value)
        for family in _quota_metrics(quotas(bed))
        for sample in family.samples
        if sample.labels["quota"] == "a"
    ]
    assert series == [
        ("used", "cpu", 0.0),
        ("used", "memory", 0.0),
        ("min", "cpu", 10.0),
        ("min", "memory", 1000.0),
        ("runtime", "cpu", 0.0),
        ("runtime", "memory", 0.0),
        ("borrowed", "cpu", 0.0),
        ("borrowed", "memory", 0.0),
    ]
