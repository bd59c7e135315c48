"""What jobs really use of their GPUs, and since when they do nothing.

A job is idle on a GPU while every sample shows that it did nothing there. A GPU that did nothing at all proves it for
each of its jobs. Otherwise the driver's figures of the job's own processes count, where it measures processes. A job
that has the GPU for itself is as busy as the GPU. A sample that says nothing ends the idle time: no sample is not idle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from bursar.local.devices.api import GpuProcess, GpuSample, JobDevices, JobOfPid, JobUsage
from bursar.objects.validation import show_duration


class UsageBook:
    """The idle times of jobs, by job and GPU."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], float] = {}

    def update(
        self,
        now: float,
        jobs: Iterable[JobDevices],
        processes: Sequence[GpuProcess],
        samples: Iterable[GpuSample],
        job_of_pid: JobOfPid,
    ) -> list[JobUsage]:
        """What each job uses now; ``now`` never goes back."""
        known = {sample.uuid: sample for sample in samples}
        owners = {one.pid: job_of_pid(one.pid) for one in processes}
        memory: Counter[tuple[str, str]] = Counter()
        for one in processes:
            memory[owners[one.pid], one.uuid] += one.memory
        given = list(jobs)
        tenants = Counter(gpu for job in given for gpu in job.gpus)
        found = [
            self._used(now, job, gpu, memory[job.uid, gpu], _percent(job, known.get(gpu), owners, tenants[gpu] == 1))
            for job in given
            for gpu in job.gpus
        ]
        kept = {(one.uid, one.gpu) for one in found}
        self._since = {key: since for key, since in self._since.items() if key in kept}
        return found

    def _used(self, now: float, job: JobDevices, gpu: str, memory: int, percent: int | None) -> JobUsage:
        key = job.uid, gpu
        if percent == 0:
            self._since.setdefault(key, now)
        else:
            self._since.pop(key, None)
        since = self._since.get(key)
        idle = None if since is None else int(now - since)
        return JobUsage(job.uid, job.key, gpu, job.vram, job.percent or 100, memory, percent, idle)


def _percent(job: JobDevices, sample: GpuSample | None, owners: Mapping[int, str], alone: bool) -> int | None:
    """How busy the GPU was with the job; None: not known."""
    if sample is None or sample.percent is None:
        return None
    if sample.percent == 0:
        return 0
    if sample.measured:
        return min(sum(percent for pid, percent in sample.processes.items() if owners.get(pid) == job.uid), 100)
    return sample.percent if alone else None


class IdleEvictions:
    """Warns jobs over their quota that do nothing, once, and names those whose time is up.

    All GPUs of a job must have been idle. The warning comes when half of the time is over, at most five minutes before
    its end.
    """

    NOTICE = 300.0

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def update(
        self, limit: float, jobs: Iterable[JobDevices], usage: Iterable[JobUsage]
    ) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """(warnings, evictions), each with the uid of its job. A limit of 0 evicts no job."""
        if limit <= 0:
            self._warned.clear()
            return [], []
        idle: dict[str, int | None] = {}
        for one in usage:
            before = idle.get(one.uid, one.idle_seconds)
            idle[one.uid] = None if before is None or one.idle_seconds is None else min(before, one.idle_seconds)
        over = {job.uid for job in jobs if job.over_quota}
        notice = min(limit / 2, self.NOTICE)
        warn: list[tuple[str, str]] = []
        evict: list[tuple[str, str]] = []
        for uid in sorted(over):
            seconds = idle.get(uid)
            if seconds is None or seconds < limit - notice:
                self._warned.discard(uid)
            elif uid not in self._warned:
                self._warned.add(uid)
                end = f"it is over quota, and is evicted after {_span(limit)}"
                warn.append((uid, f"its GPUs did nothing for {_span(seconds)}: {end}"))
            elif seconds >= limit:
                evict.append((uid, f"over quota, and its GPUs did nothing for {_span(seconds)}"))
        self._warned &= over
        return warn, evict


def _span(seconds: float) -> str:
    return show_duration(int(seconds) * 1000)
