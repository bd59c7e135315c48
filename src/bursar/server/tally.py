"""Counts of what was decided and done, for metrics. Touched under the service's lock, read without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from bursar.engine.decisions import EVICTED, OUTCOMES, Decision, DecisionList
from bursar.ledger.journal import Record
from bursar.sim.news import Happening


class Tally:
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
            for decision in decided.decisions if isinstance(decided, DecisionList) else [decided]:
                if isinstance(decision, Decision) and decision.outcome != EVICTED:
                    self.decisions[OUTCOMES[decision.outcome], decision.reason] += 1
        for happening in happenings:
            self.pods[happening.what] += 1
            if happening.what == "evicted":
                self.evictions[happening.reason.partition(" by ")[0]] += 1
