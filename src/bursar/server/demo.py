"""The demo: an organisation at work, so that a newcomer sees borrowing, reclaim and refusals without typing anything.

What happens is drawn from a seeded generator: a beat is a list of pods that come, and time is the only thing that is
not in it. Pods end by themselves; those that have ended are cleared away after a while.

A small organisation for the demo: teams, GPU nodes, and a quota of every dialect.

* ``vision``, ``speech`` and ``robotics`` train on whole GPUs and lend each other what they do not use (elastic quotas).
* ``ads`` and ``search`` share a pool of nodes by a quota tree that follows the nodes (pools).
* ``chat`` serves models on parts of GPUs, within a namespace quota (limits).
* ``lab`` has a tree of groups that borrow from their parents (trees).
* ``etl`` runs without GPUs; what it may take of GPU nodes is limited (crossquota).
* ``you`` are whoever looks: a node, a quota, and a pod that waits (``YOURS``).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from threading import Event, Thread
from typing import Any

from bursar.objects.manifests import Document, load_text
from bursar.server.service import Service, StoppedError
from bursar.sim.pods import ENDED, RUNS_FOR

# ruff: noqa: E501 manifests, one an object


ORGANISATION = """
apiVersion: bursar.dev/v1alpha1
kind: Configuration
metadata: {name: default}
spec:
  crossquota:
    gpu-resource-names: nvidia.com/gpu
    quota-resources: cpu
    quota.cpu: "16"
  pools: {delayEvictTime: 20s}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 1000
---
apiVersion: v1
kind: List
items:
  - {apiVersion: v1, kind: Node, metadata: {name: train-1, labels: {pool: train}}, status: {allocatable: {cpu: 64, memory: 512Gi, nvidia.com/gpu: 8}}}
  - {apiVersion: v1, kind: Node, metadata: {name: train-2, labels: {pool: train}}, status: {allocatable: {cpu: 64, memory: 512Gi, nvidia.com/gpu: 8}}}
  - {apiVersion: v1, kind: Node, metadata: {name: shared-1, labels: {pool: shared}}, status: {allocatable: {cpu: 64, memory: 512Gi, nvidia.com/gpu: 8}}}
  - {apiVersion: v1, kind: Node, metadata: {name: lab-1, labels: {pool: lab}}, status: {allocatable: {cpu: 64, memory: 512Gi, nvidia.com/gpu: 8}}}
  - {apiVersion: v1, kind: Node, metadata: {name: serve-1, labels: {pool: serve}}, status: {allocatable: {cpu: 32, memory: 256Gi}}}
  - {apiVersion: v1, kind: Node, metadata: {name: cpu-1, labels: {pool: cpu}}, status: {allocatable: {cpu: 16, memory: 64Gi}}}
---
apiVersion: v1
kind: List
items:
  - {apiVersion: tensor-fusion.ai/v1, kind: GPU, metadata: {name: serve-1-0}, status: {phase: Running, gpuModel: L40S, index: 0, capacity: {tflops: 362, vram: 48Gi}, nodeSelector: {kubernetes.io/hostname: serve-1}}}
  - {apiVersion: tensor-fusion.ai/v1, kind: GPU, metadata: {name: serve-1-1}, status: {phase: Running, gpuModel: L40S, index: 1, capacity: {tflops: 362, vram: 48Gi}, nodeSelector: {kubernetes.io/hostname: serve-1}}}
---
apiVersion: v1
kind: List
items:
  - {apiVersion: n8s.nebuly.ai/v1alpha1, kind: ElasticQuota, metadata: {namespace: vision, name: quota}, spec: {min: {nvidia.com/gpu: 6}, max: {nvidia.com/gpu: 12}}}
  - {apiVersion: n8s.nebuly.ai/v1alpha1, kind: ElasticQuota, metadata: {namespace: speech, name: quota}, spec: {min: {nvidia.com/gpu: 6}, max: {nvidia.com/gpu: 10}}}
  - {apiVersion: n8s.nebuly.ai/v1alpha1, kind: ElasticQuota, metadata: {namespace: robotics, name: quota}, spec: {min: {nvidia.com/gpu: 4}, max: {nvidia.com/gpu: 8}}}
---
apiVersion: quota.koordinator.sh/v1alpha1
kind: ElasticQuotaProfile
metadata:
  namespace: kube-system
  name: shared
  labels: {quota.scheduling.koordinator.sh/tree-id: shared}
  annotations: {quota.scheduling.koordinator.sh/resource-keys: '["nvidia.com/gpu"]'}
