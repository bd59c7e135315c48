"""Dimensions: the resources that amounts are of (``cpu``, ``nvidia.com/gpu``).

A dimension is interned once and then known by its index, so that the hot path never looks at a string. Its name says
in which resolution it is counted and how it is printed. Indices follow the order in which names were first heard, which
is never to show: whatever is listed, compared or found first goes by name.
"""

from __future__ import annotations

from threading import Lock
from typing import Final, final

from bursar.fingerprints import PRIME_A, PRIME_B, fingerprint
from bursar.quantity import MILLI, UNIT, format_amount, parse


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
