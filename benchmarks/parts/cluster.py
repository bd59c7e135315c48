"""Part cluster: pods a second through a real control plane, alone and with controllers that gate.

``make bench PART=cluster [NODES=n] [PODS=n] [WAITING=n] [REPEATS=n]``; without NODES both sizes of the design are run.
All figures of one size come from one control plane, the variants in turn, so that they can be compared with each other;
rates are of wall-clock time, because most of the work is done by other processes.
"""

import os
import sys
from collections.abc import Iterator
from statistics import median

from benchmarks.rows import Row
from benchmarks.timing import say
from benchmarks.work.passing import PIN
from benchmarks.work.scheduling import Arena, Figures, Size, arena
from tests.cluster.controlplane.identities import BURSAR

_STOCK = "stock scheduler alone"
_GATED = "pass-through, gated"
_PINNED = "pass-through, gated and pinned"


def rows() -> Iterator[Row]:
    pods, repeats = _option("PODS", 3_000), _option("REPEATS", 3)
    if "NODES" in os.environ:
        sizes = [Size(_option("NODES", 0), pods, _option("WAITING", 0))]
    else:
        sizes = [Size(1_000, pods, 0), Size(5_000, pods, 10_000)]
    for size in sizes:
        yield from _of_one_size(size, repeats)


def _option(name: str, default: int) -> int:
    return int(os.environ.get(name, default))


def _of_one_size(size: Size, repeats: int) -> Iterator[Row]:
    say(f"   {size}: starting a control plane")
    with arena(size) as place:
        commands = _commands(place)
        runs: dict[str, list[Figures]] = {name: [] for name in commands}
        for number in range(repeats):
            for name, command in commands.items():
                found = place.run(command)
                say(f"   {size}: {name}, run {number + 1}: {_in_short(found)}")
                runs[name].append(found)
    yield from _figures(size, {name: _medians(found) for name, found in runs.items()})


def _commands(place: Arena) -> dict[str, list[str] | None]:
    """Who is measured, in this order; None: nobody gates."""
    passing = [sys.executable, "-m", "benchmarks.work.passing", place.plane.url, str(place.plane.ca_path)]
    passing.append(place.plane.token(BURSAR))
    return {_STOCK: None, _GATED: passing, _PINNED: [*passing, PIN]}


def _in_short(found: Figures) -> str:
    times = f"API server {found.apiserver_cpu:.2f}, scheduler {found.scheduler_cpu:.2f}, controller {found.cpu:.2f}"
    return f"{found.rate:.0f} pods/s; ms per pod: {times}"


def _medians(runs: list[Figures]) -> Figures:
    return Figures(*(median(figures) for figures in zip(*runs, strict=True)))


def _figures(size: Size, found: dict[str, Figures]) -> Iterator[Row]:
    for name, figures in found.items():
        yield Row(f"{name}: {size}", figures.rate, "pods/s")
        yield Row("  processor time of the API server", figures.apiserver_cpu, "ms per pod")
        yield Row("  processor time of the scheduler", figures.scheduler_cpu, "ms per pod")
        if name != _STOCK:
            yield Row("  processor time of the controller", figures.cpu, "ms per pod")
            yield Row("  memory of the controller", figures.memory, "MB")
            yield Row("  writes of the controller", figures.writes, "per pod")
            yield Row("  rate, of stock", figures.rate / found[_STOCK].rate, "ratio")
