"""Part cluster: pods a second through a real control plane, alone and with controllers that gate.

``make bench PART=cluster [NODES=n] [PODS=n] [WAITING=n] [REPEATS=n]``; without NODES both sizes of the design are run.
All figures of one size come from one control plane, the variants in turn, so that they can be compared with each other.
Rates are of wall-clock time, because most of the work is done by other processes; processor times tell how much of it
was the machine's other work.
"""

import os
from collections.abc import Iterator
from statistics import median

from benchmarks.rows import AT_MOST, Row
from benchmarks.timing import say
from benchmarks.work.arena import Figures, Size, Starter, arena, bursar, passing
from benchmarks.work.passing import PIN

_STOCK = "stock scheduler alone"
_PASSED = "pass-through, gated"
_PASSED_PINNED = "pass-through, gated and pinned"
_BURSAR = "Bursar, gated"
_BURSAR_PINNED = "Bursar, gated and pinned"
_WHO: dict[str, Starter | None] = {
    _STOCK: None,
    _PASSED: passing(),
    _BURSAR: bursar(),
    _PASSED_PINNED: passing(PIN),
    _BURSAR_PINNED: bursar("--pin-all"),
}

_OF_PASSED = 0.95
_OF_STOCK = {Size(1_000, 3_000, 0): 0.75, Size(5_000, 3_000, 10_000): 0.85}


def rows() -> Iterator[Row]:
    repeats = _option("REPEATS", 3)
    for size in _sizes():
        yield from _of_one_size(size, repeats)


def _sizes() -> list[Size]:
    if "NODES" in os.environ:
        return [Size(_option("NODES", 0), _option("PODS", 3_000), _option("WAITING", 0))]
    return [size._replace(pods=_option("PODS", size.pods)) for size in _OF_STOCK]


def _option(name: str, default: int) -> int:
    return int(os.environ.get(name, default))


def _of_one_size(size: Size, repeats: int) -> Iterator[Row]:
    say(f"   {size}: starting a control plane")
    runs: dict[str, list[Figures]] = {name: [] for name in _WHO}
    with arena(size) as place:
        for number in range(repeats):
            for name, start in _WHO.items():
                found = place.run(start)
                say(f"   {size}: {name}, run {number + 1}: {_in_short(found)}")
                runs[name].append(found)
    yield from _figures(size, {name: _medians(found) for name, found in runs.items()})


def _in_short(found: Figures) -> str:
    spent = {"API server": found.apiserver_cpu, "scheduler": found.scheduler_cpu, "controller": found.controller_cpu}
    times = ", ".join(f"{who} {milliseconds:.2f}" for who, milliseconds in spent.items())
    return f"{found.rate:.0f} pods/s; ms per pod: {times}"


def _medians(runs: list[Figures]) -> Figures:
    return Figures(*(median(figures) for figures in zip(*runs, strict=True)))


def _figures(size: Size, found: dict[str, Figures]) -> Iterator[Row]:
    for name, figures in found.items():
        yield Row(f"{name}: {size}", figures.rate, "pods/s")
        yield Row("  processor time of the API server", figures.apiserver_cpu, "ms per pod")
        yield Row("  processor time of the scheduler", figures.scheduler_cpu, "ms per pod")
        if name != _STOCK:
            yield Row("  processor time of the controller", figures.controller_cpu, "ms per pod")
            yield Row("  memory of the controller", figures.memory, "MB")
            goal = 1 if name in {_BURSAR, _BURSAR_PINNED} else None
            yield Row("  writes on pods by the controller", figures.pod_writes, "per pod", goal, AT_MOST)
            yield Row("  other writes by the controller", figures.other_writes, "per pod")
    yield Row("Bursar to pass-through, gated", found[_BURSAR].rate / found[_PASSED].rate, "ratio", _OF_PASSED)
    pinned = found[_BURSAR_PINNED].rate
    yield Row("Bursar to pass-through, pinned", pinned / found[_PASSED_PINNED].rate, "ratio", _OF_PASSED)
    yield Row("pass-through, pinned, to stock", found[_PASSED_PINNED].rate / found[_STOCK].rate, "ratio")
    yield Row("Bursar, pinned, to stock", pinned / found[_STOCK].rate, "ratio", _OF_STOCK.get(size))
