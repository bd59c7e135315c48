"""Quotas and declared demand as settings, in the ledger's cells, and combined for a namespace.

Amounts are by dimension: ``requests.tflops``, ``requests.vram``, ``limits.tflops``, ``limits.vram`` and ``workers``
(totals) or ``gpus`` (one workload). What is not listed is unlimited, zero is none.

A quota that turns invalid keeps its last valid amounts and carries the problem beside them. One that was never valid
has no amounts to keep: until it is corrected, its namespace starts no worker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, cast, final

from bursar.policies.results import Body
from bursar.resources import Limits, Vector

DEFAULT_THRESHOLD: Final = 95
WORKERS: Final = "workers"
COUNT: Final = "gpus"

DIMENSIONS: Final = ("requests.tflops", "requests.vram", "limits.tflops", "limits.vram", WORKERS)

# In the order in which they are checked: the dimension, the code of a refusal, and whether one workload is limited.
CHECKS: Final = (
    ("requests.tflops", "single.max.tflops.request", True),
    ("requests.vram", "single.max.vram.request", True),
    ("limits.tflops", "single.max.tflops.limit", True),
    ("limits.vram", "single.max.vram.limit", True),
    (COUNT, "single.max.gpuCount.limit", True),
    ("requests.tflops", "total.max.tflops.request", False),
    ("requests.vram", "total.max.vram.request", False),
    ("limits.tflops", "total.max.tflops.limit", False),
    ("limits.vram", "total.max.vram.limit", False),
    (WORKERS, "total.max.workers.limit", False),
)

_Amounts = tuple[tuple[str, int], ...]


@final
@dataclass
class NamespaceQuotaBody(Body):
    """One quota. If it has a ``problem`` it is invalid, and its amounts are those of the last valid spec."""

    totals: dict[str, int]
    singles: dict[str, int] = field(default_factory=dict)
    threshold: int = DEFAULT_THRESHOLD
    problem: str = ""
    good: bool = True  # was valid once: its amounts are in force
    key: str = ""  # namespace/name

    def cell(self) -> tuple[object, ...]:
        totals, singles = tuple(sorted(self.totals.items())), tuple(sorted(self.singles.items()))
        return (totals, singles, self.threshold, self.problem, self.good)


def quota_of(key: str, cell: object) -> NamespaceQuotaBody:
    """The quota in a cell."""
    totals, singles, threshold, problem, good = cast("tuple[_Amounts, _Amounts, int, str, bool]", cell)
    return NamespaceQuotaBody(dict(totals), dict(singles), threshold, problem, good, key)


def spoiled(old: object, problem: str) -> tuple[object, ...]:
    """The cell of a quota that turned invalid: its last valid amounts stay in force."""
    if old is None:
        return ((), (), DEFAULT_THRESHOLD, problem, False)
    totals, singles, threshold, _, good = cast("tuple[object, ...]", old)
    return (totals, singles, threshold, problem, good)


@final
@dataclass
class DemandBody(Body):
    """What a workload declares: the cost of all its replicas together."""

    cost: Vector


@final
@dataclass
class WholeGpusBody(Body):
    """Whole GPUs are not counted, as in TensorFusion. Without this setting they are."""


@final
class Space:
    """The quotas of one namespace, and the least of what they allow."""

    def __init__(self, quotas: dict[str, NamespaceQuotaBody]) -> None:
        self.quotas: Final = {key: quotas[key] for key in sorted(quotas)}
        totals: dict[str, int] = {}
        singles: dict[str, int] = {}
        unusable = ""
        for quota in self.quotas.values():
            _lower(totals, quota.totals)
            _lower(singles, quota.singles)
            if not quota.good and not unusable:
                unusable = quota.key
        self.count: Final = singles.pop(COUNT, -1)  # most GPUs of one workload; -1: any
        self.totals: Final = Limits(totals)
        self.singles: Final = Limits(singles)
        self.unusable: Final = unusable  # a quota that was never valid

    def with_quota(self, key: str, cell: object) -> Space:
        """The space after a quota changed, or went (None)."""
        quotas = {k: quota for k, quota in self.quotas.items() if k != key}
        if cell is not None:
            quotas[key] = quota_of(key, cell)
        return Space(quotas)


def _lower(least: dict[str, int], amounts: dict[str, int]) -> None:
    for name, amount in amounts.items():
        least[name] = min(least.get(name, amount), amount)
