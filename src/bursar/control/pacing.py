"""How long the control loop works on one thing: long decisions are put off, and a loop without end is stopped.

A decision gets a time box. When it is over, the pod (or the gang) waits, and gets twice the time at its next attempt.
Its wait grows with what the attempts took, and so does that of its namespace: for a while no other pod of it is
decided. So the pods of one namespace, however many and however odd, take a sixth of the loop's time at most, and those
of others wait no longer than one box.

Only a loop with a clock that runs meanwhile cuts decisions. In the embedded cluster no time passes in one.
"""

from __future__ import annotations

from collections.abc import Callable

from bursar.control.gangs import forked
from bursar.control.queue import Queue
from bursar.control.wakeups import Wakeups
from bursar.engine.time_box import PUT_OFF, ClockBox
from bursar.ledger.claims import Claim
from bursar.ledger.state import State

FIRST = 1_000  # milliseconds of the first attempt
LONGEST = 4_000  # of any: well within the time after which a leader loses its lease
_REST = 5  # how many times as long a namespace rests
_MOST = 16  # attempts after which the wait grows no more


class PutOff:
    """The pods whose decisions were cut, by uid, and the namespaces that rest."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.box = ClockBox(clock)
        self._tried: dict[str, int] = {}  # by uid: how often it was cut
        self._due: dict[str, int] = {}  # by uid, of those and of others in a namespace that rests: not before this
        self._rests: dict[str, int] = {}  # by namespace: until when
        self._soonest = 0  # nothing is due before this

    def fork(self, clock: Callable[[], int]) -> PutOff:
        """A copy to go on with, on another clock."""
        parts = {"_tried": dict(self._tried), "_due": dict(self._due), "_rests": dict(self._rests)}
        return forked(self, **parts, _clock=clock, box=ClockBox(clock))

    def begin(self, claim: Claim) -> bool:
        """Begins the time box of a decision; False if the pod has to wait until its time has come."""
        now = self._clock()
        due = max(self._due.get(claim.uid, 0), self._rests.get(claim.namespace, 0))
        if now < due:
            self._wait(claim.uid, due)
            return False
        self._due.pop(claim.uid, None)
        self.box.begin(min(FIRST << self._tried.get(claim.uid, 0), LONGEST))
        return True

    def topics(self, claim: Claim, began: int, refused_by: list[str]) -> list[str]:
        """What the pod waits for, by the topics of its refusals in a decision that began then."""
        if PUT_OFF not in refused_by:
            self.decided(claim.uid)
            return refused_by
        self._cut(claim, began)
        return [topic_of(claim.uid)]

    def _cut(self, claim: Claim, began: int) -> None:
        now = self._clock()
        tried = min(self._tried.get(claim.uid, 0) + 1, _MOST)
        took = max(now - began, 1)
        self._tried[claim.uid] = tried
        self._rests[claim.namespace] = now + _REST * took
        self._wait(claim.uid, now + (_REST * took << tried))

    def _wait(self, uid: str, due: int) -> None:
        self._soonest = min(due, self._soonest) if self._due else due
        self._due[uid] = due

    def decided(self, uid: str) -> None:
        """It was decided in time, or is gone."""
        if self._tried or self._due:
            self._tried.pop(uid, None)
            self._due.pop(uid, None)

    def wake(self, queue: Queue) -> None:
        """Readies those whose time has come."""
        if not self._due:
            return
        now = self._clock()
        if now < self._soonest:
            return
        ready = [uid for uid, due in self._due.items() if due <= now]
        for uid in ready:
            del self._due[uid]
        self._soonest = min(self._due.values(), default=0)
        if ready:
            queue.wake([topic_of(uid) for uid in ready])
        for namespace in [name for name, until in self._rests.items() if until <= now]:
            del self._rests[namespace]


def topic_of(uid: str) -> str:
    """What a pod waits for that was put off."""
    return f"{PUT_OFF}/{uid}"


MAX_ROUNDS = 100_000
_FOR_EACH_CLAIM = 100
_NAMED = 5


class SettlingError(RuntimeError):
    """The cluster does not come to rest while no time passes: a defect of a policy, never of the input."""


class LivelockGuard:
    """Counts the cycles while no time passes: a policy that never comes to rest moves claims or writes without end."""

    def __init__(self, state: State, watch: Wakeups, most: int) -> None:
        """``most`` cycles are always allowed, and some more for each claim."""
        self._state = state
        self._watch = watch
        self._most = most
        self._moment = 0
        self._done = 0

    def count(self, now: int) -> None:
        """One more cycle; raises ``SettlingError``, naming the pods that move, if there were too many."""
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
