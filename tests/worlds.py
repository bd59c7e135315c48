"""Random clusters for tests: nodes, quotas of several dialects, and steps that fill, change and empty them.

A world is small and crowded, so that most of its pods wait, borrow, preempt or are preempted. It is drawn from a seed
alone, and what it draws depends on nothing that the cluster did.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.builders import Manifest, disruption_budget, node, pod

CPU, GPU = "cpu", "nvidia.com/gpu"
NAMESPACES = ("a", "b", "c", "d")
NODES = ("n0", "n1", "n2")
GROUPS = ("root", "x", "y", "x1", "x2")
_TREE = "quota.bursar.dev/t"


@dataclass(frozen=True, slots=True)
class Move:
    """One step: manifests that are applied together, references that are deleted, a pod that ends, time that passes."""

    apply: tuple[Manifest, ...] = ()
    delete: tuple[str, ...] = ()
    finish: str = ""
    advance: int = 0  # milliseconds


def elastic_quota(namespace: str, least: dict[str, int], most: dict[str, int] | None = None) -> Manifest:
    return {
        "apiVersion": "n8s.nebuly.ai/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"namespace": namespace, "name": "q"},
        "spec": {"min": least, **({"max": most} if most else {})},
    }


def gpu(name: str, on: str) -> Manifest:
    return {
        "apiVersion": "tensor-fusion.ai/v1",
        "kind": "GPU",
        "metadata": {"name": name},
        "status": {
            "phase": "Running",
            "capacity": {"tflops": 100, "vram": "10Gi"},
            "nodeSelector": {"kubernetes.io/hostname": on},
        },
    }


@dataclass
class World:
    """Draws the first objects, and step after step."""

    rng: Random
    slow: bool = True  # evicted pods may take their time to leave
    pods: list[Manifest] = field(default_factory=list)  # that were applied, some of them gone
    _count: int = 0

    def __post_init__(self) -> None:
        chance = self.rng.random
        self._elastic = chance() < 0.7
        self._tree = chance() < 0.4
        self._fractions = chance() < 0.2
        self._budgets = chance() < 0.4
        self._gangs = chance() < 0.4
        self._slow_share = self.rng.choice((0.0, 0.2, 0.6)) if self.slow else 0.0
        self._nodes = NODES[: self.rng.randint(1, len(NODES))]

    # What there is at first

    def objects(self) -> list[Manifest]:
        found = [self._node(name) for name in self._nodes]
        if self._elastic:
            found += [self._elastic_quota(name) for name in self.rng.sample(NAMESPACES, self.rng.randint(1, 3))]
        if self._tree:
            found.append(self._quota_tree())
        if self._fractions:
            found += [gpu(f"g{number}", self._nodes[0]) for number in range(2)]
            found.append(self._gpu_quota())
        if self._budgets:
            found.append(self._budget())
        return found

    def _node(self, name: str) -> Manifest:
        given = {CPU: self.rng.randint(2, 8), GPU: self.rng.randint(0, 4)}
        return node(name, given, labels={"zone": self.rng.choice("zw"), "kubernetes.io/hostname": name})

    def _elastic_quota(self, namespace: str) -> Manifest:
        least = self._amounts(6, 4)
        most = {name: amount + self.rng.randint(0, 4) for name, amount in least.items()}
        return elastic_quota(namespace, least, most if self.rng.random() < 0.3 else None)

    def _amounts(self, cpus: int, gpus: int) -> dict[str, int]:
        found = {CPU: self.rng.randint(0, cpus), GPU: self.rng.randint(0, gpus)}
        if self.rng.random() < 0.4:
            del found[self.rng.choice((CPU, GPU))]
        return found

    def _quota_tree(self) -> Manifest:
        nodes: dict[str, Any] = {"root": {"quota": self._amounts(12, 8)}}
        for name, parent in (("x", "root"), ("y", "root"), ("x1", "x"), ("x2", "x")):
            nodes[name] = {"parent": parent, "hard": self.rng.random() < 0.3, "quota": self._amounts(5, 3)}
        return {"kind": "QuotaTree", "metadata": {"name": "t"}, "spec": {"resourceNames": [CPU, GPU], "nodes": nodes}}

    def _gpu_quota(self) -> Manifest:
        total = {"requests.tflops": str(self.rng.randint(40, 200)), "requests.vram": f"{self.rng.randint(4, 20)}Gi"}
        return {
            "apiVersion": "tensor-fusion.ai/v1",
            "kind": "GPUResourceQuota",
            "metadata": {"namespace": "a", "name": "q"},
            "spec": {"total": {"requests": {name.partition(".")[2]: value for name, value in total.items()}}},
        }

    def _budget(self) -> Manifest:
        return disruption_budget("b", "a", {"app": "web"}, minAvailable=self.rng.randint(0, 3))

    # Pods

    def new_pods(self) -> tuple[Manifest, ...]:
        """One pod, or the members of a gang, or some of them."""
        if self._gangs and self.rng.random() < 0.2:
            size = self.rng.randint(2, 3)
            self._count += 1
            marks = {"bursar.dev/group": f"g{self._count}", "bursar.dev/group-size": str(size)}
            namespace, priority = self.rng.choice(NAMESPACES), self._priority()
            return tuple(self._pod(namespace, priority, marks) for _ in range(size if self.rng.random() < 0.8 else 1))
        return (self._pod(self.rng.choice(NAMESPACES), self._priority(), {}),)

    def _priority(self) -> int:
        return self.rng.choice((0, 0, 0, 5, 10))

    def _pod(self, namespace: str, priority: int, marks: dict[str, str]) -> Manifest:
        chance, choice = self.rng.random, self.rng.choice
        self._count += 1
        labels, annotations = dict(marks), dict[str, str]()
        if chance() < 0.15:
            labels["bursar.dev/preemptible"] = "false"
        if chance() < 0.4:
            labels["app"] = "web"
        if self._tree and chance() < 0.6:
            labels[_TREE] = choice(GROUPS)
        if chance() < self._slow_share:
            annotations["sim.bursar.dev/leaves-after"] = choice(("2s", "5s"))
        if chance() < 0.1:
            annotations["sim.bursar.dev/runs-for"] = choice(("3s", "20s"))
        requests: dict[str, Any] = {CPU: self.rng.randint(1, 4)}
        if self._fractions and chance() < 0.4:
            annotations["tensor-fusion.ai/tflops-request"] = str(choice((20, 50, 100)))
            annotations["tensor-fusion.ai/vram-request"] = f"{choice((2, 5, 10))}Gi"
        elif chance() < 0.5:
            requests[GPU] = self.rng.randint(1, 3)
        spec: dict[str, Any] = {"priority": priority}
        if chance() < 0.1:
            spec["preemptionPolicy"] = "Never"
        if chance() < 0.1:
            spec["nodeSelector"] = {"zone": choice("zw")}
        name = f"p{self._count}"
        found = pod(name, namespace, requests, labels=labels, annotations=annotations, **spec)
        if chance() < 0.3:
            found["metadata"]["ownerReferences"] = [_owner(f"o{self.rng.randrange(4)}")]
        return found

    # Steps

    def move(self) -> Move:
        roll = self.rng.random()
        if roll < 0.6 or not self.pods:
            created = self.new_pods()
            self.pods.extend(created)
            return Move(apply=created)
        if roll < 0.7:
            return Move(delete=(_reference(self.rng.choice(self.pods)),))
        if roll < 0.74:
            return Move(finish=_reference(self.rng.choice(self.pods)).removeprefix("Pod/"))
        if roll < 0.86:
            return Move(advance=self.rng.choice((1000, 2000, 5000, 20000)))
        if roll < 0.9:
            return Move(apply=(self._resized(self.rng.choice(self.pods)),))
        return Move(apply=(self._setting(),))

    def _resized(self, known: Manifest) -> Manifest:
        """Another amount of cpu, or a pod of that name again if it has ended."""
        metadata, spec = known["metadata"], known["spec"]
        asked = spec["containers"][0]["resources"]["requests"]
        container = {"name": "main", "resources": {"requests": {**asked, CPU: self.rng.randint(1, 4)}}}
        return {**known, "metadata": dict(metadata), "spec": {**spec, "containers": [container]}}

    def _setting(self) -> Manifest:
        made = [self._node(self.rng.choice(self._nodes))] if self.rng.random() < 0.3 else []
        if self._elastic:
            made.append(self._elastic_quota(self.rng.choice(NAMESPACES)))
        if self._tree:
            made.append(self._quota_tree())
        if self._fractions:
            made.append(self._gpu_quota())
        if self._budgets:
            made.append(self._budget())
        return self.rng.choice(made or [self._node(self.rng.choice(self._nodes))])


def _owner(name: str) -> Manifest:
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"uid-{name}", "controller": True}


def _reference(known: Manifest) -> str:
    return f"Pod/{known['metadata']['namespace']}/{known['metadata']['name']}"
