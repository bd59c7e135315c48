"""Ten thousand quotas as siblings, and applies to an embedded cluster that has as many.

Every figure is of single calls in the order in which they were made; the first after the load is one of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from bursar.engine.engine import Engine
from bursar.ledger.claims import Claim, ClaimSpec
from bursar.objects.manifests import Document
from bursar.policies.pools.configure import NODE, QUOTA
from bursar.policies.pools.node_pools import PoolNode
from bursar.policies.pools.policy import PoolsPolicy
from bursar.policies.pools.settings import PREFIX, QUOTA_OF_POD, ROOT, PoolQuotaBody, QuotaObject
from bursar.policies.results import Setting
from bursar.resources import from_amounts
from bursar.sim.cluster import Cluster

_GI = 2**30
_CALLS = 40
_CHILDREN = 100
Manifest = dict[str, Any]


def _timed(calls: Iterable[Callable[[], object]]) -> dict[str, float]:
    """Processor time of each call in seconds: the first, the median and the longest."""
    found: list[float] = []
    for call in calls:
        started = time.process_time()
        call()
        found.append(time.process_time() - started)
    return {"first": found[0], "median": median(found), "longest": max(found)}


# Siblings


class Level:
    """Quotas under one root, with a min of 2 cores and a max of 20. Each asks for 1 to 11 cores."""

    def __init__(self, quotas: int, cores: int) -> None:
        self.engine = Engine([PoolsPolicy()])
        self.quotas = quotas
        self.count = 0
        settings = [Setting(NODE, "n", PoolNode({"cpu": cores * 1000, "memory": cores * 4 * _GI}, {}))]
        maximum, minimum = {"cpu": 20_000, "memory": 80 * _GI}, {"cpu": 2000, "memory": 8 * _GI}
        for number in range(quotas):
            quota = PoolQuotaBody(self.name(number), "q", ROOT, "", False, True, maximum, minimum)
            settings.append(Setting(QUOTA, f"q/{quota.name}", QuotaObject(quota)))
        self.engine.configure(settings, 0)

    def name(self, number: int) -> str:
        return f"t{number:05}"

    def claim(self, quota: int, cores: int) -> Claim:
        self.count += 1
        requests = from_amounts({"cpu": cores * 1000, "memory": cores * 4 * _GI})
        spec = ClaimSpec(requests, labels={QUOTA_OF_POD: self.name(quota)}, preempts=False)
        return Claim(f"c{self.count}", spec, self.count, "ns", f"p{self.count}")

    def load(self) -> None:
        """Every quota but one in ten asks: one pod of 1 core runs, another waits."""
        for number in range(self.quotas):
            if number % 10:
                running = self.claim(number, 1)
                self.engine.submit(running, 0)
                self.engine.place(running.uid, "n", 0, forced=True)
                if number * 7 % 11:
                    self.engine.submit(self.claim(number, number * 7 % 11), 0)

    def deciding(self, quotas: Iterable[int], cores: int, admitted: bool) -> Iterable[Callable[[], object]]:
        for number in quotas:
            claim = self.claim(number, cores)
            yield lambda claim=claim: self.engine.decide(claim, 0)  # type: ignore[misc]
            if (claim.decision is not None and claim.state > 0) != admitted:
                raise RuntimeError(f"the claim of {number} was to be {'admitted' if admitted else 'refused'}")


def siblings(quotas: int) -> dict[str, float]:
    """Seconds for a decision, by situation."""
    found: dict[str, float] = {}
    idle = range(0, quotas, quotas // _CALLS)
    busy = [number + 4 for number in idle]  # asks for 1 + 6 cores and more
    plenty = Level(quotas, quotas * 20)
    plenty.load()
    _note(found, "plenty", _timed(plenty.deciding(idle, 1, True)))
    scarce = Level(quotas, quotas * 3)
    scarce.load()
    _note(found, "over", _timed(scarce.deciding(busy, 8, False)))
    _note(found, "within", _timed(scarce.deciding(idle, 1, True)))
    _note(found, "borrow", _timed(scarce.deciding([n for n in idle if n], 2, True)))
    return found


def _note(found: dict[str, float], name: str, figures: dict[str, float]) -> None:
    found.update({f"{name}-{figure}": value for figure, value in figures.items()})


# Applies


def applies(quotas: int, pods: int) -> dict[str, float]:
    """Seconds for one pod and one quota applied to an embedded cluster with that many quotas, parents of a hundred."""
    cluster = Cluster()
    names: list[str] = []
    bodies = [_node(number) for number in range(pods // 20 + 1)]
    for department in range(quotas // (_CHILDREN + 1)):
        bodies.append(_quota(f"d{department:03}", "", _CHILDREN * 10))
        for team in range(_CHILDREN):
            names.append(f"d{department:03}-t{team:03}")
            bodies.append(_quota(names[-1], f"d{department:03}", 10))
    cluster.apply(_documents(bodies))
    cluster.apply(_documents([_pod(f"old-{n}", names[n * 37 % len(names)]) for n in range(pods)]))
    found: dict[str, float] = {}
    calls = [_documents([_pod(f"new-{n}", names[n * 61 % len(names)])]) for n in range(_CALLS)]
    _note(found, "pod", _timed([lambda one=one: cluster.apply(one) for one in calls]))  # type: ignore[misc]
    calls = [_documents([_quota(f"x{n}", f"d{n % 7:03}", 10)]) for n in range(_CALLS)]
    _note(found, "quota", _timed([lambda one=one: cluster.apply(one) for one in calls]))  # type: ignore[misc]
    calls = [_documents([_quota(f"x{n}", f"d{n % 7:03}", 12)]) for n in range(_CALLS)]
    _note(found, "change", _timed([lambda one=one: cluster.apply(one) for one in calls]))  # type: ignore[misc]
    return found


def _documents(bodies: list[Manifest]) -> list[Document]:
    return [Document("benchmark", number, body) for number, body in enumerate(bodies, 1)]


def _node(number: int) -> Manifest:
    allocatable = {"cpu": 64, "memory": "512Gi", "pods": 250}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"n{number}"},
        "status": {"allocatable": allocatable},
    }


def _quota(name: str, parent: str, cores: int) -> Manifest:
    labels = {f"{PREFIX}parent": parent} if parent else {f"{PREFIX}is-parent": "true"}
    maximum = {"cpu": cores, "memory": f"{cores * 4}Gi"}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"namespace": "q", "name": name, "labels": labels},
        "spec": {"max": maximum},
    }


def _pod(name: str, quota: str) -> Manifest:
    container = {"name": "main", "resources": {"requests": {"cpu": 1, "memory": "4Gi"}}}
    metadata = {"namespace": "w", "name": name, "labels": {QUOTA_OF_POD: quota}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
