"""A controller that follows another one: a copy of its cluster, in another process or on another machine.

The engine repeats the journal of the original, and this controller hears of each record as of a commit of its own. So
queue, holds and charges for devices are what they are there. It decides nothing: what the original has not admitted
waits here too. For what each of them waits is found in a trial, because decisions that repeat the last one are not in
the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bursar.control.admission import ObjectChange, control_section
from bursar.control.controller import Controller
from bursar.engine.decision import NEVER, Decision
from bursar.engine.session import CommitListener
from bursar.ledger.claims import Claim


class FollowingController(Controller):
    """Knows what another controller knows, and does nothing of its own."""

    def follow(
        self, changes: Sequence[ObjectChange], gone: Iterable[str], pods: Sequence[tuple[str, str]], asked: list[str]
    ) -> None:
        """Another controller made these changes, and the engine has its state: uids of pods that are gone or have
        ended, pods (key, uid) that came or changed, and uids of claims that ask for something else.
        """
        section = control_section(changes)
        if section is not None:
            self.queue.strict = section.strict
        self._devices.resume(changes)
        for uid in gone:
            self._pods.remove(uid)
            self._devices.left(uid)
        claims, now = self.engine.state.claims, self._ports.now()
        there = {uid: key for key, uid in pods if uid in claims}
        for uid, key in there.items():
            if self._pods.claim(key) is not claims[uid]:
                self._pods.add(key, claims[uid])
                self._watch.take(claims[uid])
        for uid in (*there, *(uid for uid in asked if uid in claims)):
            self._devices.entered(claims[uid], now)

    def rest(self) -> bool:
        """The other controller is at rest, and so is this one then. Returns False if it would do something more."""
        before = self.engine.version
        self._devices.pass_charges(self._watch.take_claiming(), self._ports.now())
        while self._actor.carry_out():  # what was decided was carried out there: nothing is left of it but the holds
            continue
        self._actor.write_outputs()
        return self._wait_again() and self.engine.version == before

    def _wait_again(self) -> bool:
        """Every entry that may be decided waits; False if one of them would be admitted.

        An entry that would be refused as before waits for what refuses it now. If it would be refused otherwise, the
        other controller has not tried it since, and its last decision stands.
        """
        fresh: list[tuple[Claim, Decision]] = []
        self.engine.begin_rehearsal(CommitListener(), self._ports.now())
        try:
            while (claims := self.queue.next()) is not None:
                known = [claim.decision for claim in claims]
                decisions = self._tried(claims)
                if decisions[0].admitted:
                    return False
                if all(new.same_as(old) for new, old in zip(decisions, known, strict=True)):
                    fresh.extend(zip(claims, decisions, strict=True))
                else:
                    decisions = [old for old in known if isinstance(old, Decision)]
                topics = [topic for one in decisions for refusal in one.refusals for topic in refusal.topics]
                self.queue.wait(claims[0], topics, never=any(one.outcome == NEVER for one in decisions))
        finally:
            self.engine.end_rehearsal()
        for claim, decision in fresh:
            claim.decision = decision
        return True

    def _tried(self, claims: list[Claim]) -> list[Decision]:
        now = self._ports.now()
        return [self.engine.decide(claims[0], now)] if len(claims) == 1 else self.engine.decide_group(claims, now)
