"""What changes around pods, and what a ledger that follows the cluster makes of it."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from bursar.kube.controller.drift import differences
from bursar.kube.controller.mirror import Mirror, MirrorOptions
from bursar.kube.controller.pod_model import read_pod
from bursar.objects.decode import ManifestError
from bursar.objects.manifests import Document
from bursar.policies.plugin import default_registry
from tests.kube.controller.plain_kubernetes import PlainKubernetes
from tests.kube.controller.test_ledger_rebuild import _rebuilt

GPU = "nvidia.com/gpu"
Body = dict[str, Any]


def node(name: str, gpus: int) -> Body:
    status = {"allocatable": {GPU: str(gpus), "pods": "100"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def namespace(name: str, **labels: str) -> Body:
    marks = {key.replace("_", "/"): value for key, value in labels.items()}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": marks}}


def quota(space: str, least: int, most: int) -> Body:
    metadata = {"name": "quota", "namespace": space}
    spec = {"min": {GPU: least}, "max": {GPU: most}}
    return {"apiVersion": "n8s.nebuly.ai/v1alpha1", "kind": "ElasticQuota", "metadata": metadata, "spec": spec}


def pod(space: str, name: str, gpus: int = 1, **spec: Any) -> Body:  # noqa: ANN401 fields of a pod
    container = {"name": "c", "image": "i", "resources": {"requests": {GPU: str(gpus)}}}
    metadata = {"name": name, "namespace": space}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def huge(space: str, name: str, **spec: Any) -> Body:  # noqa: ANN401 fields of a pod
    """Two of these are more than can be counted."""
    body = pod(space, name, **spec)
    body["spec"]["containers"][0]["resources"] = {"requests": {"memory": "3Ei"}}
    return body


def cluster_with(*bodies: Body) -> PlainKubernetes:
    cluster = PlainKubernetes()
    apply(cluster, *bodies)
    return cluster


def apply(cluster: PlainKubernetes, *bodies: Body) -> None:
    cluster.apply([Document("", number, body) for number, body in enumerate(bodies)])


def delete(cluster: PlainKubernetes, body: Body) -> None:
    (given,) = cluster.mirror.cache.kinds.read_all([Document("", 0, body)])
    cluster.delete([(given.kind, given.key)])


def preemptible(mirror: Mirror, key: str) -> bool:
    claim = mirror.controller.claim(key)
    assert claim is not None
    return claim.spec.preemptible


def test_who_ran_before_its_namespace_was_governed_is_governed_with_it_as_after_a_restart() -> None:
    cluster = cluster_with(node("n", 8), namespace("a"), pod("a", "old", nodeName="n"))
    assert not preemptible(cluster.mirror, "a/old")
    apply(cluster, namespace("a", **{"bursar.dev/quota": "enforced"}))
    assert preemptible(cluster.mirror, "a/old")
    assert preemptible(_rebuilt(cluster), "a/old")
    apply(cluster, namespace("a"))
    assert not preemptible(cluster.mirror, "a/old")
    assert not preemptible(_rebuilt(cluster), "a/old")


@pytest.mark.parametrize("again", [False, True])
def test_pods_count_on_a_node_that_comes_after_them_or_comes_back(again: bool) -> None:
    first = [node("n", 8)] if again else []
    cluster = cluster_with(namespace("a"), *first, pod("a", "early", 3, nodeName="n"))
    if again:
        delete(cluster, node("n", 8))
    apply(cluster, node("n", 8))
    assert cluster.mirror.engine.state.account("nodes/n").used.amount(GPU) == 3
    apply(cluster, pod("a", "late", 6))
    assert cluster.phases["a/late"] == "Pending"


_UNKNOWN = [{"matchExpressions": [{"key": "rack", "operator": "Near", "values": ["7"]}]}]


@pytest.mark.parametrize(
    "spec",
    [
        {"tolerations": [{"key": "sla", "operator": "Gt", "value": "950", "effect": "NoSchedule"}]},
        {
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": _UNKNOWN}}
            }
        },
    ],
    ids=["toleration", "affinity"],
)
def test_a_running_pod_counts_however_its_node_was_chosen(spec: Body) -> None:
    cluster = cluster_with(node("n", 8), namespace("a"), quota("a", 4, 4))
    body = pod("a", "early", 3, nodeName="n", **spec)
    body["metadata"]["uid"] = "1"
    cluster.mirror.pod_seen(read_pod(msgspec.json.encode({**body, "status": {"phase": "Running"}})))
    state = cluster.mirror.engine.state
    assert state.account("nodes/n").used.amount(GPU) == 3
    assert state.account("elastic/ElasticQuota/a/quota").used.amount(GPU) == 3


def test_pods_that_ask_for_more_than_can_be_counted_stop_nobody() -> None:
    """Whoever chooses a node itself, where nobody governs it, may ask for anything."""
    cluster = cluster_with(node("n", 8), namespace("free"), namespace("a", **{"bursar.dev/quota": "enforced"}))
    apply(cluster, *(huge("free", name, nodeName="n") for name in ("p0", "p1", "p2")))
    apply(cluster, pod("a", "late"))
    for mirror in (cluster.mirror, _rebuilt(cluster)):
        assert mirror.engine.state.account("nodes/n").used.amount("memory") == 3 * 2**60
        assert differences(mirror.controller, mirror.pods) == []
    assert cluster.phases["a/late"] == "Running"
    told = {told.key: told.message for told in cluster.mirror.notes.events if told.reason == "control.invalid"}
    assert set(told) == {"free/p1", "free/p2"}
    assert told["free/p1"] == "it cannot be counted: the sum of memory leaves the exact range"


def test_a_node_that_comes_after_pods_that_cannot_be_counted_on_it_stops_nobody() -> None:
    cluster = cluster_with(namespace("free"), *(huge("free", name, nodeName="n") for name in ("p0", "p1", "p2")))
    apply(cluster, node("n", 8))
    for mirror in (cluster.mirror, _rebuilt(cluster)):
        assert mirror.engine.state.account("nodes/n").used.amount("memory") == 3 * 2**60
        assert differences(mirror.controller, mirror.pods) == []


def test_a_quota_that_could_not_count_what_is_there_is_refused_and_lets_nobody_pass() -> None:
    running = [huge("a", name, nodeName=name) for name in ("n0", "n1", "n2")]
    cluster = cluster_with(*(node(f"n{number}", 8) for number in range(3)), namespace("a"), *running)
    memory = {**quota("a", 0, 0), "spec": {"min": {"memory": "1Gi"}, "max": {"memory": "2Gi"}}}
    apply(cluster, memory, pod("a", "late"))
    ((_, problem),) = cluster.mirror.objects.invalid.values()
    assert "what is there already cannot be counted by it: the sum of memory leaves the exact range" in problem
    assert cluster.phases["a/late"] == "Pending"
    delete(cluster, running[0])
    delete(cluster, running[1])
    apply(cluster, namespace("b"))  # whatever changes, it is tried again
    assert not cluster.mirror.objects.invalid
    assert cluster.mirror.engine.state.account("elastic/ElasticQuota/a/quota").used.amount("memory") == 3 * 2**60


def test_a_wish_that_is_more_than_can_be_counted_waits_and_stops_nobody() -> None:
    cluster = cluster_with(node("n", 8), namespace("a"), huge("a", "early", nodeName="n"))
    apply(cluster, namespace("a", **{"bursar.dev/quota": "enforced"}), quota("a", 2, 2))
    apply(cluster, huge("a", "late"), pod("a", "small"))
    claim = cluster.mirror.controller.claim("a/late")
    assert claim is not None
    assert cluster.mirror.controller.reason(claim.uid)[0] == "engine.out-of-range"
    assert cluster.phases["a/small"] == "Running"
    delete(cluster, huge("a", "early"))
    assert cluster.phases["a/late"] == "Running"


def test_a_running_pod_that_has_grown_counts_for_what_it_asks_for_whether_it_fits_or_not() -> None:
    """Nobody refuses the growth of pods that are not governed; some only ask for it, and wait for it."""
    cluster = cluster_with(node("n", 4), namespace("free"), pod("free", "p", 2, nodeName="n"))
    apply(cluster, pod("free", "p", 7))
    mirror = cluster.mirror
    assert mirror.engine.state.account("nodes/n").used.amount(GPU) == 7
    assert differences(mirror.controller, mirror.pods) == []
    assert "ResizeRefused" in {told.reason for told in mirror.notes.events}
    apply(cluster, pod("free", "p", 1))
    assert mirror.engine.state.account("nodes/n").used.amount(GPU) == 1


@pytest.mark.parametrize("then", [{}, {"nodeName": "n"}], ids=["let go, then bound", "seen when it was bound"])
def test_a_pod_that_could_not_be_read_counts_when_somebody_else_let_it_go(then: Body) -> None:
    mirror = cluster_with(node("n", 8), namespace("a", **{"bursar.dev/quota": "enforced"})).mirror
    body = pod("a", "odd", 3)
    body["metadata"] |= {"uid": "1", "labels": {"bursar.dev/group": "g"}}
    for spec in ({"schedulingGates": [{"name": "bursar.dev/quota"}]}, then, {"nodeName": "n"}):
        changed = {**body, "spec": {**body["spec"], **spec}}
        mirror.pod_seen(read_pod(msgspec.json.encode(changed)))
        assert ("a/odd" in mirror.pods.by_key) == bool(spec)
    assert mirror.engine.state.account("nodes/n").used.amount(GPU) == 3


def test_an_object_that_others_need_goes_when_they_do_not_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_with(node("n", 8), node("needed", 8))
    controller, cache = cluster.mirror.controller, cluster.mirror.cache
    with monkeypatch.context() as patch:
        patch.setattr(controller, "apply", refuse)
        delete(cluster, node("needed", 8))
    assert cache.get("Node", "needed") is not None
    apply(cluster, node("n", 7))
    assert cache.get("Node", "needed") is None


def test_an_object_that_others_need_stays_when_it_is_created_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_with(node("n", 8), node("needed", 8))
    with monkeypatch.context() as patch:
        patch.setattr(cluster.mirror.controller, "apply", refuse)
        delete(cluster, node("needed", 8))
    apply(cluster, node("needed", 8))
    apply(cluster, node("n", 7))
    assert cluster.mirror.cache.get("Node", "needed") is not None


def refuse(_changes: object) -> None:
    raise ManifestError("others need it", "")


def test_a_ledger_is_built_in_steps_however_many_objects_there_are() -> None:
    """Others have their turn between two of them: the lease is to be renewed."""
    mirror = Mirror(default_registry(), MirrorOptions())
    kinds = {kind.kind: kind for kind in mirror.kinds if kind.group in {"", "n8s.nebuly.ai"}}
    bodies = [node(f"n{number}", 8) for number in range(50)] + [quota(f"a{number}", 1, 2) for number in range(50)]
    objects = [(kinds[body["kind"]], msgspec.json.encode(body)) for body in bodies]
    taken = [mirror.cache.version for _ in mirror.building(objects, [])]
    assert max(after - before for before, after in pairwise(taken)) == 1
    assert mirror.cache.version == len(bodies)


def test_time_goes_on_when_somebody_sets_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = Mirror(default_registry(), MirrorOptions())
    before, wall = mirror.notes.now(), time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: wall - 3_600 * 10**9)
    assert 0 <= mirror.notes.now() - before < 60_000
    assert abs(before - wall // 1_000_000) < 60_000
