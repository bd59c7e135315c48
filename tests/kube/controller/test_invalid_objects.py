"""Objects that are not acceptable: they wait for what they lack, and for nothing once they are gone.

And objects that once were: whoever leads next does not put them out of force because others changed since.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from bursar.kube.controller.mirror import Mirror
from tests.kube.controller.plain_kubernetes import PlainKubernetes
from tests.kube.controller.test_ledger_rebuild import _rebuilt
from tests.kube.controller.test_mirror import apply, cluster_with, delete

KIND = "ElasticQuota.scheduling.sigs.k8s.io"
LABELS = "quota.scheduling.koordinator.sh"
Body = dict[str, Any]


def branch(name: str, parent: str = "", *, leaf: bool = False) -> Body:
    labels = {f"{LABELS}/is-parent": "false" if leaf else "true"} | ({f"{LABELS}/parent": parent} if parent else {})
    metadata = {"name": name, "namespace": "a", "labels": labels}
    spec = {"min": {"cpu": "1"}, "max": {"cpu": "2"}}
    return {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": metadata, "spec": spec}


def test_a_chain_of_objects_comes_into_force_with_the_one_that_all_of_them_lacked() -> None:
    cluster = cluster_with(branch("leaf", "middle", leaf=True), branch("middle", "top"))
    assert {key for _, key in cluster.mirror.objects.invalid} == {"a/leaf", "a/middle"}
    apply(cluster, branch("top"))
    assert not cluster.mirror.objects.invalid
    assert cluster.mirror.cache.get(KIND, "a/leaf") is not None


@pytest.mark.parametrize("in_force", [False, True])
def test_an_object_that_is_deleted_while_it_is_invalid_never_comes_into_force(in_force: bool) -> None:
    first = [branch("leaf", leaf=True)] if in_force else []
    cluster = cluster_with(*first)
    apply(cluster, branch("leaf", "top", leaf=True))
    assert [key for _, key in cluster.mirror.objects.invalid] == ["a/leaf"]
    delete(cluster, branch("leaf", "top", leaf=True))
    assert not cluster.mirror.objects.invalid
    apply(cluster, branch("top"))
    assert cluster.mirror.cache.get(KIND, "a/leaf") is None


def test_who_shows_what_is_wrong_hears_that_an_object_is_gone_that_was_never_in_force() -> None:
    cluster = cluster_with()
    told: list[tuple[str, str, str]] = []
    cluster.mirror.condition = lambda kind, key, problem: told.append((kind, key, problem))
    apply(cluster, branch("leaf", "top", leaf=True))
    assert told[-1][:2] == (KIND, "a/leaf")
    assert "there is no quota top" in told[-1][2]
    delete(cluster, branch("leaf", "top", leaf=True))
    assert told[-1] == (KIND, "a/leaf", "")


# Objects that cannot be read


def unreadable(body: Body) -> Body:
    marks = {f"{LABELS}/shared-weight": "no JSON"}
    return {**body, "metadata": {**body["metadata"], "annotations": marks}}


def shown(cluster: PlainKubernetes, body: Body) -> None:
    """As the API server shows it, which looks at no annotation."""
    kind = cluster.mirror.cache.kinds.find(KIND)
    stored = {**body, "metadata": {**body["metadata"], "uid": "u"}}
    cluster.objects[KIND, f"a/{body['metadata']['name']}"] = stored
    cluster.mirror.object_seen(kind, msgspec.json.encode(stored))


def test_an_object_that_cannot_be_read_any_more_is_told_and_its_last_good_form_stays_in_force() -> None:
    cluster = cluster_with(branch("leaf", leaf=True))
    told: list[tuple[str, str, str]] = []
    cluster.mirror.condition = lambda kind, key, problem: told.append((kind, key, problem))
    for _ in range(2):
        shown(cluster, unreadable(branch("leaf", leaf=True)))
    assert [one[:2] for one in told] == [(KIND, "a/leaf")]
    assert "shared-weight" in told[0][2]
    assert [key for _, key in cluster.mirror.objects.invalid] == ["a/leaf"]
    assert cluster.mirror.cache.get(KIND, "a/leaf") is not None
    shown(cluster, branch("leaf", leaf=True))
    assert told[1:] == [(KIND, "a/leaf", "")]
    assert not cluster.mirror.objects.invalid


def test_what_an_object_was_before_it_could_not_be_read_never_comes_into_force() -> None:
    cluster = cluster_with()
    shown(cluster, branch("leaf", "top", leaf=True))
    shown(cluster, unreadable(branch("leaf", "top", leaf=True)))
    apply(cluster, branch("top"))
    assert cluster.mirror.cache.get(KIND, "a/leaf") is None


def test_an_object_that_could_not_be_read_is_forgotten_when_it_is_gone() -> None:
    cluster = cluster_with()
    told: list[tuple[str, str, str]] = []
    cluster.mirror.condition = lambda kind, key, problem: told.append((kind, key, problem))
    shown(cluster, unreadable(branch("leaf", leaf=True)))
    delete(cluster, branch("leaf", leaf=True))
    assert told[1:] == [(KIND, "a/leaf", "")]
    assert not cluster.mirror.objects.invalid


# Trees over node pools


def pool_node(name: str) -> Body:
    metadata = {"name": name, "labels": {"pool": "a"}}
    status = {"allocatable": {"cpu": "10", "memory": "64Gi", "pods": "100"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def pool() -> Body:
    spec = {
        "quotaName": "root",
        "nodeSelector": {"matchLabels": {"pool": "a"}},
        "quotaLabels": {f"{LABELS}/is-parent": "true"},
    }
    metadata = {"name": "pool", "namespace": "kube-system"}
    return {
        "apiVersion": "quota.koordinator.sh/v1alpha1",
        "kind": "ElasticQuotaProfile",
        "metadata": metadata,
        "spec": spec,
    }


def share(name: str, most: str = "10") -> Body:
    """A child of the pool's root that is promised as much as one node has."""
    amounts = {"cpu": "10", "memory": "8Gi"}
    body = branch(name, "root", leaf=True)
    body["metadata"]["namespace"] = "kube-system"  # where no webhook fills anything in
    return {**body, "spec": {"min": amounts, "max": {**amounts, "cpu": most}}}


