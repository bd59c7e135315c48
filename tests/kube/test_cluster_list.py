"""What is listed of a live cluster for those who only look: pods as the controller would take them in."""

from typing import Any

import pytest

from bursar.kube.client.api import NODES, Resource
from bursar.kube.cluster_list import list_cluster
from bursar.kube.controller.patches import ADMISSION, HOLD, AdmissionRecord, HoldRecord, written
from bursar.objects.kinds import RESOURCE_SLICE
from bursar.objects.pods import DEVICES
from bursar.policies.gpus.worker import GPU_IDS
from bursar.policies.plugin import default_registry
from tests.kube.controller.stage import Stage, is_gated, stage

Body = dict[str, Any]


pytestmark = pytest.mark.anyio


SLICES = Resource.of(RESOURCE_SLICE)
CROSSQUOTA = Resource("bursar.dev", "v1alpha1", "configurations", "Configuration", namespaced=False)


def publish(cluster: Stage, node: str, devices: int, generation: int = 1) -> None:
    spec = {
        "driver": "gpu.example.com",
        "nodeName": node,
        "pool": {"name": node, "generation": generation},
        "devices": [{"name": f"gpu-{number}"} for number in range(devices)],
    }
    body = {"metadata": {"name": f"{node}-{generation}"}, "spec": spec}
    cluster.fake.state.create(SLICES, "", body)


async def listed(cluster: Stage) -> list[Body]:
    found = await list_cluster(cluster.fake.config(), default_registry())
    assert found.unread == []
    return found.pods


def marked(cluster: Stage, pod: Body, seq: int, place: str, **marks: str) -> None:
    record = written(AdmissionRecord(seq, 0, place))
    cluster.change(pod, lambda body: body["metadata"].update(annotations={ADMISSION: record, **marks}))


async def test_who_was_let_go_and_is_not_bound_yet_has_its_place() -> None:
    async with stage() as cluster:
        pod = cluster.pod("a", "p", gated=False)
        marked(cluster, pod, 1, "n", **{GPU_IDS: "g1"})
        (found,) = await listed(cluster)
        assert found["spec"]["nodeName"] == "n"
        assert found["metadata"]["annotations"] == {GPU_IDS: "g1"}


async def test_who_waits_has_no_place_and_nothing_that_bursar_wrote() -> None:
    async with stage() as cluster:
        pod = cluster.pod("a", "p")
        hold = {HOLD: written(HoldRecord("n")), GPU_IDS: "g1", "mine": "x"}
        cluster.change(pod, lambda body: body["metadata"].update(annotations=hold))
        (found,) = await listed(cluster)
        assert is_gated(found)
        assert not found["spec"].get("nodeName")
        assert found["metadata"]["annotations"] == {"mine": "x"}


async def test_who_is_deleted_before_it_is_bound_is_not_there() -> None:
    async with stage() as cluster:
        cluster.delete(cluster.pod("a", "waits", finalizers=["example.org/stays"]))
        runs = cluster.pod("a", "runs", finalizers=["example.org/stays"], gated=False)
        cluster.bind(runs, "n")
        cluster.delete(runs)
        assert [pod["metadata"]["name"] for pod in await listed(cluster)] == ["runs"]


async def test_facts_come_first_then_the_admitted_in_their_order_then_who_waits() -> None:
    async with stage() as cluster:
        cluster.pod("a", "a-waits")
        marked(cluster, cluster.pod("a", "b-second", gated=False), 2, "n")
        marked(cluster, cluster.pod("a", "c-first", gated=False), 1, "n")
        cluster.bind(cluster.pod("a", "d-there", gated=False), "n")
        names = [pod["metadata"]["name"] for pod in await listed(cluster)]
        assert names == ["d-there", "c-first", "b-second", "a-waits"]


@pytest.mark.parametrize(
    ("namespace", "owner", "spared"),
    [
        ("kube-system", "ReplicaSet", True),
        ("a", "DaemonSet", True),
        ("a", "ReplicaSet", False),
        ("free", "ReplicaSet", True),
    ],
)
async def test_pods_that_bursar_does_not_govern_are_nobodys_victims(namespace: str, owner: str, spared: bool) -> None:
    async with stage() as cluster:
        cluster.namespace(namespace, {} if namespace == "free" else {"bursar.dev/quota": "enforced"})
        pod = cluster.pod(namespace, "p", gated=False)
        cluster.bind(pod, "n")
        owners = [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "controller": True}]
        cluster.change(pod, lambda body: body["metadata"].update(ownerReferences=owners))
        (found,) = await listed(cluster)
        assert (found["metadata"]["labels"].get("bursar.dev/preemptible") == "false") is spared


