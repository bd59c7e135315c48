"""CPU pods on GPU nodes: a share of each, pinned where they get one, kept off where they do not.

All namespaces are governed here, so the controller and its admission policies are those of `--crossquota`.
"""

from collections.abc import Iterator
from functools import partial

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.installation import govern
from tests.cluster.stories.controller_process import Running
from tests.cluster.stories.story import POOL, Manifest, Story, pinned_to, required_terms

GPU = "nvidia.com/gpu"
LABEL = "bursar.dev/gpu-node"
KEPT_OFF = {"key": LABEL, "operator": "DoesNotExist"}
ARGUMENTS = """
apiVersion: bursar.dev/v1alpha1
kind: Configuration
metadata: {name: default}
spec:
  crossquota:
    gpu-resource-names: "nvidia.com/gpu,amd.com/gpu"
    quota-resources: "cpu,memory"
    quota.cpu: "32"
    quota-percentage.memory: "50"
"""

GOVERN_ONLY = """
apiVersion: bursar.dev/v1alpha1
kind: Configuration
metadata: {name: default}
spec: {}
"""
VOLCANO = """
apiVersion: bursar.dev/v1alpha1
kind: Configuration
metadata: {name: default}
spec:
  crossquota:
    volcano-scheduler.conf: |
      actions: "enqueue, allocate, backfill"
      tiers:
      - plugins:
        - name: priority
        - name: gang
      - plugins:
        - name: crossquota
          arguments:
            gpu-resource-names: "nvidia.com/gpu,amd.com/gpu"
            quota-resources: "cpu,memory"
            quota.cpu: "32"
            quota-percentage.memory: "50"
            crossQuotaWeight: 10
            weight.cpu: 10
            weight.memory: 1
            label-selector:
              matchLabels:
                app: batch
"""


@pytest.fixture(scope="module", autouse=True)
def everywhere(plane: ControlPlane, bursar: Running) -> Iterator[None]:
    bursar.stop()
    govern(plane, everywhere=True)
    bursar.start("--crossquota")
    yield
    bursar.stop()
    govern(plane)
    bursar.start()


@pytest.fixture
def gpu_node(story: Story) -> str:
    """64 cpu and 128Gi, as the node of the original's example."""
    (node,) = story.nodes(1, {"cpu": "64", "memory": "128Gi", GPU: "8"})
    story.apply(ARGUMENTS)
    story.wait(lambda: _label(story, node) == "true", "the node is marked")
    return node


def _label(story: Story, node: str) -> str:
    return str(story.get("node", node)["metadata"]["labels"].get(LABEL, ""))


def cpu_pod(story: Story, name: str, cpu: str, memory: str = "1Gi", **more: object) -> Manifest:
    return story.pod(name, {"cpu": cpu, "memory": memory}, **more)


def test_a_cpu_pod_is_kept_off_a_gpu_node_that_is_full_for_it(story: Story, gpu_node: str) -> None:
    """The original's example: 28 of 32 cpu are used, 6 more are refused although the node has 36 free."""
    team = story.namespace()
    story.submit(team, cpu_pod(story, "running", "28", "50Gi"))
    (first,) = story.running(team, "running")
    assert pinned_to(first) == gpu_node
    story.submit(team, cpu_pod(story, "new", "6", "10Gi"), cpu_pod(story, "large", "1", "20Gi"))
    story.waits(team, "new", "crossquota.quota.cpu", "28", "32")
    story.waits(team, "large", "crossquota.quota.memory")

    limits = {"cpu": "16", "memory": "32Gi", GPU: "8"}
    story.submit(team, story.pod("train", limits))
    (train,) = story.running(team, "train")
    assert train["spec"]["nodeName"] == gpu_node, "pods with a GPU are not limited"
    assert not required_terms(train)

    (plain,) = story.nodes(1, {"cpu": "64", "memory": "128Gi"})
    for pod in story.running(team, "new", "large"):
        assert pod["spec"]["nodeName"] == plain
        assert all(KEPT_OFF in term["matchExpressions"] for term in required_terms(pod))
        assert pinned_to(pod) == ""


