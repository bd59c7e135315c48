"""Random objects that pods live among: nodes, GPUs, quotas of every dialect, budgets and the configuration.

The names come from small sets, so that a drawn object often changes one that is there.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.builders import Manifest, disruption_budget, node

GPU = "nvidia.com/gpu"
NAMESPACES = ("a", "b", "c", "d")
NODES = ("n1", "n2", "n3", "n4")
TREES = {"org": ("x", "y", "z"), "lab": ("p", "q")}  # the groups of each quota tree
POOL_QUOTAS = ("pa", "pb", "pc")
PROFILE = "edge"
POOL_LABEL = "pool"
KOORDINATOR = "quota.scheduling.koordinator.sh/"
_TREE_ID = f"{KOORDINATOR}tree-id"


def made(api_version: str, kind: str, name: str, spec: Manifest, namespace: str = "") -> Manifest:
    metadata: Manifest = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def random_node(rng: Random) -> Manifest:
    name = rng.choice(NODES)
    gpus = 0 if name in _WITH_GPU_OBJECTS else rng.choice((0, 2, 4))
    allocatable: Manifest = {"cpu": rng.choice((4, 8, 8, 12)), "memory": "32Gi", "pods": rng.choice((6, 20))}
    if gpus:
        allocatable[GPU] = gpus
    labels = {POOL_LABEL: rng.choice(("main", "main", PROFILE))}
    taints = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}] if rng.random() < 0.08 else []
    return node(name, allocatable, labels=labels, taints=taints, unschedulable=rng.random() < 0.08)


_WITH_GPU_OBJECTS = ("n4",)  # their GPUs are handed out in fractions


def random_gpu(rng: Random) -> Manifest:
    host, index = rng.choice(_WITH_GPU_OBJECTS), rng.randrange(2)
    capacity = {"tflops": rng.choice((100, 200, 200)), "vram": rng.choice(("20Gi", "40Gi", "40Gi"))}
    body = made("tensor-fusion.ai/v1", "GPU", f"{host}-{index}", {})
    del body["spec"]
    hostname = {"kubernetes.io/hostname": host}
    return body | {
        "status": {
            "phase": "Running",
            "gpuModel": "A100",
            "index": index,
            "capacity": capacity,
            "nodeSelector": hostname,
        }
    }


def random_elastic(rng: Random) -> Manifest:
    least = {"cpu": rng.randrange(7)} | ({GPU: rng.randrange(3)} if rng.random() < 0.6 else {})
    spec: Manifest = {"min": least}
    if rng.random() < 0.4:
        spec["max"] = {name: amount + rng.randrange(6) for name, amount in least.items()}
    if rng.random() < 0.2:
        spec["namespaces"] = rng.sample(NAMESPACES, 2)
        spec["takeover"] = rng.random() < 0.5
        return made("n8s.nebuly.ai/v1alpha1", "CompositeElasticQuota", "both", spec, "default")
    return made("n8s.nebuly.ai/v1alpha1", "ElasticQuota", "quota", spec, rng.choice(NAMESPACES))


def random_namespace_quota(rng: Random) -> Manifest:
    total: Manifest = {"requests": {"tflops": rng.choice((100, 200, 400)), "vram": f"{rng.choice((16, 40))}Gi"}}
    if rng.random() < 0.5:
        total["maxWorkers"] = rng.randrange(4)
    spec: Manifest = {"total": total}
    if rng.random() < 0.4:
        spec["single"] = {"maxRequests": {"tflops": rng.choice((60, 120))}}
    return made("tensor-fusion.ai/v1", "GPUResourceQuota", rng.choice(("q1", "q2")), spec, rng.choice(NAMESPACES))


def random_tree(rng: Random) -> Manifest:
    return quota_tree(rng, rng.choice(tuple(TREES)))


def quota_tree(rng: Random, name: str) -> Manifest:
    counted = ["cpu", GPU] if rng.random() < 0.7 else ["cpu"]
    nodes: Manifest = {"root": {"quota": _tree_quota(rng, 8, 4)}}
    parents = ["root"]
    if rng.random() < 0.5:
        nodes["mid"] = {"parent": "root", "quota": _tree_quota(rng, 6, 3), "hard": rng.random() < 0.3}
        parents.append("mid")
    for group in TREES[name]:
        if rng.random() < 0.95:
            hard = rng.random() < 0.25
            nodes[group] = {"parent": rng.choice(parents), "quota": _tree_quota(rng, 4, 2), "hard": hard}
    if "mid" in nodes and not any(one.get("parent") == "mid" for one in nodes.values()):
        del nodes["mid"]
    return made("bursar.dev/v1alpha1", "QuotaTree", name, {"resourceNames": counted, "nodes": nodes})


def _tree_quota(rng: Random, cpu: int, gpus: int) -> Manifest:
    quota: Manifest = {"cpu": rng.randrange(cpu // 2, cpu + 5)}
    if rng.random() < 0.8:
        quota[GPU] = rng.randrange(gpus + 2)
    return quota


def random_pool_quota(rng: Random) -> Manifest:
    name = rng.choice(POOL_QUOTAS)
    most = {"cpu": rng.randrange(4, 14), "memory": "64Gi"}
    body = made("scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota", name, {"max": most}, "pools")
    if rng.random() < 0.7:
        body["spec"]["min"] = {"cpu": rng.randrange(4), "memory": "1Gi"}
    if rng.random() < 0.3:
        body["metadata"]["labels"] = {f"{KOORDINATOR}allow-lent-resource": "false"}
    if rng.random() < 0.4:
        body["metadata"]["labels"] = {f"{KOORDINATOR}parent": f"{PROFILE}-root", _TREE_ID: PROFILE}
    return body


def random_profile(rng: Random) -> Manifest:
    spec = {
        "quotaName": f"{PROFILE}-root",
        "quotaLabels": {f"{KOORDINATOR}is-parent": "true"},
        "nodeSelector": {"matchLabels": {POOL_LABEL: PROFILE}},
    }
    if rng.random() < 0.3:
        spec["resourceRatio"] = rng.choice(("0.9", "0.5"))
    body = made("quota.koordinator.sh/v1alpha1", "ElasticQuotaProfile", PROFILE, spec, "kube-system")
    body["metadata"]["labels"] = {_TREE_ID: PROFILE}
    return body


def random_budget(rng: Random) -> Manifest:
    bound: Manifest = rng.choice(({"minAvailable": 1}, {"maxUnavailable": 1}, {"maxUnavailable": "50%"}))
    return disruption_budget("budget", rng.choice(NAMESPACES), {"app": f"app{rng.randrange(2)}"}, **bound)


def random_configuration(rng: Random) -> Manifest:
    crossquota: Manifest = {"gpu-resource-names": GPU, "quota-resources": "cpu", "quota.cpu": str(rng.randrange(2, 7))}
    if rng.random() < 0.3:
        crossquota["reserve-per-gpu.cpu"] = "1"
    spec: Manifest = {
        "crossquota": crossquota,
        "pools": {"delayEvictTime": rng.choice(("10s", "30s")), "revokeOveruse": rng.random() < 0.5},
    }
    if rng.random() < 0.3:
        spec["elastic"] = {"borrowing": rng.choice(("min", "capacity")), "order": rng.choice(("priority", "creation"))}
    if rng.random() < 0.15:
        spec["control"] = {"strict": True}
    return made("bursar.dev/v1alpha1", "Configuration", "default", spec)


Maker = Callable[[Random], dict[str, Any]]

# By dialect: what draws its objects, and how many are drawn for a new world.
DIALECTS: dict[str, tuple[tuple[Maker, int], ...]] = {
    "elastic": ((random_elastic, 4),),
    "namespace": ((random_namespace_quota, 2),),
    "trees": ((random_tree, 4),),
    "pools": ((random_profile, 1), (random_pool_quota, 5)),
    "gpus": ((random_gpu, 3),),
    "budgets": ((random_budget, 1),),
    "configuration": ((random_configuration, 1),),
}
MAKERS: dict[str, Maker] = {
    f"begin {maker.__name__}": maker
    for maker in (random_node, *(maker for makers in DIALECTS.values() for maker, _ in makers))
}
