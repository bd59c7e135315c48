"""Two pools and a default tree, with teams that use, borrow and wait; the same from a server and a live cluster."""

from __future__ import annotations

from typing import Any

QUOTA_LABEL = "quota.scheduling.koordinator.sh/name"
NODE_LABELS = {"a-1": {"pool": "a"}, "b-1": {"pool": "b"}, "c-1": {}}
TEAMS = {"vision": ("root-a", 5), "speech": ("root-a", 3), "ads": ("root-b", 3), "web": ("", 3)}

Manifest = dict[str, Any]


def nodes() -> list[Manifest]:
    has = {"cpu": "10", "memory": "100Gi", "pods": "100"}
    return [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": n, "labels": labels}, "status": {"allocatable": has}}
        for n, labels in NODE_LABELS.items()
    ]


def profile(pool: str) -> Manifest:
    is_parent = {"quota.scheduling.koordinator.sh/is-parent": "true"}
    selector = {"matchLabels": {"pool": pool}}
    return {
        "apiVersion": "quota.koordinator.sh/v1alpha1",
        "kind": "ElasticQuotaProfile",
        "metadata": {"namespace": "kube-system", "name": f"pool-{pool}"},
        "spec": {"quotaName": f"root-{pool}", "quotaLabels": is_parent, "nodeSelector": selector},
    }


def team(name: str, parent: str = "", least: int = 3) -> Manifest:
    labels = {"quota.scheduling.koordinator.sh/parent": parent} if parent else {}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"namespace": name, "name": name, "labels": labels},
        "spec": {"max": {"cpu": 8, "memory": "80Gi"}, "min": {"cpu": least, "memory": f"{least}0Gi"}},
    }


def pod(namespace: str, name: str, cpu: int, node: str = "", quota: str = "") -> Manifest:
    named = {QUOTA_LABEL: quota} if quota else {}
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": str(cpu), "memory": "4Gi"}}}
    spec = {"containers": [container], **({"nodeName": node} if node else {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": named},
        "spec": spec,
    }


def objects() -> list[Manifest]:
    return [*nodes(), profile("a"), profile("b"), *(team(name, *more) for name, more in TEAMS.items())]


def running() -> list[Manifest]:
    """Pods with their nodes: two teams of pool a, one of the default tree, and two outside of quotas."""
    return [
        pod("vision", "v1", 4, "a-1"),
        pod("speech", "s1", 3, "a-1"),
        pod("web", "w1", 2, "c-1"),
        pod("other", "o1", 1, "b-1"),
        pod("lost", "l1", 1, "c-1", quota="nosuch"),
    ]


def waiting() -> list[Manifest]:
    """Vision and speech want more than pool a has; ads wants more than its max."""
    return [pod("vision", "v2", 4), pod("speech", "s2", 2), pod("ads", "big", 9)]
