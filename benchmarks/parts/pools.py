"""Part pools: runtime quota of 10,000 quotas, in parents of 100 children and as siblings; two resources."""

from collections.abc import Iterator

from benchmarks.children import COMPILED, INTERPRETED, measure
from benchmarks.rows import AT_MOST, Row

_FUNCTION = "benchmarks.work.pools:figures"
_MANY, _FEW = 10_000, 1_000
_ALL_MS = 50
_CHANGE_US = 160
_ADD_MS = 1
_CHECKS = 300_000
# Ten times the quotas: linear, and half as much again, because 10,000 leave the processor's caches.
_GROWTH = {"all": 15, "change": 2, "add": 2}
_DECISION_MS = 1
_APPLY_MS = 2
_PODS = 5_000
_SITUATIONS = {
    "plenty": "enough for all",
    "within": "contested, within its min",
    "over": "contested, refused",
    "borrow": "contested, borrows",
}


def rows() -> Iterator[Row]:
    many = measure(_FUNCTION, COMPILED, quotas=_MANY, repeats=10)
    few = measure(_FUNCTION, COMPILED, quotas=_FEW, repeats=10)
    slow = measure(_FUNCTION, INTERPRETED, quotas=_FEW, repeats=2)
    count = f"{many['quotas']:,.0f} quotas"
    yield Row(f"all runtimes after a change of the total, {count}", many["all"] * 1e3, "ms", _ALL_MS, AT_MOST)
    yield Row(f"one change of demand and its leaf, {count}", many["change"] * 1e6, "us", _CHANGE_US, AT_MOST)
    yield Row(f"one quota added, and its runtime, {count}", many["add"] * 1e3, "ms", _ADD_MS, AT_MOST)
    yield Row(f"admission check, {count}", many["checks"], "checks/s", _CHECKS)
    times = many["quotas"] / few["quotas"]
    for name, goal in _GROWTH.items():
        growth = many[name] / few[name]
        yield Row(f"growth of {name!r} with {times:.0f} times the quotas", growth, "times", goal, AT_MOST)
    yield Row(f"one change of demand, {slow['quotas']:,.0f} quotas, interpreted", slow["change"] * 1e6, "us")
    yield from _siblings()
    yield from _applies()


def _siblings() -> Iterator[Row]:
    found = measure("benchmarks.work.pool_levels:siblings", COMPILED, quotas=_MANY)
    for key, situation in _SITUATIONS.items():
        name = f"a decision, {_MANY:,} siblings, {situation}"
        yield Row(name, found[f"{key}-median"] * 1e3, "ms", _DECISION_MS, AT_MOST)
        yield Row("the same, the first after the load", found[f"{key}-first"] * 1e3, "ms")


def _applies() -> Iterator[Row]:
    many = measure("benchmarks.work.pool_levels:applies", COMPILED, quotas=_MANY, pods=_PODS)
    few = measure("benchmarks.work.pool_levels:applies", COMPILED, quotas=_FEW, pods=_PODS)
    for key, what in {"pod": "one pod applied", "quota": "one quota applied", "change": "one quota changed"}.items():
        yield Row(f"{what} to a cluster with {_MANY:,} quotas", many[f"{key}-median"] * 1e3, "ms", _APPLY_MS, AT_MOST)
        yield Row("the same, the first after the load", many[f"{key}-first"] * 1e3, "ms", _APPLY_MS, AT_MOST)
        growth = many[f"{key}-median"] / few[f"{key}-median"]
        yield Row("the same, growth with 10 times the quotas", growth, "times", 2, AT_MOST)
