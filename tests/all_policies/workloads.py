"""Random pods and gangs: small amounts, few names, marks of every dialect."""

from __future__ import annotations

from random import Random

from bursar.ledger.claims import ClaimSpec
from bursar.resources import from_amounts
from tests.all_policies.surroundings import GPU, KOORDINATOR, NAMESPACES, NODES, POOL_LABEL, POOL_QUOTAS, PROFILE, TREES
from tests.builders import Manifest, pod

WHOLE, PART, NONE = "whole GPUs", "a part of a GPU", "no GPU"
TENSOR_FUSION = "tensor-fusion.ai/"
LEAVES_AFTER = "sim.bursar.dev/leaves-after"
RUNS_FOR = "sim.bursar.dev/runs-for"
_LEAVES = ("", "", "", "5s", "20s")


def random_pod(rng: Random, name: str, dialects: frozenset[str]) -> Manifest:
    """A pod that may be governed by any of these dialects."""
    kind = rng.choices((WHOLE, PART, NONE), (4, 2 if "gpus" in dialects else 0, 5))[0]
    requests: Manifest = {"cpu": rng.choice((1, 1, 1, 1, 2, 2, 3))}
    if rng.random() < 0.3:
        requests["memory"] = f"{rng.choice((1, 4, 12))}Gi"
    if kind == WHOLE:
        requests[GPU] = rng.choice((1, 1, 1, 2))
    annotations = _worker(rng) if kind == PART else {}
    leaves = rng.choice(_LEAVES)
    if leaves:
        annotations[LEAVES_AFTER] = leaves
    if rng.random() < 0.15:
        annotations[RUNS_FOR] = f"{rng.randrange(1, 60)}s"
    body = pod(name, rng.choice(NAMESPACES), requests, labels=_labels(rng, dialects), annotations=annotations)
    body["spec"].update(_placement(rng))
    body["spec"]["priority"] = rng.choice((0, 0, 0, 1, 5, 5, 10))
    if rng.random() < 0.05:
        body["spec"]["preemptionPolicy"] = "Never"
    if rng.random() < 0.4:
        owner = f"rs{rng.randrange(4)}"
        reference = {"kind": "ReplicaSet", "name": owner, "uid": f"{body['metadata']['namespace']}-{owner}"}
        body["metadata"]["ownerReferences"] = [reference | {"controller": True, "apiVersion": "apps/v1"}]
    return body


def _worker(rng: Random) -> dict[str, str]:
    marks = {"tflops-request": str(rng.choice((20, 50, 50, 100))), "vram-request": f"{rng.choice((4, 8, 16))}Gi"}
    if rng.random() < 0.3:
        marks["tflops-limit"] = str(int(marks["tflops-request"]) + 20)
    if rng.random() < 0.2:
        marks["gpu-count"] = "2"
    return {f"{TENSOR_FUSION}{key}": value for key, value in marks.items()}


def _labels(rng: Random, dialects: frozenset[str]) -> dict[str, str]:
    labels = {"app": f"app{rng.randrange(3)}"}
    for tree, groups in TREES.items() if "trees" in dialects else ():
        if rng.random() < 0.3:
            labels[f"quota.bursar.dev/{tree}"] = rng.choice(groups)
    if "pools" in dialects and rng.random() < 0.4:
        labels[f"{KOORDINATOR}name"] = rng.choice(POOL_QUOTAS)
    if rng.random() < 0.08:
        labels["bursar.dev/preemptible"] = "false"
    return labels


def _placement(rng: Random) -> Manifest:
    """Constraints on the node, seldom."""
    roll = rng.random()
    if roll < 0.06:
        return {"nodeSelector": {POOL_LABEL: rng.choice(("main", PROFILE))}}
    if roll < 0.09:
        return {"tolerations": [{"operator": "Exists"}]}
    if roll < 0.11:
        return {"nodeSelector": {POOL_LABEL: "nowhere"}}
    return {}


def random_gang(rng: Random, name: str, dialects: frozenset[str]) -> list[Manifest]:
    """Two or three members, now and then one too few; members of one gang are alike."""
    size = rng.randrange(2, 4)
    first = random_pod(rng, f"{name}-0", dialects)
    first["metadata"]["labels"] |= {"bursar.dev/group": name, "bursar.dev/group-size": str(size)}
    present = size - (rng.random() < 0.15)
    return [first | {"metadata": first["metadata"] | {"name": f"{name}-{number}"}} for number in range(present)]


def resized(rng: Random, body: Manifest) -> Manifest:
    """The pod with another amount of cpu, or with other labels."""
    container = body["spec"]["containers"][0]
    requests = container["resources"]["requests"] | {"cpu": rng.choice((1, 2, 3, 5))}
    resources = container["resources"] | {"requests": requests}
    return body | {"spec": body["spec"] | {"containers": [container | {"resources": resources}]}}


def relabelled(rng: Random, body: Manifest, dialects: frozenset[str]) -> Manifest:
    kept = {key: value for key, value in body["metadata"]["labels"].items() if key.startswith("bursar.dev/group")}
    return body | {"metadata": body["metadata"] | {"labels": _labels(rng, dialects) | kept}}


def with_cpu(spec: ClaimSpec, cpu: int) -> ClaimSpec:
    """The spec with another amount of cpu (in thousandths), where it has containers of its own none the less."""
    requests = from_amounts(dict(spec.requests.pairs()) | {"cpu": cpu})
    return ClaimSpec(
        requests,
        spec.limits,
        spec.containers,
        dict(spec.labels),
        dict(spec.annotations),
        spec.priority,
        spec.preemptible,
        spec.preempts,
        spec.owner,
        spec.group,
        spec.group_size,
        spec.needs,
    )


def placed(rng: Random, body: Manifest) -> Manifest:
    """The pod as one that runs on a node already, whatever quotas say."""
    return body | {"spec": body["spec"] | {"nodeName": rng.choice(NODES)}}