@pytest.mark.parametrize(("strategy", "used"), [("most-allocated", 1), ("least-allocated", 3)])
def test_jobs_are_packed_and_services_spread_over_gpu_nodes(
    story: Story, gpu_node: str, strategy: str, used: int
) -> None:
    nodes = {gpu_node, *story.nodes(2, {"cpu": "64", "memory": "128Gi", GPU: "8"})}
    for node in nodes:
        story.wait(partial(_label, story, node), "the node is marked")
    team = story.namespace()
    marks = {"volcano.sh/crossquota-scoring-strategy": strategy}
    names = [f"p{number}" for number in range(3)]
    for name in names:
        story.submit(team, cpu_pod(story, name, "4", annotations=marks))
        story.running(team, name)
    found = {story.node_of(team, name) for name in names}
    assert len(found) == used
    assert found <= nodes


def test_a_node_has_a_quota_of_its_own_by_annotation(story: Story, gpu_node: str) -> None:
    team = story.namespace()
    annotate(story, gpu_node, "volcano.sh/crossquota-cpu", "4")
    story.submit(team, cpu_pod(story, "p", "8"))
    story.waits(team, "p", "crossquota.quota.cpu")
    annotate(story, gpu_node, "volcano.sh/crossquota-cpu", "8")
    story.running(team, "p")


def annotate(story: Story, node: str, name: str, value: str) -> None:
    """The controller knows it when this returns: with the same change it loses its mark of the node, and puts it back.

    Changes of nodes and of pods reach it in no order, and a pod that comes next is to be judged by this.
    """
    change = {"metadata": {"annotations": {name: value}, "labels": {LABEL: None}}}
    story.plane.api().patch(f"/api/v1/nodes/{node}", change)
    story.wait(lambda: _label(story, node) == "true", "the mark is back")


def test_the_scheduler_cannot_put_a_cpu_pod_where_it_has_no_share(story: Story, gpu_node: str) -> None:
    """Its place was on a plain node; that node goes away before the scheduler looks: GPU nodes stay closed.

    Nobody would create it anew, so it stays; when there is a node, it runs.
    """
    team = story.namespace()
    story.submit(team, cpu_pod(story, "running", "30"))
    story.running(team, "running")
    (plain,) = story.nodes(1)
    with story.without_scheduler():
        story.submit(team, cpu_pod(story, "late", "4"))
        story.wait(lambda: not story.is_gated(team, "late"), "it is let go")
        story.plane.kubectl("cordon", plain)
    assert "keeps its quota" in story.told(team, "late", "control.unscheduled")[0]
    assert story.node_of(team, "running") == gpu_node
    (other,) = story.nodes(1)
    (late,) = story.running(team, "late")
    assert late["spec"]["nodeName"] == other


