"""Figures of a run, from its events: use, waiting, evictions, lost work, fairness, for all jobs and by tenant.

Waiting is all the time that a job spends in the queue: until it starts, and again after each eviction. A job that
never starts waits until the last event, so its wait is a lower bound. Lost work is what an evicted job had run and
runs again.

Fairness is Jain's index over the tenants: of the GPU-hours that a tenant's jobs ran or waited, the part that ran. It is
1 when all tenants are served alike, and 1/n when one of n tenants gets everything.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bursar.simulate.cluster import ARRIVED, EVICTED, STARTED
from bursar.simulate.demand import HOUR, MILLI
from bursar.simulate.run import Run

_GPU_HOUR = HOUR * MILLI


@dataclass(slots=True)
class TenantFigures:
    """What became of the jobs of a tenant, or of a class of jobs, or of all."""

    name: str
    jobs: int = 0
    started: int = 0
    finished: int = 0
    evictions: int = 0
    used: float = 0.0  # GPU-hours, lost work included
    waited: float = 0.0  # GPU-hours
    lost: float = 0.0  # GPU-hours
    waits: list[int] = field(default_factory=list)  # milliseconds, sorted; of every job

    @property
    def mean_wait(self) -> float:
        return sum(self.waits) / len(self.waits) if self.waits else 0.0

    def wait(self, percent: int) -> int:
        """The wait that so many percent of the jobs do not exceed: the nearest rank."""
        return self.waits[max(0, -(-len(self.waits) * percent // 100) - 1)] if self.waits else 0

    @property
    def served(self) -> float:
        """Of the GPU-hours that its jobs ran or waited, the part that ran."""
        whole = self.used + self.waited
        return self.used / whole if whole else 1.0


@dataclass(slots=True)
class Figures:
    """What a run comes to."""

    name: str
    total: TenantFigures
    tenants: list[TenantFigures]
    use: float  # the mean part of the GPUs that jobs had, from the first arrival to the last
    stranded: float  # the mean part of the free GPUs that a pod of this demand cannot use
    jain: float
    span: int  # milliseconds from the first event to the last
    decisions: int
    seconds: float
    allocated: float  # GPUs in use at the end
    waiting: Mapping[str, int]
    explained: Mapping[str, int]

    @property
    def rate(self) -> float:
        """Decisions a second of processor time."""
        return self.decisions / self.seconds if self.seconds else 0.0


class _JobState:
    """Where a job is while its events are added up."""

    __slots__ = ("running", "since", "started", "waited")

    def __init__(self, since: int) -> None:
        self.since = since
        self.running = False
        self.started = False
        self.waited = 0


def figures_of(run: Run) -> Figures:
    demand = run.demand
    total = TenantFigures("all")
    tenants = {name: TenantFigures(name) for name in demand.tenants}
    end = run.events[-1][0] if run.events else 0
    jobs: dict[int, _JobState] = {}
    allocated = 0
    for at, what, position in run.events:
        job = demand.jobs[position]
        gpus = demand.gpus(job)
        if what == ARRIVED:
            jobs[position] = _JobState(at)
            continue
        state = jobs[position]
        for one in (total, tenants[job.tenant]):
            _count(one, what, at - state.since, gpus, first=not state.started)
        if what == STARTED:
            state.waited += at - state.since
            state.started = True
        allocated += gpus if what == STARTED else -gpus
        state.since, state.running = at, what == STARTED
        if what not in {STARTED, EVICTED}:
            _close(jobs.pop(position), (total, tenants[job.tenant]))
    for position, state in jobs.items():
        job = demand.jobs[position]
        both = (total, tenants[job.tenant])
        _go_on(state, both, end, demand.gpus(job))
        _close(state, both)
    for one in (total, *tenants.values()):
        one.jobs = len(one.waits)
        one.waits.sort()
    return _summed(run, total, list(tenants.values()), end, allocated)


def _count(one: TenantFigures, what: int, passed: int, gpus: int, *, first: bool) -> None:
    """Add an event: so much time has passed since the last one of the job."""
    hours = passed * gpus / _GPU_HOUR
    if what == STARTED:
        one.waited += hours
        one.started += first
        return
    one.used += hours
    if what == EVICTED:
        one.evictions += 1
        one.lost += hours
    else:
        one.finished += 1


def _go_on(state: _JobState, both: Iterable[TenantFigures], end: int, gpus: int) -> None:
    """A job that is not over at the end runs or waits until then."""
    passed = end - state.since
    if not state.running:
        state.waited += passed
    for one in both:
        if state.running:
            one.used += passed * gpus / _GPU_HOUR
        else:
            one.waited += passed * gpus / _GPU_HOUR


def _close(state: _JobState, both: Iterable[TenantFigures]) -> None:
    for one in both:
        one.waits.append(state.waited)


def _summed(run: Run, total: TenantFigures, tenants: list[TenantFigures], end: int, allocated: int) -> Figures:
    begin = run.events[0][0] if run.events else 0
    if run.resumes:
        for one in (total, *tenants):
            one.lost = 0.0
    return Figures(
        run.quotas.name,
        total,
        tenants,
        mean_use(run),
        sum(one.stranded for one in run.samples) / len(run.samples) if run.samples else 0.0,
        jain([one.served for one in tenants]),
        end - begin,
        run.decisions,
        run.seconds,
        allocated / MILLI,
        run.waiting,
        dict(run.explained),
    )


def jain(values: Sequence[float]) -> float:
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


# Over time


def mean_use(run: Run) -> float:
    """While jobs arrive: afterwards any cluster runs empty."""
    if not run.demand.capacity or not run.demand.jobs:
        return 0.0
    first, last = run.demand.jobs[0].arrives, run.demand.jobs[-1].arrives
    series = use_over_time(run, [first, max(last, first + 1)])
    return series["all"][0] / run.demand.capacity


def use_over_time(run: Run, edges: Sequence[int]) -> dict[str, list[float]]:
    """The mean use between each two edges, in thousandths of a GPU: of each tenant, and of all."""
    return _means(_changes(run, waiting=False), edges)


def queue_over_time(run: Run, edges: Sequence[int]) -> dict[str, list[float]]:
    """The same of the GPUs that waiting jobs ask for."""
    return _means(_changes(run, waiting=True), edges)


def _changes(run: Run, *, waiting: bool) -> dict[str, list[tuple[int, int]]]:
    """(time, change) of each tenant, by time."""
    found: dict[str, list[tuple[int, int]]] = {"all": []}
    for at, what, position in run.events:
        job = run.demand.jobs[position]
        gpus = run.demand.gpus(job)
        if waiting and what in {ARRIVED, EVICTED}:
            change = gpus
        elif waiting and what == STARTED:
            change = -gpus
        elif not waiting and what != ARRIVED:
            change = gpus if what == STARTED else -gpus
        else:
            continue
        found["all"].append((at, change))
        found.setdefault(job.tenant, []).append((at, change))
    return found


def _means(changes: Mapping[str, list[tuple[int, int]]], edges: Sequence[int]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for name, steps in changes.items():
        times, areas, levels = [0], [0], [0]
        for at, change in steps:
            areas.append(areas[-1] + levels[-1] * (at - times[-1]))
            times.append(at)
            levels.append(levels[-1] + change)
        sums = [_area(times, areas, levels, edge) for edge in edges]
        found[name] = [
            (sums[i + 1] - sums[i]) / (edges[i + 1] - edges[i]) if edges[i + 1] > edges[i] else 0.0
            for i in range(len(edges) - 1)
        ]
    return found


def _area(times: Sequence[int], areas: Sequence[int], levels: Sequence[int], edge: int) -> int:
    """The sum up to that moment."""
    at = bisect_right(times, edge) - 1
    return areas[at] + levels[at] * (edge - times[at]) if at >= 0 else 0
