"""`bursar top gpus` and `bursar top idle`: what jobs have booked of GPUs of machines, beside what they really use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from bursar.cli.output import Column, machine, table

if TYPE_CHECKING:
    from bursar.local.usage import GpuUse, JobUse
    from bursar.server.client import Client
    from bursar.server.types import MachineRow

_STALE = 15  # seconds after which a report is old
_COLUMNS = (
    Column("MACHINE"), Column("GPU"), Column("JOB", name=True), Column("USER"),
    Column("MEMORY", fixed=True, right=True), Column("BOOKED", fixed=True, right=True),
    Column("GPU%", fixed=True, right=True), Column("BOOKED%", fixed=True, right=True, spare=2),
    Column("IDLE", fixed=True, right=True), Column("NOTE"), Column("UUID", wide=True),
)  # fmt: skip


class GpuLine(NamedTuple):
    """One job or process on a GPU, or a GPU without any."""

    machine: str
    gpu: str
    job: str
    user: str
    memory: str
    booked: str
    percent: str
    booked_percent: str
    idle: str
    note: str
    uuid: str
    idle_seconds: int = -1


def look(client: Client, limit: int, output: str, *, idle: bool) -> list[str]:
    found = client.machines().items
    if output in {"json", "yaml"}:
        return machine([_plain(one, idle=idle) for one in found], output)
    lines = [line for one in found for line in (_idle_lines(one) if idle else _lines(one))]
    if idle:
        lines.sort(key=lambda line: -line.idle_seconds)
    if not lines:
        return [_nothing(found, idle=idle)]
    shown = lines[:limit] if limit else lines
    more = [f"and {len(lines) - len(shown)} more: --limit 0 shows all"] if len(lines) > len(shown) else []
    return [*table(_COLUMNS, [line[:-1] for line in shown], wide=output == "wide"), *more]


def _nothing(found: list[MachineRow], *, idle: bool) -> str:
    if not found:
        return "no machine runs jobs here: `bursar serve --local` or `bursar agent`"
    return "no job is idle" if idle else "the machines have no GPUs"


def _plain(row: MachineRow, *, idle: bool) -> object:
    import msgspec

    plain = msgspec.to_builtins(row)
    if idle:
        for gpu in plain["gpus"]:
            gpu["jobs"] = [job for job in gpu["jobs"] if (job["idleSeconds"] or 0) >= row.idle_after]
            gpu["strays"] = []
        plain["gpus"] = [gpu for gpu in plain["gpus"] if gpu["jobs"]]
    return plain


def _lines(row: MachineRow) -> Iterator[GpuLine]:
    old = f"reported {row.age} s ago" if row.age > _STALE else ""
    for gpu in row.gpus:
        note = "; ".join(text for text in (gpu.out, old) if text)
        on_it = [_job(row.machine, gpu, job, note) for job in gpu.jobs]
        for one in gpu.strays:
            where = f"{one.command}, process {one.pid}" + (f", container {one.container}" if one.container else "")
            on_it.append(_line(row.machine, gpu, "(no job)", one.user, memory=_gib(one.memory), note=where))
        if on_it:
            yield from on_it
        else:
            yield _line(row.machine, gpu, "-", "", percent=_percent(gpu.percent), note=note)


def _idle_lines(row: MachineRow) -> Iterator[GpuLine]:
    for gpu in row.gpus:
        for job in gpu.jobs:
            if job.idle_seconds is not None and job.idle_seconds >= row.idle_after:
                yield _job(row.machine, gpu, job, gpu.out)


def _job(machine_name: str, gpu: GpuUse, job: JobUse, note: str) -> GpuLine:
    from bursar.objects.validation import show_duration

    idle = "" if not job.idle_seconds else show_duration(job.idle_seconds * 1000)
    return GpuLine(
        machine_name, f"{gpu.index} {gpu.model}", job.job, job.user, _gib(job.used_memory), _gib(job.booked_memory),
        _percent(job.used_percent), str(job.booked_percent), idle, note, gpu.uuid, job.idle_seconds or 0,
    )  # fmt: skip


def _line(
    machine_name: str, gpu: GpuUse, job: str, user: str, *, memory: str = "", percent: str = "", note: str = ""
) -> GpuLine:
    return GpuLine(machine_name, f"{gpu.index} {gpu.model}", job, user, memory, "", percent, "", "", note, gpu.uuid)


def _gib(amount: int) -> str:
    """Rounded to a tenth of GiB: for people."""
    tenths = (amount * 10 + 2**29) >> 30
    return f"{tenths // 10}.{tenths % 10}Gi" if tenths else "0"


def _percent(value: int | None) -> str:
    return "?" if value is None else str(value)
