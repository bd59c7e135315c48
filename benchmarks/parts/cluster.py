"""Part cluster: pods a second through a real control plane, alone and with controllers that gate.

``make bench PART=cluster [NODES=n] [PODS=n] [WAITING=n] [REPEATS=n] [SCHEDULER=shipped|lifted] [TOKENS=yes]``; without
NODES both sizes of the design are run. Without SCHEDULER each is run with the scheduler as it is shipped, which binds
50 pods a second, and with that limit lifted, where the processor bounds the rate and every millisecond shows. With
TOKENS=yes the pods mount the token of their service account.

A machine that others use is faster in one moment and slower in the next, by more than the variants differ. So each
controller is measured against the stock scheduler beside it: while it stays, short runs on its control plane alternate
with short runs on another, where nothing of Bursar is. The first run of each is not counted. A turn's rate is that of
all other pods in the sum of their times. What the controller does beside the runs of the other counts as its own.
Controllers are compared by their shares of the stock rate. A ratio is the median of those of each turn. (The scheduler
as it is shipped lets the first hundred pods of a run pass at once: there a turn is one run of each controller, and of
the stock scheduler before them.)

Rates are of wall-clock time, because most of the work is done by other processes; the processor time of all processes
is what bounds them where these share a few cores. What the API server allocates for a pod depends on no machine: it is
the same in every run, to a hundredth or two.
"""

import os
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import NamedTuple

from benchmarks.rows import AT_MOST, Row
from benchmarks.timing import say
from benchmarks.work.arena import Arena, Figures, Run, Size, Starter, arena, bursar, joined, passing
from benchmarks.work.passing import PIN

_STOCK = "stock scheduler alone"
_PASSED = "pass-through, gated"
_BURSAR = "Bursar, gated"
_PASSED_PINNED = "pass-through, gated and pinned"
_BURSAR_PINNED = "Bursar, gated and pinned"
_BURSAR_FORGETTING = "Bursar, gated and pinned, managed fields removed"
_CONTROLLERS: dict[str, Starter] = {
    _PASSED: passing(),
    _BURSAR: bursar(),
    _PASSED_PINNED: passing(PIN),
    _BURSAR_PINNED: bursar("--pin-all"),
    _BURSAR_FORGETTING: bursar("--pin-all"),
}

_RUNS = 5  # in a turn, of each: shorter ones would measure how soon the first and the last pod are noticed
_OF_PASSED = 0.95
_OF_STOCK = {Size(1_000, 3_000, 0): 0.75, Size(5_000, 3_000, 10_000): 0.85}
_SHIPPED = {"": (True, False), "shipped": (True,), "lifted": (False,)}
_TOKENS = {"": False, "no": False, "yes": True}


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
    tokens = _TOKENS[os.environ.get("TOKENS", "")]
    both = _SHIPPED[os.environ.get("SCHEDULER", "")]
    sizes = [size._replace(pods=_option("PODS", size.pods), tokens=tokens) for size in sizes]
    return [size._replace(shipped=shipped) for size in sizes for shipped in both]


def _option(name: str, default: int) -> int:
    return int(os.environ.get(name, default))


class _Turn(NamedTuple):
    """One controller, and the stock scheduler beside it."""

    figures: Figures
    stock: Figures

    @property
    def share(self) -> float:
        return self.figures.rate / self.stock.rate

    @property
    def share_by_processor(self) -> float:
        return self.stock.cpu / self.figures.cpu


