"""What was published about quotas, so that only what changed is written, and alerts are told once at each edge.

This is memory of the outside, not of the ledger: after a restart all statuses are written once more, alerts are not
told again. An alert is told when its cell differs from what it was before the first change that was not told yet,
which a trial that was undone does not disturb.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from bursar.policies.limits.quotas import Quota
from bursar.policies.limits.status import alert_message, alerting, stamped, status_of
from bursar.policies.settings import Output
from bursar.vectors import Tally, Vector

KIND: Final = "GPUResourceQuota.tensor-fusion.ai"


@final
class Publisher:
    """Statuses and alert events of quotas."""

    __slots__ = ("alerts", "dirty", "stamped", "written")

    def __init__(self) -> None:
        self.dirty: Final[dict[str, None]] = {}  # namespaces
        self.alerts: Final[dict[str, bool]] = {}  # by quota: what was told, of those that may have changed since
        self.written: Final[dict[str, dict[str, object]]] = {}  # by quota: the last status, without times
        self.stamped: Final[dict[str, dict[str, object]]] = {}  # the same with times

    def touched(self, namespace: str) -> None:
        self.dirty[namespace] = None

    def alert_was(self, key: str, on: bool) -> None:
        """The alert of a quota is about to change; if that is not undone, it is told with the next outputs."""
        self.alerts.setdefault(key, on)

    def take(self) -> list[str]:
        found = sorted(self.dirty)
        self.dirty.clear()
        return found

    def publish(self, quota: Quota, used: Tally, declared: Vector, alert: bool, now: int, found: list[Output]) -> None:
        """Add the quota's status and event to ``found`` where they say something new."""
        status = status_of(quota, used, declared)
        if self.written.get(quota.key) != status:
            whole = stamped(status, self.stamped.get(quota.key), now)
            self.written[quota.key] = status
            self.stamped[quota.key] = whole
            found.append(Output(KIND, quota.key, "status", whole))
        if self.alerts.pop(quota.key, alert) != alert:
            found.append(Output(KIND, quota.key, "event", _event(quota, used, alert)))

    def forget(self, known: Mapping[str, object]) -> None:
        """Drop what is remembered of quotas that are gone."""
        for key in [key for key in self.written if key not in known]:
            del self.written[key]
            del self.stamped[key]
        for key in [key for key in self.alerts if key not in known]:
            del self.alerts[key]


def _event(quota: Quota, used: Tally, alert: bool) -> dict[str, object]:
    return {
        "type": "Warning" if alert else "Normal",
        "reason": "AlertThresholdReached" if alert else "AlertThresholdNotReached",
        "message": alert_message(quota, used, alerting(quota, used)),
    }
