"""Fixes for pods of the embedded cluster that wait: the cluster as the desk of the search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bursar.control.admission import ObjectChange
from bursar.control.suggestions.search import EFFORT, Found, find_fixes
from bursar.objects.manifests import Document
from bursar.sim.cluster import Cluster
from bursar.sim.pods import RUNNING


class ClusterDesk:
    """What the search wants to know of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ends = {
            pod.uid: pod.due
            for pod in map(cluster.doing, cluster.pods())
            if pod is not None and pod.phase == RUNNING and pod.due is not None
        }

    def now(self) -> int:
        return self._cluster.now()

    def get(self, kind: str, key: str) -> dict[str, Any] | None:
        found = self._cluster.objects.find(kind, key)
        return None if found is None else found.body

    def staged(self, documents: Sequence[Document], without: Iterable[str]) -> list[ObjectChange]:
        return self._cluster.staged(documents, without)

    def list(self, kind: str, namespace: str | None = None) -> Iterator[dict[str, Any]]:
        return (found.body for found in self._cluster.objects.all(kind, namespace))

    def ends(self, uid: str) -> int | None:
        return self._ends.get(uid)


def fixes_for(cluster: Cluster, uid: str, effort: int = EFFORT) -> Found:
    """The fixes for a claim that waits. Whoever calls holds the cluster's lock."""
    controller = cluster.controller
    return find_fixes(cluster.engine, cluster.registry, controller.queue, ClusterDesk(cluster), uid, effort)
