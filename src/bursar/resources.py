"""Dimensions: the resources that amounts are of (``cpu``, ``nvidia.com/gpu``).

A dimension is interned once and then known by its index, so that the hot path never looks at a string. Its name says
in which resolution it is counted and how it is printed. Indices follow the order in which names were first heard, which
is never to show: whatever is listed, compared or found first goes by name.

Resource vectors over interned dimensions.

Two shapes are built on the index of a dimension:

* ``Vector``: what a claim asks for or is charged. Sparse, immutable, sorted by name, never holds a zero,
  so looping over it visits exactly the requested dimensions.
* ``Tally``: a running sum. Dense, mutable, changed only by adding or taking a ``Vector``.

Invariants: every stored amount keeps ``abs(amount) <= MAX_AMOUNT``, so adding two of them cannot leave 64 bits;
a sum outside that range is an ``OverflowError`` and changes nothing.

Limits: what a tally is held against.

Dense, like a tally; a dimension that is not listed is unlimited, or has nothing at all when the limits are a *stock*
(what a node has). Zero is none. Only dimensions that a claim asks for are looked at: being over in others refuses
no claim.

Numbers that stand for texts, of which digests are made.

A *mark* is a number for a text, the same in every process. Digests are sums of products of marks, kept as residues
(*lanes*) of two primes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from threading import Lock
from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from bursar.quantity import MAX_AMOUNT, MILLI, UNIT, format_amount, parse

# Two primes just under 2**31: a product of residues stays inside 63 bits, so fingerprints are plain 64-bit
# arithmetic with the same result interpreted and compiled.
PRIME_A: Final = 2147483647
PRIME_B: Final = 2147483629
_MARK_BITS: Final = 2**62 - 1
_MARKS_KEPT: Final = 65536


def fingerprint(text: str) -> int:
    """A stable 62-bit number for a text, the same in every process (``hash`` is not).

    It must be a real hash: digests are sums of marks, and marks that follow the spelling would let sums of
    neighbours (n1 + n3, n2 + n2) be equal.
    """
    return fingerprint_bytes(text.encode())


def fingerprint_bytes(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") & _MARK_BITS


_MARKS: Final[dict[str, int]] = {}


def name_mark(name: str) -> int:
    """``fingerprint`` for names that come again and again (policies, nodes), remembered."""
    known = _MARKS.get(name)
    if known is None:
        if len(_MARKS) >= _MARKS_KEPT:
            _MARKS.clear()
        known = fingerprint(name)
        _MARKS[name] = known
    return known


@final
class Dimension:
    """One resource: its name, its place in dense arrays, its resolution and the way it is printed."""

    __slots__ = ("binary", "index", "lane_a", "lane_b", "name", "resolution")

    def __init__(self, name: str, index: int, resolution: int, binary: bool) -> None:
        self.name: Final = name
        self.index: Final = index
        self.resolution: Final = resolution
        self.binary: Final = binary
        mark = fingerprint(name)
        self.lane_a: Final = mark % PRIME_A
        self.lane_b: Final = mark % PRIME_B

    def parse(self, value: object, path: str = "", negative: bool = False) -> int:
        return parse(value, self.resolution, path, negative)

    def show(self, amount: int) -> str:
        """The amount as Kubernetes would print it: 40Gi, 500m, 2k."""
        return format_amount(amount, self.resolution, self.binary)


# All of them; only ``dimension`` adds one.
BY_NAME: Final[dict[str, Dimension]] = {}
BY_INDEX: Final[list[Dimension]] = []
_INTERNING: Final = Lock()
_MILLI_NAMES: Final = ("cpu", "tflops", "compute")
_BINARY_NAMES: Final = ("memory", "ephemeral-storage", "storage", "vram")


def _last_part(name: str) -> str:
    return name.rpartition("/")[2].rpartition(".")[2]


def dimension(name: str) -> Dimension:
    """The dimension of that name; the first call interns it."""
    known = BY_NAME.get(name)
    if known is not None:
        return known
    with _INTERNING:
        if name not in BY_NAME:
            _intern(name)
    return BY_NAME[name]


def _intern(name: str) -> None:
    part = name if name in _MILLI_NAMES or name in _BINARY_NAMES else _last_part(name)
    qualified = "/" in name
    resolution = MILLI if not qualified and part in _MILLI_NAMES else UNIT
    binary = not qualified and (part in _BINARY_NAMES or part.startswith("hugepages-"))
    found = Dimension(name, len(BY_INDEX), resolution, binary)
    BY_INDEX.append(found)
    BY_NAME[name] = found


def dimension_at(index: int) -> Dimension:
    return BY_INDEX[index]


_MAX: Final[i64] = MAX_AMOUNT
# The primes of ``fingerprints``, as 64-bit numbers
_A: Final[i64] = 2147483647
_B: Final[i64] = 2147483629


@final
@mypyc_attr(acyclic=True)
class Vector:
    """Amounts of some dimensions: sparse, immutable, sorted by dimension name, without zeros."""

    __slots__ = ("amounts", "dims", "lane_a", "lane_b", "size")

    def __init__(self, dims: vec[i64], amounts: vec[i64]) -> None:
        self.dims: Final = dims
        self.amounts: Final = amounts
        a: i64 = 0
        b: i64 = 0
        size: i64 = 0
        for i in range(len(dims)):
            name = BY_INDEX[dims[i]]
            la: i64 = name.lane_a
            lb: i64 = name.lane_b
            a = (a + la * (amounts[i] % _A)) % _A
            b = (b + lb * (amounts[i] % _B)) % _B
            if dims[i] >= size:
                size = dims[i] + 1
        self.size: Final[i64] = size  # the length of a dense array that has room for it
        # Linear in the amounts: the fingerprint of a sum is the sum of the fingerprints.
        self.lane_a: Final[i64] = a
        self.lane_b: Final[i64] = b

    def __len__(self) -> int:
        return len(self.dims)

    def __bool__(self) -> bool:
        return len(self.dims) > 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vector) or len(self.dims) != len(other.dims):
            return False
        for i in range(len(self.dims)):
            if self.dims[i] != other.dims[i] or self.amounts[i] != other.amounts[i]:
                return False
        return True

    def __hash__(self) -> int:
        return self.lane_a * _B + self.lane_b

    def __repr__(self) -> str:
        return f"Vector({self.show()})"

    def get(self, dim: int) -> int:
        """The amount of the dimension with that index; 0 when it is not listed."""
        for i in range(len(self.dims)):
            if self.dims[i] == dim:
                return self.amounts[i]
        return 0

    def amount(self, name: str) -> int:
        known = BY_NAME.get(name)
        return 0 if known is None else self.get(known.index)

    def indices(self) -> list[int]:
        """Indices of the listed dimensions, sorted by the names of those."""
        return [int(dim) for dim in self.dims]

    def names(self) -> list[str]:
        """Names of the listed dimensions, sorted."""
        return [BY_INDEX[d].name for d in self.dims]

    def pairs(self) -> list[tuple[str, int]]:
        """(name, amount), sorted by name: the form in which vectors are stored and compared."""
        return [(BY_INDEX[self.dims[i]].name, int(self.amounts[i])) for i in range(len(self.dims))]

    def show(self) -> dict[str, str]:
        """Canonical Kubernetes quantities by name, sorted by name."""
        return {name: BY_NAME[name].show(amount) for name, amount in self.pairs()}

    def plus(self, other: Vector) -> Vector:
        return _merge(self, other, 1)

    def minus(self, other: Vector) -> Vector:
        return _merge(self, other, -1)

    def peak(self, other: Vector) -> Vector:
        """Per dimension the larger of both; a missing one counts as 0."""
        both = {*self.indices(), *other.indices()}
        return from_indices([(dim, max(self.get(dim), other.get(dim))) for dim in both])

    def only(self, names: Iterable[str]) -> Vector:
        kept = set(names)
        return from_amounts({name: amount for name, amount in self.pairs() if name in kept})


EMPTY: Final = Vector(vec[i64](), vec[i64]())


def checked(amount: int) -> int:
    if amount > MAX_AMOUNT or amount < -MAX_AMOUNT:
        raise OverflowError(f"{amount} is outside of the exact range of +-{MAX_AMOUNT}")
    return amount


def from_indices(pairs: list[tuple[int, int]]) -> Vector:
    """A vector from (dimension index, amount) pairs, each index once; zeros are dropped."""
    named = sorted([(BY_INDEX[dim].name, dim, amount) for dim, amount in pairs if amount != 0])
    if not named:
        return EMPTY
    dims = vec[i64]()
    amounts = vec[i64]()
    for _, dim, amount in named:
        dims = append(dims, i64(dim))
        amounts = append(amounts, i64(checked(amount)))
    return Vector(dims, amounts)


def from_amounts(amounts: Mapping[str, int]) -> Vector:
    """A vector from integers that are already in the resolution of their dimension."""
    return from_indices([(dimension(name).index, amount) for name, amount in amounts.items()])


def parse_vector(quantities: Mapping[str, object], path: str = "", negative: bool = False) -> Vector:
    """A vector from Kubernetes quantities by resource name; errors carry ``path.<name>``."""
    parsed: dict[str, int] = {}
    for name, value in quantities.items():
        parsed[name] = dimension(name).parse(value, f"{path}.{name}" if path else name, negative)
    return from_amounts(parsed)


def _merge(left: Vector, right: Vector, sign: int) -> Vector:
    sums = {int(left.dims[i]): int(left.amounts[i]) for i in range(len(left.dims))}
    for i in range(len(right.dims)):
        dim = int(right.dims[i])
        sums[dim] = sums.get(dim, 0) + sign * int(right.amounts[i])
    return from_indices(list(sums.items()))


@final
@mypyc_attr(acyclic=True)
class Tally:
    """A running sum of vectors."""

    __slots__ = ("sums",)

    def __init__(self) -> None:
        self.sums: vec[i64] = vec[i64]()

    def get(self, dim: int) -> int:
        return self.sums[dim] if dim < len(self.sums) else 0

    def amount(self, name: str) -> int:
        known = BY_NAME.get(name)
        return 0 if known is None else self.get(known.index)

    def reach(self, size: i64) -> None:
        """Make room for dimensions below ``size``."""
        while len(self.sums) < size:
            self.sums = append(self.sums, i64(0))

    def add(self, cost: Vector) -> None:
        dims = cost.dims
        amounts = cost.amounts
        count = len(dims)
        if cost.size > len(self.sums):
            self.reach(cost.size)
        sums = self.sums
        for i in range(count):
            total = sums[dims[i]] + amounts[i]
            if total > _MAX or total < -_MAX:
                self._undo(cost, i, 1)
                raise OverflowError(f"the sum of {BY_INDEX[dims[i]].name} leaves the exact range")
            sums[dims[i]] = total

    def take(self, cost: Vector) -> None:
        dims = cost.dims
        amounts = cost.amounts
        count = len(dims)
        if cost.size > len(self.sums):
            self.reach(cost.size)
        sums = self.sums
        for i in range(count):
            total = sums[dims[i]] - amounts[i]
            if total > _MAX or total < -_MAX:
                self._undo(cost, i, -1)
                raise OverflowError(f"the sum of {BY_INDEX[dims[i]].name} leaves the exact range")
            sums[dims[i]] = total

    def _undo(self, cost: Vector, count: i64, sign: i64) -> None:
        for i in range(count):
            self.sums[cost.dims[i]] = self.sums[cost.dims[i]] - sign * cost.amounts[i]

    def vector(self) -> Vector:
        return from_indices([(d, int(self.sums[d])) for d in range(len(self.sums))])


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
