"""Part engine: account arithmetic, decisions, growth, memory and quantities, interpreted and compiled."""

from collections.abc import Iterator

from benchmarks.children import COMPILED, INTERPRETED, measure
from benchmarks.rows import AT_MOST, Row
from benchmarks.timing import say

_CYCLES = 1_000_000
_PAIRS = 200_000
_ADDED_MICROSECONDS = 3
_GIGABYTES = 1.5
_COUNT = 20_000  # pairs in a run
_SLOW_COUNT = 3_000
_FEW_LEAVES, _MANY_LEAVES = 7, 9_000  # with the accounts above them 10, and 9,991
_FEW_CLAIMS, _MANY_CLAIMS = 1_000, 1_000_000


def rows() -> Iterator[Row]:
    yield from _arithmetic()
    yield from _decisions()
    yield from _growth()
    yield from _memory()
    yield from _quantities()


def _arithmetic() -> Iterator[Row]:
    compiled = measure("benchmarks.work.arithmetic:cycles", COMPILED)
    interpreted = measure("benchmarks.work.arithmetic:cycles", INTERPRETED)
    yield Row("check+charge+release, compiled", compiled["accounts"], "cycles/s", _CYCLES)
    yield Row("check+charge+release, interpreted", interpreted["accounts"], "cycles/s")
    yield Row("the same with maps of names, plain Python", compiled["maps"], "cycles/s")
    yield Row("compiled against maps", compiled["accounts"] / compiled["maps"], "times")


def _decisions() -> Iterator[Row]:
    function = "benchmarks.work.deciding:pairs"
    for collected in (True, False):
        found = measure(function, COMPILED, count=_COUNT, with_collector=collected)
        yield Row(f"decide+release, compiled, {_gc(collected)}", found["pairs"], "pairs/s", _PAIRS)
    found = measure(function, INTERPRETED, count=_SLOW_COUNT, with_collector=True)
    yield Row(f"decide+release, interpreted, {_gc(True)}", found["pairs"], "pairs/s")
    for mode, count in ((COMPILED, _SLOW_COUNT), (INTERPRETED, _SLOW_COUNT // 2)):
        found = measure(function, mode, count=count, with_collector=True, sealed=True)
        yield Row(f"decide+release, records sealed, {mode}, {_gc(True)}", found["pairs"], "pairs/s")


def _gc(collected: bool) -> str:
    return "gc on" if collected else "gc off"


def _growth() -> Iterator[Row]:
    small = _standing(_FEW_LEAVES, _FEW_CLAIMS)
    yield Row("a pair, 10 accounts, 1,000 claims", small, "µs")
    for name, leaves, claims in (
        ("10 -> 10,000 accounts", _MANY_LEAVES, _FEW_CLAIMS),
        ("1,000 -> 1,000,000 claims", _FEW_LEAVES, _MANY_CLAIMS),
        ("both", _MANY_LEAVES, _MANY_CLAIMS),
    ):
        say(f"   measuring {name}")
        added = _standing(leaves, claims) - small
        yield Row(f"a pair takes longer: {name}", added, "µs", _ADDED_MICROSECONDS, AT_MOST)


def _standing(leaves: int, claims: int) -> float:
    return measure("benchmarks.work.deciding:standing", COMPILED, leaves=leaves, claims=claims, count=_COUNT)[
        "microseconds"
    ]


def _memory() -> Iterator[Row]:
    for own, note in ((False, "shared bindings"), (True, "own bindings")):
        say(f"   measuring memory, {note}")
        found = measure("benchmarks.work.deciding:memory", COMPILED, claims=_MANY_CLAIMS, own_bindings=own)
        yield Row(f"1,000,000 claims in 3 policies, {note}", found["total"] / 1e9, "GB", _GIGABYTES, AT_MOST)
        yield Row(f"a claim in 3 policies, {note}", found["each"], "bytes")


def _quantities() -> Iterator[Row]:
    for mode in (COMPILED, INTERPRETED):
        found = measure("benchmarks.work.quantities:parses", mode)
        yield Row(f"quantity parses, {mode}", found["parses"], "parses/s")
        yield Row(f"quantity parses, {mode}, against fractions", found["parses"] / found["naive"], "times")
