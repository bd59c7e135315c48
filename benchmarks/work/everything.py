"""All policies that ship, together: decisions of the engine, and one admission among very many waiting pods.

The cluster is applied as manifests, with a quota of every dialect over every team: an elastic quota, a pool quota, a
leaf of a quota tree and a namespace quota. Half of the nodes have GPU objects, whose fractions are handed out; the
others have eight whole GPUs each, of whose cpu pods without a GPU may take a part.
"""

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from benchmarks.timing import collector, rate
from bursar.ledger.claims import Claim, ClaimSpec
from bursar.objects.manifests import Document
from bursar.sim.cluster import Cluster

GPU = "nvidia.com/gpu"
_TEAMS = 10
_PER_NODE = 8
_SEAL_EVERY = 500  # pairs
_KOORDINATOR = "scheduling.sigs.k8s.io/v1alpha1"


def node(name: str, gpus: int) -> dict[str, Any]:
    allocatable = {"cpu": 64, "memory": "512Gi", **({GPU: gpus} if gpus else {})}
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"} if gpus else {}  # a quota counts what they have
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": allocatable}}


def gpu(host: str, index: int) -> dict[str, Any]:
    status = {
        "phase": "Running",
        "gpuModel": "A100",
        "index": index,
        "capacity": {"tflops": 312, "vram": "80Gi"},
        "nodeSelector": {"kubernetes.io/hostname": host},
    }
    metadata = {"name": f"{host}-{index}"}
    return {"apiVersion": "tensor-fusion.ai/v1", "kind": "GPU", "metadata": metadata, "status": status}


def quotas(team: str, gpus: int) -> list[dict[str, Any]]:
    """One quota of each dialect that is written by namespace."""
    amounts = {GPU: gpus, "cpu": 8 * gpus}
    total = {"requests": {"tflops": 312 * gpus, "vram": f"{80 * gpus}Gi"}, "maxWorkers": 100 * gpus}
    return [
        _object("n8s.nebuly.ai/v1alpha1", "ElasticQuota", team, {"min": amounts, "max": amounts}),
        _object(_KOORDINATOR, "ElasticQuota", team, {"min": amounts, "max": amounts}),
        _object("tensor-fusion.ai/v1", "GPUResourceQuota", team, {"total": total}),
    ]


def _object(version: str, kind: str, team: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"namespace": team, "name": team}, "spec": spec}


def cluster_objects(nodes: int) -> Iterator[dict[str, Any]]:
    arguments = {"gpu-resource-names": GPU, "quota-resources": "cpu", "quota.cpu": "32"}
    yield {
        "apiVersion": "bursar.dev/v1alpha1",
        "kind": "Configuration",
        "metadata": {"name": "default"},
        "spec": {"crossquota": arguments},
    }
    for number in range(nodes):
        parts = number % 2 == 1
        yield node(f"n{number:04}", 0 if parts else _PER_NODE)
        yield from (gpu(f"n{number:04}", index) for index in range(_PER_NODE if parts else 0))
    each = nodes * _PER_NODE // _TEAMS
    leaves: dict[str, Any] = {team: {"parent": "root", "quota": {GPU: each, "cpu": 8 * each}} for team in teams()}
    leaves["root"] = {"quota": {GPU: nodes * _PER_NODE, "cpu": 8 * nodes * _PER_NODE}}
    yield {
        "apiVersion": "bursar.dev/v1alpha1",
        "kind": "QuotaTree",
        "metadata": {"name": "org"},
        "spec": {"resourceNames": [GPU, "cpu"], "nodes": leaves},
    }
    for team in teams():
        yield from quotas(team, each)


def teams() -> list[str]:
    return [f"team-{number}" for number in range(_TEAMS)]


