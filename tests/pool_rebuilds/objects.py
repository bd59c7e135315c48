"""Random objects of quota trees.

The names come from small sets, so that a drawn object often changes one that is there.
"""

from __future__ import annotations

from random import Random

from tests.builders import Manifest, disruption_budget, node, pod

PREFIX = "quota.scheduling.koordinator.sh/"
GPU = "nvidia.com/gpu"
NODES = ("n1", "n2", "n3", "n4")
POOLS = ("x", "y", "none")
PROFILES = ("px", "py", "pz")
QUOTAS = ("qa", "qb", "qc", "qd")
PARENTS = ("team", "org")
NAMESPACES = ("qa", "qb", "shared", "other")
_LEAVES_AFTER = "sim.bursar.dev/leaves-after"


def random_node(rng: Random) -> Manifest:
    name = rng.choice(NODES)
    allocatable: Manifest = {"cpu": rng.choice((2, 4, 6, 8)), "pods": 20}
    if rng.random() < 0.9:
        allocatable["memory"] = f"{rng.choice((8, 16, 32))}Gi"
    if rng.random() < 0.3:
        allocatable[GPU] = rng.choice((1, 2, 4))
    taints = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}] if rng.random() < 0.1 else []
    labels = {"pool": rng.choice(POOLS), "disk": rng.choice(("fast", "slow"))}
    return node(name, allocatable, labels=labels, taints=taints, unschedulable=rng.random() < 0.15)


def random_profile(rng: Random) -> Manifest:
    """The third profile shares nodes or a tree with one of the others."""
    name = rng.choice((*PROFILES, *PROFILES[:2]))
    pool = rng.choice("xy") if name == "pz" else name[1]
    selector = {"disk": "fast"} if name == "pz" and rng.random() < 0.5 else {"pool": pool}
    spec: Manifest = {"quotaName": f"{pool}-root", "nodeSelector": {"matchLabels": selector}}
    if rng.random() < 0.9:
        spec["quotaLabels"] = {f"{PREFIX}is-parent": "true"}
    if rng.random() < 0.3:
        spec["resourceRatio"] = rng.choice(("0.9", "0.5", "0.333"))
    metadata: Manifest = {"namespace": "kube-system", "name": name, "annotations": {}}
    if name == "pz" or rng.random() < 0.5:
        metadata["labels"] = {f"{PREFIX}tree-id": f"tree-{pool}"}
    if rng.random() < 0.4:
        metadata["annotations"][f"{PREFIX}resource-keys"] = rng.choice(('["cpu"]', f'["cpu","memory","{GPU}"]'))
    if rng.random() < 0.3:
        metadata["annotations"]["quota.bursar.dev/exclusive"] = "false"
    return {
        "apiVersion": "quota.koordinator.sh/v1alpha1",
        "kind": "ElasticQuotaProfile",
        "metadata": metadata,
        "spec": spec,
    }


def random_quota(rng: Random, parents: list[str]) -> Manifest:
    """``parents`` are the names of quotas that may have children."""
    is_parent = rng.random() < 0.3
    name = rng.choice(PARENTS if is_parent else QUOTAS)
    labels: dict[str, str] = {}
    above = [other for other in parents if other != name]
    if above and rng.random() < 0.75:
        labels[f"{PREFIX}parent"] = rng.choice(above)
    if is_parent:
        labels[f"{PREFIX}is-parent"] = "true"
    if rng.random() < 0.2:
        labels[f"{PREFIX}allow-lent-resource"] = "false"
    most: Manifest = {"cpu": rng.choice((2, 4, 6, 10)) * (3 if is_parent else 1), "memory": f"{rng.choice((16, 64))}Gi"}
    if rng.random() < 0.2:
        most.pop("memory")
    if rng.random() < 0.2:
        most[GPU] = rng.choice((0, 1, 4))
    least: Manifest = {}
    if rng.random() < 0.6:
        least["cpu"] = min(rng.choice((0, 1, 2, 3)), int(most["cpu"]))
    annotations: dict[str, str] = {}
    if rng.random() < 0.3:
        annotations[f"{PREFIX}shared-weight"] = f'{{"cpu":{rng.choice((0, 1, 3))}}}'
    if rng.random() < 0.2:
        annotations[f"{PREFIX}namespaces"] = '["shared"]'
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {
            "namespace": name if name in NAMESPACES else "quotas",
            "name": name,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {"max": most, "min": least},
    }


