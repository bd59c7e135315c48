"""Sets of quotas to run a demand under: manifests of the user, or one of the usual ways to share a cluster.

The built-in sets give each tenant the same share in each way, so that a comparison shows the way and not the sizes.
They are ordinary manifests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bursar.objects.decode import ManifestError
from bursar.objects.manifests import Document, load_path
from bursar.simulate.demand import GPU, MILLI, JobDemand, QuotaSet, split

TREE = "simulated"


def quota_set(text: str, demand: JobDemand) -> QuotaSet:
    """A built-in set by its name, or the manifests of a file or folder; ``label=path`` gives them a name."""
    if text in BUILT_IN:
        return BUILT_IN[text](demand)
    label, _, path = text.rpartition("=")
    file = Path(path)
    if not file.exists():
        known = ", ".join(BUILT_IN)
        raise ManifestError(f"is neither a file nor one of {known}", source=text)
    return QuotaSet(label or file.stem, load_path(file))


def tenant_shares(demand: JobDemand) -> dict[str, int]:
    """Whole GPUs of each tenant: in proportion to what the trace says, else to what its jobs use when none waits."""
    weights = {tenant: demand.shares.get(tenant, 0) for tenant in demand.tenants}
    if not all(weights.values()):
        weights = dict.fromkeys(weights, 0)
        for job in demand.jobs:
            weights[job.tenant] += demand.gpus(job) * (job.runs or MILLI)
    if not demand.capacity:
        raise ManifestError("the built-in quotas share out GPUs, and the demand has no nodes with any: give a capacity")
    return split(demand.capacity // MILLI, weights)


def _hard_caps(demand: JobDemand) -> QuotaSet:
    shares = tenant_shares(demand).items()
    return QuotaSet("hard-caps", _numbered([_elastic_quota(t, {"min": {GPU: n}, "max": {GPU: n}}) for t, n in shares]))


def _elastic(demand: JobDemand) -> QuotaSet:
    shares = tenant_shares(demand).items()
    return QuotaSet("elastic", _numbered([_elastic_quota(tenant, {"min": {GPU: n}}) for tenant, n in shares]))


def _elastic_quota(tenant: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"namespace": tenant, "name": "quota"}
    return {"apiVersion": "n8s.nebuly.ai/v1alpha1", "kind": "ElasticQuota", "metadata": metadata, "spec": spec}


def _trees(demand: JobDemand) -> QuotaSet:
    shares = tenant_shares(demand)
    nodes: dict[str, Any] = {"cluster": {"quota": {GPU: sum(shares.values())}, "hard": True}}
    nodes |= {f"t-{tenant}": {"parent": "cluster", "quota": {GPU: n}} for tenant, n in shares.items()}
    spec = {"resourceNames": [GPU], "nodes": nodes}
    tree = {"apiVersion": "bursar.dev/v1alpha1", "kind": "QuotaTree", "metadata": {"name": TREE}, "spec": spec}
    return QuotaSet("trees", _numbered([tree]), {t: {f"quota.bursar.dev/{TREE}": f"t-{t}"} for t in shares})


def _pools(demand: JobDemand) -> QuotaSet:
    shares = tenant_shares(demand)
    root, prefix = "cluster-root", "quota.scheduling.koordinator.sh"
    profile = {
        "apiVersion": "quota.koordinator.sh/v1alpha1",
        "kind": "ElasticQuotaProfile",
        "metadata": {
            "namespace": "kube-system",
            "name": TREE,
            "labels": {f"{prefix}/tree-id": TREE},
            "annotations": {f"{prefix}/resource-keys": f'["{GPU}"]'},
        },
        "spec": {"quotaName": root, "quotaLabels": {f"{prefix}/is-parent": "true"}, "nodeSelector": {}},
    }
    quotas = [
        {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"namespace": tenant, "name": tenant, "labels": {f"{prefix}/parent": root}},
            "spec": {"min": {GPU: n}, "max": {GPU: sum(shares.values())}},
        }
        for tenant, n in shares.items()
    ]
    return QuotaSet("pools", _numbered([profile, *quotas]))


def _none(_demand: JobDemand) -> QuotaSet:
    return QuotaSet("no-quotas")


def _numbered(bodies: Sequence[dict[str, Any]]) -> tuple[Document, ...]:
    return tuple(Document("", number, body) for number, body in enumerate(bodies, 1))


BUILT_IN: dict[str, Callable[[JobDemand], QuotaSet]] = {
    "hard-caps": _hard_caps,
    "elastic": _elastic,
    "trees": _trees,
    "pools": _pools,
    "no-quotas": _none,
}
