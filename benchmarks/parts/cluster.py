"""Part cluster: pods a second through a real control plane, alone and with controllers that gate.

``make bench PART=cluster [NODES=n] [PODS=n] [WAITING=n] [REPEATS=n] [SCHEDULER=shipped|lifted] [TOKENS=yes]``; without
NODES both sizes of the design are run. Without SCHEDULER each is run with the scheduler as it is shipped, which binds
50 pods a second, and with that limit lifted, where the processor bounds the rate and every millisecond shows. TOKENS:
the pods mount the token of their service account.

A machine that others use is faster in one moment and slower in the next, by more than the variants differ. So each
turn is made of short runs in which the variants alternate, those that are compared next to each other, now one first
and now the other; a turn's rate is that of all its pods in the sum of their times, and a ratio is the median of those
inside one turn. (The scheduler as it is shipped lets the first hundred pods of a run pass at once: there a turn is one
run of each.) Rates are of wall-clock time, because most of the work is done by other processes; the processor time of
all processes is what bounds them where these share a few cores. What the API server allocates for a pod depends on no
machine: it is the same in every run, to a hundredth or two.
"""

import os
from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from benchmarks.rows import AT_MOST, Row
from benchmarks.timing import say
from benchmarks.work.arena import Figures, Size, Starter, arena, bursar, joined, passing
from benchmarks.work.passing import PIN


class _Variant(NamedTuple):
    start: Starter | None
    governed: bool  # by Bursar's admission policies


_STOCK = "stock scheduler alone"
_FREE_PINNED = "pass-through, pinned, no policies"
_PASSED = "pass-through, gated"
_BURSAR = "Bursar, gated"
_PASSED_PINNED = "pass-through, gated and pinned"
_BURSAR_PINNED = "Bursar, gated and pinned"
_VARIANTS = {
    _STOCK: _Variant(None, governed=False),
    _FREE_PINNED: _Variant(passing(PIN), governed=False),
    _PASSED: _Variant(passing(), governed=True),
    _BURSAR: _Variant(bursar(), governed=True),
    _PASSED_PINNED: _Variant(passing(PIN), governed=True),
    _BURSAR_PINNED: _Variant(bursar("--pin-all"), governed=True),
}

_NEIGHBOURS = (_STOCK, _BURSAR_PINNED, _PASSED_PINNED, _FREE_PINNED, _PASSED, _BURSAR)  # those that are compared

_RUNS = 3  # in a turn, of each variant
_OF_PASSED = 0.95
_OF_STOCK = {Size(1_000, 3_000, 0): 0.75, Size(5_000, 3_000, 10_000): 0.85}
_SHIPPED = {"": (True, False), "shipped": (True,), "lifted": (False,)}


def rows() -> Iterator[Row]:
    repeats = _option("REPEATS", 3)
    for size in _sizes():
        turns = _measure(size, repeats)
        yield from _figures(size, turns)
        yield from _ratios(size, turns)


def _sizes() -> list[Size]:
    sizes = list(_OF_STOCK)
    if "NODES" in os.environ:
        sizes = [Size(_option("NODES", 0), 3_000, _option("WAITING", 0))]
    both = _SHIPPED[os.environ.get("SCHEDULER", "")]
    sizes = [size._replace(pods=_option("PODS", size.pods), tokens="TOKENS" in os.environ) for size in sizes]
    return [size._replace(shipped=shipped) for size in sizes for shipped in both]


def _option(name: str, default: int) -> int:
    return int(os.environ.get(name, default))


def _measure(size: Size, repeats: int) -> list[dict[str, Figures]]:
    """The figures of each variant, by turn."""
    say(f"   {size}: starting two control planes")
    turns: list[dict[str, Figures]] = []
    part = size._replace(pods=size.pods // _runs(size))
    with arena(part, governed=False) as bare, arena(part, governed=True) as governed:
        for number in range(repeats):
            runs: dict[str, list[Figures]] = {}
            for name in _order(size, number):
                variant = _VARIANTS[name]
                found = (governed if variant.governed else bare).run(variant.start)
                say(f"   {size}: {name}, turn {number + 1}: {_in_short(found)}")
                runs.setdefault(name, []).append(found)
            turns.append({name: joined(found) for name, found in runs.items()})
    return turns


def _runs(size: Size) -> int:
    """Of each variant in a turn."""
    return 1 if size.shipped else min(_RUNS, size.pods)


def _skipped(size: Size) -> set[str]:
    """Where the scheduler's limit bounds the rate, nothing is learnt of what policies cost."""
    return {_FREE_PINNED} if size.shipped else set()


def _order(size: Size, turn: int) -> Iterator[str]:
    """Forth and back, so that none is always the first or the last of its neighbours."""
    names = [name for name in _NEIGHBOURS if name not in _skipped(size)]
    for run in range(_runs(size)):
        yield from reversed(names) if (turn + run) % 2 else names


def _in_short(found: Figures) -> str:
    spent = {
        "API server": found.apiserver_cpu,
        "scheduler": found.scheduler_cpu,
        "controller": found.controller_cpu,
        "load": found.load_cpu,
    }
    times = ", ".join(f"{who} {milliseconds:.2f}" for who, milliseconds in spent.items())
    return f"{found.rate:.0f} pods/s; ms per pod: {times}, all {found.cpu:.2f}"


def _figures(size: Size, turns: list[dict[str, Figures]]) -> Iterator[Row]:
    for name in (name for name in _VARIANTS if name not in _skipped(size)):
        figures = Figures(*map(median, zip(*(turn[name] for turn in turns), strict=True)))
        yield Row(f"{name}: {size}", figures.rate, "pods/s")
        yield Row("  allocated by the API server", figures.allocated, "KB per pod")
        yield Row("  processor time of all processes", figures.cpu, "ms per pod")
        yield Row("  of these, the API server", figures.apiserver_cpu, "ms per pod")
        yield Row("  of these, the scheduler", figures.scheduler_cpu, "ms per pod")
        if name != _STOCK:
            yield Row("  of these, the controller", figures.controller_cpu, "ms per pod")
            yield Row("  memory of the controller", figures.memory, "MB")
            goal = 1 if name in {_BURSAR, _BURSAR_PINNED} else None
            yield Row("  writes on pods by the controller", figures.pod_writes, "per pod", goal, AT_MOST)
            yield Row("  other writes by the controller", figures.other_writes, "per pod")


def _ratios(size: Size, turns: list[dict[str, Figures]]) -> Iterator[Row]:
    """What was measured against what: by rate, with the goals; and by processor time."""
    pairs = (
        (_BURSAR, _PASSED, _OF_PASSED),
        (_BURSAR_PINNED, _PASSED_PINNED, _OF_PASSED),
        (_BURSAR_PINNED, _STOCK, _OF_STOCK.get(size._replace(shipped=False, tokens=False))),
        (_PASSED_PINNED, _STOCK, None),
        (_FREE_PINNED, _STOCK, None),
    )
    for one, other, goal in pairs:
        if one in _skipped(size):
            continue
        rates = median(turn[one].rate / turn[other].rate for turn in turns)
        yield Row(f"{one} / {other}", rates, "of the rate", goal)
        times = median(turn[other].cpu / turn[one].cpu for turn in turns)
        yield Row("  the same by processor time", times, "of the rate")
