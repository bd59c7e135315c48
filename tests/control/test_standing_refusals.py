"""Pods that wait for room in their quota, and that no victims would help, wait on without new decisions."""

from typing import Any

from bursar.objects.manifests import Document
from bursar.sim.cluster import Cluster
from bursar.sim.pods import PENDING, RUNNING

GPU = "nvidia.com/gpu"
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {GPU: 16}}}
QUOTA = {
    "apiVersion": "n8s.nebuly.ai/v1alpha1",
    "kind": "ElasticQuota",
    "metadata": {"namespace": "a", "name": "q"},
    "spec": {"min": {GPU: 8}, "max": {GPU: 8}},
}


def pod(name: str, gpus: int, priority: int = 0) -> dict[str, Any]:
    containers = [{"name": "main", "resources": {"limits": {GPU: gpus}}}]
    metadata = {"namespace": "a", "name": name, "labels": {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers, "priority": priority},
    }


def cluster_with(*pods: dict[str, Any]) -> Cluster:
    cluster = Cluster()
    apply(cluster, NODE, QUOTA, *pods)
    return cluster


def apply(cluster: Cluster, *bodies: dict[str, Any]) -> None:
    cluster.apply(Document("", number, body) for number, body in enumerate(bodies, 1))


def phase(cluster: Cluster, name: str) -> str:
    found = cluster.pod(f"a/{name}")
    assert found is not None
    return found.phase


def full() -> Cluster:
    """Eight pods of one GPU each fill the quota, and one waits for six."""
    cluster = cluster_with(*(pod(f"small-{n}", 1) for n in range(8)))
    apply(cluster, pod("large", 6))
    return cluster


def test_room_that_is_too_small_costs_no_decision() -> None:
    cluster = full()
    before = cluster.controller.decided
    for number in range(5):
        cluster.finish([f"a/small-{number}"])
    assert cluster.controller.decided == before
    assert phase(cluster, "large") == PENDING


def test_enough_room_starts_it() -> None:
    cluster = full()
    cluster.finish(f"a/small-{number}" for number in range(5))
    cluster.finish(["a/small-5"])
    assert phase(cluster, "large") == RUNNING


def test_its_sentence_has_the_numbers_of_now() -> None:
    cluster = full()
    cluster.finish(["a/small-0", "a/small-1", "a/small-2"])
    found = cluster.pod("a/large")
    assert found is not None
    assert found.reason == f"elastic.max.{GPU}"
    assert "needs 6" in found.message
    assert "5 of its max of 8 in use" in found.message


def test_victim_that_arrives_later_is_found() -> None:
    cluster = cluster_with(*(pod(f"firm-{n}", 1, 5) for n in range(4)))
    apply(cluster, pod("large", 6, 5))
    assert phase(cluster, "large") == PENDING
    apply(cluster, pod("low", 2, 0), pod("lower", 2, -1))
    # With both it still lacks two GPUs, which pods as important as itself have.
    assert phase(cluster, "large") == PENDING
    cluster.finish(["a/firm-0", "a/firm-1"])
    assert phase(cluster, "large") == RUNNING


def test_raised_maximum_starts_it() -> None:
    cluster = full()
    apply(cluster, {**QUOTA, "spec": {"min": {GPU: 14}, "max": {GPU: 14}}})
    assert phase(cluster, "large") == RUNNING
