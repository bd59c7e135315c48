"""Part pools: runtime quota of a tree of 10,000 quotas, depth 4, parents of 100 children, two resources."""

from collections.abc import Iterator

from benchmarks.children import COMPILED, INTERPRETED, measure
from benchmarks.rows import AT_MOST, Row

_FUNCTION = "benchmarks.work.pools:figures"
_MANY, _FEW = 10_000, 1_000
_ALL_MS = 50
_CHANGE_US = 160
_ADD_MS = 1
_CHECKS = 300_000


def rows() -> Iterator[Row]:
    many = measure(_FUNCTION, COMPILED, quotas=_MANY, repeats=10)
    few = measure(_FUNCTION, COMPILED, quotas=_FEW, repeats=10)
    slow = measure(_FUNCTION, INTERPRETED, quotas=_FEW, repeats=2)
    count = f"{many['quotas']:,.0f} quotas"
    yield Row(f"all runtimes after a change of the total, {count}", many["all"] * 1e3, "ms", _ALL_MS, AT_MOST)
    yield Row(f"one change of demand and its leaf, {count}", many["change"] * 1e6, "us", _CHANGE_US, AT_MOST)
    yield Row(f"one quota added, and its runtime, {count}", many["add"] * 1e3, "ms", _ADD_MS, AT_MOST)
    yield Row(f"admission check, {count}", many["checks"], "checks/s", _CHECKS)
    yield from _growth(few, many)
    yield Row(f"one change of demand, {slow['quotas']:,.0f} quotas, interpreted", slow["change"] * 1e6, "us")


def _growth(few: dict[str, float], many: dict[str, float]) -> Iterator[Row]:
    times = many["quotas"] / few["quotas"]
    for name in ("all", "change", "add"):
        yield Row(f"growth of {name!r} with {times:.0f} times the quotas", many[name] / few[name], "times")
