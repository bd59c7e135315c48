"""HAMi beside Bursar: its scheduler chooses node and GPU for pods that Bursar admits, and nobody else binds them.

HAMi does not run here. The test writes the annotation of its device plugin and binds as its scheduler does.
"""

import json

import pytest

from tests.cluster.controlplane import ComponentError
from tests.cluster.stories.story import Story, pinned_to

GPU = "nvidia.com/gpu"
HAMI = "system:serviceaccount:kube-system:hami-scheduler"
STRANGER = "system:serviceaccount:kube-system:other-scheduler"
ROOM = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "20"}
QUOTA = """
apiVersion: tensor-fusion.ai/v1
kind: GPUResourceQuota
metadata: {name: quota}
spec: {total: {requests: {vram: 32Gi}, maxWorkers: 100}}
"""
SLICE = {"cpu": "100m", GPU: "1", f"{GPU}mem": "8192", f"{GPU}cores": "25"}


def register(story: Story, node: str) -> None:
    card = {"count": 10, "devmem": 143_771, "devcore": 100, "type": "NVIDIA-NVIDIA H200", "health": True}
    text = json.dumps([{"id": f"GPU-{number}", **card} for number in range(2)])
    story.plane.kubectl("annotate", "node", node, f"hami.io/node-nvidia-register={text}")


def bind(story: Story, team: str, pod: str, node: str, user: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
    path = f"/api/v1/namespaces/{team}/pods/{pod}/binding"
    story.plane.kubectl("create", "--raw", path, f"--as={user}", "-f", "-", input=json.dumps(body))


def test_hami_binds_what_bursar_admits(story: Story) -> None:
    team = story.namespace()
    story.apply(QUOTA, namespace=team)
    story.governed(team)
    subjects = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name} for name in (HAMI, STRANGER)]
    role = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "system:kube-scheduler"}
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}
    story.apply({**head, "metadata": {"name": story.name}, "roleRef": role, "subjects": subjects})
    (node,) = story.nodes(1, ROOM)
    register(story, node)
    story.submit(team, story.pod("slice", SLICE, schedulerName="hami-scheduler"))
    story.wait(lambda: not story.is_gated(team, "slice"), "the pod is admitted, though no node lists nvidia.com/gpumem")
    pod = story.seen(team, "slice")
    assert pod["spec"]["schedulerName"] == "hami-scheduler"
    assert not pinned_to(pod), "HAMi chooses the node"
    story.status("gpuresourcequota", "quota", team, {"used": {"requests": {"vram": "8Gi", "tflops": "247250m"}}})
    large = {**SLICE, f"{GPU}mem": "32768"}
    story.submit(team, story.pod("large", large, schedulerName="hami-scheduler"))
    story.waits(team, "large", "total.max.vram.request")
    with pytest.raises(ComponentError, match="scheduler"):
        bind(story, team, "slice", node, STRANGER)
    bind(story, team, "slice", node, HAMI)
    story.running(team, "slice")
    three = {"cpu": "100m", GPU: "3", f"{GPU}mem": "1024"}
    story.submit(team, story.pod("three", three, schedulerName="hami-scheduler"))
    story.waits(team, "three", "gpus.none")
