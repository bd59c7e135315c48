"""What is really used of the GPUs of a machine, beside what is booked: the rows of ``bursar top gpus``.

The agent makes them at every look, and the server keeps the newest of each machine. They are no state: nothing is
decided by them, and they are not in the journal.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bursar.local.devices.api import DeviceReport, GpuDevice, JobUsage, Stray, object_name, short_model


class _Row(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """As the API shows it."""


class JobUse(_Row, frozen=True):
    """A job on a GPU."""

    job: str  # team/name
    user: str
    booked_memory: int  # bytes
    used_memory: int
    booked_percent: int
    used_percent: int | None = None  # None: not measured
    idle_seconds: int | None = None  # since when it did nothing; None: it works, or that is not known


class StrayProcess(_Row, frozen=True):
    """A compute process that belongs to no job."""

    pid: int
    user: str
    command: str
    memory: int
    container: str = ""


class GpuUse(_Row, frozen=True):
    """A GPU or MIG device, and who is on it."""

    gpu: str  # the name of its object
    uuid: str
    index: int
    model: str
    memory: int  # bytes that jobs can have
    percent: int | None = None  # how busy it was lately; None: not measured
    out: str = ""  # why it is not handed out
    jobs: list[JobUse] = []
    strays: list[StrayProcess] = []


class MachineUse(_Row, frozen=True):
    """What a machine reports."""

    machine: str
    idle_after: int  # seconds after which a job that does nothing is called idle
    gpus: list[GpuUse] = []


def machine_use(machine: str, idle_after_ms: int, report: DeviceReport, users: Mapping[str, str]) -> MachineUse:
    """``users``: the name of the user of each job, by its uid."""
    gpus = [_gpu(device, report, users) for device in sorted(report.devices, key=lambda one: (one.index, one.uuid))]
    return MachineUse(machine=machine, idle_after=idle_after_ms // 1000, gpus=gpus)


def _gpu(device: GpuDevice, report: DeviceReport, users: Mapping[str, str]) -> GpuUse:
    return GpuUse(
        gpu=object_name(device.uuid),
        uuid=device.uuid,
        index=device.index,
        model=short_model(device),
        memory=device.memory,
        percent=report.busy.get(device.uuid),
        out=device.problem or report.held.get(device.uuid, ""),
        jobs=[_job(one, device, users) for one in report.usage if one.gpu == device.uuid],
        strays=[_stray(one) for one in report.strays if one.gpu == device.uuid],
    )


def _job(one: JobUsage, device: GpuDevice, users: Mapping[str, str]) -> JobUse:
    return JobUse(
        job=one.key,
        user=users.get(one.uid, ""),
        booked_memory=one.booked_memory or device.memory,
        used_memory=one.used_memory,
        booked_percent=one.booked_percent,
        used_percent=one.used_percent,
        idle_seconds=one.idle_seconds,
    )


def _stray(one: Stray) -> StrayProcess:
    return StrayProcess(pid=one.pid, user=one.user, command=one.command, memory=one.memory, container=one.container)


def out_of_service(report: DeviceReport) -> str:
    """The GPUs that are not handed out, in words for those who wait; "" for none."""
    whys = {device.index: device.problem or report.held.get(device.uuid, "") for device in report.devices}
    return "; ".join(f"GPU {index} is not handed out: {why}" for index, why in sorted(whys.items()) if why)
