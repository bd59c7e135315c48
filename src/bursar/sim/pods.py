"""The pods of the embedded cluster: their life cycle in virtual time, and the events about them.

Time is integer milliseconds that pass only when a caller says so. Whatever the control loop must be notified of is put
into ``PodLife.seen`` until it has finished its current step.

A *real* pod stands for processes on the machine that its annotation names. It ends, or has left after it was evicted or
deleted, only when the agent of that machine reports it (``end``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from msgspec.structs import replace

from bursar.control.controller import Controller
from bursar.engine.decision import Decision
from bursar.ledger.claims import Claim
from bursar.objects.core import Pod
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import POD
from bursar.objects.local_options import EXIT_CODE, MACHINE
from bursar.objects.validation import duration_ms
from bursar.sim.objects import ObjectStore

RUNS_FOR = "sim.bursar.dev/runs-for"
LEAVES_AFTER = "sim.bursar.dev/leaves-after"
_PREFIX = "sim.bursar.dev/"

PENDING = "Pending"
RUNNING = "Running"
TERMINATING = "Terminating"  # told to leave, and still there
SUCCEEDED = "Succeeded"
FAILED = "Failed"
EVICTED = "Evicted"
ENDED = (SUCCEEDED, FAILED, EVICTED)


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
    machine: str = ""  # where its processes are, if it is real


class PodEnd(NamedTuple):
    """How a real pod ended, as the agent of its machine reports it."""

    pod: str
    uid: str
    exit_code: int
    reason: str = ""
    message: str = ""
    again: bool = False  # it is queued once more, as another pod of that name


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


@dataclass(frozen=True, slots=True)
class SimEvent:
    """An event about an object, as in Kubernetes."""

    at: int
    kind: str
    key: str
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Happening:
    """One line of what happened to pods."""

    at: int
    pod: str
    what: str  # started, held, waits, evicted, left, finished, failed
    node: str
    reason: str


class Clock:
    """Timers fire in the order of their time, then in the order in which they were set."""

    def __init__(self, start: int = 0) -> None:
        self.now = start
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._set = 0

    @property
    def next_due(self) -> int | None:
        return self._timers[0][0] if self._timers else None

    def at(self, moment: int, action: Callable[[], None]) -> int:
        """Set a timer; returns its place among those of the same time."""
        self._set += 1
        heappush(self._timers, (moment, self._set, action))
        return self._set

    def skip_to(self, moment: int) -> None:
        """Go to a moment at which all timers that were due by then have fired elsewhere."""
        while self._timers and self._timers[0][0] <= moment:
            heappop(self._timers)
        self.now = moment

    def pass_to(self, moment: int) -> bool:
        """Go to the next timer that is due by then and fire all of that time; False: there is none, and it is then."""
        if not self._timers or self._timers[0][0] > moment:
            self.now = moment
            return False
        self.now = self._timers[0][0]
        while self._timers and self._timers[0][0] <= self.now:
            heappop(self._timers)[2]()
        return True


class PodLife:
    """The pods there are, and what each of them is doing."""

    def __init__(self, store: ObjectStore, clock: Clock, controller: Controller) -> None:
        self.by_key: MutableMapping[str, SimPod] = {}
        self.seen: deque[Callable[[], None]] = deque()
        self.happenings: list[Happening] = []
        self._store = store
        self._clock = clock
        self._controller = controller

    def note(self, pod: Pod, key: str) -> None:
        """A pod was applied: it is new, or has changed."""
        runs_for, leaves_after = pod_times(pod)
        known = self.by_key.get(key)
        if known is not None and known.uid == pod.metadata.uid:
            known.leaves_after = leaves_after
            return
        machine = pod.metadata.annotations.get(MACHINE, "")
        found = SimPod(pod.metadata.uid, key, runs_for, leaves_after, machine=machine)
        self.by_key[key] = found
        self._write_phase(found)

    def follow(self, key: str, found: SimPod | None) -> str:
        """The pod of that key is as another cluster has it; None if it is gone there.

        Returns the uid of the pod that is not there any more, if there is one.
        """
        known = self.by_key.get(key)
        if found is not None and known is not None and known.uid == found.uid:
            timed = found.due != known.due
            for name in SimPod.__slots__:
                setattr(known, name, getattr(found, name))
            self._follow_timer(known if timed else None)
            return ""
        if known is not None:
            known.due = None  # its timers mean nothing any more
            del self.by_key[key]
        if found is not None:
            self.by_key[key] = found
            self._follow_timer(found)
        return "" if known is None else known.uid

    def _follow_timer(self, pod: SimPod | None) -> None:
        if pod is not None and pod.due is not None:
            self.set_timer(pod, pod.due - self._clock.now)

    def _pod_of(self, claim: Claim) -> SimPod | None:
        """The pod that makes the claim, unless another one has its name by now."""
        pod = self.by_key.get(claim.key)
        return pod if pod is not None and pod.uid == claim.uid else None

    def start(self, claim: Claim) -> None:
        pod = self._pod_of(claim)
        if pod is None or pod.phase != PENDING:
            return
        pod.phase = RUNNING
        pod.node = claim.place
        self._write_phase(pod)
        self._happened(pod, "started")
        self.seen.append(lambda: self._controller.running(pod.uid))
        if pod.runs_for is not None and not pod.machine:
            self.set_timer(pod, pod.runs_for)

    def evict(self, claim: Claim, decision: Decision) -> None:
        pod = self._pod_of(claim)
        if pod is None or pod.phase in ENDED or pod.evicted:
            return
        pod.evicted = True
        pod.reason = decision.reason
        pod.message = decision.sentence()
        self._store.touch(POD.name, pod.key)
        by = f" by {decision.by}" if decision.by else ""
        self._happened(pod, "evicted", f"{decision.reason}{by}")
        if pod.phase != TERMINATING:
            self._leave(pod)

    def delete(self, pod: SimPod) -> None:
        pod.deleted = True
        self._store.touch(POD.name, pod.key)
        if pod.phase == RUNNING:
            self._leave(pod)
        elif pod.phase != TERMINATING:
            self._has_left(pod)

    def _leave(self, pod: SimPod) -> None:
        """The pod terminates, at once or after its grace period, or when its machine reports it."""
        real = bool(pod.machine) and pod.phase == RUNNING
        if pod.leaves_after == 0 and not real:
            self._has_left(pod)
            return
        pod.phase = TERMINATING
        self._write_phase(pod)
        if not real:
            self.set_timer(pod, pod.leaves_after)
        self.seen.append(lambda: self._controller.terminating(pod.uid))

    def _has_left(self, pod: SimPod) -> None:
        if pod.phase == TERMINATING:
            self._happened(pod, "left")
        if pod.phase not in ENDED:
            self.seen.append(lambda: self._controller.gone(pod.uid))
        if pod.evicted and pod.phase not in ENDED:
            pod.phase = EVICTED
            self._write_phase(pod)
        if pod.deleted:
            self._store.remove(POD.name, pod.key)
            del self.by_key[pod.key]

    def succeed(self, pod: SimPod) -> None:
        self._finish(pod, SUCCEEDED, "finished")

    def _finish(self, pod: SimPod, phase: str, what: str) -> None:
        pod.phase = phase
        pod.due = None
        self._write_phase(pod)
        self._happened(pod, what, pod.reason)
        self.seen.append(lambda: self._controller.gone(pod.uid))

    def end(self, pod: SimPod, report: PodEnd) -> None:
        """The processes of a real pod that runs or terminates are gone."""
        stored = self._store.find(POD.name, pod.key)
        if stored is not None:
            self._store.write(stored.with_written("annotations", {EXIT_CODE: str(report.exit_code)}))
        if pod.phase == TERMINATING:
            self._has_left(pod)
            return
        pod.reason, pod.message = report.reason, report.message
        if report.exit_code == 0 and not report.reason:
            self._finish(pod, SUCCEEDED, "finished")
        else:
            self._finish(pod, FAILED, "failed")

    def set_timer(self, pod: SimPod, delay: int) -> None:
        pod.due = self._clock.now + delay
        pod.order = self._clock.at(pod.due, lambda: self._time_is_up(pod))

    def _time_is_up(self, pod: SimPod) -> None:
        """A pod that was evicted while it ran has two timers; only the one set last counts."""
        if pod.due != self._clock.now:
            return
        pod.due = None
        if pod.phase == RUNNING:
            self.succeed(pod)
        elif pod.phase == TERMINATING:
            self._has_left(pod)

    def running(self, key: str) -> SimPod:
        pod = self.by_key.get(key)
        if pod is None:
            raise ManifestError("does not exist", subject=f"Pod {key}")
        if pod.phase != RUNNING:
            raise ManifestError(f"is {pod.phase}: only a running pod can finish", subject=f"Pod {key}")
        if pod.machine:
            problem = f"runs on machine {pod.machine}, whose agent reports its end; `bursar stop` ends it"
            raise ManifestError(problem, subject=f"Pod {key}")
        return pod

    def _write_phase(self, pod: SimPod) -> None:
        stored = self._store.find(POD.name, pod.key)
        if stored is not None and stored.uid == pod.uid:
            status = {"phase": pod.phase, "reason": pod.reason or None, "message": pod.message or None}
            leaves_since = self._clock.now if pod.phase == TERMINATING else None
            placed = replace(stored, node=pod.node, leaves_since=leaves_since)
            self._store.write(placed.with_written("status", status))

    def _happened(self, pod: SimPod, what: str, reason: str = "") -> None:
        self.happenings.append(Happening(self._clock.now, pod.key, what, pod.node, reason))