def full_pool() -> PlainKubernetes:
    """Two nodes, all promised to two quotas, and a pod in the second of them."""
    cluster = cluster_with(pool_node("n1"), pool_node("n2"), pool())
    apply(cluster, share("x"))
    apply(cluster, share("y"))
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "8"}}}
    metadata = {"name": "p", "namespace": "a", "labels": {f"{LABELS}/name": "y"}}
    apply(cluster, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}})
    assert cluster.phases["a/p"] == "Running"
    return cluster


def counts_in(mirror: Mirror) -> list[str]:
    claim = mirror.controller.claim("a/p")
    assert claim is not None
    binding = next(one for one in claim.bindings if one is not None and one.policy == "pools")
    return [account.name.rpartition("/")[2] for account in binding.accounts]


def test_the_next_leader_keeps_all_quotas_of_a_tree_that_lost_a_node() -> None:
    cluster = full_pool()
    delete(cluster, pool_node("n2"))
    rebuilt = _rebuilt(cluster)
    assert not rebuilt.objects.invalid
    assert counts_in(rebuilt) == counts_in(cluster.mirror) == ["own", "y", "root"]


def test_the_next_leader_keeps_a_root_quota_that_is_used_without_its_profile() -> None:
    cluster = full_pool()
    delete(cluster, pool())
    rebuilt = _rebuilt(cluster)
    assert not rebuilt.objects.invalid
    assert counts_in(rebuilt) == counts_in(cluster.mirror) == ["own", "y", "root"]


def test_a_quota_whose_tree_was_filled_in_can_be_changed() -> None:
    cluster = full_pool()
    stored = copy.deepcopy(cluster.objects[KIND, "kube-system/x"])
    assert f"{LABELS}/tree-id" in stored["metadata"]["labels"]
    apply(cluster, {**stored, "spec": share("x", "12")["spec"]})
    assert not cluster.mirror.objects.invalid
    assert not _rebuilt(cluster).objects.invalid


def test_the_next_leader_keeps_a_quota_whose_tree_was_not_filled_in_yet() -> None:
    cluster = full_pool()
    stored = cluster.objects[KIND, "kube-system/x"]
    del stored["metadata"]["labels"][f"{LABELS}/tree-id"]
    assert not _rebuilt(cluster).objects.invalid