def random_options(rng: Random) -> Manifest:
    section = {
        "revokeOveruse": rng.random() < 0.5,
        "delayEvictTime": rng.choice(("0s", "10s", "60s")),
        "guaranteeUsage": rng.random() < 0.3,
        "runtimeQuota": rng.random() < 0.9,
        "parentQuotaPods": rng.random() < 0.4,
        "preemptDefaultQuota": rng.random() < 0.3,
    }
    return {
        "apiVersion": "bursar.dev/v1alpha1",
        "kind": "Configuration",
        "metadata": {"name": "default"},
        "spec": {"pools": section},
    }


def random_budget(rng: Random) -> Manifest:
    return disruption_budget("budget", rng.choice(NAMESPACES), {"app": "guarded"}, minAvailable=1)


def random_pod(rng: Random, name: str, quotas: list[str]) -> Manifest:
    requests: Manifest = {"cpu": rng.choice((1, 1, 2, 3, 5, 12))}
    if rng.random() < 0.5:
        requests["memory"] = f"{rng.choice((1, 4, 20))}Gi"
    if rng.random() < 0.15:
        requests[GPU] = rng.choice((1, 2))
    annotations = {_LEAVES_AFTER: "5s"} if rng.random() < 0.2 else {}
    body = pod(name, rng.choice(NAMESPACES), requests, labels=_labels(rng, quotas), annotations=annotations)
    body["spec"]["priority"] = rng.choice((0, 0, 0, 1, 5))
    roll = rng.random()
    if roll < 0.15:
        body["spec"]["nodeSelector"] = {"disk": rng.choice(("fast", "slow", "none"))}
    elif roll < 0.25:
        body["spec"]["tolerations"] = [{"operator": "Exists"}]
    elif roll < 0.35:
        required = {"nodeSelectorTerms": [_node_term(rng) for _ in range(rng.randrange(1, 3))]}
        body["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return body


def _node_term(rng: Random) -> Manifest:
    if rng.random() < 0.2:
        return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [rng.choice(NODES)]}]}
    key, values = rng.choice((("disk", ("fast", "slow")), ("pool", POOLS)))
    return {"matchExpressions": [{"key": key, "operator": rng.choice(("In", "NotIn")), "values": [rng.choice(values)]}]}


def _labels(rng: Random, quotas: list[str]) -> dict[str, str]:
    labels = {"app": "guarded"} if rng.random() < 0.2 else {}
    if rng.random() < 0.7:
        labels[f"{PREFIX}name"] = rng.choice((*quotas, *quotas, *QUOTAS, "nowhere"))
    if rng.random() < 0.15:
        labels[f"{PREFIX}preemptible"] = "false"
    return labels


def random_gang(rng: Random, name: str, quotas: list[str]) -> list[Manifest]:
    """Two or three members, which may differ in size; now and then one is missing."""
    size = rng.randrange(2, 4)
    members = [random_pod(rng, f"{name}-{number}", quotas) for number in range(size - (rng.random() < 0.25))]
    first = members[0]["metadata"]
    for member in members:
        labels = first["labels"] | {"bursar.dev/group": name, "bursar.dev/group-size": str(size)}
        member["metadata"] |= {"namespace": first["namespace"], "labels": labels}
        member["spec"]["priority"] = members[0]["spec"]["priority"]
    return members


def resized(rng: Random, body: Manifest, _quotas: list[str]) -> Manifest:
    box = body["spec"]["containers"][0]
    requests = box["resources"]["requests"] | {"cpu": rng.choice((1, 2, 3, 5))}
    resources = box["resources"] | {"requests": requests}
    return body | {"spec": body["spec"] | {"containers": [box | {"resources": resources}]}}


def relabelled(rng: Random, body: Manifest, quotas: list[str]) -> Manifest:
    kept = {
        key: value
        for key, value in body["metadata"]["labels"].items()
        if key.startswith("bursar.dev/group") or key == f"{PREFIX}preemptible"
    }
    labels = {key: value for key, value in _labels(rng, quotas).items() if key != f"{PREFIX}preemptible"}
    return body | {"metadata": body["metadata"] | {"labels": labels | kept}}
