"""The life of a granted job, step by step: take over its process, let it run, end it, and give its GPUs back.

The order of the steps keeps what the agent promises. The process is in its cgroup and its record is durable before the
command begins. The end is reported when no process is left and the driver lists none on its GPUs; a GPU on which one
stays longer than ``DRAIN_SECONDS`` is first held in the cluster. The record goes last.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from dataclasses import dataclass
from typing import Any

import msgspec

from bursar.local.devices.api import DeviceBusyError, DeviceError, DriverError, GpuProcess, JobDevices
from bursar.local.job_processes import HandOverError, JobLookup, JobProcesses, check_handed_over, confine
from bursar.local.job_records import JobRecord, file_name
from bursar.local.jobs import RUNNING, Ending, Handed, LocalJob, Surroundings, open_processes, read_end
from bursar.local.links import JobEnd, LinkError, PodState
from bursar.local.processes import ProcessId, has_ended

LOG = logging.getLogger("bursar.local")
HOLD_SECONDS = 30.0  # for the shim of a granted job to come
STATUS_SECONDS = 3.0  # for the exit status to be written once the process is gone
DRAIN_SECONDS = 60.0
LOOK_SECONDS = 0.02
RETRY_SECONDS = 1.0
KILLED = 137
FAILURES_MOST = 6
NOT_STARTED = "NotStarted"


class NotStartedError(Exception):
    """The job cannot begin: one line that says why."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    code: int
    reason: str = ""
    message: str = ""


