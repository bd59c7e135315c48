"""Live news: what was made durable, handed to everybody who listens.

``publish`` runs in the writing thread, in the order of the batches, and never waits: each listener takes what it can.
A listener that cannot keep up is cut off; it comes back with the number of the last record it saw, and the store has
the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock

from bursar.sim.pods import SimEvent
from bursar.store.store import ObjectWrite


@dataclass(frozen=True, slots=True)
class News:
    """One batch, once it is on the disk."""

    seq: int
    at: int
    lines: Sequence[bytes]
    objects: Sequence[ObjectWrite]
    events: Sequence[SimEvent]


Listener = Callable[[News], None]


class Hub:
    """Whoever listens."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._listeners: dict[int, Listener] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._listeners)

    def publish(self, news: News) -> None:
        with self._lock:
            listeners = list(self._listeners.values())
        for listener in listeners:
            listener(news)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Hear of every batch from now on; must be quick and must not fail. Returns how to stop."""
        with self._lock:
            self._next += 1
            number = self._next
            self._listeners[number] = listener

        def stop() -> None:
            with self._lock:
                self._listeners.pop(number, None)

        return stop
