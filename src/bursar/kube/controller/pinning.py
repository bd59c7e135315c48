"""Pods that were let go and find no node: a pin that cannot be honoured, or GPU nodes that were the only ones left.

The scheduler says so in the pod's condition. When that has lasted for a while, the pod gives its place back: it is
evicted, for its owner to create anew, and the new one is decided over by what the cluster looks like then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bursar.kube.controller.pods import PodIntake, Sight

PATIENCE = 60_000  # milliseconds
UNPLACED = "control.place-lost"


class PinWatch:
    """Finds pods whose place turned out to be none."""

    def __init__(self, pods: PodIntake, now: Callable[[], int], patience: int = PATIENCE) -> None:
        self._pods = pods
        self._now = now
        self._patience = patience

    def lost(self) -> Iterator[tuple[Sight, str]]:
        """Pods to be taken back, with why."""
        now = self._now()
        for sight in list(self._pods.unbound.values()):
            record = sight.record
            pod = sight.seen
            if record is None or pod.leaving or not pod.unschedulable:
                continue
            if now - sight.let_go < self._patience:
                continue
            if record.pinned:
                yield sight, f"the scheduler cannot place it on {record.place}, which was chosen for it"
            elif record.fenced:
                yield sight, "the scheduler finds no place for it outside the GPU nodes"
