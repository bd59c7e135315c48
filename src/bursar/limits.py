"""Limits: what a tally is held against.

Dense, like a tally; a dimension that is not listed is unlimited, or has nothing at all when the limits are a *stock*
(what a node has). Zero is none. Only dimensions that somebody asks for are looked at: being over in others refuses
nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from bursar.dimensions import BY_NAME, dimension
from bursar.quantity import MAX_AMOUNT
from bursar.vectors import Tally, Vector, checked, from_indices

UNLIMITED: Final = 2**63 - 1
_UNLIMITED: Final[i64] = UNLIMITED


@final
@mypyc_attr(acyclic=True)
class Limits:
    """What a tally may reach. ``stock``: a dimension that is not listed has nothing; otherwise no limit."""

    __slots__ = ("caps", "default", "listed", "stock")

    def __init__(self, listed: Mapping[str, int], stock: bool = False) -> None:
        self.listed: Final = {name: listed[name] for name in sorted(listed)}
        self.stock: Final = stock
        self.default: Final[i64] = 0 if stock else _UNLIMITED
        caps = vec[i64]()
        for name, cap in self.listed.items():
            index = dimension(name).index
            while len(caps) <= index:
                caps = append(caps, self.default)
            caps[index] = i64(cap if cap == UNLIMITED else checked(cap))
        self.caps: Final = caps

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Limits) and self.listed == other.listed and self.stock == other.stock

    def __hash__(self) -> int:
        return hash((tuple(self.listed.items()), self.stock))

    def __repr__(self) -> str:
        return f"Limits({self.show()}{', stock' if self.stock else ''})"

    def get(self, dim: int) -> int:
        """The cap of a dimension, ``UNLIMITED`` when there is none."""
        return self.caps[dim] if dim < len(self.caps) else self.default

    def cap(self, name: str) -> int:
        return self.get(dimension(name).index)

    def show(self) -> dict[str, str]:
        return {n: "unlimited" if c == UNLIMITED else BY_NAME[n].show(c) for n, c in self.listed.items()}


NO_LIMITS: Final = Limits({})


def parse_limits(quantities: Mapping[str, object], path: str = "", stock: bool = False) -> Limits:
    """Limits from Kubernetes quantities; zero stays listed, because it means none."""
    parsed: dict[str, int] = {}
    for name, value in quantities.items():
        parsed[name] = dimension(name).parse(value, f"{path}.{name}" if path else name)
    return Limits(parsed, stock)


def first_short(used: Tally, cost: Vector, limits: Limits) -> int:
    """Index of the first requested dimension (by name) in which ``used + cost`` passes its cap, or -1 if all fit."""
    dims = cost.dims
    amounts = cost.amounts
    sums = used.sums
    caps = limits.caps
    for i in range(len(dims)):
        dim = dims[i]
        wanted = amounts[i]
        if wanted <= 0:
            continue
        now: i64 = sums[dim] if dim < len(sums) else 0
        cap: i64 = caps[dim] if dim < len(caps) else limits.default
        if now + wanted > cap:
            return dim
    return -1


def shortfall(used: Tally, cost: Vector, limits: Limits) -> Vector:
    """Per requested dimension, how much is missing; empty when the cost fits."""
    missing: list[tuple[int, int]] = []
    for i in range(len(cost.dims)):
        dim = int(cost.dims[i])
        amount = int(cost.amounts[i])
        over = used.get(dim) + amount - limits.get(dim)
        if amount > 0 and over > 0:
            missing.append((dim, min(over, MAX_AMOUNT)))
    return from_indices(missing)
