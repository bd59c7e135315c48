"""How siblings share what their parent has, in exact integers, and how a branch applies that to its children.

Every sibling has a *need*: its limited request, up to its base (its min, or what is guaranteed to it); one that does
not lend needs its whole base. Two cases:

* the needs fit: each gets its need, and the rest is distributed in rounds by weight to those that request more than
  their base, until all requests are met, nothing is left, or no weight is left;
* the needs do not fit: the whole is split in proportion to the needs.

Every proportional split distributes each unit: floors first, then one unit each by largest remainder, ties in the order
of the siblings, which callers keep sorted by name. So runtimes never add up to more than there is.

``distribute`` is the rule, in integers of any size. ``Sharing`` computes the same in 64 bits, and declines when a
number is too large (``fits``). It stays because plain integers take several times as long on contested levels. Where
there is enough for all, nothing is split, and only children that have changed are looked at (``_grant_all``).
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
    """The distribution of one resource among siblings, in 64-bit arithmetic and in arrays that are used again.

    Weights are divided by the largest power of two that divides them all, which makes amounts of bytes small. With
    ``pool = each * whole + rest``, where ``whole`` is the sum of the weights, products stay below ``whole`` squared.
    Those that have not got what they request are kept at the front of their arrays, in order.
    """

    __slots__ = (
        "at",
        "bits",
        "count",
        "grants",
        "keys",
        "largest",
        "lims",
        "needed",
        "order",
        "rooms",
        "shares",
        "short",
        "size",
        "weights",
        "whole",
    )

    def __init__(self) -> None:
        self.size: i64 = 0  # of the arrays
        self.count: i64 = 0
        self.lims: vec[i64] = vec[i64]()
        self.grants: vec[i64] = vec[i64]()  # their needs, later their runtimes
        self.weights: vec[i64] = vec[i64]()
        self.bits: i64 = 0
        self.largest: i64 = 0
        self.needed: i64 = 0  # true only while ``fits``
        self.short: i64 = 0  # how many want more
        self.whole: i64 = 0  # their weights together
        self.at: vec[i64] = vec[i64]()  # who they are
        self.rooms: vec[i64] = vec[i64]()  # how much more they want
        self.shares: vec[i64] = vec[i64]()
        self.keys: vec[i64] = vec[i64]()  # larger remainders first, no two are equal
        self.order: vec[i64] = vec[i64]()

    def load(self, branch: Branch, slot: i64) -> None:
        """Takes what the children of a branch request, need and weigh."""
        self._reach(len(branch.children))
        lims, grants, weights = self.lims, self.grants, self.weights
        bits: i64 = 0
        largest: i64 = 0
        needed: i64 = 0
        at: i64 = 0
        for child in branch.children:
            lim, need, weight = child.lim[slot], child.need[slot], child.weights[slot]
            lims[at] = lim
            grants[at] = need
            weights[at] = weight
            bits = bits | weight
            largest = largest | lim | need  # at least the largest, and less than twice as much
            if needed < _ROOM:
                needed += need
            at += 1
        self.count = at
        self.bits = bits
        self.largest = largest
        self.needed = needed

    def _reach(self, size: i64) -> None:
        """Makes the arrays long enough."""
        if self.size < size:
            self.size = size
            self.lims = longer(self.lims, size)
            self.grants = longer(self.grants, size)
            self.weights = longer(self.weights, size)
            self.at = longer(self.at, size)
            self.rooms = longer(self.rooms, size)
            self.shares = longer(self.shares, size)
            self.keys = longer(self.keys, size)
            self.order = longer(self.order, size)

    def fits(self, total: i64) -> bool:
        """Returns whether 64 bits are enough, and divides the weights."""
        if self.count == 0:
            return True
        if self.count >= _WIDE or self.largest >= _ROOM // self.count or total >= _ROOM:
            return False
        return self._narrow(self.bits)

    def _narrow(self, bits: i64) -> bool:
        """Divides the weights by what divides them all."""
        if bits == 0:
            return True
        common = bits & -bits
        if bits // common >= _WIDE:
            return False
        weights = self.weights
        whole: i64 = 0
        for i in range(self.count):
            weight = weights[i] // common
            weights[i] = weight
            whole += weight
        return whole < _WIDE

    def run(self, total: i64) -> bool:
        """Puts the runtimes into ``grants``; returns False, and does nothing, if 64 bits are not enough."""
        pool = total - self.needed
        if pool < 0:
            return self._scale(total)
        self._list_short()
        while pool > 0 and self.short > 0:
            pool = self._take_shares(self._hand_out(pool))
        lims, at, rooms, grants = self.lims, self.at, self.rooms, self.grants
        for k in range(self.short):
            grants[at[k]] = lims[at[k]] - rooms[k]
        return True

    def _list_short(self) -> None:
        lims, grants, weights, at, rooms = self.lims, self.grants, self.weights, self.at, self.rooms
        short: i64 = 0
        whole: i64 = 0
        for i in range(self.count):
            weight = weights[i]
            room = lims[i] - grants[i]
            if room > 0 and weight > 0:
                at[short] = i
                rooms[short] = room
                weights[short] = weight  # those behind have been read
                whole += weight
                short += 1
        self.short = short
        self.whole = whole

    def _scale(self, total: i64) -> bool:
        """Splits the total in proportion to needs that do not fit."""
        bits: i64 = 0
        weights, grants = self.weights, self.grants
        for i in range(self.count):
            weights[i] = grants[i]
            bits = bits | grants[i]
        if not self._narrow(bits):
            return False
        self.whole = 0
        for i in range(self.count):
            self.whole += weights[i]
        self.short = self.count
        last = self._hand_out(total)
        shares, keys = self.shares, self.keys
        for i in range(self.count):
            grants[i] = shares[i] + 1 if keys[i] >= last else shares[i]
        return True

    def _hand_out(self, pool: i64) -> i64:
        """Puts the floors of proportional shares into ``shares``; keys from the one returned on get a unit more."""
        weights, shares, keys, order = self.weights, self.shares, self.keys, self.order
        short, whole = self.short, self.whole
        each = pool // whole
        rest = pool % whole
        left: i64 = 0
        for k in range(short):
            weight = weights[k]
            product = weight * rest
            more = product // whole
            remainder = product - more * whole
            left += remainder
            shares[k] = each * weight + more
            key = remainder * short + (short - 1 - k)
            keys[k] = key
            order[k] = key
        left = left // whole  # the remainders add up to whole units
        return nth_largest(order, short, left) if left > 0 else _ROOM

    def _take_shares(self, last: i64) -> i64:
        """Adds the shares, drops those that have what they request, and returns what they do not need."""
        lims, grants, weights, at, rooms = self.lims, self.grants, self.weights, self.at, self.rooms
        shares, keys = self.shares, self.keys
        pool: i64 = 0
        still: i64 = 0
        for k in range(self.short):
            room = rooms[k] - shares[k]
            if keys[k] >= last:
                room -= 1
            if room > 0:
                at[still] = at[k]
                rooms[still] = room
                weights[still] = weights[k]
                still += 1
            else:
                pool -= room
                self.whole -= weights[k]
                grants[at[k]] = lims[at[k]]
        self.short = still
        return pool


def longer(array: vec[i64], size: i64) -> vec[i64]:
    found = array
    while len(found) < size:
        found = append(found, 0)
    return found


def nth_largest(keys: vec[i64], count: i64, nth: i64) -> i64:
    """The nth largest of distinct keys, by quickselect, which reorders them; sorting takes a sixth more in all."""
    low: i64 = 0
    high: i64 = count - 1
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


def share_slot(branch: Branch, number: int, sharing: Sharing) -> list[Branch]:
    """Distributes the runtime of a branch in one slot; returns the children whose runtime changed."""
    if branch.wanted[number] <= int(branch.runtime[number]):
        return _grant_all(branch, number)
    branch.plenty &= ~(1 << number)
    slot = i64(number)
    sharing.load(branch, slot)
    total = branch.runtime[slot]
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
