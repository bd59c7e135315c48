"""Part trees: 1,000 leaves, 20,000 consumers, 15,000 of them borrowing at the root; beside the Go reference."""

from collections.abc import Iterator

from benchmarks.children import COMPILED, INTERPRETED, measure
from benchmarks.rows import AT_MOST, Row
from benchmarks.timing import say

_LEAVES, _SHAPES, _DISTINCT = 1_000, 64, 25_000
_ROUNDS = 400
_SLOW_ROUNDS = 60
_SMALL = 20  # leaves, for the reference model
# What the Go implementation takes at this size, measured on such a machine: microseconds.
_GO = {"borrow": 16, "release": 29_000, "tries": 11_000, "refresh": 6_100_000}


def rows() -> Iterator[Row]:
    found = _operations(COMPILED, _SHAPES, _ROUNDS) | _tries(COMPILED, _ROUNDS)
    yield Row("consumers", found["consumers"], "")
    yield Row("allocate, borrowing at the root", found["borrow"], "µs", 16, AT_MOST)
    yield Row("allocate, reclaiming from one borrower", found["reclaim"], "µs", 16, AT_MOST)
    yield Row("deallocate an owner, one borrower moves down", found["release"], "µs", 110, AT_MOST)
    yield Row("try + undo over a forest of two trees", found["tries"], "µs", 100, AT_MOST)
    yield Row("refresh", found["refresh"] / 1e3, "ms", 500, AT_MOST)
    yield from _reference(found)
    distinct = _operations(COMPILED, _DISTINCT, _ROUNDS)
    yield Row("deallocate an owner, all requests distinct", distinct["release"], "µs", 1_000, AT_MOST)
    yield Row("allocate, borrowing, all requests distinct", distinct["borrow"], "µs")
    slow = _operations(INTERPRETED, _SHAPES, _SLOW_ROUNDS)
    for name in ("borrow", "reclaim", "release"):
        yield Row(f"{name}, interpreted", slow[name], "µs")
    yield from _naive()


def _operations(mode: str, shape_count: int, rounds: int) -> dict[str, float]:
    say(f"   measuring {mode}, {shape_count:,} requests that differ")
    arguments = {"leaves": _LEAVES, "shape_count": shape_count, "rounds": rounds}
    return measure("benchmarks.work.trees:operations", mode, **arguments)


def _tries(mode: str, rounds: int) -> dict[str, float]:
    return measure("benchmarks.work.trees:tries", mode, leaves=_LEAVES, shape_count=_SHAPES, rounds=rounds)


def _reference(found: dict[str, float]) -> Iterator[Row]:
    for name, go in _GO.items():
        yield Row(f"{name}: the Go implementation, as measured before", go, "µs")
        yield Row(f"{name}: times faster than that", go / found[name], "times")


def _naive() -> Iterator[Row]:
    """Both in this run, at a size at which the reference model ends."""
    small = measure("benchmarks.work.trees:operations", COMPILED, leaves=_SMALL, shape_count=_SHAPES, rounds=4)
    reference = measure("benchmarks.work.trees:reference", COMPILED, leaves=_SMALL, rounds=2)
    for name in ("borrow", "release"):
        yield Row(f"{name}: the reference model, {_SMALL} leaves", reference[name], "µs")
        yield Row(f"{name}: times faster than the reference model", reference[name] / small[name], "times")
