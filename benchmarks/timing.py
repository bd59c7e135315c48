"""The clock of the benchmarks, and the choice of the garbage collector's mode.

A figure is the median of several runs: the machine is rarely idle, and one run that was interrupted must not decide.
Time is the processor time of this process, not the clock on the wall: nothing measured here waits for anything, so on
an idle machine both are the same, and on a busy one the time that others had the processor does not count.
"""

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

RUNS = 9


def rate(work: Callable[[], int], runs: int = RUNS) -> float:
    """Steps a second, the median of ``runs``, the first included; ``work`` returns how many steps it made."""
    return median(rate_once(work) for _ in range(runs))


def rate_once(work: Callable[[], int]) -> float:
    started = time.process_time()
    steps = work()
    return steps / (time.process_time() - started)


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
