"""Quotas in their three forms: the setting, the cell in the ledger, and what a namespace's quotas say together.

Amounts are by dimension: ``requests.tflops``, ``requests.vram``, ``limits.tflops``, ``limits.vram`` and ``workers``
(totals) or ``gpus`` (one workload). What is not listed is unlimited, zero is none.

A quota that turns invalid keeps its last good amounts and carries the problem beside them. One that was never valid
has no amounts to keep: until it is mended, its namespace starts no worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast, final

from bursar.policies.results import Body
from bursar.resources import Limits, Vector

DEFAULT_THRESHOLD: Final = 95
WORKERS: Final = "workers"
COUNT: Final = "gpus"

# In the order in which they are checked: the dimension, and the code of a refusal by a single and by a total limit.
CHECKS: Final = (
    ("requests.tflops", "single.max.tflops.request", "total.max.tflops.request"),
    ("requests.vram", "single.max.vram.request", "total.max.vram.request"),
    ("limits.tflops", "single.max.tflops.limit", "total.max.tflops.limit"),
    ("limits.vram", "single.max.vram.limit", "total.max.vram.limit"),
)
COUNT_CODE: Final = "single.max.gpuCount.limit"
WORKERS_CODE: Final = "total.max.workers.limit"
DIMENSIONS: Final = ("requests.tflops", "requests.vram", "limits.tflops", "limits.vram", WORKERS)


@final
class NamespaceQuotaBody(Body):
    """A quota as it comes from outside. ``problem``: it is invalid, and the amounts mean nothing."""

    __slots__ = ("problem", "singles", "threshold", "totals")

    def __init__(
        self,
        totals: Mapping[str, int],
        singles: Mapping[str, int] | None = None,
        threshold: int = DEFAULT_THRESHOLD,
        problem: str = "",
    ) -> None:
        self.totals: Final = dict(totals)
        self.singles: Final = dict(singles) if singles is not None else {}
        self.threshold: Final = threshold
        self.problem: Final = problem

    def cell(self) -> tuple[object, ...]:
        return (_pairs(self.totals), _pairs(self.singles), self.threshold, self.problem, not self.problem)


def spoiled(old: object, problem: str) -> tuple[object, ...]:
    """The cell of a quota that turned invalid: what was good stays in force."""
    if old is None:
        return ((), (), DEFAULT_THRESHOLD, problem, False)
    totals, singles, threshold, _, good = cast("tuple[object, ...]", old)
    return (totals, singles, threshold, problem, good)


def _pairs(amounts: dict[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(amounts.items()))


@final
class DemandBody(Body):
    """What a workload declares: the cost of all its replicas together."""

    __slots__ = ("cost",)

    def __init__(self, cost: Vector) -> None:
        self.cost: Final = cost


@final
class NamespaceQuota:
    """One quota, parsed."""

    __slots__ = ("good", "key", "problem", "singles", "threshold", "totals")

    def __init__(self, key: str, cell: object) -> None:
        totals, singles, threshold, problem, good = cast("tuple[object, ...]", cell)
        self.key: Final = key  # namespace/name
        self.totals: Final = dict(cast("tuple[tuple[str, int], ...]", totals))
        self.singles: Final = dict(cast("tuple[tuple[str, int], ...]", singles))
        self.threshold: Final = cast("int", threshold)
        self.problem: Final = cast("str", problem)
        self.good: Final = cast("bool", good)  # was valid once: its amounts are in force


@final
class Space:
    """The quotas of one namespace, and the least of what they allow."""

    __slots__ = ("count", "quotas", "singles", "totals", "unusable")

    def __init__(self, quotas: dict[str, NamespaceQuota]) -> None:
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
            quotas[key] = NamespaceQuota(key, cell)
        return Space(quotas)


def _lower(least: dict[str, int], amounts: dict[str, int]) -> None:
    for name, amount in amounts.items():
        least[name] = min(least.get(name, amount), amount)
