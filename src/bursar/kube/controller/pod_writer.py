"""The pod writer: the one patch that starts a pod, labels that policies want, and holds.

One task at a time writes to a pod, from the state of the ledger at that moment: a claim that has lost its place is not
started. What admission and policies add to the pod travels in the same patch. Holds are written before an eviction and
removed when the claim starts or is pending again.

``LabelKeeper`` writes a label that is missing, and counts a difference as an edit by another party only after the
label was once seen as wanted. ``RefusalBackoff`` limits how long a write that the server refuses is retried; then the
pod backs off and its place goes to others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field

import msgspec

from bursar.engine.decision import Decision
from bursar.engine.engine import Engine
from bursar.kube.client.api import PODS, Api, PatchKind, Writing
from bursar.kube.controller.object_cache import Report
from bursar.kube.controller.patches import (
    ADMISSION,
    HOLD,
    INVALID,
    TERM,
    Body,
    HistoryRecord,
    HoldRecord,
    PlacementRuleSet,
    admission_record,
    history_record,
    metadata_patch,
    start_patch,
    written,
)
from bursar.kube.controller.pod_sync import PodSync, TrackedPod
from bursar.kube.controller.work_queue import Declined, KeyedWorkQueue, sent
from bursar.ledger.claims import HELD, PENDING, RESERVED, Claim
from bursar.ledger.preemption_history import heir_key

Marks = dict[str, str | None]


class LabelKeeper:
    """Remembers the labels of pods, by uid."""

    def __init__(self) -> None:
        self._wanted: dict[str, Marks] = {}
        self._confirmed: set[str] = set()  # pods that were seen with all of them

    def want(self, uid: str, labels: Marks, seen: Mapping[str, str]) -> Marks:
        """The pod should carry these too (None: not carry); what must be written for that."""
        if not labels:
            return {}
        known = self._wanted.get(uid)
        if known is None and _wrong(labels, seen) == {}:  # written by a predecessor
            self._wanted[uid] = dict(labels)
            self._confirmed.add(uid)
            return {}
        self._wanted[uid] = {**(known or {}), **labels}
        self._confirmed.discard(uid)
        return labels

    def seen(self, uid: str, labels: Mapping[str, str]) -> Marks:
        """The pod has these labels now; those of ours that must be written again."""
        wanted = self._wanted.get(uid)
        if wanted is None:
            return {}
        wrong = _wrong(wanted, labels)
        if not wrong:
            self._confirmed.add(uid)
        elif uid in self._confirmed:
            self._confirmed.discard(uid)
            return wrong
        return {}

    def forget(self, uid: str) -> None:
        self._wanted.pop(uid, None)
        self._confirmed.discard(uid)


def _wrong(wanted: Marks, seen: Mapping[str, str]) -> Marks:
    return {name: value for name, value in wanted.items() if seen.get(name) != value}


REFUSAL_PATIENCE = 600_000  # milliseconds for which the server may refuse a pod
BACK_OFF_FOR = 600_000  # milliseconds until the write is tried again


class RefusalBackoff:
    """Pods by uid, for as long as the server refuses them or they back off."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._since: dict[str, int] = {}  # when the server refused for the first time
        self._until: dict[str, int] = {}  # when the write is tried again

    def __len__(self) -> int:
        return len(self._since) + len(self._until)

    def refused(self, uid: str) -> bool:
        """The server refused; whether it has done so for too long."""
        now = self._now()
        if now - self._since.setdefault(uid, now) < REFUSAL_PATIENCE:
            return False
        del self._since[uid]
        return True

    def answered(self, uid: str) -> None:
        """The server did not refuse this time, or nothing is left to write."""
        self._since.pop(uid, None)

    def back_off_for(self, uid: str, pause: int | None = None) -> None:
        """Back off for so many milliseconds."""
        self._until[uid] = self._now() + (BACK_OFF_FOR if pause is None else pause)

    def expired(self) -> list[str]:
        """Removes and returns the pods whose back-off has ended."""
        now = self._now()
        found = [uid for uid, until in self._until.items() if until <= now]
        for uid in found:
            del self._until[uid]
        return found

    def forget(self, uid: str) -> None:
        """The pod is gone, or the write succeeded."""
        self._since.pop(uid, None)
        self._until.pop(uid, None)


WIDTH = 32


@dataclass(slots=True)
class Wanted:
    """What a pod should get."""

    start: bool = False
    unhold: bool = False
    labels: Marks = field(default_factory=dict)
    annotations: Marks = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.start or self.unhold or self.labels or self.annotations)


