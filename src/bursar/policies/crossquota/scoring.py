"""The score of one node, exactly: millionths of ``weight * sum(part * w) / sum(w)``, floored once at the end.

A part is (used + wanted) / quota, or what would be left of the quota. The sum of such fractions has a large common
denominator, so the exact way needs big integers. The fast way divides each part by itself in 64 bits and adds up
the remainders in steps of 1/32768: only if it depends on less than that whether they carry the sum over a multiple of
the weights is the exact way taken. Both give the same number.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from bursar.limits import UNLIMITED

MILLION: Final = 1_000_000
UNKNOWN: Final = -1  # of the fast way: take the exact one
_LIMB: Final[i64] = 32_768
_LARGEST_CAP: Final[i64] = 2**47  # a remainder times a limb stays inside 64 bits
_LARGEST_FACTOR: Final = 2**45


@final
class Weighing:
    """What a score needs of one claim, apart from the nodes: the weights of the resources that it requests."""

    __slots__ = ("factors", "fast", "least", "total", "weight", "weights")

    def __init__(self, weight: int, weights: list[int], least: bool) -> None:
        self.weight: Final = weight
        self.weights: Final = weights
        self.least: Final = least
        self.total: Final = sum(weights)
        self.factors: Final = [weight * MILLION * one for one in weights]
        self.fast: Final = max(self.factors, default=0) < _LARGEST_FACTOR

    def scores_nothing(self) -> bool:
        return self.weight == 0 or self.total == 0

    def exact(self, parts: list[tuple[int, int]]) -> int:
        """The score of the parts (share, quota), one a resource."""
        numerator = 0
        denominator = 1
        for i in range(len(parts)):
            share, cap = parts[i]
            if cap > 0:
                numerator = numerator * cap + self.factors[i] * share * denominator
                denominator *= cap
        return numerator // (denominator * self.total)

    def part(self, used: int, wanted: int, cap: int) -> tuple[int, int]:
        """The share of the quota that counts, as a fraction; a quota of nothing gives nothing."""
        if cap == UNLIMITED:
            return (1, 1) if self.least else (0, 1)
        return (cap - used - wanted if self.least else used + wanted, cap)


@final
class Sum:
    """The fast way: parts are added one by one, then ``floor_by`` divides their sum."""

    __slots__ = ("fraction", "inexact", "whole")

    def __init__(self) -> None:
        self.whole: i64 = 0
        self.fraction: i64 = 0  # of the remainders, in 1/32768, each rounded down
        self.inexact: i64 = 0  # how many were rounded

    def start(self) -> None:
        self.whole = 0
        self.fraction = 0
        self.inexact = 0

    def add(self, share: i64, cap: i64, factor: i64) -> None:
        """Add factor * share / cap, for 0 <= share <= cap, 0 < cap < 2**47 and factor < 2**45: 15 bits at a time."""
        found: i64 = 0
        rest: i64 = 0
        if factor >= _LIMB * _LIMB:
            rest = share * (factor // (_LIMB * _LIMB))
            found = rest // cap
            rest -= found * cap
        if factor >= _LIMB:
            rest = rest * _LIMB + share * (factor // _LIMB % _LIMB)
            step: i64 = rest // cap
            rest -= step * cap
            found = found * _LIMB + step
        rest = rest * _LIMB + share * (factor % _LIMB)
        last: i64 = rest // cap
        rest -= last * cap
        self.whole += found * _LIMB + last
        if rest != 0:
            self.inexact += 1
            self.fraction += rest * _LIMB // cap

    def floor_by(self, divisor: i64) -> i64:
        """floor(sum / divisor), or ``UNKNOWN`` when what was rounded away decides."""
        if self.inexact == 0:
            return self.whole // divisor
        low = (self.whole + self.fraction // _LIMB) // divisor
        high = (self.whole + (self.fraction + self.inexact - 1) // _LIMB) // divisor
        return low if low == high else UNKNOWN


def fits_fast(cap: i64) -> bool:
    return cap < _LARGEST_CAP
