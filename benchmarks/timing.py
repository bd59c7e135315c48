"""The clock of the benchmarks, and the choice of the garbage collector's mode.

A figure is the median of several runs: the machine is rarely idle, and one run that was interrupted must not decide.
"""

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

RUNS = 5


def rate(work: Callable[[], int], runs: int = RUNS) -> float:
    """Steps a second, the median of ``runs``; ``work`` returns how many steps it made. The first call warms up."""
    work()
    return median(_rate_once(work) for _ in range(runs))


def _rate_once(work: Callable[[], int]) -> float:
    started = time.perf_counter()
    steps = work()
    return steps / (time.perf_counter() - started)


@contextmanager
def collector(enabled: bool) -> Iterator[None]:
    """Python's cyclic garbage collector on or off for a while. The core makes no cycles, so a server can do without."""
    was = gc.isenabled()
    gc.collect()
    if enabled:
        gc.enable()
    else:
        gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
        else:
            gc.disable()


def say(text: str) -> None:
    """Progress, beside the table."""
    print(text, file=sys.stderr, flush=True)
