"""The devices of the machine, as the agent sees them: looks at them every second and prepares jobs.

A GPU once seen stays known: one that the driver does not list any more, that reports a fatal error or that a process
without a job uses is out of service, with an event when that begins and when it ends. If the driver itself does not
answer, all GPUs are out of service. All methods are called from one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from bursar.local.devices.api import (
    DeviceError,
    DeviceEvent,
    DeviceOptions,
    DeviceReport,
    DriverError,
    GpuDevice,
    GpuDriver,
    GpuProcess,
    GpuSample,
    JobDevices,
    JobOfPid,
    NoDriver,
    Prepared,
)
from bursar.local.devices.confine import ConfinementError, confine
from bursar.local.devices.health import fault_events, fault_problem
from bursar.local.devices.mps import VISIBLE, MpsDaemons
from bursar.local.devices.samples import IdleEvictions, UsageBook
from bursar.local.devices.strays import Remnants, StrayWatch, held_gpus

INVENTORY_EVERY: Final = 10.0
SAMPLE_EVERY: Final = 5.0  # the driver measures processes about once a second: one of its samples is in between
AMD_VISIBLE: Final = "ROCR_VISIBLE_DEVICES"
ADVISORY: Final = "GPU access is advisory"
BOOKS_ONLY: Final = "fractions are books only"
_MISSING: Final = "the driver does not list it any more"


def open_driver(choice: str = "auto") -> GpuDriver:
    """The driver of that name (nvml, amdsmi, none); ``auto``: the first that this machine has."""
    openers: dict[str, Callable[[], GpuDriver]] = {"nvml": _nvidia, "amdsmi": _amd, "none": NoDriver}
    if choice in openers:
        return openers[choice]()
    if choice != "auto":
        raise DriverError(f"GPU driver {choice!r:.40} is none of auto, {', '.join(openers)}")
    problems: list[str] = []
    for name, present in (("nvml", Path("/proc/driver/nvidia/version")), ("amdsmi", Path("/dev/kfd"))):
        try:
            return openers[name]()
        except DriverError as error:
            if present.exists():
                problems.append(str(error))
    return NoDriver("; ".join(problems))


def _nvidia() -> GpuDriver:
    from bursar.local.devices.nvml import NvidiaDriver  # noqa: PLC0415 only on machines that have one

    return NvidiaDriver()


def _amd() -> GpuDriver:
    from bursar.local.devices.amd import AmdDriver  # noqa: PLC0415 only on machines that have one

    return AmdDriver()


class LocalDevices:
    """The one that knows the devices of this machine."""

    def __init__(
        self,
        driver: GpuDriver,
        options: DeviceOptions,
        *,
        folder: Path,
        cgroup: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``folder``: for the files of MPS daemons; ``cgroup``: where those run, so that they outlive the server."""
        self.driver = driver
        self.options = options
        self.mps = MpsDaemons(folder, cgroup)
        self._clock = clock
        self._known: dict[str, GpuDevice] = {}
        self._failed: dict[str, str] = {}  # by GPU: the XID that took it out of service
        self._looked = -INVENTORY_EVERY
        self._sampled = -SAMPLE_EVERY
        self._samples: list[GpuSample] = []
        self._first = True
        self._held: dict[str, str] = {}
        self._down = ""  # why the driver does not answer
        self._usage = UsageBook()
        self._strays = StrayWatch()
        self._remnants = Remnants(folder / "remnants.json")
        self._idle = IdleEvictions()

    def close(self) -> None:
        """MPS daemons stay for the jobs that go on."""
        self.driver.close()

    # Looking

    def poll(self, jobs: Sequence[JobDevices], job_of_pid: JobOfPid) -> DeviceReport:
        """What there is, what it does and what has changed since the last look."""
        now = self._clock()
        self.mps.adopt(jobs)
        report = DeviceReport(events=self._note_problem_of_driver())
        try:
            self._look(now, report)
            self._observe(now, jobs, job_of_pid, report)
            self._answers(report)
        except DriverError as error:
            self._does_not_answer(str(error), report)
        report.events += self.mps.watch(now)
        report.devices = list(self._known.values())
        self._first = False
        return report

    def _note_problem_of_driver(self) -> list[DeviceEvent]:
        why = self.driver.why if isinstance(self.driver, NoDriver) and self._first else ""
        return [DeviceEvent("", "Warning", "gpu.driver", f"no GPUs are used: {why}")] if why else []

    def _look(self, now: float, report: DeviceReport) -> None:
        """The inventory, at times or when a GPU reports an error."""
        faults = self.driver.faults()
        report.events += fault_events(faults)
        fatal = {fault.uuid: why for fault in faults if (why := fault_problem(fault))}
        self._failed = fatal | self._failed
        if not fatal and now - self._looked < INVENTORY_EVERY and not self._down:
            return
        self._looked = now
        listed = {device.uuid: device for device in self.driver.inventory()}
        cards = {device.parent for device in listed.values()}
        for uuid, known in self._known.items():
            if uuid not in listed and uuid not in cards:
                listed[uuid] = replace(known, problem=_MISSING)
        for uuid, device in sorted(listed.items(), key=lambda one: (one[1].index, one[0])):
            failed = self._failed.get(uuid) or self._failed.get(device.parent, "")
            self._take(replace(device, problem=device.problem or failed), report)
        self._known = {uuid: one for uuid, one in self._known.items() if uuid in listed}

    def _take(self, device: GpuDevice, report: DeviceReport) -> None:
        known = self._known.get(device.uuid)
        self._known[device.uuid] = device
        before = "" if known is None else known.problem
        if device.problem and device.problem != before:
            what = f"{device.model} is out of service: {device.problem}"
            report.events.append(DeviceEvent(device.uuid, "Warning", "gpu.failed", what))
        elif before and not device.problem:
            report.events.append(DeviceEvent(device.uuid, "Normal", "gpu.returned", f"{device.model} is in service"))
        elif known is None and not self._first:
            report.events.append(DeviceEvent(device.uuid, "Normal", "gpu.found", f"{device.model} is in service"))

    def _observe(self, now: float, jobs: Sequence[JobDevices], job_of_pid: JobOfPid, report: DeviceReport) -> None:
        processes = self.driver.processes()
        if now - self._sampled >= SAMPLE_EVERY:
            self._sampled = now
            self._samples = self.driver.sample()
        report.usage = self._usage.update(now, jobs, processes, self._samples, job_of_pid)
        report.busy = {one.uuid: one.percent for one in self._samples if one.percent is not None}
        report.strays = self._strays.update(now, processes, job_of_pid, self.mps.own_pids())
        report.held = held_gpus(report.strays) if self.options.strays == "hold" else {}
        report.held |= self._remnants.held(processes)
        for uuid in sorted(report.held.keys() - self._held.keys()):
            report.events.append(DeviceEvent(uuid, "Warning", "gpu.stray", f"not handed out: {report.held[uuid]}"))
        for uuid in sorted(self._held.keys() - report.held.keys()):
            report.events.append(DeviceEvent(uuid, "Normal", "gpu.free", "handed out again: only jobs use it"))
        self._held = report.held
        limit = self.options.evict_idle_after_ms / 1000
        report.warn, report.evict = self._idle.update(limit, jobs, report.usage)

    def _does_not_answer(self, why: str, report: DeviceReport) -> None:
        if not self._down:
            report.events.append(DeviceEvent("", "Warning", "gpu.driver", why))
        self._down = why
        self._known = {uuid: replace(one, problem=why) for uuid, one in self._known.items()}
        report.held = self._held

    def _answers(self, report: DeviceReport) -> None:
        if self._down:
            self._down = ""
            report.events.append(DeviceEvent("", "Normal", "gpu.driver", "the GPU driver answers again"))

    def busy(self, job: JobDevices, job_of_pid: JobOfPid) -> list[GpuProcess]:
        """The processes of the job that the driver still lists on its GPUs."""
        gpus = set(job.gpus)
        return [one for one in self.driver.processes() if one.uuid in gpus and job_of_pid(one.pid) == job.uid]

    def hold(self, job: JobDevices, processes: Sequence[GpuProcess]) -> None:
        """The job has ended, and these are still on its GPUs: hold them until the driver lists none of these."""
        self._remnants.add(job.key, processes)

    # Jobs

    def prepare(self, job: JobDevices) -> Prepared:
        """Confines the cgroup of the job and readies MPS. ``DeviceError``: the job must not start."""
        for gpu in job.gpus:
            self._check(gpu)
        amd = any(self._known[gpu].vendor == "AMD" for gpu in job.gpus)
        prepared = Prepared({AMD_VISIBLE if amd else VISIBLE: ",".join(job.gpus)})
        if self._known:
            self._confine(job, prepared)
        if job.gpus and not job.whole:
            self._share(job, prepared)
        return prepared

    def _check(self, gpu: str) -> None:
        known = self._known.get(gpu)
        if known is None:
            raise DeviceError(f"GPU {gpu} is not on this machine")
        if known.problem:
            raise DeviceError(f"GPU {gpu} is out of service: {known.problem}")

    def _confine(self, job: JobDevices, prepared: Prepared) -> None:
        nodes = [node for gpu in job.gpus for node in self._known[gpu].nodes]
        try:
            confine(job.cgroup, self.driver.guards(), nodes)
        except ConfinementError as error:
            prepared.notes.append(f"{ADVISORY}: {error}")

    def _share(self, job: JobDevices, prepared: Prepared) -> None:
        """A fraction: by MPS where that can be, else only in the books."""
        why = ""
        if not self.options.mps:
            why = "MPS is not enabled"
        elif len(job.gpus) > 1:
            why = "a program can use MPS on one GPU only"
        elif self._known[job.gpus[0]].vendor != "NVIDIA":
            why = "MPS is for GPUs of NVIDIA"
        if why:
            prepared.notes.append(f"{BOOKS_ONLY}: {why}")
        else:
            prepared.environment |= self.mps.prepare(job)

    def release(self, job: JobDevices) -> None:
        """The job is gone from its GPUs."""
        self.mps.release(job)
