"""GPU quotas of namespaces, and parts of GPUs: chosen, annotated, and the pod pinned to their node."""

from typing import Any

from tests.cluster.controlplane.identities import ALICE
from tests.cluster.stories.story import Manifest, Story, pinned_to

ALERT = "AlertThresholdReached"
GPU_IDS = "tensor-fusion.ai/gpu-ids"
QUOTA = """
apiVersion: tensor-fusion.ai/v1
kind: GPUResourceQuota
metadata:
  name: team-quota
spec:
  total:                          # Namespace-wide limits
    requests:
      tflops: "1000"             # Total compute requests
      vram: "100Gi"              # Total memory requests
    limits:
      tflops: "2000"             # Total compute limits
      vram: "200Gi"              # Total memory limits
    maxWorkers: 50               # Total worker limit
    alertThresholdPercent: 95    # Alert trigger (default: 95)
  single:                        # Per-workload constraints
    maxRequests:
      tflops: "100"              # Max compute per workload
      vram: "16Gi"               # Max memory per workload
    maxLimits:
      tflops: "200"              # Max limit per workload
      vram: "32Gi"               # Max limit per workload
    maxGPUCount: 8               # Max GPUs per workload
"""
HALF = {"tflops-request": "50", "vram-request": "8Gi", "tflops-limit": "100", "vram-limit": "16Gi", "gpu-count": "2"}


def worker(story: Story, name: str, asks: dict[str, str], **more: Any) -> Manifest:  # noqa: ANN401
    annotations = {f"tensor-fusion.ai/{key}": value for key, value in asks.items()}
    return story.pod(name, {"cpu": "100m"}, annotations=annotations, **more)


def test_a_quota_refuses_with_the_originals_codes_and_chooses_gpus(story: Story) -> None:
    team = story.namespace()
    (node,) = story.nodes(1)
    names = story.gpus(node, 4)
    story.apply(QUOTA, namespace=team)
    story.governed(team)
    story.submit(
        team, *(worker(story, f"infer-{number}", HALF, schedulerName="tensor-fusion-scheduler") for number in range(6))
    )
    pods = story.running(team, *(f"infer-{number}" for number in range(6)))
    for pod in pods:
        ids = pod["metadata"]["annotations"][GPU_IDS].split(",")
        assert len(ids) == 2
        assert set(ids) <= set(names)
        assert pinned_to(pod) == node
        assert pod["spec"]["schedulerName"] == "default-scheduler"
        assert "tensor-fusion.ai/gpu-ids" in story.describe(team, pod["metadata"]["name"])
    used = {"requests": {"tflops": "600", "vram": "96Gi"}, "limits": {"tflops": "1200", "vram": "192Gi"}, "workers": 6}
    story.status("gpuresourcequotas", "team-quota", team, {"used": used})

    for name in names:  # three workers share each
        story.status("gpu", name, "", {"available": {"tflops": "162", "vram": "56Gi"}})

    story.submit(team, worker(story, "for-the-team", HALF))
    story.waits(team, "for-the-team", "total.max.vram.request")
    story.submit(team, worker(story, "for-one", {"tflops-request": "101", "vram-request": "1Gi"}))
    story.waits(team, "for-one", "single.max.tflops.request", "101", "100")
    assert story.told(team, "team-quota", ALERT), "96 of 100Gi are requested"
    assert ALERT in story.describe(team, "team-quota", "gpuresourcequota")
    story.wait(lambda: _conditions(story, team)[ALERT] == "True", "its condition says so")

    assert _conditions(story, team)["Exceeded"] == "False"
    story.delete("pod", "infer-3", team)
    (started,) = story.running(team, "for-the-team")
    assert pinned_to(started) == node
    assert story.is_gated(team, "for-one")


def _conditions(story: Story, namespace: str) -> dict[str, str]:
    status = story.get("gpuresourcequotas", "team-quota", namespace)["status"]
    return {one["type"]: one["status"] for one in status["conditions"]}


