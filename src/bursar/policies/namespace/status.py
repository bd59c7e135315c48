"""The status of namespace quotas: used, available percent, conditions and alert events; and views to list usage.

Percents are computed in integers. The alert is raised when the used share reaches the threshold, or, with a threshold
of 0, when anything is used. A dimension without a limit never alerts and shows 100 percent without decimals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast, final

from bursar.objects.validation import timestamp
from bursar.policies.namespace.settings import DIMENSIONS, WORKERS, NamespaceQuotaBody
from bursar.policies.status import StatusWriter, condition
from bursar.resources import Tally, Vector, dimension

UNTRACKED: Final = "100"
KIND: Final = "GPUResourceQuota.tensor-fusion.ai"
ALERT: Final = "AlertThresholdReached"


def available_percent(total: int | None, used: int) -> str:
    """What is left, with two decimals, rounded half up; a total of zero has nothing left."""
    if total is None:
        return UNTRACKED
    if total <= 0 or used >= total:
        return "0.00"
    hundredths = (2 * (total - used) * 10_000 + total) // (2 * total)
    return f"{hundredths // 100}.{hundredths % 100:02}"


def reached(total: int | None, used: int, threshold: int) -> bool:
    """Whether the used share is at or above the threshold."""
    return total is not None and used > 0 and used * 100 >= threshold * total


def alerting(quota: NamespaceQuotaBody, used: Tally) -> list[str]:
    """The dimensions whose threshold is reached."""
    return [n for n in DIMENSIONS if reached(quota.totals.get(n), used.amount(n), quota.threshold)]


def exceeded(quota: NamespaceQuotaBody, used: Tally) -> list[str]:
    """The dimensions in which more is used than the quota allows."""
    return [n for n in DIMENSIONS if n in quota.totals and used.amount(n) > quota.totals[n]]


def shares(quota: NamespaceQuotaBody, used: Tally, names: list[str]) -> str:
    parts: list[str] = []
    for name in names:
        show = dimension(name).show
        parts.append(f"{name} {show(used.amount(name))} of {show(quota.totals[name])}")
    return ", ".join(parts)


def amounts(vector: Vector) -> dict[str, object]:
    """A cost as the seed's usage: requests and limits with tflops and vram, and workers."""
    shown: dict[str, object] = {}
    for side in ("requests", "limits"):
        names = (f"{side}.tflops", f"{side}.vram")
        shown[side] = {name.partition(".")[2]: dimension(name).show(vector.amount(name)) for name in names}
    shown[WORKERS] = vector.amount(WORKERS)
    return shown


def conditions(quota: NamespaceQuotaBody, used: Tally) -> list[dict[str, object]]:
    over = exceeded(quota, used)
    alert = alerting(quota, used)
    over_message = f"used more than allowed: {shares(quota, used, over)}" if over else "usage is within the quota"
    ready = condition("Ready", True, "QuotaReady", "the quota is in force")
    validity = condition("Invalid", False, "ValidSpec", "the spec is valid")
    if quota.problem:
        ready = condition("Ready", False, "QuotaInvalid", "the quota is invalid")
        stands = "the last valid spec stays in force" if quota.good else "no worker starts until it is mended"
        validity = condition("Invalid", True, "InvalidSpec", f"{quota.problem}; {stands}")
    return [
        ready,
        condition("Exceeded", bool(over), "QuotaExceeded" if over else "QuotaNotExceeded", over_message),
        condition(ALERT, bool(alert), _alert_reason(bool(alert)), alert_message(quota, used, alert)),
        validity,
    ]


def _alert_reason(on: bool) -> str:
    return ALERT if on else "AlertThresholdNotReached"


def alert_message(quota: NamespaceQuotaBody, used: Tally, names: list[str]) -> str:
    if not names:
        return f"usage is below {quota.threshold} percent"
    return f"usage is at or above {quota.threshold} percent: {shares(quota, used, names)}"


