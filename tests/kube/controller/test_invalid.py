"""Objects that are not acceptable: they wait for what they lack, and for nothing once they are gone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.controller.test_changes import apply, cluster_with, delete

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
    assert cluster.mirror.world.get(KIND, "a/leaf") is not None


@pytest.mark.parametrize("in_force", [False, True])
def test_an_object_that_is_deleted_while_it_is_invalid_never_comes_into_force(in_force: bool) -> None:
    first = [branch("leaf", leaf=True)] if in_force else []
    cluster = cluster_with(*first)
    apply(cluster, branch("leaf", "top", leaf=True))
    assert [key for _, key in cluster.mirror.objects.invalid] == ["a/leaf"]
    delete(cluster, branch("leaf", "top", leaf=True))
    assert not cluster.mirror.objects.invalid
    apply(cluster, branch("top"))
    assert cluster.mirror.world.get(KIND, "a/leaf") is None


def test_who_shows_what_is_wrong_hears_that_an_object_is_gone_that_was_never_in_force() -> None:
    cluster = cluster_with()
    told: list[tuple[str, str, str]] = []
    cluster.mirror.condition = lambda kind, key, problem: told.append((kind, key, problem))
    apply(cluster, branch("leaf", "top", leaf=True))
    assert told[-1][:2] == (KIND, "a/leaf")
    assert "there is no quota top" in told[-1][2]
    delete(cluster, branch("leaf", "top", leaf=True))
    assert told[-1] == (KIND, "a/leaf", "")
