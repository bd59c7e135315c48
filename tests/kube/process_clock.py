"""A clock for tests of one process: it stands still while that process does not get to run.

Leases, time-outs and pauses are counted in tenths of seconds here, so that tests are quick; a machine that is busy with
other things may take seconds between any two lines. So time passes for event loops, and for whoever asks ``time``, only
while an event loop has nothing to do but to wait, and then for no longer than it meant to wait; whatever else takes
time counts as next to nothing. This clock never runs ahead of the real one.
"""

from __future__ import annotations

import selectors
import threading
import time
from collections.abc import Callable

import pytest

STEP = 0.0005  # seconds that count between two looks at the clock, at most: whoever only looks must see it go on
Events = list[tuple[selectors.SelectorKey, int]]
STEADY = {time.CLOCK_MONOTONIC, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)}


class PatientClock:
    def __init__(self, real: Callable[[], float]) -> None:
        self._real = real
        self._now = self._looked = real()
        self._lock = threading.Lock()

    def __call__(self) -> float:
        return self.passed(STEP)

    def passed(self, most: float) -> float:
        """The time now, when at most so much of what passed since the last look was meant to pass."""
        with self._lock:
            real = self._real()
            self._now += min(real - self._looked, most)
            self._looked = real
            return self._now


def be_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this clock be the one of event loops and of the module ``time``."""
    clock = PatientClock(time.monotonic)
    real_clock, wait = time.clock_gettime, selectors.DefaultSelector.select

    def waited(selector: selectors.DefaultSelector, timeout: float | None = None) -> Events:
        clock()
        found = wait(selector, timeout)
        clock.passed(STEP if timeout is None else max(timeout, 0.0))
        return found

    monkeypatch.setattr(selectors.DefaultSelector, "select", waited)
    monkeypatch.setattr(time, "monotonic", clock)
    monkeypatch.setattr(time, "monotonic_ns", lambda: int(clock() * 1_000_000_000))
    monkeypatch.setattr(time, "clock_gettime", lambda which: clock() if which in STEADY else real_clock(which))
