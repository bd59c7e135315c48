"""Several runs of one demand beside each other: rows for tables, JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from bursar.objects.validation import show_duration
from bursar.simulate.figures import Figures, TenantFigures
from bursar.simulate.plots import number, share

HEADINGS = (
    "QUOTAS", "WAITING GPU-H", "MEAN WAIT", "P95 WAIT", "EVICTIONS", "LOST GPU-H", "USE", "FAIRNESS", "JOBS",
    "NEVER STARTED", "STRANDED", "DECISIONS/S",
)  # fmt: skip
MORE = 4  # of these, the last so many are only in wide tables
TENANT_HEADINGS = (
    "TENANT", "JOBS", "NEVER STARTED", "GPU-H", "WAITING GPU-H", "MEDIAN WAIT", "P95 WAIT", "EVICTIONS", "LOST GPU-H",
)  # fmt: skip
METHOD = (
    "Waiting is all the time that a job spends in the queue, again after each eviction.",
    "A job that never starts waits until the end of the run, so its wait is a lower bound.",
    "Lost GPU-hours are what evicted jobs had run and run again.",
    "Use is the mean part of the GPUs that jobs had while jobs arrived.",
    "Stranded is the part of the free GPUs on nodes where a pod of this demand, drawn by count, does not fit.",
    "Fairness is Jain's index over the tenants, of the part of its GPU-hours that ran and did not wait.",
)


def rows(found: Sequence[Figures]) -> list[tuple[str, ...]]:
    return [
        (
            one.name,
            number(one.total.waited),
            wait(int(one.total.mean_wait)),
            wait(one.total.wait(95)),
            number(one.total.evictions),
            number(one.total.lost),
            share(one.use),
            f"{one.jain:.3f}",
            number(one.total.jobs),
            number(one.total.jobs - one.total.started),
            share(one.stranded),
            number(one.rate),
        )
        for one in found
    ]


def tenant_rows(found: Figures) -> list[tuple[str, ...]]:
    return [
        (
            one.name,
            number(one.jobs),
            number(one.jobs - one.started),
            number(one.used),
            number(one.waited),
            wait(one.wait(50)),
            wait(one.wait(95)),
            number(one.evictions),
            number(one.lost),
        )
        for one in (*found.tenants, found.total)
    ]


def wait(milliseconds: int) -> str:
    """A wait, rounded down to what matters at its size."""
    for unit in (86_400_000, 3_600_000, 60_000, 1_000):
        if milliseconds >= 20 * unit:
            return show_duration(milliseconds // unit * unit)
    return show_duration(milliseconds)


# For programs


def plain(found: Sequence[Figures], notes: Sequence[str]) -> dict[str, Any]:
    return {"notes": list(notes), "runs": [_run(one) for one in found]}


def _run(one: Figures) -> dict[str, Any]:
    return {
        "quotas": one.name,
        **_tenant(one.total),
        "use": round(one.use, 6),
        "stranded": round(one.stranded, 6),
        "fairness": round(one.jain, 6),
        "allocatedGPUs": one.allocated,
        "spanSeconds": one.span / 1000,
        "decisions": one.decisions,
        "decisionsPerSecond": round(one.rate),
        "seconds": round(one.seconds, 3),
        "stillWaiting": dict(one.waiting),
        "explained": dict(one.explained),
        "tenants": [{"tenant": tenant.name, **_tenant(tenant)} for tenant in one.tenants],
    }


def _tenant(one: TenantFigures) -> dict[str, Any]:
    return {
        "jobs": one.jobs,
        "started": one.started,
        "finished": one.finished,
        "evictions": one.evictions,
        "gpuHours": round(one.used, 3),
        "waitingGPUHours": round(one.waited, 3),
        "lostGPUHours": round(one.lost, 3),
        "meanWaitSeconds": round(one.mean_wait / 1000, 3),
        "medianWaitSeconds": one.wait(50) / 1000,
        "p95WaitSeconds": one.wait(95) / 1000,
        "p99WaitSeconds": one.wait(99) / 1000,
    }


def table_text(found: Sequence[Figures]) -> str:
    """CSV: a row for each run and tenant, and one for all tenants of a run."""
    stream = io.StringIO()
    names = list(_tenant(TenantFigures("")))
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["quotas", "tenant", *names])
    for one in found:
        for tenant in (*one.tenants, one.total):
            figures = _tenant(tenant)
            name = "" if tenant is one.total else tenant.name
            writer.writerow([_cell(one.name), _cell(name), *(figures[column] for column in names)])
    return stream.getvalue()


def _cell(text: str) -> str:
    """A name that a spreadsheet would take for a formula is quoted."""
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text
