"""The demo: an organisation at work (``demo.yaml``) that shows borrowing, reclaim and refusals to a newcomer.

The pods of each beat are drawn from a seeded generator; only time is not. Pods end by themselves, and those that have
ended are deleted after a while.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from bursar.objects.manifests import Document, load_text
from bursar.server.background import BackgroundThread
from bursar.server.service import Service, StoppedError
from bursar.sim.pods import ENDED, RUNS_FOR

ORGANISATION = Path(__file__).with_name("demo.yaml")
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
    return load_text(ORGANISATION.read_text(encoding="utf-8"), "demo.yaml")


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


class Demo(BackgroundThread):
    """Applies the organisation, then a beat every few seconds. One that is there already is left as it is."""

    def __init__(self, service: Service, beat_seconds: float = BEAT_SECONDS) -> None:
        self._service = service
        self._pause = beat_seconds
        if not service.cluster.objects.count():
            service.apply(organisation())
        self._beats = beats(service.cluster.objects.uids + 1)
        for _ in range(WARM_UP):
            self._beat()
        super().__init__("bursar-demo")

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
        while not self._wake.wait(self._pause):  # which only a stop sets
            try:
                self._beat()
                tidy(self._service)
            except StoppedError:
                return
            except Exception:
                LOG.exception("the demo stopped")
                return
