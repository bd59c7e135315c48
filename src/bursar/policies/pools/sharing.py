"""How siblings share what their parent has: pure arithmetic over one resource, in exact integers.

Every sibling has a *need*: what it asks for, up to its base (its min, or what is guaranteed to it); one that does not
lend needs its whole base, asked for or not. Two cases:

* the needs fit: each gets its need, and what is left is handed out in rounds by weight to those who ask for more
  than their base, until nobody asks, nothing is left, or nobody left has a weight;
* the needs do not fit: the whole is split in proportion to the needs.

Every proportional split hands out each unit: floors first, then one unit each by largest remainder, ties in the order
of the siblings, which callers keep sorted by name. So runtimes never add up to more than there is.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

# Remainders are below the sum of the weights; below this bound their products and keys stay inside 62 bits.
_NARROW: Final = 2**31


@final
class Round:
    """One round of a distribution, for explanations: what there was, and what each sibling was handed."""

    __slots__ = ("handed", "pool")

    def __init__(self, pool: int, handed: dict[int, int]) -> None:
        self.pool: Final = pool
        self.handed: Final = handed  # by position of the sibling


@final
class Trace:
    """How a distribution came about, for explanations."""

    __slots__ = ("needs", "rounds", "scaled")

    def __init__(self) -> None:
        self.needs: list[int] = []
        self.scaled: bool = False  # the needs did not fit and were scaled down
        self.rounds: Final[list[Round]] = []


def needs_of(lims: list[int], bases: list[int], lends: list[bool]) -> list[int]:
    """What each sibling must have before anything is shared out."""
    found: list[int] = []
    for i in range(len(lims)):
        base = bases[i]
        found.append(lims[i] if lends[i] and lims[i] < base else base)
    return found


def distribute(
    total: int,
    lims: list[int],
    bases: list[int],
    weights: list[int],
    lends: list[bool],
    trace: Trace | None = None,
) -> list[int]:
    """The runtime of each sibling; ``lims`` are what they ask for, already capped by their max."""
    granted = needs_of(lims, bases, lends)
    pool = total
    for need in granted:
        pool -= need
    if trace is not None:
        trace.needs = list(granted)
        trace.scaled = pool < 0
    if pool < 0:
        return split(total, granted)
    short = [i for i in range(len(lims)) if lims[i] > granted[i] and weights[i] > 0]
    while pool > 0 and short:
        shares = split(pool, [weights[i] for i in short])
        if trace is not None:
            trace.rounds.append(Round(pool, {short[k]: shares[k] for k in range(len(short))}))
        pool = 0
        still: list[int] = []
        for k in range(len(short)):
            i = short[k]
            now = granted[i] + shares[k]
            if now < lims[i]:
                still.append(i)
            else:
                pool += now - lims[i]
                now = lims[i]
            granted[i] = now
        short = still
    return granted


def split(total: int, weights: list[int]) -> list[int]:
    """The total in proportion to the weights, to the last unit; nothing at all when no weight is positive."""
    bits = 0
    for weight in weights:
        bits |= weight
    if bits == 0 or total <= 0:
        return [0] * len(weights)
    common = bits & -bits  # the largest power of two that divides every weight: amounts of bytes become small
    if bits // common < _NARROW:
        narrow = vec[i64]()
        whole: i64 = 0
        for weight in weights:
            part = i64(weight // common)
            narrow = append(narrow, part)
            whole += part
        if whole < _NARROW:
            return _split_narrow(total, narrow, whole)
    return _split_wide(total, weights)


def _split_narrow(total: int, weights: vec[i64], whole: i64) -> list[int]:
    """In 64-bit arithmetic. ``total = each * whole + rest`` keeps the products small, however large the total is."""
    each = total // int(whole)
    rest: i64 = total % int(whole)
    shares: list[int] = []
    keys = vec[i64]()
    count: i64 = len(weights)
    left: i64 = 0
    for i in range(count):
        product: i64 = weights[i] * rest
        remainder = product % whole
        left += remainder
        shares.append(each * int(weights[i]) + int(product // whole))
        # Larger remainder first, then the earlier sibling; no two keys are equal.
        keys = append(keys, remainder * count + (count - 1 - i))
    left = left // whole  # the remainders add up to whole units
    if left > 0:
        last = _nth_largest(_copy(keys), left)
        for i in range(count):
            if keys[i] >= last:
                shares[i] += 1
    return shares


def _copy(keys: vec[i64]) -> vec[i64]:
    found = vec[i64]()
    for key in keys:
        found = append(found, key)
    return found


def _nth_largest(keys: vec[i64], nth: i64) -> i64:
    """The nth largest of distinct keys, by quickselect: sorting them would cost more than everything around it."""
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


def _split_wide(total: int, weights: list[int]) -> list[int]:
    """The same in integers of any size."""
    whole = 0
    for weight in weights:
        whole += weight
    shares: list[int] = []
    order: list[tuple[int, int]] = []
    left = total
    for i in range(len(weights)):
        product = weights[i] * total
        share = product // whole
        shares.append(share)
        left -= share
        order.append((share * whole - product, i))
    order.sort()
    for k in range(left):
        shares[order[k][1]] += 1
    return shares
