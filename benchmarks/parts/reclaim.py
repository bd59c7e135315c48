"""Part reclaim: taking lent GPUs back on full clusters, very large quotas, many waiting pods, all policies together.

Every figure counts the first call after the load. A measurement that does not end in time is a row that says so, with
the limit as its figure.
"""

from collections.abc import Iterator

from benchmarks.children import COMPILED, measure, measure_within
from benchmarks.rows import AT_MOST, Row
from benchmarks.timing import say

_SECONDS = 150  # for one measurement, its load included
_KINDS = ("elastic", "trees")
_SIZES = (50, 200, 800, 5_000)  # nodes of eight GPUs
_CALLS = 20
_BORROWERS = 4_000
_MANY_VICTIMS = 800
_CLAIMS = 50_000
_QUOTAS, _EACH = 1_000, 100

_ONE = {800: 5, 5_000: 20}  # milliseconds for one victim
_EIGHT = {800: 10, 5_000: 40}
_BUDGET = 5
_MANY = 50
_FIRST = 20
_LOAD = 1.05  # a tenth more than when this was written
_SEARCH = 2
_EVENT = 0.1
_LABEL = 20
_ADMISSION = 5


def rows() -> Iterator[Row]:
    for kind in _KINDS:
        yield from _nodes(kind)
    yield from _quotas_alone()
    yield from _loads()
    yield from _large_quota()
    yield from _waiting()
    yield from _together()


def _nodes(kind: str) -> Iterator[Row]:
    ones: dict[int, float] = {}
    for nodes in _SIZES:
        where = f"{kind}, {nodes:,} nodes"
        one = _milliseconds("one_claim", f"{where}: 1 victim", _ONE.get(nodes), kind=kind, nodes=nodes, gpus=1)
        ones[nodes] = one[0].figure
        yield from one
        goal = _EIGHT.get(nodes)
        yield from _milliseconds("one_claim", f"{where}: 8 victims", goal, kind=kind, nodes=nodes, gpus=8)
        yield from _milliseconds("refused", f"{where}: 8 GPUs, refused", goal, kind=kind, nodes=nodes)
    for small, large in ((50, 800), (200, 5_000)):
        name = f"{kind}, {large / small:.0f} times the nodes: 1 victim takes longer"
        yield Row(name, ones[large] / ones[small], "times", large / small, AT_MOST)


def _quotas_alone() -> Iterator[Row]:
    for kind in _KINDS:
        name = f"{kind}: one claim that displaces {_MANY_VICTIMS}"
        sizes = {"units": 2 * _MANY_VICTIMS, "asked": _MANY_VICTIMS}
        yield from _milliseconds("without_nodes", name, _MANY, kind=kind, **sizes)
        for evictable, note in ((0, "forbids all: refused"), (1, "allows one: 1 victim")):
            name = f"{kind}, a budget over {_BORROWERS:,} borrowers {note}"
            sizes = {"borrowers": _BORROWERS, "evictable": evictable}
            yield from _milliseconds("budgeted", name, _BUDGET, kind=kind, **sizes)
    members = _MANY_VICTIMS // 8
    name = f"elastic, 800 nodes: a gang of {members} that displaces {_MANY_VICTIMS}"
    yield from _milliseconds("gang", name, None, 3, nodes=800, members=members)


def _milliseconds(function: str, name: str, goal: float | None, most: int = _CALLS, **asked: str | int) -> list[Row]:
    """The median of the calls, held against the goal, and the worst one beside it."""
    say(f"   measuring {name}")
    found = measure_within(_SECONDS, f"benchmarks.work.reclaim:{function}", COMPILED, most=most, **asked)
    if found is None:
        return [Row(f"{name}, stopped after that time", _SECONDS * 1000, "ms", goal, AT_MOST)]
    median = Row(f"{name}, median of {found['calls']:.0f}", found["median"], "ms", goal, AT_MOST)
    return [median, Row(f"{name}, worst", found["worst"], "ms"), Row(f"{name}, the first", found["first"], "ms")]


def _loads() -> Iterator[Row]:
    size = {"quotas": _QUOTAS, "each": _EACH}
    claims = f"{_QUOTAS * _EACH:,} claims"
    found = measure("benchmarks.work.loading:first_search", COMPILED, **size)
    yield Row(f"elastic, a load of {claims}", found["load"], "ms")
    yield Row("the same, against as many decisions that only count", found["compared"], "times", _LOAD, AT_MOST)
    yield Row(
        f"elastic, the first search after it, worst of {found['loads']:.0f}", found["first"], "ms", _FIRST, AT_MOST
    )
    again = measure("benchmarks.work.loading:search_after_restart", COMPILED, **size)
    yield Row("elastic, the first search after a restart", again["first"], "ms", _FIRST, AT_MOST)


def _large_quota() -> Iterator[Row]:
    name = f"elastic, one quota of {_CLAIMS:,} claims"
    found = measure("benchmarks.work.loading:big_searches", COMPILED, claims=_CLAIMS, count=100)
    yield Row(f"{name}: 1 victim, median of 100", found["median"], "ms", _SEARCH, AT_MOST)
    yield Row(f"{name}: 1 victim, worst", found["worst"], "ms")
    yield Row(f"{name}: 1 victim, the first", found["first"], "ms", _FIRST, AT_MOST)
    found = measure("benchmarks.work.loading:big_labels", COMPILED, claims=_CLAIMS, count=50, displaced=300)
    yield Row(f"{name}: a claim runs or goes, and all is written", found["event"], "ms", _EVENT, AT_MOST)
    yield Row(f"{name}: the same, worst", found["worst"], "ms")
    yield Row(f"{name}: {found['labels']:.0f} labels change, a label", found["label"], "µs", _LABEL, AT_MOST)


def _waiting() -> Iterator[Row]:
    size = {"nodes": 100, "waiting": 10_000, "classes": 100, "count": _CALLS}
    say("   giving a full cluster 10,000 pods in 100 classes")
    found = measure("benchmarks.work.everything:one_admission", COMPILED, **size)
    name = "10,000 waiting in 100 classes, all nodes full: one admission"
    yield Row(f"{name}, median", found["median"], "ms", _ADMISSION, AT_MOST)
    yield Row(f"{name}, worst", found["worst"], "ms")
    yield Row(f"{name}, queue entries", found["entries"], "")


def _together() -> Iterator[Row]:
    name = "seven policies, decide+release, records sealed"
    for own, note in ((False, "claims of 30 jobs"), (True, "no two claims alike in spec")):
        found = measure("benchmarks.work.everything:pairs", COMPILED, nodes=100, count=3_000, own_specs=own)
        yield Row(f"{name}, {note}, {found['policies']:.1f} of them a claim", found["pairs"], "pairs/s")
