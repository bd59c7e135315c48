"""The time on the wall, as objects of Kubernetes say it. For people: no decision rests on it."""

from __future__ import annotations

from datetime import UTC, datetime


def micro_time() -> str:
    """Now, of the type MicroTime: in events and leases."""
    return _now("microseconds")


def whole_seconds() -> str:
    """Now, of the type Time: everywhere else."""
    return _now("seconds")


def _now(precision: str) -> str:
    return datetime.now(UTC).isoformat(timespec=precision).replace("+00:00", "Z")
