"""Time for the server: it follows the clock of the machine, never goes back and never stands still.

The clock of a machine can be wrong, and is then set. When it is set forward, time jumps with it. When it is set back,
or was ahead before a restart, time goes on from where it was by the monotonic clock, at nine tenths of the speed,
until the clock of the machine has caught up. Timers are then late by a ninth of their time at most. How far time is
ahead is logged once a minute, and shown by the health check and in the metrics.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Lock

from bursar.objects.validation import show_duration

LOG = logging.getLogger("bursar.server")
Clock = Callable[[], int]  # milliseconds
WORTH_SAYING = 1_000  # ms that time is ahead, or jumped
_SAID_EVERY = 60_000
_TENTHS = 9  # of the speed, while time is ahead


def wall_clock() -> int:
    """Milliseconds since 1970. It may jump."""
    return time.time_ns() // 1_000_000


def boot_clock() -> int:
    """Milliseconds since the machine started, also while it was suspended. It cannot be set."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000


class SteadyClock:
    """Call it for the time."""

    def __init__(self, wall: Clock = wall_clock, ticks: Clock = boot_clock) -> None:
        self._wall = wall
        self._ticks = ticks
        self._lock = Lock()
        self._time = wall()  # when it was right last, or the time from which it goes on
        self._tick = ticks()  # then
        self._said_at = -_SAID_EVERY

    def not_before(self, last: int) -> None:
        """The time was that already."""
        with self._lock:
            if last > self._time:
                self._time, self._tick = last, self._ticks()

    def __call__(self) -> int:
        with self._lock:
            wall, tick = self._wall(), self._ticks()
            passed = max(0, tick - self._tick)
            slow = self._time + passed * _TENTHS // 10
            if wall < slow:
                return slow
            jump = wall - self._time - passed
            self._time, self._tick = wall, tick
        if jump >= WORTH_SAYING:
            LOG.warning("the clock of this machine was set forward by %s", show_duration(jump // 1000 * 1000))
        return wall

    @property
    def ahead(self) -> int:
        """How far time is ahead of the clock of the machine, in milliseconds."""
        return max(0, self() - self._wall())

    def say_offset(self) -> None:
        """Log how far time is ahead, unless that was said a moment ago; and once that it no longer is."""
        ahead, tick = self.ahead, self._ticks()
        if ahead < WORTH_SAYING:
            if self._said_at >= 0:
                self._said_at = -_SAID_EVERY
                LOG.info("time is that of the machine's clock again")
        elif tick - self._said_at >= _SAID_EVERY:
            self._said_at = tick
            LOG.warning("time is %s", offset_told(ahead))


def offset_told(ahead: int) -> str:
    """In words, for the log and the health check."""
    return f"{show_duration(ahead // 1000 * 1000)} ahead of this machine's clock, and slower until that has caught up"
