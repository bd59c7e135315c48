"""A copy of another cluster: what is there was admitted there, whatever became of others since."""

from __future__ import annotations

from bursar.objects.manifests import Document
from bursar.sim.cluster import Cluster
from tests.kube.controller.test_changes import delete
from tests.kube.controller.test_invalid import KIND, full_pool, pool_node


def test_quotas_of_a_tree_that_lost_a_node_are_in_force_in_a_copy() -> None:
    original = full_pool()
    delete(original, pool_node("n2"))
    copy = Cluster()
    copy.staging.keeps_ages = True
    copy.apply([Document("", number, body) for number, body in enumerate(original.objects.values())])
    assert copy.objects.find(KIND, "kube-system/y") is not None
