"""A controller that observes a cluster over which another one decides.

It charges what is observed, as a controller does, and acts on nothing. Pending claims are decided in trials: a refusal
is kept, because it changes nothing that counts, and an admission is undone. So the ledger holds what happened in the
cluster and never what might have happened, and cannot drift from the controller that decides.

A claim that a trial admits is *expected* to start. Until it does, it is tried again from time to time, with those that
were refused after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from bursar.control.actions import Actor, Ports
from bursar.control.controller import LEAVING, Controller
from bursar.control.gangs import forked
from bursar.control.pacing import topic_of
from bursar.engine.decision import NEVER, Decision
from bursar.engine.engine import Engine
from bursar.engine.session import CommitListener
from bursar.ledger.claims import PENDING, Claim
from bursar.policies.plugin import Registry

AGAIN_AFTER = 1_000  # milliseconds until expected claims are tried again
_EXPECTED = "expected"  # the topic of claims that another controller should start soon
_TOGETHER = 200  # entries that one trial decides


class Expected(NamedTuple):
    """A claim that would be admitted."""

    blockers: tuple[str, ...]  # uids of claims that must be gone before it starts


class Tried(NamedTuple):
    """An entry of the queue that was decided in a trial."""

    claims: list[Claim]
    decisions: list[Decision]
    blockers: list[str]
    after_admission: bool  # of it, or of one before it in the same trial


class ObservingController(Controller):
    """Knows what the deciding controller knows, and decides nothing for good."""

    def __init__(self, engine: Engine, registry: Registry, ports: Ports) -> None:
        super().__init__(engine, registry, ports)
        self._expected: dict[str, Expected] = {}  # by uid
        self._again = False  # whether some entries are to be tried again
        self._tried = 0  # when expected claims were last tried

    def observe(self, enough: Callable[[], bool]) -> bool:
        """Take in what was observed, and find out why others wait; False if it was ``enough`` before all was done."""
        while self._take_in():
            self._rounds.count(self._ports.now())
            if enough():
                return False
        if self._again and self._ports.now() - self._tried >= AGAIN_AFTER:
            self.wake_expected()
        done = self._judge(enough)
        self._actor.write_outputs()
        return done

    def _take_in(self) -> bool:
        """What follows from observations alone. The ports carry out no action."""
        if self._actor.set_limits():
            return True
        if self._devices.pass_charges(self._watch.take_claiming(), self._ports.now()):
            return True
        return self._actor.carry_out()

    def wake_expected(self) -> None:
        """Try claims again that were expected to start, and those that were refused after them."""
        self._expected.clear()
        self._again = False
        self._tried = self._ports.now()
        self.queue.wake([_EXPECTED])

    def _judge(self, enough: Callable[[], bool]) -> bool:
        """Decide the entries that are ready, in trials."""
        self._put_off.wake(self.queue)
        while (claims := self.queue.next()) is not None:
            if not self._trial(claims, enough):
                return False
        return True

    def _trial(self, claims: list[Claim] | None, enough: Callable[[], bool]) -> bool:
        """Decide these and the next entries, each after the others, and undo it; False if it was enough before."""
        found: list[Tried] = []
        admitted = False
        self.engine.begin_rehearsal(CommitListener(), self._ports.now())
        try:
            while claims is not None:
                if self._put_off.begin(claims[0]):
                    decisions = self._decided(claims)
                    admitted = admitted or decisions[0].admitted
                    found.append(Tried(claims, decisions, self._blockers(claims, decisions), admitted))
                else:
                    self.queue.wait(claims[0], [topic_of(claims[0].uid)], never=False)
                if len(found) >= _TOGETHER or enough():
                    break
                claims = self.queue.next()
        finally:
            self.engine.end_rehearsal()
        for one in found:
            self._keep(one)
        return not enough()

    def _blockers(self, claims: list[Claim], decisions: list[Decision]) -> list[str]:
        """Uids of claims that must be gone before admitted ones may start."""
        if not decisions[0].admitted:
            return []
        blocking = {uid for claim in claims for uid in self._watch.terminating.blockers(claim)}
        return sorted(blocking | {uid for one in decisions for uid in one.victims})

    def _decided(self, claims: list[Claim]) -> list[Decision]:
        self.decided += 1
        now = self._ports.now()
        return [self.engine.decide(claims[0], now)] if len(claims) == 1 else self.engine.decide_group(claims, now)

    def _keep(self, tried: Tried) -> None:
        """A refusal stands until something helps; what another admission may have caused is tried again."""
        first, decisions = tried.claims[0], tried.decisions
        if decisions[0].admitted:
            self._expected.update((claim.uid, Expected(tuple(tried.blockers))) for claim in tried.claims)
            self._again = True
            self.queue.wait(first, [_EXPECTED], never=False)
            return
        topics = [topic for one in decisions for refusal in one.refusals for topic in refusal.topics]
        topics = self._put_off.topics(first, self._ports.now(), topics)
        never = any(one.outcome == NEVER for one in decisions)
        if tried.after_admission and not never:
            self._again = True
            topics = [*topics, _EXPECTED]
        for claim, decision in zip(tried.claims, decisions, strict=True):
            claim.decision = decision
        self.queue.wait(first, topics, never=never)

    def gone(self, uid: str) -> None:
        self._expected.pop(uid, None)
        super().gone(uid)

    def reason(self, uid: str) -> tuple[str, str]:
        """As the deciding controller says it, which has not acted yet on claims that would be admitted."""
        expected = self._expected.get(uid)
        claim = self.engine.state.claims.get(uid)
        if expected is None or claim is None or claim.state != PENDING:
            return super().reason(uid)
        if not expected.blockers:
            return "", "starts now: its quotas have room"
        return LEAVING, f"starts when {', '.join(self._names(expected.blockers))} left"

    def _names(self, uids: Sequence[str]) -> list[str]:
        return sorted(self.name(uid) for uid in uids)

    def acting(self, ports: Ports) -> ObservingController:
        """Goes on as a controller that decides and acts, through other ports. The original is of no use afterwards."""
        actor = Actor(self.engine, self._watch, ports)
        return forked(
            self, _ports=ports, _actor=actor, _devices=self._devices.fork(actor), _put_off=self._put_off.fork(ports.now)
        )
