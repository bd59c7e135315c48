"""Whether a cluster comes to rest.

Everything that goes on for ever moves claims or writes for ever, while time stands still. So rounds are counted, as
long as no time passes: there may be many more of them than claims, but not without end.
"""

from __future__ import annotations

from bursar.control.watching import Watch
from bursar.ledger.state import State

MAX_ROUNDS = 100_000
_FOR_EACH_CLAIM = 100
_NAMED = 5


class SettlingError(RuntimeError):
    """The cluster does not come to rest although no time passes: a defect of a policy, never of the input."""


class Rounds:
    """How many rounds of deciding and acting there were at one moment."""

    def __init__(self, state: State, watch: Watch, most: int) -> None:
        """``most``: so many are always allowed, and some more for each claim."""
        self._state = state
        self._watch = watch
        self._most = most
        self._moment = 0
        self._done = 0

    def count(self, now: int) -> None:
        """One more round; raises ``SettlingError``, naming those who move, when there were too many."""
        if now != self._moment:
            self._moment = now
            self._done = 0
            self._watch.moves.clear()
        self._done += 1
        if self._done > self._most + _FOR_EACH_CLAIM * len(self._state.claims):
            raise SettlingError(f"no rest after {self._done} rounds at {now} ms{self._moving()}")

    def _moving(self) -> str:
        moves = sorted(self._watch.moves.items(), key=lambda item: (-item[1], item[0]))
        named = ", ".join(f"{self._name(uid)} ({count} times)" for uid, count in moves[:_NAMED])
        return f"; it moves: {named}" if named else ""

    def _name(self, uid: str) -> str:
        claim = self._state.claims.get(uid)
        return uid if claim is None else claim.key