class PodWriter:
    def __init__(
        self,
        api: Api,
        engine: Engine,
        pods: PodSync,
        placement: PlacementRuleSet,
        term: int,
        report: Report,
        now: Callable[[], int],
        *,
        dry_run: bool = False,
    ) -> None:
        self._api = api
        self._engine = engine
        self._pods = pods
        self._placement = placement
        self._term = term
        self._report = report
        self._how = Writing(dry_run=dry_run, brief=True)
        self._wanted: dict[str, Wanted] = {}
        self._labels = LabelKeeper()
        self._holding: set[str] = set()  # uids of pods on which a hold may stand
        self._locks: dict[str, asyncio.Lock] = {}  # by uid, of pods that have or had a hold
        self._backoff = RefusalBackoff(now)
        self._earlier = 0  # the last decision of this term by a ledger before this one
        self.queue: KeyedWorkQueue[str] = KeyedWorkQueue(self._perform, WIDTH)
        self.started = 0

    # What is wanted

    def start(self, claim: Claim) -> None:
        self._want(claim.uid).start = True

    def _want(self, uid: str) -> Wanted:
        self.queue.want(uid)
        return self._wanted.setdefault(uid, Wanted())

    def unplace(self, tracked: TrackedPod) -> None:
        """The admission record says that no node is kept for the pod any more, for the next leader."""
        if tracked.record is not None:
            self._want(tracked.uid).annotations[ADMISSION] = written(tracked.record)

    def mark(self, key: str, labels: Marks, annotations: Marks) -> None:
        tracked = self._pods.by_key.get(key)
        if tracked is None:
            return
        missing = self._labels.want(tracked.uid, labels, tracked.seen.metadata.labels)
        if missing or annotations:
            wanted = self._want(tracked.uid)
            wanted.labels.update(missing)
            wanted.annotations.update(annotations)

    def seen(self, uid: str) -> None:
        """The pod changed: labels of ours that another client changed are written once more."""
        tracked = self._pods.by_uid.get(uid)
        if tracked is None:
            self._labels.forget(uid)
            return
        if tracked.pending and HOLD in tracked.seen.metadata.annotations:  # perhaps late, of a former leader
            self._may_hold(uid)
        wrong = self._labels.seen(uid, tracked.seen.metadata.labels)
        if wrong:
            self._want(uid).labels.update(wrong)

    def resume(self, tracked: TrackedPod) -> None:
        """Take over what stands on a pod: an admission of this term, or a hold."""
        if tracked.record is not None and tracked.record.term == self._term:
            self._earlier = max(self._earlier, tracked.record.seq)
        if tracked.hold is None:
            return
        self._may_hold(tracked.uid)

    def _may_hold(self, uid: str) -> None:
        self._holding.add(uid)
        self._locks.setdefault(uid, asyncio.Lock())

    def forget(self, uid: str) -> None:
        for known in (self._wanted, self._locks):
            known.pop(uid, None)
        self._holding.discard(uid)
        self._labels.forget(uid)
        self._backoff.forget(uid)
        self.queue.forget(uid)

    # Holds

    async def hold(self, claimant: Claim) -> bool:
        """Write down the victims and the place of the claimant before the first victim is evicted.

        Returns False if the claimant is gone on the server.
        """
        tracked = self._pods.by_uid.get(claimant.uid)
        if tracked is None:
            return False
        async with self._locks.setdefault(tracked.uid, asyncio.Lock()):
            if claimant.state != HELD or tracked.uid not in self._pods.by_uid:
                return True  # no evictions are needed
            record = self._hold_record(claimant)
            if tracked.hold is not None and self._still_right(tracked.hold, record):
                return True
            self._holding.add(tracked.uid)  # whatever the answer will be
            patch = metadata_patch(tracked.uid, annotations={HOLD: written(record)}, labels={})
            if await self._send(tracked, patch) is None:
                return False
            await self._nominate(tracked, record.place)
            tracked.hold = record
            return True

    def tidy(self) -> None:
        """Remove holds that have ended: their claims are pending again and need no evictions.

        Pods whose back-off has ended are to be ungated again.
        """
        for uid in self._backoff.expired():
            tracked = self._pods.by_uid.get(uid)
            if tracked is not None and tracked.pending:
                self._pods.sync_again(tracked)
        for uid in list(self._holding):
            tracked, claim = self._pods.by_uid.get(uid), self._engine.state.claims.get(uid)
            if tracked is None or not tracked.pending:
                self._holding.discard(uid)
            elif claim is None or claim.state == PENDING:
                self._want(uid).unhold = True

    async def _drop_hold(self, tracked: TrackedPod) -> None:
        claim = self._engine.state.claims.get(tracked.uid)
        if claim is not None and claim.state != PENDING:
            return
        await self._send(tracked, metadata_patch(tracked.uid, annotations={HOLD: None}, labels={}))
        await self._nominate(tracked, None)
        tracked.hold = None
        self._holding.discard(tracked.uid)

    def _hold_record(self, claim: Claim) -> HoldRecord:
        claims = self._engine.state.claims
        victims = tuple((uid, heir_key(claims[uid])) for uid in sorted(claim.waits_for) if uid in claims)
        return HoldRecord(claim.place, victims, **msgspec.structs.asdict(self._history(claim)))

    def _still_right(self, before: HoldRecord, now: HoldRecord) -> bool:
        """Whether all that changed since it was written is that victims have left."""
        left = [uid for uid, _ in set(before.victims) - set(now.victims)]
        same = before == msgspec.structs.replace(now, victims=before.victims)
        return same and not any(uid in self._engine.state.claims for uid in left)

    def _history(self, claim: Claim) -> HistoryRecord:
        return history_record(claim.uid, *self._engine.preemption_history(claim.uid))

    async def _nominate(self, tracked: TrackedPod, node: str | None) -> None:
        patch: Body = {"metadata": {"uid": tracked.uid}, "status": {"nominatedNodeName": node}}
        await self._send(tracked, patch, subresource="status")

    # Carrying out

    async def _perform(self, uid: str) -> None:
        async with self._locks.get(uid) or nullcontext():  # not while a hold is being written
            tracked = self._pods.by_uid.get(uid)
            wanted = self._wanted.pop(uid, None)
            if tracked is None or not wanted:
                return
            try:
                await self._carry_out(tracked, wanted)
            except BaseException:
                self._put_back(uid, wanted)
                raise

    async def _carry_out(self, tracked: TrackedPod, wanted: Wanted) -> None:
        uid, claim = tracked.uid, self._engine.state.claims.get(tracked.uid)
        if not tracked.pending:
            wanted.start = False  # it is ungated
        elif wanted.start and claim is not None and claim.state == RESERVED and not claim.leaving:
            await self._start(tracked, claim, wanted)
            return
        if wanted.unhold:
            await self._drop_hold(tracked)
            wanted.unhold = False
        if not wanted:
            return
        if tracked.pending and not wanted.labels:
            self._put_back(uid, wanted)  # marks of a pod that waits travel with its start
        else:
            await self._send(tracked, metadata_patch(uid, annotations=wanted.annotations, labels=wanted.labels))

    async def _start(self, tracked: TrackedPod, claim: Claim, wanted: Wanted) -> None:
        reading = tracked.reading
        if reading is None:
            return
        filled = self._placement.restricted(claim, reading.filled)
        orders = self._placement.orders(claim, reading.unjudged, expressible=filled.expressible)
        seq = self._earlier + _seq(claim)
        record = admission_record(claim, seq, self._term, orders, self._history(claim))
        marks: Marks = {**wanted.annotations, ADMISSION: written(record), TERM: str(self._term)}
        if tracked.uid in self._holding:
            marks[HOLD] = None
        pin = claim.place if orders.pin else ""
        patch = start_patch(tracked.uid, filled, marks, pin=pin, keep_off=orders.keep_off)
        if wanted.labels:
            patch["metadata"]["labels"] = dict(wanted.labels)
        try:
            answer = await self._send(tracked, patch)
        except Declined:
            if not (tracked.pending and self._backoff.refused(tracked.uid)):
                raise
            self._backoff.back_off_for(tracked.uid)
            self._pods.back_off(tracked)
            return
        self._backoff.forget(tracked.uid)
        if answer is not None:
            self.started += 1

    def _put_back(self, uid: str, wanted: Wanted) -> None:
        """Writes that failed are still wanted, unless something newer is."""
        newer = self._wanted.get(uid, Wanted())
        self._wanted[uid] = Wanted(
            wanted.start or newer.start,
            wanted.unhold or newer.unhold,
            wanted.labels | newer.labels,
            wanted.annotations | newer.annotations,
        )

    async def _send(self, tracked: TrackedPod, patch: Body, subresource: str = "") -> object:
        meta = tracked.seen.metadata
        write = self._api.patch(
            PODS, meta.name, meta.namespace, PatchKind.STRATEGIC, patch, subresource=subresource, how=self._how
        )
        return await sent(write, refused=lambda why: self._report("Pod", tracked.key, INVALID, why))


def _seq(claim: Claim) -> int:
    decision = claim.decision
    return decision.seq if isinstance(decision, Decision) else 0