@pytest.mark.parametrize(
    ("quota", "label", "taken"),
    [(False, False, False), (True, False, True), (False, True, True)],
    ids=["nobody's", "a quota names it", "labelled"],
)
async def test_who_waits_for_somebody_else_is_not_there(quota: bool, label: bool, taken: bool) -> None:
    """As in shadow mode; who has the gate, a node, or was let go is there in any case."""
    async with stage() as cluster:
        cluster.namespace("a", {"bursar.dev/quota": "enforced"} if label else None)
        if quota:
            cluster.quota("a", 2)
        other = [{"name": "example.com/wait"}]
        cluster.change(cluster.pod("a", "waits", gated=False), lambda body: body["spec"].update(schedulingGates=other))
        cluster.pod("a", "gated")
        cluster.bind(cluster.pod("a", "runs", gated=False), "n")
        marked(cluster, cluster.pod("a", "leaves", gated=False), 1, "n")
        names = {pod["metadata"]["name"] for pod in await listed(cluster)}
        assert names - {"waits"} == {"gated", "runs", "leaves"}
        assert ("waits" in names) == taken


async def test_nodes_have_the_devices_that_drivers_publish() -> None:
    async with stage() as cluster:
        cluster.fake.serve(SLICES)
        cluster.node("n", 0)
        cluster.node("plain", 0)
        publish(cluster, "n", 8)
        publish(cluster, "n", 4, generation=2)
        found = await list_cluster(cluster.fake.config(), default_registry())
        nodes = [body["metadata"] for _, body in found.objects if body["kind"] == "Node"]
        marks = {metadata["name"]: metadata.get("annotations") for metadata in nodes}
        assert marks == {"n": {DEVICES: "gpu.example.com=4"}, "plain": {}}


@pytest.mark.parametrize("crossquota", [True, False])
async def test_that_devices_cannot_be_read_matters_where_they_make_gpu_nodes(crossquota: bool) -> None:
    async with stage() as cluster:
        cluster.node("n", 0)
        cluster.fake.serve(CROSSQUOTA)
        spec = {"crossquota": {"gpu-resource-names": "nvidia.com/gpu"}} if crossquota else {}
        cluster.fake.state.create(CROSSQUOTA, "", {"metadata": {"name": "default"}, "spec": spec})
        cluster.fake.fail("GET .*resourceslices", code=403)
        found = await list_cluster(cluster.fake.config(), default_registry())
        assert found.unread == (["resourceslices"] if crossquota else [])


@pytest.mark.parametrize(("exempt", "taken"), [("", True), ("kube-system,a", False)])
async def test_who_waits_where_crossquota_exempts_all_is_not_there(exempt: str, taken: bool) -> None:
    async with stage() as cluster:
        cluster.namespace("a")
        cluster.pod("a", "waits", gated=False)
        cluster.fake.serve(CROSSQUOTA)
        arguments = {"gpu-resource-names": "nvidia.com/gpu"} | ({"exempt-namespaces": exempt} if exempt else {})
        spec = {"crossquota": arguments}
        cluster.fake.state.create(CROSSQUOTA, "", {"metadata": {"name": "default"}, "spec": spec})
        assert [pod["metadata"]["name"] for pod in await listed(cluster)] == (["waits"] if taken else [])


async def test_of_a_node_there_is_what_decisions_read() -> None:
    """Images of thousands of nodes would not fit into the memory of whoever asks."""
    async with stage() as cluster:
        status = {"allocatable": {"cpu": "8"}, "images": [{"names": ["registry.example.com/image:v1"]}]}
        cluster.fake.state.create(NODES, "", {"metadata": {"name": "n", "labels": {"zone": "z"}}, "status": status})
        found = await list_cluster(cluster.fake.config(), default_registry())
        (node,) = [body for kind, body in found.objects if kind.name == "Node"]
        assert node["metadata"]["labels"] == {"zone": "z"}
        assert node["status"] == {"allocatable": {"cpu": "8"}}


async def test_that_claims_cannot_be_read_matters_where_pods_have_them() -> None:
    async with stage() as cluster:
        cluster.fake.fail("GET .*resourceclaims", code=403)
        assert (await list_cluster(cluster.fake.config(), default_registry())).unread == []
        pod = cluster.pod("a", "p")
        cluster.change(pod, lambda body: body["spec"].update(resourceClaims=[{"name": "gpu"}]))
        cluster.fake.fail("GET .*resourceclaims", code=403)
        assert (await list_cluster(cluster.fake.config(), default_registry())).unread == ["resourceclaims"]
