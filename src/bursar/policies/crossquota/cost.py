"""What claims cost on a GPU node, and their bindings, one for all claims that ask for the same on the same node.

A claim that the quota is about costs its requests of the resources with a quota. Where idle GPUs keep a reserve,
every claim also counts in the account of all claims of the node: with what it requests of the reserved resources, and
with its GPUs. Whom the quota is not about is ``FREE``: counted there, never refused. A claim that costs nothing has
no binding. The caches are bounded: a full one starts anew.

The score of one node, exactly: millionths of ``weight * sum(part * w) / sum(w)``, floored once at the end.

A part is (used + wanted) / quota, or what would be left of the quota. The sum of such fractions has a large common
denominator, so the exact way needs big integers. The fast way divides each part by itself in 64 bits and adds up
the remainders in steps of 1/32768: only if it depends on less than that whether they carry the sum over a multiple of
the weights is the exact way taken. Both give the same number.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from bursar.ledger.claims import Binding
from bursar.ledger.state import Account
from bursar.policies.crossquota.arguments import GPUS, NAME, Arguments
from bursar.policies.crossquota.node_quota import Scope
from bursar.resources import EMPTY, UNLIMITED, Vector, from_amounts

BOUND: Final = 65_536
FREE: Final[tuple[object, ...]] = ("free",)
_ONE_POD: Final = from_amounts({"pods": 1})


@final
class _CostShape:
    """One request vector: its costs, and its bindings by account name."""

    __slots__ = ("cost", "everybody", "free", "limited")

    def __init__(self, cost: Vector, everybody: Vector) -> None:
        self.cost: Final = cost
        self.everybody: Final = everybody  # its cost in the account of all claims
        self.limited: Final[dict[str, Binding]] = {}
        self.free: Final[dict[str, Binding]] = {}


@final
class CostCache:
    """Costs and bindings by request vector, for some arguments."""

    __slots__ = ("arguments", "scope", "shapes", "size")

    def __init__(self, arguments: Arguments, scope: Scope) -> None:
        self.arguments: Final = arguments
        self.scope: Final = scope
        self.shapes: Final[dict[Vector, _CostShape]] = {}
        self.size: int = 0

    def cost(self, requests: Vector) -> Vector:
        """What a claim that the quota is about uses of it."""
        return self._shape(requests).cost

    def wanted(self, requests: Vector) -> Vector:
        """The same, and what it wants of the reserved resources: all that quota and reserve are asked for."""
        shape = self._shape(requests)
        return shape.cost.peak(shape.everybody)

    def limited(self, account: Account, reserve: Account | None, requests: Vector) -> Binding | None:
        """The binding of a claim that the quota is about."""
        shape = self._shape(requests)
        second = reserve if shape.everybody else None
        if not shape.cost:
            return None if second is None else self._alone(shape, second)
        found = shape.limited.get(account.name)
        if found is None or not _same(found, account, second):
            if second is None:
                found = Binding(NAME, (account,), (shape.cost,))
            else:
                found = Binding(NAME, (account, second), (shape.cost, shape.everybody))
            self._count()
            shape.limited[account.name] = found
        return found

    def _alone(self, shape: _CostShape, reserve: Account) -> Binding:
        """It wants nothing that has a quota, but something of which idle GPUs keep a reserve."""
        found = shape.limited.get(reserve.name)
        if found is None or found.accounts[0] is not reserve:
            found = Binding(NAME, (reserve,), (shape.everybody,))
            self._count()
            shape.limited[reserve.name] = found
        return found

    def free(self, reserve: Account | None, requests: Vector) -> Binding | None:
        """The binding of a claim that the quota is not about."""
        shape = self._shape(requests)
        if reserve is None or not shape.everybody:
            return None
        found = shape.free.get(reserve.name)
        if found is None or found.accounts[0] is not reserve:
            found = Binding(NAME, (reserve,), (shape.everybody,), FREE)
            self._count()
            shape.free[reserve.name] = found
        return found

    def _shape(self, requests: Vector) -> _CostShape:
        found = self.shapes.get(requests)
        if found is None:
            found = _CostShape(self._cost(requests), self._everybody(requests))
            self._count()
            self.shapes[requests] = found
        return found

    def _count(self) -> None:
        self.size += 1
        if self.size > BOUND:
            self.shapes.clear()
            self.size = 0

    def _cost(self, requests: Vector) -> Vector:
        resources = self.arguments.resources
        cost = requests.only(resources)
        return cost.plus(_ONE_POD) if "pods" in resources else cost

    def _everybody(self, requests: Vector) -> Vector:
        if not self.arguments.reserves:
            return EMPTY
        gpus = from_amounts({GPUS: self.scope.gpus(requests)})
        return requests.only(self.arguments.reserves).plus(gpus)


def _same(binding: Binding, account: Account, second: Account | None) -> bool:
    """Whether it is about these very accounts: a node that came back has others under the same names."""
    if binding.accounts[0] is not account:
        return False
    return len(binding.accounts) == 1 if second is None else binding.accounts[-1] is second


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
class ScoreSum:
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