def pod(team: str, name: str, kind: int) -> dict[str, Any]:
    """Of whole GPUs, of a part of a GPU, or of none."""
    requests = {"cpu": 2, "memory": "4Gi", **({GPU: 1} if kind == 0 else {})}
    annotations = {"tensor-fusion.ai/tflops-request": "60", "tensor-fusion.ai/vram-request": "8Gi"}
    metadata = {
        "namespace": team,
        "name": name,
        "labels": {"quota.bursar.dev/org": team},
        "annotations": annotations if kind == 1 else {},
    }
    spec = {"containers": [{"name": "main", "resources": {"requests": requests, "limits": requests}}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def documents(objects: list[dict[str, Any]]) -> list[Document]:
    return [Document("benchmark", index, body) for index, body in enumerate(objects, 1)]


def pairs(nodes: int, count: int, own_specs: bool) -> dict[str, float]:
    """Decide and release a second; claims are made on the clock, and records are sealed on it.

    ``own_specs``: no two claims share a spec, so that every policy reads each of them anew.
    """
    cluster = Cluster()
    cluster.apply(documents(list(cluster_objects(nodes))))
    engine = cluster.engine
    engine.listener = None
    shapes = [(team, spec) for team in teams() for spec in _specs(cluster, team)]
    bound = [0, 0]
    numbers = iter(range(10**9))

    def run() -> int:
        for _ in range(count):
            number = next(numbers)
            team, spec = shapes[number % len(shapes)]
            claim = Claim(f"u-{number}", _copied(spec) if own_specs else spec, number, team, f"worker-{number}")
            if engine.decide(claim, 1).admitted:
                bound[0] += sum(1 for binding in claim.bindings if binding is not None)
                bound[1] += 1
            engine.release(claim.uid, 1)
            if number % _SEAL_EVERY == 0:
                engine.journal.take()
        engine.journal.take()
        return count

    with collector(enabled=False):
        found = rate(run)
    return {"pairs": found, "policies": bound[0] / bound[1], "refused": float(next(numbers) - bound[1])}


def _specs(cluster: Cluster, team: str) -> Iterator[ClaimSpec]:
    for kind in range(3):
        for change in cluster.staged(documents([pod(team, f"shape-{kind}", kind)])):
            claim = cluster.controller.read(change)
            assert claim is not None
            yield claim.spec


def _copied(spec: ClaimSpec) -> ClaimSpec:
    return ClaimSpec(
        spec.requests,
        spec.limits,
        spec.containers,
        dict(spec.labels),
        dict(spec.annotations),
        spec.priority,
        spec.preemptible,
        spec.preempts,
        needs=spec.needs,
    )


def one_admission(nodes: int, waiting: int, classes: int, count: int) -> dict[str, float]:
    """A pod ends on a full cluster, and one of very many waiting pods starts: milliseconds until all is settled.

    ``entries`` is how many entries the queue gave out for one admission, decided or not.
    """
    cluster = Cluster()
    cluster.apply(documents([node(f"n{number:04}", _PER_NODE) for number in range(nodes)]))
    full = nodes * _PER_NODE
    cluster.apply(documents(quotas("team", full)[:1]))
    cluster.apply(documents([_of_class(f"runs-{number}", number % classes) for number in range(full)]))
    cluster.apply(documents([_of_class(f"waits-{number}", number % classes) for number in range(waiting)]))
    running = _running(cluster)
    assert len(running) == full
    given = _counted(cluster)
    took: list[float] = []
    with collector(enabled=False):
        for key in running[:count]:
            begun = time.process_time()
            cluster.finish([key])
            took.append((time.process_time() - begun) * 1000)
    assert len(_running(cluster)) == full
    return {"first": took[0], "median": median(took), "worst": max(took), "entries": given() / count}


def _running(cluster: Cluster) -> list[str]:
    found = ((key, cluster.pod(key)) for key in cluster.pods())
    return [key for key, view in found if view is not None and view.phase == "Running"]


def _of_class(name: str, number: int) -> dict[str, Any]:
    body = pod("team", name, 0)
    body["metadata"]["labels"] = {"job": f"job-{number}"}
    return body


def _counted(cluster: Cluster) -> Callable[[], int]:
    """How many entries the queue has given out from now on."""
    queue = cluster.controller.queue
    given = [0]
    original = queue.next

    def counting() -> list[Claim] | None:
        found = original()
        given[0] += found is not None
        return found

    queue.next = counting  # type: ignore[method-assign]
    return lambda: given[0]