spec:
  quotaName: shared-root
  quotaLabels: {quota.scheduling.koordinator.sh/is-parent: "true"}
  nodeSelector: {matchLabels: {pool: shared}}
---
apiVersion: v1
kind: List
items:
  - apiVersion: scheduling.sigs.k8s.io/v1alpha1
    kind: ElasticQuota
    metadata: {namespace: ads, name: ads, labels: {quota.scheduling.koordinator.sh/parent: shared-root}}
    spec: {min: {nvidia.com/gpu: 3}, max: {nvidia.com/gpu: 8}}
  - apiVersion: scheduling.sigs.k8s.io/v1alpha1
    kind: ElasticQuota
    metadata: {namespace: search, name: search, labels: {quota.scheduling.koordinator.sh/parent: shared-root}}
    spec: {min: {nvidia.com/gpu: 4}, max: {nvidia.com/gpu: 8}}
---
apiVersion: tensor-fusion.ai/v1
kind: GPUResourceQuota
metadata: {namespace: chat, name: quota}
spec:
  total:
    requests: {tflops: "500", vram: 64Gi}
    limits: {tflops: "900", vram: 96Gi}
    maxWorkers: 8
    alertThresholdPercent: 80
  single: {maxRequests: {tflops: "200", vram: 32Gi}}
---
apiVersion: bursar.dev/v1alpha1
kind: QuotaTree
metadata: {name: lab}
spec:
  resourceNames: [nvidia.com/gpu]
  nodes:
    lab: {quota: {nvidia.com/gpu: 8}, hard: true}
    theory: {parent: lab, quota: {nvidia.com/gpu: 3}}
    applied: {parent: lab, quota: {nvidia.com/gpu: 5}}
    agents: {parent: applied, quota: {nvidia.com/gpu: 2}}
    safety: {parent: applied, quota: {nvidia.com/gpu: 3}}
"""

# A corner that is kept for whoever looks: nobody else comes here, so that what helps the pod always helps.
YOURS = """
apiVersion: v1
kind: List
items:
  - {apiVersion: v1, kind: Node, metadata: {name: yours-1, labels: {pool: yours}}, status: {allocatable: {cpu: 32, memory: 128Gi, nvidia.com/gpu: 4}}}
  - {apiVersion: n8s.nebuly.ai/v1alpha1, kind: ElasticQuota, metadata: {namespace: you, name: quota}, spec: {min: {nvidia.com/gpu: 2}, max: {nvidia.com/gpu: 2}}}
  - apiVersion: v1
    kind: Pod
    metadata: {namespace: you, name: first, annotations: {sim.bursar.dev/runs-for: 15m}}
    spec: {nodeSelector: {pool: yours}, containers: [{name: main, resources: {limits: {nvidia.com/gpu: 3}}}]}
