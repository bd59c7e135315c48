"""Virtual time: integer milliseconds that pass only when somebody says so, and what is due when."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

_UNITS = (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))


def show_duration(ms: int) -> str:
    """A duration as people write it: 1h30m, 250ms."""
    parts: list[str] = []
    for unit, size in _UNITS:
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


class Clock:
    """Timers fire in the order of their time, then in the order in which they were set."""

    def __init__(self, start: int = 0) -> None:
        self.now = start
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._set = 0

    @property
    def next_due(self) -> int | None:
        """When the next timer is due."""
        return self._timers[0][0] if self._timers else None

    def at(self, moment: int, action: Callable[[], None]) -> int:
        """Set a timer; returns its place among those of the same time."""
        self._set += 1
        heappush(self._timers, (moment, self._set, action))
        return self._set

    def pass_to(self, moment: int) -> bool:
        """Go to the next timer that is due by then and fire all of that time; False: there is none, and it is then."""
        if not self._timers or self._timers[0][0] > moment:
            self.now = moment
            return False
        self.now = self._timers[0][0]
        while self._timers and self._timers[0][0] <= self.now:
            heappop(self._timers)[2]()
        return True
