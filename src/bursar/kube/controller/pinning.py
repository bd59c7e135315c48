"""Pods that were let go and find no node: a pin that cannot be honoured, or GPU nodes that were the only ones left.

The scheduler says so in the pod's condition. When that has lasted for a while, the pod gives its place back: it is
evicted, for its owner to create anew, and the new one is decided over by what the cluster looks like then. However long
the scheduler did not get to it before is no part of that while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bursar.kube.controller.pods import PodIntake
from bursar.kube.controller.sight import Sight

PATIENCE = 60_000  # milliseconds
UNPLACED = "control.place-lost"


class PinWatch:
    """Finds pods whose place turned out to be none."""

    def __init__(self, pods: PodIntake, now: Callable[[], int], patience: int = PATIENCE) -> None:
        self._pods = pods
        self._now = now
        self._patience = patience
        self._since: dict[str, int] = {}  # by uid: when the scheduler was first seen to find no node

    def lost(self) -> Iterator[tuple[Sight, str]]:
        """Pods to be taken back, with why. To be asked now and then: what was seen the last time is remembered."""
        now = self._now()
        unplaced = [sight for sight in self._pods.unbound.values() if sight.seen.unschedulable]
        self._since = {sight.uid: self._since.get(sight.uid, now) for sight in unplaced}
        for sight in unplaced:
            record = sight.record
            if record is None or sight.seen.leaving or now - self._since[sight.uid] < self._patience:
                continue
            if record.pinned:
                yield sight, f"the scheduler cannot place it on {record.place}, which was chosen for it"
            elif record.fenced:
                yield sight, "the scheduler finds no place for it outside the GPU nodes"
