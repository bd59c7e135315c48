"""What is durable, for those who follow it: batches and their listeners, counters, and when to tick and to try again.

Nothing here knows the cluster. Listeners hear of a batch once it is on the disk, in the order of the file.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Event, Lock

from bursar.engine.decision import EVICTED, OUTCOMES, Decision, GangDecisions
from bursar.ledger.journal import Record
from bursar.sim.pods import Happening, SimEvent
from bursar.store.store import ObjectWrite


class RequestCounters:
    """Since the start of the process."""

    def __init__(self) -> None:
        self.decisions: Counter[tuple[str, str]] = Counter()  # (outcome, reason)
        self.evictions: Counter[str] = Counter()  # by reason
        self.records: Counter[str] = Counter()  # by cause
        self.pods: Counter[str] = Counter()  # by what happened

    def note(self, records: Iterable[Record], happenings: Iterable[Happening]) -> None:
        for record in records:
            self.records[str(record.cause[0])] += 1
            decided = record.decision
            for decision in decided.decisions if isinstance(decided, GangDecisions) else [decided]:
                if isinstance(decision, Decision) and decision.outcome != EVICTED:
                    self.decisions[OUTCOMES[decision.outcome], decision.reason] += 1
        for happening in happenings:
            self.pods[happening.what] += 1
            if happening.what == "evicted":
                self.evictions[happening.reason.partition(" by ")[0]] += 1


@dataclass(frozen=True, slots=True)
class DurableBatch:
    """One batch, once it is on the disk."""

    seq: int
    at: int
    lines: Sequence[bytes]
    objects: Sequence[ObjectWrite]
    events: Sequence[SimEvent]


Listener = Callable[[DurableBatch], None]


class Hub:
    """Publishes durable batches to listeners.

    ``publish`` runs in the writing thread, in the order of the batches, and never waits. A listener that cannot keep
    up is cut off, and resumes from the store.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._listeners: dict[int, Listener] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._listeners)

    def publish(self, batch: DurableBatch) -> None:
        with self._lock:
            listeners = list(self._listeners.values())
        for listener in listeners:
            listener(batch)

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


class Alarm:
    """The time of the next tick; rings when something is due earlier."""

    def __init__(self) -> None:
        self.at = 0
        self.ring = Event()

    def due(self, moment: int | None) -> None:
        if moment is not None and moment < self.at:
            self.ring.set()


class WriteRetry:
    """When to try again: at first soon, then at growing intervals."""

    _FIRST, _MOST = 1.0, 30.0

    def __init__(self) -> None:
        self._wait = self._FIRST
        self._at = 0.0
        self._last = 0.0

    def failed(self) -> None:
        now = time.monotonic()
        calm = now - self._last > 4 * self._MOST
        self._wait = self._FIRST if calm else min(self._MOST, 2 * self._wait)
        self._at, self._last = now + self._wait, now

    def due(self) -> bool:
        return time.monotonic() >= self._at
