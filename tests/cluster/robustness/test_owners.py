"""Quotas of others: people with ordinary rights neither use nor take them back, nor shield what they borrowed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.api import Object
from tests.cluster.controlplane.identities import BURSAR
from tests.cluster.controlplane.objects import may, unique
from tests.cluster.installation import replicas
from tests.cluster.robustness.scene import GPU, Scene
from tests.cluster.robustness.test_hostile_pods import ATTACKERS, attack, hostile, told
from tests.cluster.waiting import eventually

__all__ = ["hostile"]
DELETES = Path(__file__).resolve().parents[3] / "deploy" / "rbac-ignore-budgets.yaml"
KOORDINATOR = "quota.scheduling.koordinator.sh/name"
CRITICAL = "system-node-critical"


@contextmanager
def applied(plane: ControlPlane, *bodies: Object) -> Iterator[None]:
    text = yaml.safe_dump_all(bodies)
    plane.kubectl("apply", "-f", "-", input=text)
    try:
        yield
    finally:
        plane.kubectl("delete", "--ignore-not-found", "-f", "-", input=text)


def quotas(scene: Scene, tree: str, quota: str) -> tuple[Object, Object]:
    """A tree and a quota of Koordinator that only the namespace of the scene may use."""
    group = {"parent": "root", "quota": {GPU: 2}, "hard": True, "namespaces": [scene.namespace]}
    nodes = {"root": {"quota": {GPU: 8}}, "ml": group}
    head = {"apiVersion": "bursar.dev/v1alpha1", "kind": "QuotaTree", "metadata": {"name": tree}}
    meta = {"name": quota, "namespace": scene.namespace, "annotations": {"bursar.dev/namespaces": scene.namespace}}
    spec = {"min": {GPU: 2}, "max": {GPU: 2}}
    theirs = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": meta, "spec": spec}
    return {**head, "spec": {"resourceNames": [GPU], "nodes": nodes}}, theirs


@pytest.mark.parametrize("user", ATTACKERS)
def test_quotas_of_others_are_not_used_nor_taken_back(
    plane: ControlPlane, scene: Scene, hostile: str, user: str
) -> None:
    scene.nodes(1)
    tree, quota = unique("org"), unique("quota")
    labels = ({f"quota.bursar.dev/{tree}": "ml"}, {KOORDINATOR: quota})
    with applied(plane, *quotas(scene, tree, quota)), replicas(plane) as running:
        names = {f"thief-{number}{kind}" for number in range(2) for kind in ("", "-critical")}
        for number, chosen in enumerate(labels):
            attack(plane, user, hostile, f"thief-{number}", labels=chosen)
        eventually(lambda: told(plane, hostile, "access.namespace") == {"thief-0", "thief-1"}, "thieves are named")
        for number, chosen in enumerate(labels):
            scene.wait_running(scene.pod(f"owner-{number}", 2, labels=chosen))
        for number, chosen in enumerate(labels):
            attack(plane, user, hostile, f"thief-{number}-critical", labels=chosen, priorityClassName=CRITICAL)
        eventually(lambda: told(plane, hostile, "access.namespace") == names, "all of them are named")
        assert scene.runs("owner-0")
        assert scene.runs("owner-1")
        assert running.leader().metrics()["bursar_ledger_differences_total"] == 0


def test_a_class_of_the_system_evicts_nobody_in_its_own_quota(plane: ControlPlane, scene: Scene) -> None:
    scene.nodes(1)
    scene.quota(2)
    with replicas(plane):
        scene.wait_running(scene.pod("first", 2))
        scene.pod("critical", 1, priorityClassName=CRITICAL)
        assert CRITICAL in scene.wait_told("critical", "access.priority")
        assert scene.runs("first")


def elastic(plane: ControlPlane, namespace: str, least: int) -> None:
    body = {"apiVersion": "n8s.nebuly.ai/v1alpha1", "kind": "ElasticQuota", "metadata": {"name": "quota"}}
    path = f"/apis/n8s.nebuly.ai/v1alpha1/namespaces/{namespace}/elasticquotas"
    plane.api().create(path, {**body, "spec": {"min": {GPU: least}}})


@pytest.mark.parametrize("user", ATTACKERS)
def test_a_budget_is_named_and_ignored_for_what_is_borrowed_where_that_is_wanted(
    plane: ControlPlane, scene: Scene, hostile: str, user: str
) -> None:
    """The attacker borrows what the owner leaves idle, and shields it; also with a long grace period."""
    scene.nodes(1)
    scene.quota(8, 4)
    elastic(plane, hostile, 4)
    budget = {"metadata": {"name": "shield"}, "spec": {"minAvailable": 8, "selector": {}}}
    control = {"budgets": "ignore-for-over-quota", "maxGracePeriod": "1s"}
    options = {"apiVersion": "bursar.dev/v1alpha1", "kind": "Configuration", "metadata": {"name": "default"}}
    with replicas(plane):
        for number in range(8):
            attack(plane, user, hostile, f"b{number}", terminationGracePeriodSeconds=1_000_000)
        path = f"/api/v1/namespaces/{hostile}/pods"
        eventually(lambda: _running(plane, path) == 8, "the attacker borrows")
        budgets = f"/apis/policy/v1/namespaces/{hostile}/poddisruptionbudgets"
        plane.api(user).create(budgets, budget)
        eventually(lambda: _expected(plane, f"{budgets}/shield") == 8, "the budget counts the pods")
        scene.pod("owner", 4)
        eventually(lambda: "disruption budget" in scene.wait_told("owner", "elastic."), "the budget is named")
        assert scene.gated("owner")
        deletes = list(yaml.safe_load_all(DELETES.read_text()))
        with applied(plane, *deletes, {**options, "spec": {"control": control}}):
            eventually(lambda: may(plane.api(), BURSAR, "delete", "pods"), "the right is known")
            scene.wait_running("owner")
            assert _running(plane, path) == 4


def _expected(plane: ControlPlane, path: str) -> int:
    found: int = plane.api().get(path).get("status", {}).get("expectedPods", 0)
    return found


def _running(plane: ControlPlane, path: str) -> int:
    pods = plane.api().get(path)["items"]
    return sum(one["status"].get("phase") == "Running" for one in pods)


def test_an_autoscaler_sees_the_pods_that_quota_alone_admits(plane: ControlPlane, scene: Scene) -> None:
    """A fake one, which makes a node when the scheduler finds none for a pod."""
    scene.quota(4)
    mark = {"metadata": {"annotations": {"bursar.dev/place": "scheduler"}}}
    plane.api().patch(f"/api/v1/namespaces/{scene.namespace}", mark)
    with replicas(plane):
        for number in range(3):
            scene.pod(f"p{number}", 2)  # of priority 0

        def unscheduled() -> list[str]:
            pods = plane.api().get(scene.pods)["items"]
            why = {one["metadata"]["name"]: one["status"].get("conditions", []) for one in pods}
            return [name for name, found in why.items() if any(one.get("reason") == "Unschedulable" for one in found)]

        eventually(lambda: len(unscheduled()) == 2, "the scheduler looks for nodes")
        found = unscheduled()
        scene.nodes(1, gpus=4)
        scene.wait_running(*found)
        (waits,) = {"p0", "p1", "p2"} - set(found)
        assert scene.gated(waits), "quota decides all the same"
        assert json.loads(scene.annotation(found[0], "bursar.dev/admission"))["scheduled"]