def test_constraints_that_only_the_scheduler_judges_keep_a_cpu_pod_off(story: Story, gpu_node: str) -> None:
    team = story.namespace()
    spread = {
        "maxSkew": 1,
        "minDomains": 2,  # else both may go to the first of the two nodes, if the scheduler sees it alone
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    pods = [
        cpu_pod(story, f"web-{number}", "1", labels={"app": "web"}, topologySpreadConstraints=[spread])
        for number in range(2)
    ]
    story.submit(team, *pods)
    story.waits(team, "web-0", "nodes.")
    plain = story.nodes(2)
    found = {pod["spec"]["nodeName"] for pod in story.running(team, "web-0", "web-1")}
    assert found == set(plain)
    assert gpu_node not in found


def test_a_new_gpu_node_is_closed_to_those_who_must_stay_off_before_it_is_marked(story: Story) -> None:
    """They wait for any node. Also those who came before GPU nodes were limited at all."""
    team = story.namespace()
    story.apply(GOVERN_ONLY)
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    story.submit(team, cpu_pod(story, "early", "1", volumes=[claim]))
    story.waits(team, "early", "nodes.")
    story.apply(ARGUMENTS)
    story.submit(team, cpu_pod(story, "late", "1", volumes=[claim]))
    story.waits(team, "late", "nodes.")
    nodes = story.nodes(3, {GPU: "8"})
    story.submit(team, cpu_pod(story, "judged", "1"), story.pod("train", {GPU: "1"}))
    for pod in story.running(team, "judged", "train"):
        assert pod["spec"]["nodeName"] in nodes
    assert story.is_gated(team, "early")
    assert story.is_gated(team, "late")
    (plain,) = story.nodes(1)
    story.wait(lambda: not story.is_gated(team, "early") and not story.is_gated(team, "late"), "they are let go")
    for name in ("early", "late"):
        assert story.record(team, name)["place"] == plain
        assert all(KEPT_OFF in term["matchExpressions"] for term in required_terms(story.seen(team, name)))


def test_the_mark_of_a_gpu_node_is_kept(story: Story, gpu_node: str) -> None:
    story.plane.kubectl("label", "node", gpu_node, f"{LABEL}-")
    story.wait(lambda: _label(story, gpu_node) == "true", "the mark is back")
    (plain,) = story.nodes(1, labels={LABEL: "true"})
    story.wait(lambda: not _label(story, plain), "a mark that is none of ours is taken away")


def test_a_node_whose_gpus_a_driver_publishes_is_a_gpu_node(story: Story) -> None:
    """Dynamic resource allocation: no GPU among what is allocatable, but slices of devices."""
    (node,) = story.nodes(1, {"cpu": "64", "memory": "128Gi"})
    story.apply(ARGUMENTS, resource_slice(story, node, "gpu.nvidia.com"))
    story.wait(lambda: _label(story, node) == "true", "the node is marked")
    team = story.namespace()
    story.submit(team, cpu_pod(story, "first", "30"), cpu_pod(story, "second", "4"))
    (first,) = story.running(team, "first")
    assert pinned_to(first) == node
    story.waits(team, "second", "crossquota.quota.cpu")
    story.delete("resourceslice", f"{node}-gpu.nvidia.com")
    story.running(team, "second")
    story.wait(lambda: not _label(story, node), "the mark is gone with the devices")


def test_devices_that_are_no_gpus_make_no_gpu_node(story: Story, gpu_node: str) -> None:
    (node,) = story.nodes(1)
    story.apply(resource_slice(story, node, "nic.example.com"))
    team = story.namespace()
    story.submit(team, cpu_pod(story, "p", "33", nodeSelector={"kubernetes.io/hostname": node}))
    story.running(team, "p")
    assert not _label(story, node)
    assert node != gpu_node


def test_a_pod_that_claims_devices_is_none_of_those_that_are_limited(story: Story) -> None:
    """The scheduler chooses device and node for it, on the GPU node that CPU pods have filled."""
    (node,) = story.nodes(1, {"cpu": "64", "memory": "128Gi"})
    story.apply(ARGUMENTS, resource_slice(story, node, "gpu.nvidia.com"))
    story.wait(lambda: _label(story, node) == "true", "the node is marked")
    team = story.namespace()
    story.submit(team, cpu_pod(story, "filler", "32"))
    story.running(team, "filler")
    selector = {"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}
    story.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": story.name},
            "spec": {"selectors": [selector]},
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "gpu", "namespace": team},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": story.name}}]}},
        },
    )
    pod = cpu_pod(story, "train", "8", resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    story.submit(team, pod)
    (train,) = story.running(team, "train")
    assert train["spec"]["nodeName"] == node
    assert not required_terms(train)
    story.submit(team, cpu_pod(story, "more", "1"))
    story.waits(team, "more", "crossquota.quota.cpu")


def test_the_text_of_volcanos_configuration_is_taken_as_it_is(story: Story) -> None:
    (node,) = story.nodes(1, {"cpu": "64", "memory": "128Gi", GPU: "8"})
    story.apply(VOLCANO)
    story.wait(lambda: _label(story, node) == "true", "the node is marked")
    team = story.namespace()
    batch = {"app": "batch"}
    story.submit(team, cpu_pod(story, "first", "30", labels=batch, schedulerName="volcano"))
    (first,) = story.running(team, "first")
    assert pinned_to(first) == node
    assert first["spec"]["schedulerName"] == "default-scheduler"
    story.submit(team, cpu_pod(story, "second", "4", labels=batch), cpu_pod(story, "other", "4"))
    story.waits(team, "second", "crossquota.quota.cpu")
    story.running(team, "other")


def resource_slice(story: Story, node: str, driver: str) -> Manifest:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}", "labels": {POOL: story.name}},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "device-0"}, {"name": "device-1"}],
        },
    }
