"""Pods with claims of devices: reading what they claim and deciding them, over the slices of a large cluster."""

import time
from statistics import median
from typing import Any

from benchmarks.timing import collector
from bursar.control.admission import ObjectChange
from bursar.objects.kinds import POD
from bursar.objects.manifests import Document
from bursar.sim.cluster import Cluster

_DRIVER = "gpu.nvidia.com"
_API = "resource.k8s.io/v1"
_RUNS = 5


def _cluster(nodes: int, per_node: int) -> Cluster:
    found: list[dict[str, Any]] = [
        {
            "apiVersion": _API,
            "kind": "DeviceClass",
            "metadata": {"name": _DRIVER},
            "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{_DRIVER}'"}}]},
        },
        {
            "apiVersion": _API,
            "kind": "ResourceClaimTemplate",
            "metadata": {"namespace": "lab", "name": "gpu"},
            "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": _DRIVER}}]}}},
        },
        {
            "apiVersion": "n8s.nebuly.ai/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"namespace": "lab", "name": "quota"},
            "spec": {"min": {"nvidia.com/gpu": nodes * per_node}},
        },
    ]
    for number in range(nodes):
        name = f"node-{number:05}"
        status = {"allocatable": {"cpu": 64, "memory": "512Gi"}}
        found.append({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status})
        found.append(_slice(name, per_node))
    cluster = Cluster()
    cluster.apply([Document("", index, body) for index, body in enumerate(found)])
    return cluster


def _slice(node: str, count: int) -> dict[str, Any]:
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "type": {"string": "gpu"},
                "uuid": {"string": f"{node}-{index}"},
                "productName": {"string": "NVIDIA H100 80GB HBM3"},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for index in range(count)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": _DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return {"apiVersion": _API, "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec}


def _pod(cluster: Cluster, name: str) -> ObjectChange:
    spec = {
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]}}],
    }
    metadata = {"namespace": "lab", "name": name, "uid": name}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    given = cluster.kinds.read(Document("", 0, body))
    return ObjectChange(POD, f"lab/{name}", given)


def decisions(nodes: int, per_node: int, pods: int) -> dict[str, float]:
    """Read the claims of so many pods and decide them; they are released after each run."""
    with collector(enabled=False):
        cluster = _cluster(nodes, per_node)
        rates = [_run(cluster, [_pod(cluster, f"{run}-{n}") for n in range(pods)]) for run in range(_RUNS)]
        return {"decisions": median(rates)}


def _run(cluster: Cluster, pods: list[ObjectChange]) -> float:
    started = time.process_time()
    claims = [claim for claim in map(cluster.controller.read, pods) if claim is not None]
    decided = cluster.engine.decide_many(claims)
    took = time.process_time() - started
    if not all(decision.admitted for decision in decided):
        raise RuntimeError("the quota of the benchmark is too small")
    if claims[0].spec.devices.amount("nvidia.com/gpu") != 1:
        raise RuntimeError("the claims of the benchmark are not charged")
    cluster.engine.release_many([claim.uid for claim in claims])
    cluster.engine.journal.records.clear()
    return len(claims) / took


def slice_changes(nodes: int, per_node: int, pods: int) -> dict[str, float]:
    """Milliseconds for a change of one slice while so many pods that claim devices are charged."""
    with collector(enabled=False):
        cluster = _cluster(nodes, per_node)
        cluster.controller.apply([_pod(cluster, str(n)) for n in range(pods)])
        cluster.controller.settle()
        times: list[float] = []
        for number in range(20):
            given = cluster.kinds.read(Document("", 0, _slice("node-00000", per_node - number % 2)))
            started = time.process_time()
            cluster.controller.apply([ObjectChange(given.kind, given.key, given)])
            times.append(1000 * (time.process_time() - started))
        return {"ms": median(times)}
