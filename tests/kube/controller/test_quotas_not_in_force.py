"""Quotas that are not acceptable and never were in force: nobody knows what they allow, so whom they are for waits."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bursar.kube.controller.mirror import Mirror
from tests.kube.controller.plain_kubernetes import PlainKubernetes
from tests.kube.controller.test_invalid_objects import branch, unreadable
from tests.kube.controller.test_ledger_rebuild import _rebuilt
from tests.kube.controller.test_mirror import apply, cluster_with, delete, namespace, node, pod, quota

Body = dict[str, Any]
ELASTIC = "ElasticQuota.n8s.nebuly.ai"
CHOOSES = "quota.scheduling.koordinator.sh/name"


def wrong(space: str, name: str = "quota") -> Body:
    """More promised than allowed."""
    body = quota(space, 4, 2)
    return {**body, "metadata": {**body["metadata"], "name": name}}


def composite(*spaces: str, most: int) -> Body:
    metadata = {"name": "both", "namespace": "elsewhere"}
    spec = {"namespaces": list(spaces), "min": {"nvidia.com/gpu": 4}, "max": {"nvidia.com/gpu": most}}
    return {"apiVersion": "n8s.nebuly.ai/v1alpha1", "kind": "CompositeElasticQuota", "metadata": metadata, "spec": spec}


def gpu_quota(space: str, **total: Any) -> Body:  # noqa: ANN401 fields of a quota
    metadata = {"name": "gpus", "namespace": space}
    kind = {"apiVersion": "tensor-fusion.ai/v1", "kind": "GPUResourceQuota"}
    return {**kind, "metadata": metadata, "spec": {"total": total}}


def labelled(space: str, name: str, label: str) -> Body:
    body = pod(space, name)
    return {**body, "metadata": {**body["metadata"], "labels": {CHOOSES: label}}}


def show(cluster: PlainKubernetes, body: Body) -> None:
    """As the API server shows what came past every webhook."""
    (kind,) = [
        kind
        for kind in cluster.mirror.cache.kinds
        if (kind.api_version, kind.kind) == (body["apiVersion"], body["kind"])
    ]
    metadata = {**body["metadata"], "uid": "u"}
    stored = {**body, "metadata": metadata}
    cluster.objects[kind.name, f"{metadata['namespace']}/{metadata['name']}"] = stored
    cluster.mirror.object_seen(kind, msgspec.json.encode(stored))
    cluster.settle()


def problem(mirror: Mirror, key: str) -> str:
    return mirror.pods.by_key[key].problem


def test_a_new_leader_that_cannot_read_a_quota_lets_its_pods_wait_and_its_namespace_stay_governed() -> None:
    cluster = cluster_with(node("n", 8), namespace("a"), quota("a", 1, 1), pod("a", "first"), pod("a", "second"))
    show(cluster, wrong("a"))
    assert problem(cluster.mirror, "a/second") == ""  # its last good form is known here
    next_one = _rebuilt(cluster)
    assert problem(next_one, "a/second").startswith(
        f"its quota {ELASTIC} a/quota is not in force, so its limits are unknown: "
    )
    assert next_one.controller.claim("a/second") is None
    assert "a" in next_one.selection


def test_pods_are_decided_over_when_their_quota_is_mended() -> None:
    cluster = cluster_with(node("n", 8), namespace("a"))
    show(cluster, wrong("a"))
    apply(cluster, pod("a", "first"), pod("a", "second"))
    assert cluster.phases == {"a/first": "Pending", "a/second": "Pending"}
    show(cluster, quota("a", 1, 1))
    assert sorted(cluster.phases.values()) == ["Pending", "Running"]
    assert problem(cluster.mirror, "a/second") == ""


def test_pods_are_decided_over_when_the_quota_is_gone() -> None:
    cluster = cluster_with(node("n", 8), namespace("a"))
    show(cluster, wrong("a"))
    apply(cluster, pod("a", "first"))
    delete(cluster, quota("a", 1, 1))
    assert cluster.phases == {"a/first": "Running"}
    assert "a" not in cluster.mirror.selection


def test_pods_that_wait_already_are_held_back_too() -> None:
    cluster = cluster_with(node("n", 1), namespace("a"), pod("a", "first"), pod("a", "second"))
    assert problem(cluster.mirror, "a/second") == ""
    show(cluster, wrong("a"))
    assert "is not in force" in problem(cluster.mirror, "a/second")
    cluster.finish(["a/first"])
    assert cluster.phases["a/second"] == "Pending"


def test_only_its_own_namespaces_wait() -> None:
    cluster = cluster_with(node("n", 8), namespace("a"), namespace("b"), namespace("c"))
    show(cluster, composite("a", "b", most=2))
    apply(cluster, pod("a", "one"), pod("b", "two"), pod("c", "three"), pod("elsewhere", "four"))
    waiting = {key for key, phase in cluster.phases.items() if phase == "Pending"}
    assert waiting == {"a/one", "b/two"}


def test_a_quota_of_another_policy_does_not_stand_in() -> None:
    cluster = cluster_with(node("n", 8), namespace("a"), quota("a", 4, 4))
    show(cluster, gpu_quota("a", requests={"tflops": "much"}))
    apply(cluster, pod("a", "one"))
    assert "GPUResourceQuota.tensor-fusion.ai a/gpus is not in force" in problem(cluster.mirror, "a/one")


def test_of_two_quotas_for_one_namespace_the_one_in_force_decides() -> None:
    cluster = cluster_with(node("n", 8), namespace("a"), quota("a", 1, 1))
    show(cluster, wrong("a", "another"))
    apply(cluster, pod("a", "one"), pod("a", "two"))
    assert sorted(cluster.phases.values()) == ["Pending", "Running"]


@pytest.mark.parametrize(("label", "waits"), [("leaf", True), ("good", False), ("", False)])
def test_a_pod_that_names_its_quota_waits_for_that_one_only(label: str, waits: bool) -> None:
    cluster = cluster_with(node("n", 8), namespace("b"), branch("good", leaf=True))
    show(cluster, unreadable(branch("leaf", leaf=True)))
    apply(cluster, labelled("b", "one", label))
    assert ("a/leaf is not in force" in problem(cluster.mirror, "b/one")) is waits


def test_a_pod_that_names_a_good_quota_does_not_wait_for_that_of_its_namespace() -> None:
    cluster = cluster_with(node("n", 8), namespace("a"), branch("good", leaf=True))
    show(cluster, unreadable(branch("a", leaf=True)))
    apply(cluster, labelled("a", "one", "good"), pod("a", "two"))
    assert problem(cluster.mirror, "a/one") == ""
    assert "a/a is not in force" in problem(cluster.mirror, "a/two")


def test_whom_a_quota_named_before_is_decided_over_although_it_is_wrong_still() -> None:
    cluster = cluster_with(node("n", 8), namespace("a"), namespace("b"))
    show(cluster, composite("a", "b", most=2))
    apply(cluster, pod("a", "one"), pod("b", "two"))
    show(cluster, composite("b", most=2))
    assert cluster.phases == {"a/one": "Running", "b/two": "Pending"}


def test_what_is_only_tried_again_is_no_reason_to_look_at_all_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_with(node("n", 8), namespace("a"))
    lonely = branch("leaf", "top", leaf=True)
    show(cluster, lonely)
    looks: list[None] = []
    monkeypatch.setattr(cluster.mirror.pods, "hold_back", lambda: looks.append(None))
    apply(cluster, node("m", 8), namespace("b"))
    assert not looks
    show(cluster, branch("leaf", "another", leaf=True))
    assert looks


def test_a_second_quota_of_a_name_does_not_put_the_first_out_of_force() -> None:
    cluster = cluster_with(node("n", 8), namespace("b"), branch("good", leaf=True))
    again = branch("good", leaf=True)
    show(cluster, {**again, "metadata": {**again["metadata"], "namespace": "b"}})
    assert [key for _, key in cluster.mirror.objects.invalid] == ["b/good"]
    apply(cluster, labelled("b", "one", "good"))
    assert problem(cluster.mirror, "b/one") == ""