def test_gpus_that_are_full_refuse_and_others_are_chosen(story: Story) -> None:
    """Without a quota: only the GPUs themselves limit. Nobody may write GPU ids but Bursar."""
    team = story.namespace()
    nodes = story.nodes(2)
    first, second = (story.gpus(node, 1)[0] for node in nodes)
    whole = {"tflops-request": "200", "vram-request": "60Gi", "gpu-count": "1"}
    story.submit(team, worker(story, "a", whole), worker(story, "b", whole), worker(story, "c", whole))
    found = {name: story.seen(team, name) for name in "abc"}
    story.wait(lambda: sum(bool(story.node_of(team, name)) for name in "abc") == 2, "two of three have their GPU")
    found = {name: story.seen(team, name) for name in "abc"}
    ids = [pod["metadata"]["annotations"].get(GPU_IDS) for pod in found.values()]
    assert sorted(filter(None, ids)) == sorted([first, second])
    waiting = next(name for name in "abc" if GPU_IDS not in found[name]["metadata"]["annotations"])
    story.waits(team, waiting, "gpus.")
    forged = story.forbidden(ALICE, team, waiting, {"metadata": {"annotations": {GPU_IDS: first}}})
    assert "only Bursar writes" in forged, forged


def test_statuses_fit_the_definitions_of_tensor_fusion(story: Story) -> None:
    """Nobody has filled in the status of the pool before: what TensorFusion's schema requires is there at once."""
    team = story.namespace()
    (node,) = story.nodes(1)
    pool = f"{story.name}-pool"
    story.apply({"apiVersion": "tensor-fusion.ai/v1", "kind": "GPUPool", "metadata": {"name": pool}})
    (name,) = story.gpus(node, 1, pool=pool)
    story.submit(team, worker(story, "infer", HALF | {"gpu-count": "1", "gpupool": pool, "qos": "high"}))
    (pod,) = story.running(team, "infer")
    story.status("gpu", name, "", {"available": {"tflops": "262", "vram": "72Gi"}})
    (app,) = story.get("gpu", name)["status"]["runningApps"]
    assert app["pods"] == [
        {
            "name": "infer",
            "namespace": team,
            "uid": pod["metadata"]["uid"],
            "requests": {"tflops": "50", "vram": "8Gi"},
            "limits": {"tflops": "100", "vram": "16Gi"},
            "qos": "high",
        }
    ]
    figures = {"totalTFlops": "312", "availableTFlops": "262", "readyNodes": 1, "notReadyNodes": 0, "totalGPUs": 1}
    story.status("gpupool", pool, "", figures)
    assert not story.events("default", name, "control.invalid")
    assert not story.events("default", pool, "control.invalid")


def test_a_part_of_a_gpu_needs_constraints_that_can_be_judged(story: Story) -> None:
    team = story.namespace()
    (node,) = story.nodes(1)
    story.gpus(node, 1)
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    story.submit(team, worker(story, "picky", HALF | {"gpu-count": "1"}, volumes=[volume]))
    story.waits(team, "picky", "control.unjudged", "volumes")


def test_a_workload_that_is_nested_too_deeply_to_be_read_stops_nobody(story: Story) -> None:
    """Whoever may edit a namespace may make one: parts of its schema are open, and the server takes 10,000 levels."""
    team = story.namespace()
    (node,) = story.nodes(1)
    story.gpus(node, 1)
    story.apply(QUOTA, namespace=team)
    story.governed(team)
    deep = '{"a":' * 5000 + "1" + "}" * 5000
    head = '"apiVersion":"tensor-fusion.ai/v1","kind":"TensorFusionWorkload","metadata":{"name":"deep"}'
    story.plane.kubectl("create", "-n", team, "-f", "-", input=f'{{{head},"spec":{{"any":{deep}}}}}', user=ALICE)
    story.submit(team, worker(story, "infer", HALF | {"gpu-count": "1"}))
    story.running(team, "infer")
