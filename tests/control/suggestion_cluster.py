"""A small cluster in which every dialect refuses somebody, and what it takes to follow a fix there."""

from __future__ import annotations

from typing import Any

from bursar.control.suggestions.search import Found, Suggestion
from bursar.control.suggestions.trial import edited
from bursar.objects.manifests import Document, load_text
from bursar.sim.cluster import Cluster, fixes_for

SETTINGS = """
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {pool: a}}
status: {allocatable: {nvidia.com/gpu: 4, cpu: 8}}
---
apiVersion: v1
kind: Node
metadata: {name: n2, labels: {pool: b}}
status: {allocatable: {nvidia.com/gpu: 8, cpu: 16}}
---
apiVersion: v1
kind: Node
metadata: {name: n3, labels: {pool: c}}
spec: {taints: [{key: dedicated, value: ml, effect: NoSchedule}]}
status: {allocatable: {nvidia.com/gpu: 8, cpu: 16}}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: mid}, value: 50}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}
---
apiVersion: n8s.nebuly.ai/v1alpha1
kind: ElasticQuota
metadata: {namespace: elastic-a, name: quota}
spec: {min: {nvidia.com/gpu: 2}, max: {nvidia.com/gpu: 5}}
---
apiVersion: n8s.nebuly.ai/v1alpha1
kind: ElasticQuota
metadata: {namespace: elastic-b, name: quota}
spec: {min: {nvidia.com/gpu: 4}}
---
kind: QuotaTree
metadata: {name: company}
spec:
  resourceNames: [nvidia.com/gpu]
  nodes:
    company: {parent: nil, hard: "true", quota: {nvidia.com/gpu: "6"}}
    vision: {parent: company, hard: "true", quota: {nvidia.com/gpu: "3"}}
    speech: {parent: company, quota: {nvidia.com/gpu: "3"}}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {namespace: web, name: web}
spec: {max: {cpu: 8}, min: {cpu: 4}}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {namespace: data, name: data}
spec: {max: {cpu: 12}, min: {cpu: 4}}
---
apiVersion: tensor-fusion.ai/v1
kind: GPUResourceQuota
metadata: {namespace: infer, name: quota}
spec:
  total: {requests: {tflops: "100", vram: 40Gi}, maxWorkers: 5}
  single: {maxRequests: {tflops: "60"}}
---
apiVersion: tensor-fusion.ai/v1
kind: GPU
metadata: {name: g1}
status:
  phase: Running
  gpuModel: A100
  index: 0
  capacity: {tflops: 312, vram: 80Gi}
  nodeSelector: {kubernetes.io/hostname: n1}
"""

TEAMS = ("elastic-a", "elastic-b", "vision", "speech", "web", "data", "infer", "free")


def new_cluster() -> Cluster:
    cluster = Cluster()
    cluster.apply(load_text(SETTINGS))
    return cluster


def pod(team: str, name: str, amount: int, **marks: str) -> dict[str, Any]:
    """A pod of a team; ``marks``: priority class, pool, whether it is firm, its group and how long it runs."""
    labels = {"quota.bursar.dev/company": team} if team in {"vision", "speech"} else {}
    annotations: dict[str, str] = {}
    resources: dict[str, Any] = {"requests": {"cpu": amount}}
    if team == "infer":
        annotations = {"tensor-fusion.ai/tflops-request": str(10 * amount), "tensor-fusion.ai/vram-request": "4Gi"}
        resources = {}
    elif team not in {"web", "data"}:
        resources = {"limits": {"nvidia.com/gpu": amount}}
    if "firm" in marks:
        labels["bursar.dev/preemptible"] = "false"
    if "group" in marks:
        labels |= {"bursar.dev/group": marks["group"], "bursar.dev/group-size": "2"}
    if "runs" in marks:
        annotations["sim.bursar.dev/runs-for"] = marks["runs"]
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": resources}]}
    if "priority" in marks:
        spec["priorityClassName"] = marks["priority"]
    if "pool" in marks:
        spec["nodeSelector"] = {"pool": marks["pool"]}
    metadata = {"namespace": team, "name": name, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def apply(cluster: Cluster, *bodies: dict[str, Any]) -> None:
    cluster.apply([Document("", number, body) for number, body in enumerate(bodies, 1)])


def fixes(cluster: Cluster, key: str) -> Found:
    found = cluster.doing(key)
    assert found is not None
    return fixes_for(cluster, found.uid)


def follow(cluster: Cluster, fix: Suggestion) -> None:
    """Do what the fix says."""
    bodies: dict[tuple[str, str], dict[str, Any]] = {}
    for edit in fix.edits:
        stored = cluster.objects.find(edit.kind, edit.key)
        assert stored is not None
        bodies[edit.kind, edit.key] = edited(bodies.get((edit.kind, edit.key), stored.applied.body), [edit])
    anew = list(dict.fromkeys(edit.key for edit in fix.edits if edit.anew))
    for key in anew:
        body = bodies["Pod", key]
        bodies["Pod", key] = body | {"spec": {k: v for k, v in body["spec"].items() if k != "priority"}}
    if anew:
        cluster.delete([(cluster.kinds.find("Pod"), key) for key in anew])
    if bodies:
        apply(cluster, *bodies.values())
    if fix.waits_for:
        cluster.finish(fix.waits_for)
