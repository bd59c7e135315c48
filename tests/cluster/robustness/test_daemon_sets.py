"""DaemonSets of people with ordinary rights: their pods get GPUs by quota, and agents that ask for none never wait."""

from functools import partial

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.api import Object
from tests.cluster.installation import replicas
from tests.cluster.robustness.scene import GATE, GPU, Scene
from tests.cluster.robustness.test_hostile_pods import ATTACKERS, hostile, told
from tests.cluster.waiting import eventually

__all__ = ["hostile"]
GPUS = 2  # of each node


def daemon_set(name: str, pool: str, gpus: int) -> Object:
    limits = {"cpu": "1"} | ({GPU: str(gpus)} if gpus else {})
    container = {"name": "c", "image": "i", "resources": {"limits": limits}}
    spec = {"containers": [container], "nodeSelector": {"pool": pool}, "terminationGracePeriodSeconds": 0}
    marks = {"app": name}
    template = {"metadata": {"labels": marks}, "spec": spec}
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": marks}, "template": template}}


def pods_of(plane: ControlPlane, namespace: str, name: str) -> list[Object]:
    found = plane.api().get(f"/api/v1/namespaces/{namespace}/pods?labelSelector=app%3D{name}")["items"]
    return list(found)


def running(pods: list[Object]) -> int:
    return sum(one["status"].get("phase") == "Running" for one in pods)


def gated(pods: list[Object]) -> int:
    return sum(any(gate["name"] == GATE for gate in one["spec"].get("schedulingGates") or ()) for one in pods)


@pytest.mark.parametrize("user", ATTACKERS)
def test_a_daemon_set_gets_no_more_than_its_quota(plane: ControlPlane, scene: Scene, hostile: str, user: str) -> None:
    nodes = scene.nodes(3, gpus=GPUS)
    scene.quota(2 * GPUS)
    spec = {"min": {GPU: GPUS}, "max": {GPU: GPUS}}
    quota = {"apiVersion": "n8s.nebuly.ai/v1alpha1", "kind": "ElasticQuota", "metadata": {"name": "q"}, "spec": spec}
    plane.api().create(f"/apis/n8s.nebuly.ai/v1alpha1/namespaces/{hostile}/elasticquotas", quota)
    with replicas(plane):
        path = f"/apis/apps/v1/namespaces/{hostile}/daemonsets"
        for name, gpus in (("takes-all", GPUS), ("agent", 0)):
            plane.api(user).create(path, daemon_set(name, scene.namespace, gpus))
        eventually(lambda: running(pods_of(plane, hostile, "agent")) == len(nodes), "every agent runs")
        eventually(lambda: len(told(plane, hostile, "elastic.max")) == 2, "the pods beyond the quota are named")
        found = pods_of(plane, hostile, "takes-all")
        assert (running(found), gated(found)) == (1, 2)
        scene.wait_running(*(scene.pod(f"owner-{number}", GPUS) for number in range(2)))
        for name in ("takes-all", "agent"):
            plane.api(user).delete(f"{path}/{name}")
        eventually(partial(_none, plane, hostile), "all their pods are gone")


def _none(plane: ControlPlane, namespace: str) -> bool:
    return not plane.api().get(f"/api/v1/namespaces/{namespace}/pods")["items"]


def test_a_scheduler_that_does_not_run_is_named_and_those_of_upstream_projects_are_replaced(
    plane: ControlPlane, scene: Scene
) -> None:
    scene.nodes(1)
    scene.quota(8)
    with replicas(plane):
        scene.pod("lost", schedulerName="no-such-scheduler")
        assert "no-such-scheduler" in scene.wait_told("lost", "control.unknown-scheduler")
        for number, name in enumerate(("nos-scheduler", "n8s-scheduler", "koord-scheduler", "volcano")):
            scene.wait_running(scene.pod(f"p{number}", schedulerName=name))
