"""The newest report of each machine about the use of its GPUs.

Reports come from the agent in this process, and from those of other machines. They are kept in memory only: after a
restart each machine reports again within seconds. How old a report is says whether its machine is still there.

What the driver does not measure has no series in the metrics, which is not zero.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

from bursar.local.usage import MachineUse
from bursar.server.types import MachineRow


class MachineBoard:
    """Safe to use in any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._reports: dict[str, tuple[float, MachineUse]] = {}

    def report(self, use: MachineUse) -> None:
        with self._lock:
            self._reports[use.machine] = self._clock(), use

    def forget(self, machine: str) -> None:
        with self._lock:
            self._reports.pop(machine, None)

    def rows(self) -> list[MachineRow]:
        """By name."""
        with self._lock:
            known = sorted(self._reports.items())
            now = self._clock()
        return [
            MachineRow(machine=name, age=int(now - at), idle_after=use.idle_after, gpus=use.gpus)
            for name, (at, use) in known
        ]


Labelled = dict[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class MachineFigure:
    """One metric: its values by those of its labels."""

    name: str
    about: str
    labels: tuple[str, ...]
    values: Labelled


def machine_figures(rows: Sequence[MachineRow]) -> Iterator[MachineFigure]:
    """The metrics of what was reported: of machines, of GPUs, of jobs on them."""
    gpus = [(row.machine, gpu) for row in rows for gpu in row.gpus]
    jobs = [(machine, gpu.gpu, job) for machine, gpu in gpus for job in gpu.jobs]
    card, job_labels = ("machine", "gpu"), ("machine", "gpu", "job", "user")
    ages: Labelled = {(row.machine,): row.age for row in rows}
    yield MachineFigure("bursar_machine_report_age_seconds", "Since a machine reported.", ("machine",), ages)

    out: Labelled = {(machine, gpu.gpu): bool(gpu.out) for machine, gpu in gpus}
    yield MachineFigure("bursar_gpu_out_of_service", "1 while a GPU is not handed out.", card, out)
    strays: Labelled = {(machine, gpu.gpu): len(gpu.strays) for machine, gpu in gpus}
    yield MachineFigure("bursar_gpu_stray_processes", "Compute processes without a job.", card, strays)
    busy: Labelled = {(machine, gpu.gpu): gpu.percent / 100 for machine, gpu in gpus if gpu.percent is not None}
    yield MachineFigure("bursar_gpu_busy_ratio", "How busy a GPU was lately.", card, busy)

    booked: Labelled = {(*at, job.job, job.user): job.booked_memory for *at, job in jobs}
    yield MachineFigure("bursar_job_gpu_memory_booked_bytes", "What a job booked of a GPU.", job_labels, booked)
    used: Labelled = {(*at, job.job, job.user): job.used_memory for *at, job in jobs}
    yield MachineFigure("bursar_job_gpu_memory_used_bytes", "What a job uses of a GPU.", job_labels, used)
    idle: Labelled = {(*at, job.job, job.user): job.idle_seconds for *at, job in jobs if job.idle_seconds is not None}
    yield MachineFigure("bursar_job_gpu_idle_seconds", "Since when a job does nothing on a GPU.", job_labels, idle)
