"""A copy of another cluster: what is there was admitted there, whatever became of others since; it may be a lot."""

from __future__ import annotations

import pytest

from bursar.objects.manifests import Document
from bursar.policies.plugin import ObjectView
from bursar.policies.pools import plugin
from bursar.policies.pools.topology import Topology
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


def test_the_tree_of_quotas_is_made_once_for_all_that_is_applied_together(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Topology] = []
    make = plugin._topology_of

    def noted(view: ObjectView) -> Topology:
        made.append(make(view))
        return made[-1]

    monkeypatch.setattr(plugin, "_topology_of", noted)
    bodies = [branch("top"), *(branch(f"leaf-{number}", "top", leaf=True) for number in range(5))]
    for body in bodies:
        body["spec"]["min"] = {"cpu": "0"}
    bodies += [pod("a", f"p{number}") for number in range(5)]
    Cluster().apply([Document("", number, body) for number, body in enumerate(bodies)])
    assert len(made) == 1
    assert set(made[0].names.quotas) == {"top", *(f"leaf-{number}" for number in range(5))}
