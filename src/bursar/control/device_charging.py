"""Keeps the charges of claims of devices in step: when objects change, and when pods that share a claim come and go.

A claim that is charged otherwise asks for something else, and is adjusted like a resized pod. An ungated one is
charged even above its quota, because it has its devices already or may get them at any moment; an event says so. An
ungated pod whose ResourceClaim was created again and asks for more is evicted: nothing else keeps it from the devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bursar.control import actions as outside
from bursar.control.actions import Actor
from bursar.control.admission import ObjectChange
from bursar.control.device_book import DeviceBook, Respec
from bursar.control.device_sharing import ClaimSharing
from bursar.control.gangs import forked
from bursar.engine.engine import Engine
from bursar.ledger.claims import HELD, Claim
from bursar.policies.results import Revocation

REMADE = "devices.remade"
_REMADE_SENTENCE = "its claim of devices was made again and asks for more than the pod was admitted with"


class DeviceCharging:
    def __init__(self, engine: Engine, actor: Actor) -> None:
        claims = engine.state.claims
        self._engine = engine
        self._actor = actor
        self._book = DeviceBook(claims, ClaimSharing(claims, engine.governing))

    def fork(self, actor: Actor) -> DeviceCharging:
        """A copy to go on with."""
        return forked(self, _actor=actor, _book=self._book.fork(self._book.sharing.fork()))

    def apply(self, changes: Sequence[ObjectChange], now: int) -> None:
        """Objects changed: the claims that they are about are charged otherwise."""
        for respec in self._book.respecs(self._book.take(changes), changes):
            self._recharge(respec, now)

    def resume(self, changes: Iterable[ObjectChange]) -> None:
        """These objects existed when the ledger was stopped, and its claims are charged for them."""
        self._book.take(changes)

    def equip(self, claim: Claim, known: Claim | None) -> None:
        """Charge a claim that was read of a pod; ``known`` is the claim of that pod in the ledger."""
        claim.spec = self._book.equipped(known or claim, claim.spec)

    def entered(self, claim: Claim, now: int) -> None:
        """The claim is in the ledger now, or asks for something else."""
        self._book.enter(claim)
        self._respec(self._book.sharing.clashing(claim), now)

    def left(self, uid: str) -> None:
        self._book.leave(uid)

    def pass_charges(self, moved: Sequence[Claim], now: int) -> bool:
        """These claims were placed, given up or left. Returns whether others pay for what they share."""
        return self._respec(self._book.sharing.moved(moved), now) if moved else False

    def _respec(self, claims: Iterable[Claim], now: int) -> bool:
        changed = False
        for claim in claims:
            spec = self._book.equipped(claim, claim.spec)
            if spec is not claim.spec:
                self._recharge(Respec(claim, spec, False), now)
                changed = True
        return changed

    def _recharge(self, respec: Respec, now: int) -> None:
        claim, spec, grew = respec
        decision = self._engine.adjust(claim.uid, spec, now)
        self._book.enter(claim)
        if decision.refusals and claim.state == HELD:
            self._engine.give_up(claim.uid, now)
            self._engine.adjust(claim.uid, spec, now)
        elif decision.refusals:
            self._engine.adjust(claim.uid, spec, now, forced=True)
            self._actor.event(claim, outside.WARNING, outside.DEVICES_ABOVE_QUOTA, decision.sentence())
        if grew and claim.counts():
            self._actor.revoke_one(Revocation(claim.uid, REMADE, _REMADE_SENTENCE))
