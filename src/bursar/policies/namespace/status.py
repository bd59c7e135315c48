"""What a quota's status says: used, what is left in percent, and its conditions. Integers only, also for percents.

The alert is raised when the used share reaches the threshold, exactly at its value too; a threshold of 0 when
anything is used. A dimension without a limit never alerts and shows 100 percent without decimals: not tracked.

What was published about quotas, so that only what changed is written, and alerts are told once at each edge.

This is memory of the outside, not of the ledger: after a restart all statuses are written once more, alerts are not
told again. An alert is told when its cell differs from what it was before the first change that was not told yet,
which a trial that was undone does not disturb.

Usage of all namespaces at one version, to list at leisure: taken under the engine's lock, read without it.

A view never changes. It shares with the view before it whatever did not change in between, so taking one costs the
namespaces that were touched since (and a copy of references), not all workers there are. Everything that takes time
(amounts as text, percents, conditions) is made from the view, when nobody has to wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, cast, final

from bursar.ledger.claims import Claim
from bursar.policies.namespace.settings import DIMENSIONS, WORKERS, NamespaceQuota
from bursar.policies.status import StatusWriter, condition
from bursar.resources import EMPTY, Tally, Vector, dimension

UNTRACKED: Final = "100"
_DAY: Final = 86_400_000


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


def alerting(quota: NamespaceQuota, used: Tally) -> list[str]:
    """The dimensions whose threshold is reached."""
    return [n for n in DIMENSIONS if reached(quota.totals.get(n), used.amount(n), quota.threshold)]


def exceeded(quota: NamespaceQuota, used: Tally) -> list[str]:
    """The dimensions in which more is used than the quota allows."""
    return [n for n in DIMENSIONS if n in quota.totals and used.amount(n) > quota.totals[n]]


def shares(quota: NamespaceQuota, used: Tally, names: list[str]) -> str:
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


def conditions(quota: NamespaceQuota, used: Tally) -> list[dict[str, object]]:
    over = exceeded(quota, used)
    alert = alerting(quota, used)
    broken = bool(quota.problem)
    return [
        condition(
            "Ready",
            not broken,
            "QuotaInvalid" if broken else "QuotaReady",
            "the quota is invalid" if broken else "the quota is in force",
        ),
        condition(
            "Exceeded",
            bool(over),
            "QuotaExceeded" if over else "QuotaNotExceeded",
            f"used more than allowed: {shares(quota, used, over)}" if over else "usage is within the quota",
        ),
        condition(
            "AlertThresholdReached",
            bool(alert),
            "AlertThresholdReached" if alert else "AlertThresholdNotReached",
            alert_message(quota, used, alert),
        ),
        condition("Invalid", broken, "InvalidSpec" if broken else "ValidSpec", _validity(quota)),
    ]


def _validity(quota: NamespaceQuota) -> str:
    if not quota.problem:
        return "the spec is valid"
    stands = "the last valid spec stays in force" if quota.good else "no worker starts until it is mended"
    return f"{quota.problem}; {stands}"


def alert_message(quota: NamespaceQuota, used: Tally, names: list[str]) -> str:
    if not names:
        return f"usage is below {quota.threshold} percent"
    return f"usage is at or above {quota.threshold} percent: {shares(quota, used, names)}"


def status_of(quota: NamespaceQuota, used: Tally, declared: Vector) -> dict[str, object]:
    """The whole status but its times."""
    percents = {name: available_percent(quota.totals.get(name), used.amount(name)) for name in DIMENSIONS}
    status: dict[str, object] = {"used": amounts(used.vector()), "availablePercent": percents}
    if declared:
        status["declared"] = amounts(declared)
    status["conditions"] = conditions(quota, used)
    return status


def stamped(status: dict[str, object], before: dict[str, object] | None, now: int) -> dict[str, object]:
    """Adds times to a status: a condition keeps its transition time for as long as it holds, or does not hold."""
    time = timestamp(now)
    times = {} if before is None else {(c["type"], c["status"]): c["lastTransitionTime"] for c in _conditions(before)}
    rows = [{**c, "lastTransitionTime": times.get((c["type"], c["status"]), time)} for c in _conditions(status)]
    return {**status, "conditions": rows, "lastUpdateTime": time}


def _conditions(status: dict[str, object]) -> list[dict[str, object]]:
    return cast("list[dict[str, object]]", status["conditions"])


def timestamp(now: int) -> str:
    """Milliseconds since 1970 in the form of Kubernetes (RFC 3339, whole seconds, UTC)."""
    days = now // _DAY
    seconds = now % _DAY // 1000
    # Days are counted from 1 March of a year divisible by 400, so that leap days come last.
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = era * 400 + year_of_era + (1 if month <= 2 else 0)
    return f"{year:04}-{month:02}-{day:02}T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


KIND: Final = "GPUResourceQuota.tensor-fusion.ai"


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

    def publish(self, quota: NamespaceQuota, used: Tally, declared: Vector, alert: bool, now: int) -> None:
        key = quota.key
        status = status_of(quota, used, declared)
        if self.changed(KIND, key, status):
            self.stamped[key] = stamped(status, self.stamped.get(key), now)
            self.write(KIND, key, "status", self.stamped[key])
        if self.alerts.pop(key, alert) != alert:
            reason = "AlertThresholdReached" if alert else "AlertThresholdNotReached"
            message = alert_message(quota, used, alerting(quota, used))
            self.write_event(KIND, key, reason, message, "Warning" if alert else "Normal")

    def forget(self, known: Mapping[str, object]) -> None:
        """Forgets quotas that were deleted."""
        for key in [key for key in self.stamped if key not in known]:
            self.write_status(KIND, key, None)
            del self.stamped[key]
        for key in [key for key in self.alerts if key not in known]:
            del self.alerts[key]


@final
class NamespaceUsage:
    """One namespace: its quotas, what counts against them, what is declared, and who the workers are."""

    __slots__ = ("declared", "namespace", "quotas", "used", "workers")

    def __init__(
        self,
        namespace: str,
        quotas: tuple[NamespaceQuota, ...],
        used: Vector,
        declared: Vector,
        workers: tuple[tuple[str, Vector], ...],
    ) -> None:
        self.namespace: Final = namespace
        self.quotas: Final = quotas
        self.used: Final = used
        self.declared: Final = declared
        self.workers: Final = workers  # (namespace/name, cost) by name

    def worker_rows(self) -> Iterator[dict[str, object]]:
        for key, cost in self.workers:
            yield {"worker": key, **amounts(cost)}

    def quota_rows(self) -> Iterator[dict[str, object]]:
        used = Tally()
        used.add(self.used)
        for quota in self.quotas:
            yield {"quota": quota.key, **status_of(quota, used, self.declared)}


@final
class View:
    """All namespaces that ever had a worker or a quota, by name, at one version of the ledger."""

    __slots__ = ("usages", "version")

    def __init__(self, version: int, usages: dict[str, NamespaceUsage]) -> None:
        self.version: Final = version
        self.usages: Final = usages

    def quota_rows(self) -> Iterator[dict[str, object]]:
        """Quotas by namespace and name, each with the status it had at this version."""
        for namespace in sorted(self.usages):
            yield from self.usages[namespace].quota_rows()

    def worker_rows(self) -> Iterator[dict[str, object]]:
        """Workers by namespace and name, each with what it costs."""
        for namespace in sorted(self.usages):
            yield from self.usages[namespace].worker_rows()


@final
class Views:
    """Makes views; knows which namespaces changed since the last one."""

    __slots__ = ("last", "stale")

    def __init__(self) -> None:
        self.stale: Final[dict[str, None]] = {}
        self.last: View = View(0, {})

    def touched(self, namespace: str) -> None:
        self.stale[namespace] = None

    def keep(self, version: int, renewed: list[NamespaceUsage]) -> View:
        """The view of now: the last one, with what was made anew."""
        usages = self.last.usages
        if renewed:
            usages = dict(usages)
            for usage in renewed:
                usages[usage.namespace] = usage
        self.stale.clear()
        self.last = View(version, usages)
        return self.last


def cost_of(claim: Claim, policy: str) -> Vector:
    """What a worker costs its namespace."""
    for binding in claim.bindings:
        if binding is not None and binding.policy == policy and binding.costs:
            return binding.costs[0]
    return EMPTY
