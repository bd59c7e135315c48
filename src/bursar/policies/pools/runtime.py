"""How siblings share what their parent has, in exact integers, and how a branch applies that to its children.

Every sibling has a *need*: its limited request, up to its base (its min, or what is guaranteed to it); one that does
not lend needs its whole base. Two cases:

* the needs fit: each gets its need, and the rest is distributed in rounds by weight to those that request more than
  their base, until all requests are met, nothing is left, or no weight is left;
* the needs do not fit: the whole is split in proportion to the needs.

Every proportional split distributes each unit: floors first, then one unit each by largest remainder, ties in the order
of the siblings, which callers keep sorted by name. So runtimes never add up to more than there is.

``distribute`` is the rule, in integers of any size. ``Sharing`` computes the same in 64 bits, and declines when a
number is too large (``fits``). It stays because it is three times as fast: plain integers take 13.9 instead of 4.4 ms
for all runtimes of 10,000 quotas, and 187 instead of 67 us for one change, more than the goal of 160 us.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from bursar.policies.pools.quota_node import Branch


@final
@dataclass
class Round:
    """One round of a distribution, for explanations: what there was, and what each sibling was handed."""

    pool: int
    handed: dict[int, int]  # by position of the sibling


@final
@dataclass
class Trace:
    """How a distribution came about, for explanations."""

    needs: list[int] = field(default_factory=list)
    scaled: bool = False  # the needs did not fit and were scaled down
    rounds: list[Round] = field(default_factory=list)


def needs_of(lims: list[int], bases: list[int], lends: list[bool]) -> list[int]:
    """What each sibling gets before the rest is shared."""
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
    """The runtime of each sibling; ``lims`` are their requests, limited by their max."""
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
    """The total in proportion to the weights, to the last unit; zeros if no weight is positive."""
    whole = 0
    for weight in weights:
        whole += weight
    if whole == 0 or total <= 0:
        return [0] * len(weights)
    shares: list[int] = []
    order: list[tuple[int, int]] = []
    left = total
    for i in range(len(weights)):
        product = weights[i] * total
        share = product // whole
        shares.append(share)
        left -= share
        order.append((share * whole - product, i))  # larger remainder first, then the earlier sibling
    order.sort()
    for k in range(left):
        shares[order[k][1]] += 1
    return shares


_WIDE: Final[i64] = 2**31  # sums of weights stay below, so that remainders and their keys stay inside 62 bits
_ROOM: Final[i64] = 2**62


@final
class Sharing:
    """The distribution of one resource among siblings, in 64-bit arithmetic.

    Weights are divided by the largest power of two that divides them all, which makes amounts of bytes small. With
    ``pool = each * whole + rest``, where ``whole`` is the sum of the weights, products stay below ``whole`` squared.
    """

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
        """Returns whether 64 bits are enough, and divides the weights."""
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
        """Puts the runtimes into ``grants``; returns False, and does nothing, if 64 bits are not enough."""
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
        """Splits the total in proportion to needs that do not fit."""
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
    """The nth largest of distinct keys, by quickselect, which reorders them; sorting takes a sixth more in all."""
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


def share_slot(branch: Branch, number: int) -> list[Branch]:
    """Distributes the runtime of a branch in one slot; returns the children whose runtime changed."""
    if branch.wanted[number] <= int(branch.runtime[number]):
        return _grant_all(branch, number)
    branch.plenty &= ~(1 << number)
    slot = i64(number)
    sharing = Sharing()
    total = branch.runtime[slot]
    for child in branch.children:
        sharing.add(child.lim[slot], child.need[slot], child.weights[slot])
    if not sharing.fits(total) or not sharing.run(total):
        return _share_any_size(branch, number)
    branch.scaled[number] = total < sharing.needed
    grants = sharing.grants
    changed: list[Branch] = []
    for at, child in enumerate(branch.children):
        if child.runtime[slot] != grants[at]:
            child.runtime[slot] = grants[at]
            changed.append(child)
    return changed


def _grant_all(branch: Branch, number: int) -> list[Branch]:
    """Gives each child what it wants, because there is enough for all. It costs as much as has changed."""
    slot = i64(number)
    bit = 1 << number
    changed: list[Branch] = []
    for child in branch.moved if branch.plenty & bit else branch.children:
        if child.runtime[slot] != child.want[slot]:
            child.runtime[slot] = child.want[slot]
            changed.append(child)
    branch.plenty |= bit
    branch.scaled[number] = False
    return changed


def _share_any_size(branch: Branch, slot: int) -> list[Branch]:
    """Distributes in integers of any size."""
    trace = Trace()
    found = distribute_children(branch, slot, trace)
    branch.scaled[slot] = trace.scaled
    changed: list[Branch] = []
    for at, child in enumerate(branch.children):
        if int(child.runtime[slot]) != found[at]:
            child.runtime[slot] = i64(found[at])
            changed.append(child)
    return changed


def distribute_children(branch: Branch, slot: int, trace: Trace) -> list[int]:
    """The runtimes of the children of a branch, by the rule, with the way to them."""
    children = branch.children
    return distribute(
        int(branch.runtime[slot]),
        [int(child.lim[slot]) for child in children],
        [child.base(slot) for child in children],
        [int(child.weights[slot]) for child in children],
        [child.lends for child in children],
        trace,
    )
