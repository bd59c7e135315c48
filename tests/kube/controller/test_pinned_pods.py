"""Pods that were let go and find no node: how long they may look for one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import msgspec

from bursar.kube.controller.patches import AdmissionRecord
from bursar.kube.controller.pod_model import SeenPod, read_pod
from bursar.kube.controller.pod_sync import PodSync, TrackedPod
from bursar.kube.controller.pod_writer import PinWatch

PATIENCE = 60_000


def seen(reason: str) -> SeenPod:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason}
    body = {"metadata": {"name": "p", "namespace": "a", "uid": "u"}, "status": {"conditions": [condition]}}
    return read_pod(msgspec.json.encode(body))


def test_only_the_time_counts_in_which_the_scheduler_finds_no_node() -> None:
    """Not the time in which it does not get to the pod, or another gate keeps it from it."""
    tracked = TrackedPod(seen("SchedulingGated"), None, governed=True, record=AdmissionRecord(1, 0, "n", pinned=True))
    now = 0
    pods = SimpleNamespace(unbound={"u": tracked})
    watch = PinWatch(cast("PodSync", pods), lambda: now, PATIENCE)
    assert list(watch.lost()) == []
    now += 2 * PATIENCE
    tracked.seen = seen("Unschedulable")
    assert list(watch.lost()) == [], "it was tried a moment ago"
    now += PATIENCE - 1
    assert list(watch.lost()) == []
    now += 1
    assert [one for one, _ in watch.lost()] == [tracked]
    pods.unbound.clear()
    assert list(watch.lost()) == []
    pods.unbound["u"] = tracked
    assert list(watch.lost()) == [], "it was somewhere meanwhile"
