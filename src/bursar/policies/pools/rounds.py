"""The distribution of ``sharing`` in 64-bit arithmetic: the same results, for numbers of everyday size.

``Sharing`` is filled with one sibling after the other and then asked for the runtimes. It refuses (``fits`` is False)
when a number is so large that a sum or product could leave 64 bits; the caller then takes the general way.

Weights are divided by the largest power of two that divides them all, which makes amounts of bytes small. With
``pool = each * whole + rest``, where ``whole`` is the sum of the weights, all products stay below ``whole`` squared,
however large the pool is.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

_WIDE: Final[i64] = 2**31  # sums of weights stay below, so that remainders and their keys stay inside 62 bits
_ROOM: Final[i64] = 2**62


@final
class Sharing:
    """What the siblings ask for in one resource."""

    __slots__ = ("bits", "grants", "largest", "lims", "needed", "weights")

    def __init__(self) -> None:
        self.lims: vec[i64] = vec[i64]()
        self.grants: vec[i64] = vec[i64]()  # their needs, later their runtimes
        self.weights: vec[i64] = vec[i64]()
        self.bits: i64 = 0
        self.largest: i64 = 0
        self.needed: i64 = 0  # true only while ``fits``

    def add(self, lim: i64, need: i64, weight: i64) -> None:
        self.lims = append(self.lims, lim)
        self.grants = append(self.grants, need)
        self.weights = append(self.weights, weight)
        self.bits = self.bits | weight
        self.largest = max(self.largest, lim, need)
        if self.needed < _ROOM:
            self.needed += need

    def fits(self, total: i64) -> bool:
        """Whether 64 bits are enough; also makes the weights small."""
        count: i64 = len(self.lims)
        if count == 0:
            return True
        if count >= _WIDE or self.largest >= _ROOM // count or total >= _ROOM:
            return False
        return self._narrow(self.weights, self.bits)

    def _narrow(self, weights: vec[i64], bits: i64) -> bool:
        if bits == 0:
            return True
        common = bits & -bits
        if bits // common >= _WIDE:
            return False
        whole: i64 = 0
        for i in range(len(weights)):
            weights[i] = weights[i] // common
            whole += weights[i]
        return whole < _WIDE

    def run(self, total: i64) -> bool:
        """Distribute; the runtimes are then in ``grants``. False: not possible in 64 bits, nothing was done."""
        pool = total - self.needed
        if pool < 0:
            return self._scale(total)
        short = vec[i64]()
        for i in range(len(self.lims)):
            if self.lims[i] > self.grants[i] and self.weights[i] > 0:
                short = append(short, i)
        while pool > 0 and len(short) > 0:
            shares = hand_out(pool, self._weights_of(short))
            pool = 0
            still = vec[i64]()
            for k in range(len(short)):
                i = short[k]
                now = self.grants[i] + shares[k]
                lim = self.lims[i]
                if now < lim:
                    still = append(still, i)
                else:
                    pool += now - lim
                    now = lim
                self.grants[i] = now
            short = still
        return True

    def _weights_of(self, short: vec[i64]) -> vec[i64]:
        found = vec[i64]()
        for i in short:
            found = append(found, self.weights[i])
        return found

    def _scale(self, total: i64) -> bool:
        """The needs do not fit: the total in proportion to them."""
        needs = vec[i64]()
        bits: i64 = 0
        for need in self.grants:
            needs = append(needs, need)
            bits = bits | need
        if not self._narrow(needs, bits):
            return False
        self.grants = hand_out(total, needs)
        return True


def hand_out(pool: i64, weights: vec[i64]) -> vec[i64]:
    """The pool in proportion to the weights, to the last unit, by largest remainder, ties to the earlier."""
    whole: i64 = 0
    for weight in weights:
        whole += weight
    each = pool // whole
    rest = pool % whole
    count: i64 = len(weights)
    shares = vec[i64]()
    keys = vec[i64]()
    left: i64 = 0
    for i in range(count):
        weight = weights[i]
        product = weight * rest
        more = product // whole
        remainder = product - more * whole
        left += remainder
        shares = append(shares, each * weight + more)
        keys = append(keys, remainder * count + (count - 1 - i))  # no two are equal
    left = left // whole  # the remainders add up to whole units
    if left > 0:
        last = nth_largest(keys, left)
        for i in range(count):
            weight = weights[i]
            product = weight * rest
            remainder = product - product // whole * whole
            if remainder * count + (count - 1 - i) >= last:
                shares[i] += 1
    return shares


def nth_largest(keys: vec[i64], nth: i64) -> i64:
    """The nth largest of distinct keys, by quickselect, which reorders them: sorting would cost more than the rest."""
    low: i64 = 0
    high: i64 = len(keys) - 1
    at = nth - 1  # position in descending order
    while low < high:
        pivot = keys[(low + high) // 2]
        i = low
        j = high
        while i <= j:
            while keys[i] > pivot:
                i += 1
            while keys[j] < pivot:
                j -= 1
            if i <= j:
                swap = keys[i]
                keys[i] = keys[j]
                keys[j] = swap
                i += 1
                j -= 1
        if at <= j:
            high = j
        elif at >= i:
            low = i
        else:
            break
    return keys[at]