def status_of(quota: NamespaceQuotaBody, used: Tally, declared: Vector) -> dict[str, object]:
    """The whole status but its times."""
    percents = {name: available_percent(quota.totals.get(name), used.amount(name)) for name in DIMENSIONS}
    status: dict[str, object] = {"used": amounts(used.vector()), "availablePercent": percents}
    if declared:
        status["declared"] = amounts(declared)
    status["conditions"] = conditions(quota, used)
    return status


def stamped(status: dict[str, object], before: dict[str, object] | None, now: int) -> dict[str, object]:
    """Adds times to a status: a condition keeps its transition time for as long as it holds, or does not hold."""
    time = timestamp(now, whole=True)
    times = {} if before is None else {(c["type"], c["status"]): c["lastTransitionTime"] for c in _conditions(before)}
    rows = [{**c, "lastTransitionTime": times.get((c["type"], c["status"]), time)} for c in _conditions(status)]
    return {**status, "conditions": rows, "lastUpdateTime": time}


def _conditions(status: dict[str, object]) -> list[dict[str, object]]:
    return cast("list[dict[str, object]]", status["conditions"])


@final
class NamespaceStatusWriter(StatusWriter):
    """Writes statuses of quotas, and events when their alerts go on or off; a restart repeats no event."""

    def __init__(self) -> None:
        super().__init__()
        self.dirty: Final[set[str]] = set()  # namespaces
        self.alerts: Final[dict[str, bool]] = {}  # by quota: before the first change that no event tells yet
        self.stamped: Final[dict[str, dict[str, object]]] = {}  # by quota: the last status, with its times

    def alert_was(self, key: str, on: bool) -> None:
        """Remembers the alert of a quota before it changes. If a rollback restores it, no event is written."""
        self.alerts.setdefault(key, on)

    def publish(self, quota: NamespaceQuotaBody, used: Tally, declared: Vector, alert: bool, now: int) -> None:
        key = quota.key
        status = status_of(quota, used, declared)
        if self.changed(KIND, key, status):
            self.stamped[key] = stamped(status, self.stamped.get(key), now)
            self.write(KIND, key, "status", self.stamped[key])
        if self.alerts.pop(key, alert) != alert:
            message = alert_message(quota, used, alerting(quota, used))
            self.write_event(KIND, key, _alert_reason(alert), message, "Warning" if alert else "Normal")

    def forget(self, known: Mapping[str, object]) -> None:
        """Forgets quotas that were deleted."""
        for key in [key for key in self.stamped if key not in known]:
            self.write_status(KIND, key, None)
            del self.stamped[key]
        for key in [key for key in self.alerts if key not in known]:
            del self.alerts[key]


@final
@dataclass
class NamespaceUsage:
    """The quotas, usage, declared demand and workers of one namespace."""

    quotas: tuple[NamespaceQuotaBody, ...]
    used: Vector
    declared: Vector
    workers: list[tuple[str, Vector]]  # (namespace/name, cost) by name


@final
@dataclass
class View:
    """Usage of all namespaces at one version of the ledger; it is taken under the engine's lock and read without it.

    A view never changes, and shares unchanged namespaces with the one before it. So taking one costs a copy of
    references and the namespaces that changed since. Texts are made when it is read.
    """

    version: int
    usages: dict[str, NamespaceUsage]

    def quota_rows(self) -> Iterator[dict[str, object]]:
        """Quotas by namespace and name, each with the status it had at this version."""
        for namespace in sorted(self.usages):
            usage = self.usages[namespace]
            used = Tally()
            used.add(usage.used)
            for quota in usage.quotas:
                yield {"quota": quota.key, **status_of(quota, used, usage.declared)}

    def worker_rows(self) -> Iterator[dict[str, object]]:
        """Workers by namespace and name, each with what it costs."""
        for namespace in sorted(self.usages):
            for key, cost in self.usages[namespace].workers:
                yield {"worker": key, **amounts(cost)}
