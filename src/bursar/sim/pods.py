"""The pods of the embedded cluster: what each is doing, and the annotations that say how long it does it."""

from __future__ import annotations

from dataclasses import dataclass

from bursar.objects.core import Pod
from bursar.objects.durations import duration_ms
from bursar.objects.errors import ManifestError

RUNS_FOR = "sim.bursar.dev/runs-for"
LEAVES_AFTER = "sim.bursar.dev/leaves-after"
_PREFIX = "sim.bursar.dev/"

PENDING = "Pending"
RUNNING = "Running"
TERMINATING = "Terminating"  # told to leave, and still there
SUCCEEDED = "Succeeded"
EVICTED = "Evicted"
PHASES = (PENDING, RUNNING, TERMINATING, SUCCEEDED, EVICTED)
ENDED = (SUCCEEDED, EVICTED)


@dataclass(slots=True)
class SimPod:
    """One pod, from its creation until it is deleted; its uid is its own."""

    uid: str
    key: str
    runs_for: int | None  # milliseconds; None: until it is deleted or finished
    leaves_after: int
    phase: str = PENDING
    node: str = ""
    reason: str = ""  # why it was evicted
    message: str = ""
    evicted: bool = False
    deleted: bool = False
    due: int | None = None  # when it ends (running) or has left (terminating) by itself
    order: int = 0  # of its timer among those of the same time


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod as scenario files see it."""

    key: str
    phase: str
    node: str
    reason: str
    message: str
    labels: dict[str, str]
    annotations: dict[str, str]


def pod_times(pod: Pod) -> tuple[int | None, int]:
    """(how long it runs, how long it takes to leave), in milliseconds; bad annotations are errors."""
    marks = pod.metadata.annotations
    for key in marks:
        if key.startswith(_PREFIX) and key not in {RUNS_FOR, LEAVES_AFTER}:
            raise _wrong(pod, key, ManifestError(f"is not known; known are {LEAVES_AFTER} and {RUNS_FOR}"))
    runs_for = _time(pod, RUNS_FOR) if RUNS_FOR in marks else None
    return runs_for, _time(pod, LEAVES_AFTER) if LEAVES_AFTER in marks else 0


def _time(pod: Pod, key: str) -> int:
    try:
        return duration_ms(pod.metadata.annotations[key])
    except ManifestError as error:
        raise _wrong(pod, key, error) from None


def _wrong(pod: Pod, key: str, error: ManifestError) -> ManifestError:
    subject = f"Pod {pod.metadata.namespace}/{pod.metadata.name}"
    return ManifestError(error.problem, f"metadata.annotations.{key}", subject=subject)
