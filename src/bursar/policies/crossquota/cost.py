"""What claims cost on a GPU node, their bindings, and the score of a node.

A claim that the quota limits costs its requests of the resources with a quota. Where idle GPUs keep a reserve, every
claim also counts in the node's second account, with its GPUs and its requests of reserved resources. The binding of a
claim that the quota does not limit is ``FREE``: it counts there and is never refused.

The score is ``weight * sum(part * w) / sum(w)`` in millionths, floored once at the end. A part is the share of the
quota that would be used, or left. The exact sum needs big integers, seven times the cost of all else in a filter and
score. ``ScoreSum`` divides each part in 64 bits and adds up the remainders in steps of 1/32768. Only where these steps
cannot tell on which side of a whole number the sum lies is it computed exactly, so both give the same number.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from bursar.ledger.claims import Binding
from bursar.ledger.state import Account
from bursar.policies.crossquota.arguments import GPUS, NAME, Arguments
from bursar.policies.crossquota.node_quota import Scope
from bursar.policies.placement_kit import ONE_POD, BindingCache, remember
from bursar.resources import EMPTY, UNLIMITED, Vector, from_amounts

FREE: Final[tuple[object, ...]] = ("free",)


@final
class NodeCosts:
    """What some requests cost in both accounts of a node."""

    def __init__(self, limited: Vector, total: Vector) -> None:
        self.limited: Final = limited  # of the quota, if the quota limits the claim
        self.total: Final = total  # in the account of all claims
        self.wanted: Final = limited.peak(total)  # of anything that has a quota or a reserve


@final
class CostCache:
    """NodeCosts and bindings by requests, for some arguments."""

    def __init__(self, arguments: Arguments, scope: Scope) -> None:
        self.arguments: Final = arguments
        self.scope: Final = scope
        self.known: Final[dict[Vector, NodeCosts]] = {}
        self.limited: Final = BindingCache()
        self.free: Final = BindingCache()

    def costs(self, requests: Vector) -> NodeCosts:
        found = self.known.get(requests)
        if found is None:
            limited = requests.only(self.arguments.resources)
            if "pods" in self.arguments.resources:
                limited = limited.plus(ONE_POD)
            found = remember(self.known, requests, NodeCosts(limited, self._total(requests)))
        return found

    def _total(self, requests: Vector) -> Vector:
        if not self.arguments.reserves:
            return EMPTY
        gpus = from_amounts({GPUS: self.scope.gpus(requests)})
        return requests.only(self.arguments.reserves).plus(gpus)

    def binding(self, account: Account | None, reserve: Account | None, requests: Vector) -> Binding | None:
        """The binding of a claim, None if it costs nothing. Without ``account`` the quota does not limit it."""
        costs = self.costs(requests)
        first = account if costs.limited else None
        second = reserve if costs.total else None
        if first is None and second is None:
            return None
        cache = self.free if account is None else self.limited
        accounts = tuple([one for one in (first, second) if one is not None])
        found = cache.find(accounts[0], requests)
        if found is None or found.accounts[-1] is not accounts[-1]:
            amounts = tuple([cost for one, cost in ((first, costs.limited), (second, costs.total)) if one is not None])
            binding = Binding(NAME, accounts, amounts, FREE if account is None else ())
            found = cache.add(accounts[0], requests, binding)
        return found


MILLION: Final = 1_000_000
UNKNOWN: Final = -1  # the score has to be computed exactly
_BITS: Final[i64] = 15
_LIMB: Final[i64] = 32_768
LARGEST_CAP: Final[i64] = 2**47  # a remainder times a limb stays inside 64 bits
_LARGEST_FACTOR: Final = 2**45


@final
class Weighing:
    """The weights of the resources that a claim requests."""

    def __init__(self, weight: int, weights: list[int], least: bool) -> None:
        self.least: Final = least
        self.total: Final = sum(weights)
        self.factors: Final = [weight * MILLION * one for one in weights]
        self.fast: Final = max(self.factors, default=0) < _LARGEST_FACTOR

    def scores_nothing(self) -> bool:
        return not any(self.factors)

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

    def part(self, left: int, cap: int) -> tuple[int, int]:
        """The share of the quota that would be used, or left, as a fraction."""
        if cap == UNLIMITED:
            return (1, 1) if self.least else (0, 1)
        return (left if self.least else cap - left, cap)


@final
class ScoreSum:
    """A sum of parts in 64 bits; ``floor_by`` divides it."""

    def __init__(self) -> None:
        self.whole: i64 = 0
        self.fraction: i64 = 0  # of the remainders, in 1/32768, each rounded down
        self.inexact: i64 = 0  # how many were rounded

    def start(self) -> None:
        self.whole = 0
        self.fraction = 0
        self.inexact = 0

    def add(self, share: i64, cap: i64, factor: i64) -> None:
        """Adds factor * share / cap by long division, 15 bits at a time.

        It takes 0 <= share <= cap, 0 < cap < 2**47 and factor < 2**45, so that all of it stays inside 64 bits.
        """
        found: i64 = 0
        rest: i64 = 0
        shift: i64 = 2 * _BITS if factor >= _LIMB * _LIMB else _BITS
        while shift >= 0:
            rest = rest * _LIMB + share * (factor >> shift & (_LIMB - 1))
            step: i64 = rest // cap
            rest -= step * cap
            found = found * _LIMB + step
            shift -= _BITS
        self.whole += found
        if rest != 0:
            self.inexact += 1
            self.fraction += rest * _LIMB // cap

    def floor_by(self, divisor: i64) -> i64:
        """floor(sum / divisor), or ``UNKNOWN`` if it depends on what was rounded."""
        if self.inexact == 0:
            return self.whole // divisor
        low = (self.whole + self.fraction // _LIMB) // divisor
        high = (self.whole + (self.fraction + self.inexact - 1) // _LIMB) // divisor
        return low if low == high else UNKNOWN
