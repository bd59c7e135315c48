"""One job of this machine, from the queue to its end, and what the agent needs to carry it through.

A job waits, is granted (the cluster charges it), runs, and ends. Its GPUs are charged until no process of it is left
and the driver lists none on them; only then is the end reported, and only then is its record removed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bursar.local.cgroups import Cgroups
from bursar.local.devices.api import DeviceOptions, DeviceReport, GpuProcess, JobDevices, JobOfPid, Prepared
from bursar.local.job_processes import JobProcesses
from bursar.local.job_records import JobFiles, JobRecord
from bursar.local.links import ClusterLink, PodState
from bursar.local.peers import Peer
from bursar.local.submission import JobOptions
from bursar.objects.local_options import LocalOptions

QUEUED, GRANTED, RUNNING = "queued", "granted", "running"


class DeviceManager(Protocol):
    """The GPUs of the machine; all methods may block and are called in one thread."""

    options: DeviceOptions

    def poll(self, jobs: Sequence[JobDevices], job_of_pid: JobOfPid) -> DeviceReport: ...
    def busy(self, job: JobDevices, job_of_pid: JobOfPid) -> list[GpuProcess]: ...
    def hold(self, job: JobDevices, processes: Sequence[GpuProcess]) -> None: ...
    def prepare(self, job: JobDevices) -> Prepared: ...
    def release(self, job: JobDevices) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a job is ended before its command has."""

    reason: str
    message: str
    at_once: bool = False  # without a grace period


@dataclass(frozen=True, slots=True)
class Handed:
    """A blocked process that a shim handed over; the descriptor is the receiver's to close."""

    pidfd: int
    shim: Peer


@dataclass
class LocalJob:
    pod: str
    uid: str
    options: JobOptions
    rank: int = 0
    state: str = QUEUED
    peer: Peer | None = None  # who waits for it, later its shim
    gpus: tuple[str, ...] = ()  # names of GPU objects
    attempt: int = 0
    since: float = field(default_factory=time.monotonic)  # it has been without a client or shim, while it has none
    failed: bool = False
    readers: list[Peer] = field(default_factory=list)  # who follow its log, and learn of the end by theirs
    forgotten: bool = False  # by the cluster; its processes are ended before the machine is registered again
    line: str = ""  # what the client was last told about the queue
    record: JobRecord | None = None
    processes: JobProcesses | None = None
    held: asyncio.Future[Handed] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    ended: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    ending: asyncio.Future[Ending] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    task: asyncio.Task[None] | None = None

    @property
    def number(self) -> str:
        return self.uid.rpartition("#")[2]

    @property
    def team(self) -> str:
        return self.pod.partition("/")[0]

    @classmethod
    def again(cls, old: LocalJob, state: PodState, attempt: int) -> LocalJob:
        """The same job, queued once more as another pod."""
        return cls(state.pod, state.uid, old.options, old.rank, peer=old.peer, attempt=attempt)

    @classmethod
    def recorded(cls, record: JobRecord) -> LocalJob:
        """A running job, from before a restart."""
        found = cls(record.pod, record.uid, record.options, gpus=record.gpus, attempt=record.attempt)
        found.state, found.record = RUNNING, record
        return found

    def end(self, reason: str, message: str, *, at_once: bool = False) -> None:
        """End it; the first reason counts."""
        if not self.ending.done():
            self.ending.set_result(Ending(reason, message, at_once))

    def say(self, text: str) -> None:
        """A line for the job's terminal and log."""
        if self.peer is not None:
            self.peer.send("say", text=text)

    def environment(self) -> dict[str, str]:
        return {
            "BURSAR_JOB": self.pod,
            "BURSAR_JOB_UID": self.uid,
            "BURSAR_TEAM": self.team,
            "BURSAR_RANK": str(self.rank),
            "BURSAR_WORLD_SIZE": str(self.options.members),
            "BURSAR_ATTEMPT": str(self.attempt),
        }


@dataclass
class Surroundings:
    """What the lives of jobs have in common."""

    machine: str
    link: ClusterLink
    devices: DeviceManager
    files: JobFiles
    groups: Cgroups
    options: LocalOptions
    look: Callable[[], Awaitable[None]]  # at the devices: when it returns, the cluster has what is seen now
    uuids: dict[str, str] = field(default_factory=dict)  # name of a GPU object -> uuid
    link_pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "bursar-link"))
    device_pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "bursar-devices"))
    process_pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4, "bursar-jobs"))

    async def in_link(self, work: Any, *arguments: object) -> Any:  # noqa: ANN401 each work has its own
        return await asyncio.get_running_loop().run_in_executor(self.link_pool, work, *arguments)

    async def in_devices(self, work: Any, *arguments: object) -> Any:  # noqa: ANN401 as above
        return await asyncio.get_running_loop().run_in_executor(self.device_pool, work, *arguments)

    async def in_processes(self, work: Any, *arguments: object) -> Any:  # noqa: ANN401 as above
        return await asyncio.get_running_loop().run_in_executor(self.process_pool, work, *arguments)

    def devices_of(self, job: LocalJob, cgroup: str) -> JobDevices:
        options = job.options
        fraction = bool(options.vram or options.percent)
        gpus = tuple(self.uuids.get(name, name) for name in job.gpus)
        return JobDevices(job.uid, job.pod, options.user, gpus, not fraction, options.vram, options.percent, cgroup)

    def files_of(self, job: LocalJob) -> tuple[Path, Path]:
        """(log, exit status)."""
        user = job.options.user
        return (
            self.files.log_path(user, job.pod, job.number),
            self.files.status_path(user, job.pod, job.number),
        )

    def close(self) -> None:
        for pool in (self.link_pool, self.device_pool, self.process_pool):
            pool.shutdown(wait=True, cancel_futures=True)


def open_processes(record: JobRecord) -> tuple[JobProcesses, int | None]:
    """The processes of a recorded job, and a pidfd of its command, if that still lives."""
    processes = JobProcesses(record.uid, record.cgroup, record.process, record.shim)
    return processes, record.process.open()


def read_end(work: Surroundings, job: LocalJob) -> dict[str, Any] | None:
    """The exit status that the shim wrote."""
    return work.files.status(job.options.user, job.pod, job.number)
