"""Durations as people write them (``30s``, ``5m``, ``1h30m``, ``250ms``, ``1.5s``), in exact milliseconds."""

from __future__ import annotations

import re

from bursar.objects.errors import ManifestError

_UNITS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,12})?"
_DURATION = re.compile("".join(rf"(?:(?P<{unit}>{_NUMBER}){unit})?" for unit in _UNITS), re.ASCII)


def duration_ms(value: object, path: str = "") -> int:
    """Milliseconds; the units are h, m, s and ms, in that order, each at most once. ``0`` needs no unit."""
    if value == "0" or (isinstance(value, int) and not isinstance(value, bool) and value == 0):
        return 0
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None or not match.group():
        raise ManifestError(f"{value!r:.60} is not a duration: write it as 30s, 5m, 1h30m or 250ms", path)
    return sum(_part(number, unit, path) for unit, number in match.groupdict().items() if number)


def _part(number: str, unit: str, path: str) -> int:
    whole, _, fraction = number.partition(".")
    scale: int = 10 ** len(fraction)
    milliseconds, finer = divmod(int(whole + fraction) * _UNITS[unit], scale)
    if finer:
        raise ManifestError(f"'{number}{unit}' is not a duration: finer than a millisecond", path)
    return milliseconds
