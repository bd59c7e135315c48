"""Percentages: read exactly, as a fraction, and taken of an amount, floored.

A percentage is more than 0 and at most 100, given as text or as a number, without a sign for percent. NaN, infinity
and everything else that is no plain decimal number is refused.
"""

from __future__ import annotations

import re
from math import gcd
from typing import Final

from bursar.limits import UNLIMITED

Percent = tuple[int, int]
"""Numerator and denominator of the number of hundredths, in lowest terms: 50.5 is (101, 2)."""

_DECIMAL: Final = re.compile(r"([0-9]{1,12})(?:\.([0-9]{0,18}))?(?:[eE]([-+]?[0-9]{1,2}))?", re.ASCII)
_SHOWN: Final = 40


class PercentError(ValueError):
    """A value that is no acceptable percentage."""


def parse_percent(value: object) -> Percent:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise PercentError("is not a percentage: expected a number or a string")
    text = value if isinstance(value, str) else repr(value)
    shown = repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
    found = _DECIMAL.fullmatch(text)
    if found is None:
        sign = ", written without a sign" if text.endswith("%") else ""
        raise PercentError(f"{shown} is not a percentage: a number above 0 and up to 100{sign}")
    fraction = found.group(2) or ""
    numerator = int(found.group(1) + fraction)
    exponent = int(found.group(3) or "0") - len(fraction)
    if exponent >= 0:
        numerator *= 10**exponent
    denominator = 10 ** max(-exponent, 0)
    if numerator == 0 or numerator > 100 * denominator:
        raise PercentError(f"{shown} is not above 0 and up to 100")
    common = gcd(numerator, denominator)
    return (numerator // common, denominator // common)


def percent_of(percent: Percent, base: int) -> int:
    """That share of an amount, floored; of what has no limit there is no limit."""
    if base == UNLIMITED:
        return UNLIMITED
    return base * percent[0] // (100 * percent[1])