def _measure(size: Size, repeats: int) -> dict[str, list[_Turn]]:
    """The turns of each controller."""
    say(f"   {size}: starting two control planes")
    runs = 1 if size.shipped else _RUNS + 1
    part = size if size.shipped else size._replace(pods=max(1, size.pods // _RUNS))
    turns: dict[str, list[_Turn]] = {name: [] for name in _CONTROLLERS}
    with arena(part, governed=False) as bare, arena(part, governed=True) as governed:
        for number in range(repeats):
            compare = _one_after_the_other(bare) if size.shipped else partial(_alternate, bare, runs)
            for name in reversed(turns) if number % 2 else turns:
                governed.forget_managers(name == _BURSAR_FORGETTING)
                with governed.ready(_CONTROLLERS[name], runs) as run:
                    turn = compare(run)
                say(f"   {size}: {name}, turn {number + 1}: {_in_short(turn)}")
                turns[name].append(turn)
    return turns


def _one_after_the_other(bare: Arena) -> Callable[[Run], _Turn]:
    """The stock scheduler once for all: a limit bounds the rate, and it is the same in every minute."""
    with bare.ready(None, 1) as alone:
        stock = alone()
    return lambda run: _Turn(run(), stock)


def _alternate(bare: Arena, runs: int, run: Run) -> _Turn:
    """Now one of them first and now the other. The first run of each is for practice: who has just come has to make
    connections, and in a cluster it came long ago.
    """
    found: tuple[list[Figures], list[Figures]] = ([], [])
    with bare.ready(None, runs) as alone:
        for number in range(runs):
            for which in (0, 1) if number % 2 else (1, 0):
                found[which].append((run, alone)[which]())
    return _Turn(*(joined(counted) for _, *counted in found))


def _in_short(turn: _Turn) -> str:
    found = turn.figures
    spent = {
        "API server": found.apiserver_cpu,
        "scheduler": found.scheduler_cpu,
        "controller": found.controller_cpu,
        "load": found.load_cpu,
    }
    times = ", ".join(f"{who} {milliseconds:.2f}" for who, milliseconds in spent.items())
    beside = f"stock beside it {turn.stock.rate:.0f}, {turn.stock.cpu:.2f}"
    return f"{found.rate:.0f} pods/s; ms per pod: {times}, all {found.cpu:.2f}; {beside}"


def _figures(size: Size, turns: dict[str, list[_Turn]]) -> Iterator[Row]:
    stock = [turn.stock for found in turns.values() for turn in found]
    yield from _spent(f"{_STOCK}: {size}", _median(stock))
    for name, found in turns.items():
        figures = _median([turn.figures for turn in found])
        yield from _spent(f"{name}: {size}", figures)
        yield Row("  of these, the controller", figures.controller_cpu, "ms per pod")
        yield Row("  memory of the controller", figures.memory, "MB")
        goal = 1 if name in {_BURSAR, _BURSAR_PINNED} else None
        yield Row("  writes on pods by the controller", figures.pod_writes, "per pod", goal, AT_MOST)
        yield Row("  other writes by the controller", figures.other_writes, "per pod")


def _median(found: list[Figures]) -> Figures:
    return Figures(*map(median, zip(*found, strict=True)))


def _spent(name: str, figures: Figures) -> Iterator[Row]:
    yield Row(name, figures.rate, "pods/s")
    yield Row("  allocated by the API server", figures.allocated, "KB per pod")
    yield Row("  processor time of all processes", figures.cpu, "ms per pod")
    yield Row("  of these, the API server", figures.apiserver_cpu, "ms per pod")
    yield Row("  of these, the scheduler", figures.scheduler_cpu, "ms per pod")


def _ratios(size: Size, turns: dict[str, list[_Turn]]) -> Iterator[Row]:
    """What was measured against what: by rate, with the goals; and by processor time."""
    for one, other in ((_BURSAR, _PASSED), (_BURSAR_PINNED, _PASSED_PINNED)):
        pairs = list(zip(turns[one], turns[other], strict=True))
        yield Row(f"{one} / {other}", median(a.share / b.share for a, b in pairs), "of the rate", _OF_PASSED)
        times = median(a.share_by_processor / b.share_by_processor for a, b in pairs)
        yield Row("  the same by processor time", times, "of the rate")
    for one in (_BURSAR_PINNED, _BURSAR_FORGETTING, _PASSED_PINNED):
        goal = _OF_STOCK.get(size._replace(shipped=False, tokens=False)) if one == _BURSAR_PINNED else None
        yield Row(f"{one} / {_STOCK}", median(turn.share for turn in turns[one]), "of the rate", goal)
        times = median(turn.share_by_processor for turn in turns[one])
        yield Row("  the same by processor time", times, "of the rate")
