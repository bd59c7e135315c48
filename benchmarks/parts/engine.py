"""Part engine: account arithmetic, decisions, growth, memory and quantities, interpreted and compiled."""

from collections.abc import Iterator

from benchmarks.children import COMPILED, INTERPRETED, measure
from benchmarks.rows import AT_MOST, Row
from benchmarks.timing import say
from bursar.objects.bounds import MOST_EXPRESSIONS, MOST_TERMS

_CYCLES = 1_000_000
_PAIRS = 200_000
_ADDED_MICROSECONDS = 3
_GIGABYTES = 1.5
_COUNT = 20_000  # pairs in a run
_SLOW_COUNT = 3_000
_FEW_LEAVES, _MANY_LEAVES = 7, 9_000  # with the accounts above them 10, and 9,991
_NODES = 5_000
_FASTER = 20  # than asking every node for every term
_FEW_CLAIMS, _MANY_CLAIMS = 1_000, 1_000_000


def rows() -> Iterator[Row]:
    yield from _arithmetic()
    yield from _decisions()
    yield from _growth()
    yield from _memory()
    yield from _affinity()
    yield from _quantities()


def _arithmetic() -> Iterator[Row]:
    compiled = measure("benchmarks.work.arithmetic:cycles", COMPILED, rounds=200)
    interpreted = measure("benchmarks.work.arithmetic:cycles", INTERPRETED, rounds=5)
    yield Row("check+charge+release, compiled", compiled["accounts"], "cycles/s", _CYCLES)
    yield Row("check+charge+release, interpreted", interpreted["accounts"], "cycles/s")
    yield Row("the same with maps of names, plain Python", compiled["maps"], "cycles/s")
    yield Row("compiled against maps", compiled["accounts"] / compiled["maps"], "times")


def _decisions() -> Iterator[Row]:
    for gc in (True, False):
        yield Row(f"decide+release, compiled, {_gc(gc)}", _pairs(COMPILED, gc), "pairs/s", _PAIRS)
    yield Row("decide+release, interpreted, gc on", _pairs(INTERPRETED, True), "pairs/s")
    for mode in (COMPILED, INTERPRETED):
        sealed = _pairs(mode, True, "sealed")
        yield Row(f"decide+release, records sealed, {mode}, gc on", sealed, "pairs/s")
    for gc in (True, False):
        kept = _pairs(COMPILED, gc, "kept")
        yield Row(f"decide+release, all records kept, compiled, {_gc(gc)}", kept, "pairs/s")


def _gc(collected: bool) -> str:
    return "gc on" if collected else "gc off"


def _pairs(mode: str, collected: bool, records: str = "dropped") -> float:
    count = _COUNT if mode == COMPILED else _SLOW_COUNT
    function = "benchmarks.work.deciding:pairs"
    return measure(function, mode, count=count, with_collector=collected, records=records)["pairs"]


def _growth() -> Iterator[Row]:
    for name, leaves, claims, collectors in (
        ("10,000 accounts", _MANY_LEAVES, _FEW_CLAIMS, (True,)),
        ("1,000,000 claims", _FEW_LEAVES, _MANY_CLAIMS, (True,)),
        ("both", _MANY_LEAVES, _MANY_CLAIMS, (True, False)),
    ):
        for gc in collectors:
            say(f"   measuring {name}, {_gc(gc)}")
            function = "benchmarks.work.deciding:growth"
            found = measure(function, COMPILED, leaves=leaves, claims=claims, count=_COUNT, with_collector=gc)
            yield Row(f"a pair, 10 accounts, 1,000 claims, {_gc(gc)}", found["base"], "µs")
            label = f"a pair takes longer: {name}, {_gc(gc)}"
            yield Row(label, found["added"], "µs", _ADDED_MICROSECONDS, AT_MOST)


def _memory() -> Iterator[Row]:
    for own, note in ((False, "shared bindings"), (True, "own bindings")):
        say(f"   measuring memory, {note}")
        found = measure("benchmarks.work.deciding:memory", COMPILED, claims=_MANY_CLAIMS, own_bindings=own)
        yield Row(f"1,000,000 claims in 3 policies, {note}", found["total"] / 1e9, "GB", _GIGABYTES, AT_MOST)
        yield Row(f"a claim in 3 policies, {note}", found["each"], "bytes")


def _affinity() -> Iterator[Row]:
    """At the bounds of what is read of a pod."""
    found = measure(
        "benchmarks.work.affinity:masks", COMPILED, nodes=_NODES, requirements=MOST_EXPRESSIONS, most=MOST_TERMS
    )
    what = f"mask of {MOST_TERMS} terms, {MOST_EXPRESSIONS:,} requirements, {_NODES:,} nodes"
    yield Row(what, 1000 / found["made"], "ms")
    yield Row("the same with 4 terms", 1000 / found["small"], "ms")
    yield Row("the same by asking every node", 1000 / found["compared"], "ms")
    yield Row("mask against asking every node", found["made"] / found["compared"], "times", _FASTER)


def _quantities() -> Iterator[Row]:
    for mode in (COMPILED, INTERPRETED):
        found = measure("benchmarks.work.quantities:parses", mode)
        yield Row(f"quantity parses, {mode}", found["parses"], "parses/s")
        yield Row(f"quantity parses, {mode}, against fractions", found["parses"] / found["naive"], "times")