class JobLife:
    """Carries one granted job through."""

    def __init__(self, work: Surroundings, job: LocalJob) -> None:
        self._work = work
        self._job = job
        self._fds: list[int] = []
        self._devices: JobDevices | None = None

    async def run(self) -> list[PodState]:
        """Until the end is durable; the pod that is queued again for it, if it is."""
        job = self._job
        try:
            if job.record is None:
                await self._start()
            else:
                await self._resume(job.record)
            outcome = await self._until_ended()
        except NotStartedError as error:
            outcome = _Outcome(1, job.ending.result().reason if job.ending.done() else NOT_STARTED, str(error))
            if job.peer is not None:
                job.peer.send("no", text=str(error))
        finally:
            self._close()
        return await self._finish(outcome)

    def _close(self) -> None:
        for fd in self._fds:
            asyncio.get_running_loop().remove_reader(fd)  # or the next descriptor of that number is not watched
            os.close(fd)
        self._fds.clear()

    # The beginning

    async def _start(self) -> None:
        job, work = self._job, self._work
        handed = await self._handed_over()
        self._fds.append(handed.pidfd)
        try:
            record = await work.in_processes(self._take_over, handed)
            prepared = await self._prepare(record, handed)
            record = msgspec.structs.replace(record, started=int(time.time() * 1000))
            await work.in_processes(work.files.write, record)
        except (HandOverError, OSError, DeviceError) as error:
            raise NotStartedError(str(error)) from error
        job.record = record
        if job.ending.done():
            raise NotStartedError(job.ending.result().message)
        job.state = RUNNING
        self._follow(handed.pidfd, record.shim)
        notes = [*work.groups.missing_for(job.options.cpu_milli, job.options.memory), *prepared.notes]
        handed.shim.send("go", environment={**job.environment(), **prepared.environment}, notes=notes)

    async def _handed_over(self) -> Handed:
        job = self._job
        await _first(job.held, job.ending, timeout=HOLD_SECONDS)
        if job.held.done():
            return job.held.result()
        if job.ending.done():
            raise NotStartedError(job.ending.result().message)
        raise NotStartedError("its client did not come to start it")

    def _take_over(self, handed: Handed) -> JobRecord:
        """The process is in its cgroup, and the record about it is made."""
        job, work = self._job, self._work
        pid = check_handed_over(handed.pidfd, handed.shim.pid, job.options.user)
        name = file_name(job.pod, job.number)
        cgroup = work.groups.create(name, job.options.cpu_milli, job.options.memory)
        confine(work.groups, cgroup, handed.pidfd, pid, handed.shim.pid)
        process, shim = ProcessId.of(pid), ProcessId.of(handed.shim.pid)
        job.processes = JobProcesses(job.uid, cgroup, process, shim)
        return JobRecord(job.pod, job.uid, job.options, process, shim, cgroup, job.gpus, 0, job.attempt)

    async def _prepare(self, record: JobRecord, handed: Handed) -> Any:  # noqa: ANN401 the environment and notes
        """Its GPUs are ready. One that serves another user at the moment is waited for; the shim shows why."""
        job, work = self._job, self._work
        self._devices = work.devices_of(job, record.cgroup)
        said = ""
        while True:
            try:
                return await work.in_devices(work.devices.prepare, self._devices)
            except DeviceBusyError as error:
                if str(error) != said:
                    said = str(error)
                    handed.shim.send("wait", text=f"waiting: {said}", since=record.started, pod=job.pod)
            await asyncio.wait({job.ending}, timeout=RETRY_SECONDS)
            if job.ending.done():
                raise NotStartedError(job.ending.result().message)
            if has_ended(handed.pidfd):
                raise NotStartedError("its client went away")

    async def _resume(self, record: JobRecord) -> None:
        """Go on after a restart of the agent."""
        job, work = self._job, self._work
        job.state = RUNNING
        job.processes, pidfd = await work.in_processes(open_processes, record)
        self._devices = work.devices_of(job, record.cgroup)
        if pidfd is None:
            job.ended.set_result(None)
            return
        self._fds.append(pidfd)
        self._follow(pidfd, record.shim)

    def _follow(self, pidfd: int, shim: ProcessId) -> None:
        """Notice the end of the process, and of the shim before it."""
        loop, job = asyncio.get_running_loop(), self._job

        def process_ended() -> None:
            loop.remove_reader(pidfd)
            if not job.ended.done():
                job.ended.set_result(None)

        loop.add_reader(pidfd, process_ended)
        shim_fd = shim.open()
        if shim_fd is None:
            job.end("ShimLost", "its shim is gone", at_once=True)
            return
        self._fds.append(shim_fd)

        def shim_ended() -> None:
            loop.remove_reader(shim_fd)
            if not job.ended.done():
                job.end("ShimLost", "its shim was killed", at_once=True)

        loop.add_reader(shim_fd, shim_ended)

    # Running

    async def _until_ended(self) -> _Outcome:
        job = self._job
        record = job.record
        limit = None
        if record is not None and job.options.time_ms:
            limit = max((record.started + job.options.time_ms) / 1000 - time.time(), 0.0)
        await _first(job.ended, job.ending, timeout=limit)
        if not job.ended.done():
            if not job.ending.done():
                job.end("TimeLimit", f"its time of {job.options.time_ms // 1000} s is over")
            await self._terminate(job.ending.result())
        return await self._outcome()

    async def _terminate(self, ending: Ending) -> None:
        """First the signals that were asked for, then the certain end."""
        job, work = self._job, self._work
        processes = job.processes
        if processes is None:
            return
        if not ending.at_once:
            job.say(f"{ending.reason}: {ending.message}")
            grace = (job.options.grace_ms or work.options.grace_ms) / 1000
            if job.options.checkpoint:
                await work.in_processes(processes.signal, job.options.checkpoint)
                await asyncio.wait({job.ended}, timeout=grace)
            if not job.ended.done():
                await work.in_processes(processes.terminate)
                await asyncio.wait({job.ended}, timeout=grace)
        while not job.ended.done():
            await work.in_processes(processes.kill)
            await asyncio.wait({job.ended}, timeout=RETRY_SECONDS)

    async def _outcome(self) -> _Outcome:
        """How the command ended, as the shim wrote it down."""
        job, work = self._job, self._work
        end = time.monotonic() + STATUS_SECONDS
        found = await work.in_processes(read_end, work, job)
        alive = True
        while found is None and alive and time.monotonic() < end:
            # Asked before the look: what a shim wrote is there once it is gone.
            alive = job.record is not None and job.record.shim.alive()
            await asyncio.sleep(LOOK_SECONDS if alive else 0)
            found = await work.in_processes(read_end, work, job)
        code = KILLED if found is None else int(found["code"])
        if job.ending.done():
            ending = job.ending.result()
            return _Outcome(code, ending.reason, ending.message)
        if found is None:
            return _Outcome(code, "Unknown", "its shim was gone before it wrote the exit status")
        if code:
            number = int(found.get("signal", 0))
            return _Outcome(code, "Error", f"killed by signal {number}" if number else f"exit code {code}")
        return _Outcome(0)

    # The end

    async def _finish(self, outcome: _Outcome) -> list[PodState]:
        job, work = self._job, self._work
        if job.processes is not None:
            pids = frozenset(await work.in_processes(job.processes.members))
            if not await work.in_processes(job.processes.clear):
                LOG.error("%s: processes of it cannot be killed", job.pod)
            await self._drain(job.processes, pids)
        job.failed = bool(outcome.code or outcome.reason)
        again = job.options.requeue and self._may_again(outcome)
        end = JobEnd(job.pod, job.uid, outcome.code, outcome.reason, outcome.message, again)
        found = await self._report(end)
        await work.in_processes(self._forget)
        return found

    def _may_again(self, outcome: _Outcome) -> bool:
        if outcome.reason in {"Evicted", "ShimLost"}:
            return outcome.reason == "Evicted"
        return outcome.reason == "Error" and self._job.attempt + 1 < FAILURES_MOST

    async def _drain(self, processes: JobProcesses, pids: frozenset[int]) -> None:
        """Until the driver lists no process of the job on its GPUs any more, or for the longest time."""
        job, work, devices = self._job, self._work, self._devices
        if devices is None or not devices.gpus:
            return
        lookup = JobLookup([processes])
        end = time.monotonic() + DRAIN_SECONDS

        def of_this_job(pid: int) -> str:
            return job.uid if pid in pids else lookup.job_of(pid)

        while True:
            try:
                busy: list[GpuProcess] = await work.in_devices(work.devices.busy, devices, of_this_job)
            except DriverError:  # it lists what may still be there when it answers again
                busy = [GpuProcess(gpu, pid, 0) for gpu in devices.gpus for pid in pids]
            if not busy:
                return
            if time.monotonic() > end:
                LOG.error("%s: processes of it are still on its GPUs after %d s", job.pod, int(DRAIN_SECONDS))
                await self._hold(devices, busy)
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _hold(self, devices: JobDevices, busy: list[GpuProcess]) -> None:
        """The cluster has the GPUs out of service when this returns."""
        await self._work.in_devices(self._work.devices.hold, devices, busy)
        while True:
            try:
                await self._work.look()
            except LinkError as error:
                LOG.warning("%s: its GPUs cannot be taken out of service yet: %s", self._job.pod, error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def _report(self, end: JobEnd) -> list[PodState]:
        """Repeated until it is durable: a cluster that cannot be reached keeps the job charged."""
        while True:
            try:
                found: list[PodState] = await self._work.in_link(self._work.link.report, [end])
            except LinkError as error:
                LOG.warning("%s: its end cannot be reported yet: %s", end.pod, error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return found

    def _forget(self) -> None:
        job, work = self._job, self._work
        if self._devices is not None:
            work.devices.release(self._devices)
        work.files.remove(job.uid)
        work.files.remove_status(job.options.user, job.pod, job.number)


async def _first(*futures: asyncio.Future[Any], timeout: float | None) -> None:  # noqa: ASYNC109 passed on
    """Until one of them is done, or the time is over."""
    await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
