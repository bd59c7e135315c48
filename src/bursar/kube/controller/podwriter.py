"""Writing on pods: the one patch that starts a pod, marks that policies want, and holds.

A pod is written to by one task at a time, and each write is made of what the ledger says at that moment: a claim that
lost its place in the meantime is not started. What admission and policies want on the pod travels in the same patch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bursar.engine.decisions import Decision
from bursar.engine.engine import Engine
from bursar.kube.client.api import Api, PatchKind, Writing
from bursar.kube.client.resources import PODS
from bursar.kube.controller.desk import Desk
from bursar.kube.controller.names import ADMISSION, HOLD, INVALID, TERM
from bursar.kube.controller.outcomes import sent
from bursar.kube.controller.patches import Body, can_express, metadata_patch, node_terms, start_patch
from bursar.kube.controller.placement import Placement
from bursar.kube.controller.pods import PodIntake, Sight
from bursar.kube.controller.records import HoldRecord, admission_record, written
from bursar.kube.controller.sight import unjudged
from bursar.kube.controller.world import Report
from bursar.ledger.claims import HELD, RESERVED, Claim

Marks = dict[str, str | None]
WIDTH = 32


@dataclass(slots=True)
class Wanted:
    """What a pod should get."""

    start: bool = False
    labels: Marks = field(default_factory=dict)
    annotations: Marks = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.start or self.labels or self.annotations)


class PodWriter:
    """Carries out what is wanted of pods."""

    def __init__(
        self,
        api: Api,
        engine: Engine,
        pods: PodIntake,
        placement: Placement,
        term: int,
        report: Report,
        *,
        dry_run: bool = False,
    ) -> None:
        self._api = api
        self._engine = engine
        self._pods = pods
        self._placement = placement
        self._term = term
        self._report = report
        self._how = Writing(dry_run=dry_run)
        self._wanted: dict[str, Wanted] = {}
        self._displaced: dict[str, dict[str, str]] = {}  # by uid of the claimant: uid -> owner of whom it displaced
        self.desk: Desk[str] = Desk(self._perform, WIDTH)
        self.started = 0
        self.on_start: Callable[[Claim], None] | None = None

    # What is wanted

    def start(self, claim: Claim) -> None:
        self._wanted.setdefault(claim.uid, Wanted()).start = True
        self.desk.want(claim.uid)

    def mark(self, key: str, labels: Marks, annotations: Marks) -> None:
        sight = self._pods.by_key.get(key)
        if sight is None:
            return
        wanted = self._wanted.setdefault(sight.uid, Wanted())
        wanted.labels.update(labels)
        wanted.annotations.update(annotations)
        self.desk.want(sight.uid)

    def displaces(self, claimant: str, victim: Claim) -> None:
        """The claimant takes the victim's place: to be written down on it."""
        self._displaced.setdefault(claimant, {})[victim.uid] = victim.spec.owner

    def resume(self, claimant: str, victims: tuple[tuple[str, str], ...]) -> None:
        """A hold was taken over: whom it is about stands written."""
        self._displaced[claimant] = dict(victims)

    def forget(self, uid: str) -> None:
        self._wanted.pop(uid, None)
        self._displaced.pop(uid, None)
        self.desk.forget(uid)

    # Holds

    async def hold(self, claimant: Claim) -> None:
        """Write down whom the claimant waits for, and where, before the first of them is told to leave."""
        sight = self._pods.by_uid.get(claimant.uid)
        if sight is None or claimant.state != HELD:
            return
        victims = tuple(sorted(self._displaced.get(claimant.uid, {}).items()))
        record = HoldRecord(claimant.place, victims)
        if sight.hold == record:
            return
        patch = metadata_patch(sight.uid, annotations={HOLD: written(record)}, labels={})
        if await self._send(sight, patch) is not None:
            sight.hold = record
            await self._nominate(sight, claimant.place)

    async def drop_hold(self, sight: Sight) -> None:
        """Nobody needs to leave for this pod any more."""
        await self._send(sight, metadata_patch(sight.uid, annotations={HOLD: None}, labels={}))
        await self._nominate(sight, None)
        sight.hold = None

    async def _nominate(self, sight: Sight, node: str | None) -> None:
        patch: Body = {"metadata": {"uid": sight.uid}, "status": {"nominatedNodeName": node}}
        await self._send(sight, patch, subresource="status")

    # Carrying out

    async def _perform(self, uid: str) -> None:
        sight = self._pods.by_uid.get(uid)
        wanted = self._wanted.pop(uid, None)
        if sight is None or not wanted:
            return
        claim = self._engine.state.claims.get(uid)
        starts = wanted.start and claim is not None and _may_start(claim) and sight.body is not None
        try:
            if starts and claim is not None:
                await self._start(sight, claim, wanted)
            elif sight.body is not None and not wanted.labels:
                self._put_back(uid, wanted)  # marks of a pod that waits travel with its start
            else:
                await self._send(sight, metadata_patch(uid, annotations=wanted.annotations, labels=wanted.labels))
        except BaseException:
            self._put_back(uid, wanted)
            raise

    async def _start(self, sight: Sight, claim: Claim, wanted: Wanted) -> None:
        pod, admitted = sight.body, sight.admitted
        if pod is None or admitted is None:
            return
        expressible = can_express(node_terms(pod), node_terms(admitted))
        orders = self._placement.orders(claim, unjudged(sight.seen.spec), expressible=expressible)
        decision = claim.decision
        seq = decision.seq if isinstance(decision, Decision) else 0
        displaced = tuple(sorted(self._displaced.get(claim.uid, {}).items()))
        record = admission_record(claim, seq, self._term, orders, displaced)
        marks: Marks = {**wanted.annotations, ADMISSION: written(record), TERM: str(self._term)}
        if sight.hold is not None:
            marks[HOLD] = None
        patch = start_patch(pod, admitted, marks, pin=claim.place if orders.pin else "", keep_off=orders.keep_off)
        if wanted.labels:
            patch["metadata"]["labels"] = dict(wanted.labels)
        if await self._send(sight, patch) is not None:
            self._displaced.pop(claim.uid, None)
            self.started += 1
            if self.on_start is not None:
                self.on_start(claim)

    def _put_back(self, uid: str, wanted: Wanted) -> None:
        """What could not be written is still wanted, unless something newer is."""
        newer = self._wanted.get(uid, Wanted())
        self._wanted[uid] = Wanted(
            wanted.start or newer.start, wanted.labels | newer.labels, wanted.annotations | newer.annotations
        )

    async def _send(self, sight: Sight, patch: Body, subresource: str = "") -> object:
        meta = sight.seen.metadata
        write = self._api.patch(
            PODS, meta.name, meta.namespace, PatchKind.STRATEGIC, patch, subresource=subresource, how=self._how
        )
        return await sent(write, refused=lambda why: self._report("Pod", sight.key, INVALID, why))


def _may_start(claim: Claim) -> bool:
    return claim.state == RESERVED and not claim.leaving
