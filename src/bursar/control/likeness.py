"""Claims that ask for the same are refused alike: a thousand pods of one job that wait cost one try, not a thousand.

A claim that was refused before, and whose like (same spec, same namespace) was refused since anything last changed, is
sent back to wait for the same things without being tried. The queue tries the more urgent first, and nothing that makes
a difference between likes (age, name) favours the less urgent one. The no-thrash record might: it is about single
claims, so whoever was displaced once speaks for nobody but itself.
"""

from __future__ import annotations

from bursar.control.queue import Queue
from bursar.control.watching import Watch
from bursar.engine.decisions import Decision
from bursar.ledger.claims import Claim, ClaimSpec
from bursar.ledger.lineage import lineage_of
from bursar.ledger.state import State


class Likeness:
    """The refusals since anything last changed."""

    def __init__(self, state: State, queue: Queue, watch: Watch) -> None:
        self._state = state
        self._queue = queue
        self._watch = watch
        self._changes = 0
        self._refused: dict[tuple[int, str], tuple[ClaimSpec, list[str], bool]] = {}

    def refused(self, claim: Claim) -> bool:
        """Whether its like was refused a moment ago; then it waits already."""
        if self._changes != self._watch.changes or not isinstance(claim.decision, Decision):
            return False
        known = self._refused.get((id(claim.spec), claim.namespace))
        if known is None:
            return False
        self._queue.wait(claim, known[1], never=known[2])
        return True

    def note(self, claim: Claim, topics: list[str], never: bool) -> None:
        """The claim was tried and refused."""
        if self._changes != self._watch.changes:
            self._changes = self._watch.changes
            self._refused.clear()
        if self._state.cell("displaced", lineage_of(self._state, claim.uid)) is None:
            self._refused[id(claim.spec), claim.namespace] = (claim.spec, topics, never)
