"""The Helios sums: what borrowing could serve at most, from ten-minute sums of tenants. There are no jobs in them.

For each sample: the smaller of all pending and all idle GPUs, against all pending ones. That is an upper bound of what
borrowing could serve. It ignores the shape of nodes, gangs, and that a GPU lent now may be missed later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bursar.simulate.plots import number, share
from bursar.simulate.traces import rows, whole

FILE = "earth_vc_demand_10min_2020-05.csv"
COLUMNS = ("time", "vc", "quota_gpus", "running_gpus", "pending_gpus", "idle_gpus")
_SAMPLES_AN_HOUR = 6


@dataclass(slots=True)
class TenantSums:
    """Sums over samples, in GPUs."""

    name: str
    samples: int = 0
    quota: int = 0
    running: int = 0
    pending: int = 0
    pending_elsewhere_idle: int = 0  # pending while others had idle GPUs, bounded by these
    own_idle: int = 0  # samples in which it waited and had idle GPUs itself
    waiting: int = 0  # samples in which it waited


@dataclass(slots=True)
class BorrowingBound:
    """What the sums say."""

    samples: int = 0
    pending: int = 0  # GPUs, summed over samples
    servable: int = 0  # of these, by idle GPUs of any tenant
    elsewhere: int = 0  # of these, by idle GPUs of other tenants, tenant by tenant
    both: int = 0  # samples in which one tenant waits while another has idle GPUs
    tenants: list[TenantSums] = field(default_factory=list)

    @property
    def part(self) -> float:
        return self.servable / self.pending if self.pending else 1.0


def borrowing_bound(path: Path) -> BorrowingBound:
    """Read the file, or the file of that name in the folder."""
    file = path / FILE if path.is_dir() else path
    moments: dict[str, dict[str, tuple[int, int, int, int]]] = {}
    for time, tenant, sums in rows(file, COLUMNS, _row):
        moments.setdefault(time, {})[tenant] = sums
    found = BorrowingBound()
    tenants: dict[str, TenantSums] = {}
    for moment in moments.values():
        _add(found, tenants, moment)
    found.tenants = [tenants[name] for name in sorted(tenants)]
    return found


def _row(row: Mapping[str, str]) -> tuple[str, str, tuple[int, int, int, int]]:
    quota, running, pending, idle = (whole(row[column]) for column in COLUMNS[2:])
    return row["time"], row["vc"], (quota, running, pending, idle)


def _add(found: BorrowingBound, tenants: dict[str, TenantSums], sums: Mapping[str, tuple[int, int, int, int]]) -> None:
    pending = sum(one[2] for one in sums.values())
    idle = sum(one[3] for one in sums.values())
    found.samples += 1
    found.pending += pending
    found.servable += min(pending, idle)
    waits = [name for name, one in sums.items() if one[2]]
    found.both += any(sums[name][3] < idle for name in waits)
    for name, (quota, running, wanted, spare) in sums.items():
        tenant = tenants.setdefault(name, TenantSums(name))
        tenant.samples += 1
        tenant.quota += quota
        tenant.running += running
        tenant.pending += wanted
        tenant.waiting += wanted > 0
        tenant.own_idle += wanted > 0 and spare > 0
        tenant.pending_elsewhere_idle += min(wanted, idle - spare)
        found.elsewhere += min(wanted, idle - spare)


HEADINGS = ("TENANT", "MEAN QUOTA", "MEAN RUNNING", "PENDING GPU-HOURS", "IDLE ELSEWHERE", "WAITS WITH OWN IDLE")


def tenant_rows(found: BorrowingBound) -> list[tuple[str, ...]]:
    return [
        (
            one.name,
            number(one.quota / one.samples),
            number(one.running / one.samples),
            number(one.pending / _SAMPLES_AN_HOUR),
            share(one.pending_elsewhere_idle / one.pending if one.pending else 0.0),
            share(one.own_idle / one.waiting if one.waiting else 0.0),
        )
        for one in found.tenants
    ]


def sentences(found: BorrowingBound) -> list[str]:
    hours, served = found.pending / _SAMPLES_AN_HOUR, found.servable / _SAMPLES_AN_HOUR
    part = f"{100 * found.part:.1f}"
    return [
        f"{number(served)} of {number(hours)} pending GPU-hours ({part} %) had idle GPUs somewhere at that moment.",
        "That is an upper bound of what borrowing could serve: it ignores the shape of nodes and gangs.",
        f"In {number(found.both)} of {number(found.samples)} samples a tenant waits while another has idle GPUs.",
    ]


def plain(found: BorrowingBound) -> dict[str, Any]:
    return {
        "samples": found.samples,
        "pendingGPUHours": round(found.pending / _SAMPLES_AN_HOUR, 3),
        "servableGPUHours": round(found.servable / _SAMPLES_AN_HOUR, 3),
        "upperBound": round(found.part, 6),
        "idleInOtherTenantsGPUHours": round(found.elsewhere / _SAMPLES_AN_HOUR, 3),
        "samplesWithWaitingAndIdle": found.both,
        "tenants": [
            {
                "tenant": one.name,
                "meanQuota": round(one.quota / one.samples, 3),
                "meanRunning": round(one.running / one.samples, 3),
                "pendingGPUHours": round(one.pending / _SAMPLES_AN_HOUR, 3),
                "idleElsewhereGPUHours": round(one.pending_elsewhere_idle / _SAMPLES_AN_HOUR, 3),
            }
            for one in found.tenants
        ],
    }
