"""Nodes that hand out some GPUs in fractions and the others whole: no GPU is booked twice, whichever node is chosen."""

from collections import Counter
from typing import Any

from tests.cluster.stories.story import Manifest, Story, pinned_to

GPU = "nvidia.com/gpu"
LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-H200",
    "nvidia.com/gpu.memory": str(140 * 1024),
    "bursar.dev/gpu-fractions": "4",
}
ROOM = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"}
WHOLE_NODE = {"tensor-fusion.ai/tflops-request": "900", "tensor-fusion.ai/vram-request": "100Gi"}
QUOTA = """
apiVersion: tensor-fusion.ai/v1
kind: GPUResourceQuota
metadata: {name: quota}
spec: {total: {maxWorkers: 100}}
"""


def worker(story: Story, name: str, **more: Any) -> Manifest:  # noqa: ANN401
    return story.pod(name, {"cpu": "100m"}, annotations=WHOLE_NODE, **more)


def governed(story: Story) -> str:
    team = story.namespace()
    story.apply(QUOTA, namespace=team)
    story.governed(team)
    return team


def test_a_gpu_is_never_booked_twice(story: Story) -> None:
    """To the scheduler all 8 GPUs of the divided node are the device plugin's."""
    team = governed(story)
    (divided,) = story.nodes(1, ROOM, LABELS)
    (whole,) = story.nodes(1, ROOM)
    names = [f"part-{number}" for number in range(4)]
    story.submit(team, *(worker(story, name) for name in names))
    assert {pinned_to(pod) for pod in story.running(team, *names)} == {divided}
    names = [f"whole-{number}" for number in range(12)]
    story.submit(team, *(story.pod(name, {GPU: "1"}) for name in names))
    pods = story.running(team, *names)
    assert Counter(pod["spec"]["nodeName"] for pod in pods) == {divided: 4, whole: 8}
    assert all(pinned_to(pod) == pod["spec"]["nodeName"] for pod in pods)
    story.submit(team, story.pod("late", {GPU: "1"}))
    story.waits(team, "late")
    assert story.told("default", divided, "gpus.unsafe-split"), "its device plugin serves all 8"


def test_a_node_whose_gpus_fail_stays_in_force(story: Story) -> None:
    team = governed(story)
    (node,) = story.nodes(1, ROOM, LABELS)
    story.submit(team, worker(story, "first"))
    story.running(team, "first")
    path = f"/api/v1/nodes/{node}"
    story.plane.api().patch(f"{path}/status", {"status": {"allocatable": ROOM | {GPU: "2"}, "capacity": ROOM}})
    assert story.told("default", node, "gpus.fractions")
    story.plane.kubectl("cordon", node)
    story.wait(lambda: story.get("node", node)["spec"].get("unschedulable"), "it is cordoned")
    story.submit(team, worker(story, "second"))
    story.waits(team, "second", "node")
    assert not story.events("default", node, "control.invalid")
    assert not story.events(team, "second", "control.place-lost")
    story.plane.kubectl("uncordon", node)
    (pod,) = story.running(team, "second")
    assert pinned_to(pod) == node