"""


LOG = logging.getLogger("bursar.server")
SEED = 7
BEAT_SECONDS = 2.0
ENDED_KEPT = 40
FIRST_POD = "you/first"  # a pod that waits from the start: it asks for more than its team may have
WARM_UP = 10  # beats before anybody looks
WAITING_MOST = 5  # of a team: who has so many in the queue submits no more
_CYCLE = 30  # beats in which the teams take turns at being busy


@dataclass(frozen=True, slots=True)
class Team:
    """Who asks for what: ``busy`` are the beats of a cycle in which it submits much."""

    namespace: str
    pool: str
    job: str
    sizes: tuple[int, ...]
    busy: range
    labels: tuple[tuple[str, str], ...] = ()


TEAMS = (
    Team("vision", "train", "train", (1, 2, 4), range(15)),
    Team("speech", "train", "asr", (1, 2), range(5, 20)),
    Team("robotics", "train", "policy", (2, 4), range(18, 28)),
    Team("ads", "shared", "rank", (1, 2), range(14)),
    Team("search", "shared", "index", (1, 2), range(12, 26)),
    Team("lab", "lab", "theory", (1, 2), range(20), (("quota.bursar.dev/lab", "theory"),)),
    Team("lab", "lab", "safety", (1, 3), range(16, 30), (("quota.bursar.dev/lab", "safety"),)),
    Team("lab", "lab", "agents", (1, 2), range(10, 20), (("quota.bursar.dev/lab", "agents"),)),
)


def organisation() -> list[Document]:
    return load_text(ORGANISATION, "demo.yaml")


def beats(first_number: int = 1, seed: int = SEED) -> Iterator[list[Document]]:
    """For ever: the pods that come at each beat. The same seed gives the same beats."""
    random = Random(seed)  # noqa: S311 a play, not a secret
    number = first_number
    beat = 0
    while True:
        found: list[dict[str, Any]] = []
        for team in TEAMS:
            if random.randrange(100) < (30 if beat % _CYCLE in team.busy else 3):
                found.append(_gpu_pod(team, number, random))
                number += 1
        if random.randrange(100) < 40:
            found.append(_worker(number, random))
            number += 1
        if random.randrange(100) < 35:
            found.append(_cpu_pod(number, random))
            number += 1
        yield [Document("demo", index, body) for index, body in enumerate(found, 1)]
        beat += 1


def _gpu_pod(team: Team, number: int, random: Random) -> dict[str, Any]:
    gpus = random.choice(team.sizes)
    spec: dict[str, Any] = {
        "nodeSelector": {"pool": team.pool},
        "containers": [{"name": "main", "resources": {"limits": {"cpu": 2 * gpus, "nvidia.com/gpu": gpus}}}],
    }
    if random.randrange(12) == 0:
        spec["priorityClassName"] = "urgent"
    return _pod(team.namespace, f"{team.job}-{number}", spec, random.randrange(25, 90), dict(team.labels))


def _worker(number: int, random: Random) -> dict[str, Any]:
    tflops, vram = random.choice(((60, 8), (90, 12), (150, 16), (250, 40)))  # the last one is more than one may have
    marks = {
        "tensor-fusion.ai/tflops-request": str(tflops),
        "tensor-fusion.ai/vram-request": f"{vram}Gi",
        "tensor-fusion.ai/tflops-limit": str(2 * tflops),
        "tensor-fusion.ai/vram-limit": f"{vram}Gi",
    }
    pod = _pod("chat", f"llm-{number}", {"containers": [{"name": "main"}]}, random.randrange(30, 80), {})
    pod["metadata"]["annotations"].update(marks)
    return pod


def _cpu_pod(number: int, random: Random) -> dict[str, Any]:
    cpu = random.choice((4, 8))
    spec = {"containers": [{"name": "main", "resources": {"limits": {"cpu": cpu, "memory": "8Gi"}}}]}
    return _pod("etl", f"load-{number}", spec, random.randrange(30, 90), {})


def _pod(namespace: str, name: str, spec: dict[str, Any], seconds: int, labels: dict[str, str]) -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name, "labels": labels, "annotations": {RUNS_FOR: f"{seconds}s"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def tidy(service: Service) -> None:
    """Clear away pods that have ended, and those that can never run, beyond the last few."""
    with service.lock:
        cluster = service.cluster
        found = [(pod.uid, pod) for key in cluster.pods() if (pod := cluster.doing(key)) is not None]
        ended = sorted((_age(uid), pod.key) for uid, pod in found if pod.phase in ENDED)
        hopeless = sorted(
            (_age(uid), pod.key) for uid, pod in found if cluster.controller.reason(uid)[0].startswith("single.")
        )
        gone = [key for _, key in ended[:-ENDED_KEPT]] + [key for _, key in hopeless[:-2]]
    if gone:
        service.delete([f"Pod/{key}" for key in gone])


def _age(uid: str) -> int:
    return int(uid.rpartition("#")[2])


class Demo:
    """Applies the organisation, then a beat every few seconds, in a thread."""

    def __init__(self, service: Service, beat_seconds: float = BEAT_SECONDS) -> None:
        self._service = service
        self._pause = beat_seconds
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="bursar-demo", daemon=True)

    def start(self) -> None:
        """The organisation is there when this returns; one that is there already is left as it is."""
        if not self._service.cluster.objects.count():
            self._service.apply([*organisation(), *load_text(YOURS, "demo.yaml")])
        self._beats = beats(self._service.cluster.objects.uids + 1)
        for _ in range(WARM_UP):
            self._beat()
        self._thread.start()

    def _beat(self) -> None:
        """The pods that come now; not those whose name is taken since before a restart: they would be changes."""
        with self._service.lock:
            cluster = self._service.cluster
            waiting = Counter(claim.namespace for claim in cluster.controller.queue.waiting())
            coming = [(pod.body["metadata"]["namespace"], pod) for pod in next(self._beats)]
            pods = [
                pod
                for namespace, pod in coming
                if waiting[namespace] < WAITING_MOST
                and cluster.doing(f"{namespace}/{pod.body['metadata']['name']}") is None
            ]
        if pods:
            self._service.apply(pods)

    def _run(self) -> None:
        while not self._stopped.wait(self._pause):
            try:
                self._beat()
                tidy(self._service)
            except StoppedError:
                return
            except Exception:
                LOG.exception("the demo stopped")
                return

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
