"""What a quota's status says: used, what is left in percent, and its conditions. Integers only, also for percents.

The alert is raised when the used share reaches the threshold, exactly at its value too; a threshold of 0 when
anything is used. A dimension without a limit never alerts and shows 100 percent without decimals: not tracked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bursar.dimensions import dimension
from bursar.policies.limits.quotas import DIMENSIONS, WORKERS, Quota
from bursar.vectors import Tally, Vector

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


def alerting(quota: Quota, used: Tally) -> list[str]:
    """The dimensions whose threshold is reached."""
    return [n for n in DIMENSIONS if reached(quota.totals.get(n), used.amount(n), quota.threshold)]


def exceeded(quota: Quota, used: Tally) -> list[str]:
    """The dimensions in which more is used than the quota allows."""
    return [n for n in DIMENSIONS if n in quota.totals and used.amount(n) > quota.totals[n]]


def shares(quota: Quota, used: Tally, names: list[str]) -> str:
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


def condition(kind: str, holds: bool, reason: str, message: str) -> dict[str, object]:
    return {"type": kind, "status": "True" if holds else "False", "reason": reason, "message": message}


def conditions(quota: Quota, used: Tally) -> list[dict[str, object]]:
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


def _validity(quota: Quota) -> str:
    if not quota.problem:
        return "the spec is valid"
    stands = "the last valid spec stays in force" if quota.good else "no worker starts until it is mended"
    return f"{quota.problem}; {stands}"


def alert_message(quota: Quota, used: Tally, names: list[str]) -> str:
    if not names:
        return f"usage is below {quota.threshold} percent"
    return f"usage is at or above {quota.threshold} percent: {shares(quota, used, names)}"


def status_of(quota: Quota, used: Tally, declared: Vector) -> dict[str, object]:
    """The whole status but its times."""
    percents = {name: available_percent(quota.totals.get(name), used.amount(name)) for name in DIMENSIONS}
    status: dict[str, object] = {"used": amounts(used.vector()), "availablePercent": percents}
    if declared:
        status["declared"] = amounts(declared)
    status["conditions"] = conditions(quota, used)
    return status


def stamped(status: dict[str, object], before: Mapping[str, object] | None, now: int) -> dict[str, object]:
    """The status with its times: a condition keeps its transition time for as long as it says the same."""
    time = timestamp(now)
    known: dict[object, object] = {}
    if before is not None and isinstance(before["conditions"], list):
        for old in before["conditions"]:
            known[old["type"], old["status"]] = old["lastTransitionTime"]
    rows: list[dict[str, object]] = []
    if isinstance(status["conditions"], list):
        rows = [
            {**row, "lastTransitionTime": known.get((row["type"], row["status"]), time)} for row in status["conditions"]
        ]
    return {**status, "conditions": rows, "lastUpdateTime": time}


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
