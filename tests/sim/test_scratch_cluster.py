"""A copy of another cluster: what is there was admitted there, whatever became of others since; it may be a lot."""

from __future__ import annotations

import pytest

from bursar.objects.manifests import Document
from bursar.policies.plugin import ObjectView
from bursar.policies.pools import plugin
from bursar.policies.pools.topology import ReadProfile, Topology, topology_of
from bursar.sim.cluster import Cluster
from tests.kube.controller.test_invalid_objects import KIND, branch, full_pool, pool_node
from tests.kube.controller.test_mirror import delete, pod


def test_quotas_of_a_tree_that_lost_a_node_are_in_force_in_a_copy() -> None:
    original = full_pool()
    delete(original, pool_node("n2"))
    copy = Cluster()
    copy.staging.keeps_ages = True
    copy.apply([Document("", number, body) for number, body in enumerate(original.objects.values())])
    assert copy.objects.find(KIND, "kube-system/y") is not None


def test_what_is_derived_of_quotas_is_made_once_and_follows_what_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Topology] = []

    def noted(view: ObjectView, read: ReadProfile) -> Topology:
        made.append(topology_of(view, read))
        return made[-1]

    monkeypatch.setattr(plugin, "topology_of", noted)
    cluster = Cluster()
    for name in ("top", *(f"leaf-{number}" for number in range(5))):
        body = branch(name) if name == "top" else branch(name, "top", leaf=True)
        body["spec"]["min"] = {"cpu": "0"}
        cluster.apply([Document("", 1, body)])
    cluster.apply([Document("", 1, pod("a", "p"))])
    cluster.delete([(cluster.kinds.find(KIND), "a/leaf-0")])
    assert len(made) == 1
    assert made[0].children("top") == [f"leaf-{number}" for number in range(1, 5)]
