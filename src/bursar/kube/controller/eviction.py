"""Evictions through the Eviction API, which honours disruption budgets.

Before a victim is evicted, the hold is written on the pods that need its place (``PodWriter.hold``), so that the next
leader knows why it left. If a budget refuses, the victim is spared for a while, and the pods that need its place are
decided again without it. The same applies to any other refusal that lasts.
"""

from __future__ import annotations

from collections.abc import Callable

from bursar.control.admission import ControlSection
from bursar.engine.engine import Engine
from bursar.engine.eviction import UNSHIELDED, holders_of
from bursar.kube.client.api import PODS, Api, Eviction, Outcome, Writing
from bursar.kube.controller.object_cache import Report
from bursar.kube.controller.pod_sync import PodSync, TrackedPod
from bursar.kube.controller.pod_writer import PodWriter, RefusalBackoff
from bursar.kube.controller.work_queue import KeyedWorkQueue, RetryLater, sent
from bursar.ledger.claims import HELD, Claim

WIDTH = 8
BLOCKED_FOR = 60_000  # milliseconds in which a pod whose budget refused is no victim
AMBIGUOUS_FOR = 600_000  # the same for one with two budgets, which the API never evicts
_USUAL_GRACE = 30  # seconds, of a pod that asks for none
REFUSED = "EvictionRefused"
_REVOKED_PAUSE = 10.0  # seconds before a pod that is taken back for its quota's sake is tried again
_UNSEEN_PAUSE = 2.0  # seconds until a change on the server is seen here


class Evictor:
    def __init__(
        self,
        api: Api,
        engine: Engine,
        pods: PodSync,
        writer: PodWriter,
        report: Report,
        now: Callable[[], int],
        options: Callable[[], ControlSection],
        *,
        dry_run: bool = False,
    ) -> None:
        self._options = options
        self._api = api
        self._engine = engine
        self._pods = pods
        self._writer = writer
        self._report = report
        self._now = now
        self._how = Writing(dry_run=dry_run)
        self._lost: set[str] = set()  # pods that lost their place
        self._shielded = RefusalBackoff(now)  # pods in back-off are no victims
        self.changed: Callable[[], None] = lambda: None  # called when the ledger changed
        self.queue: KeyedWorkQueue[str] = KeyedWorkQueue(self._perform, WIDTH)
        self.evicted = 0  # as the API server accepted

    def evict(self, claim: Claim) -> None:
        self.queue.want(claim.uid)

    def take_back(self, uid: str) -> bool:
        """Evict a pod that lost its place; its owner may recreate it. Returns False if it is being evicted already."""
        if uid in self._lost:
            return False
        self._lost.add(uid)
        self.queue.want(uid)
        return True

    def forget(self, uid: str) -> None:
        self._lost.discard(uid)
        self._shielded.forget(uid)
        self.queue.forget(uid)

    def unshield(self) -> None:
        """Pods whose back-off has ended may be victims again."""
        for uid in self._shielded.expired():
            self._spare(uid, spared=False)

    async def _perform(self, uid: str) -> None:
        claim, tracked = self._engine.state.claims.get(uid), self._pods.by_uid.get(uid)
        if claim is None or tracked is None or not self._must_leave(claim) or tracked.seen.leaving:
            self._shielded.answered(uid)
            return
        try:
            pause = await self._evict(claim, tracked)
        except RetryLater:
            if not self._shielded.refused(uid):
                raise
            pause = AMBIGUOUS_FOR
        self._shielded.answered(uid)
        if pause:
            self._plan_again(claim, pause)

    async def _evict(self, claim: Claim, tracked: TrackedPod) -> int:
        """Evict the pod. Returns for how long it is spared instead, in milliseconds; 0 if it was evicted."""
        for holder in holders_of(self._engine.state, claim.uid):
            claimant = self._engine.state.claims.get(holder)
            if claimant is not None and not await self._writer.hold(claimant):
                raise RetryLater(f"{claimant.key}, which needs its place, is gone", _UNSEEN_PAUSE)
        if not self._must_leave(claim):
            return 0  # spared while the holds were written
        result = await sent(
            self._ask(claim, tracked), refused=lambda why: self._report("Pod", tracked.key, REFUSED, why)
        )
        if result is None or result.outcome == Outcome.GONE:
            raise RetryLater("the pod is gone on the server", _UNSEEN_PAUSE)  # the watch will report it
        if result.outcome == Outcome.EVICTED:
            self.evicted += 1
            return 0
        self._report("Pod", tracked.key, REFUSED, result.message)
        return AMBIGUOUS_FOR if result.outcome == Outcome.AMBIGUOUS else BLOCKED_FOR

    async def _ask(self, claim: Claim, tracked: TrackedPod) -> Eviction:
        """Evict the pod; delete it if a budget that forbids that is to be ignored."""
        meta, spec, most = tracked.seen.metadata, tracked.seen.spec, self._options().longest_grace()
        asked = spec.termination_grace_period_seconds
        grace = most if most is not None and (_USUAL_GRACE if asked is None else asked) > most else None
        if self._engine.state.cell(UNSHIELDED, claim.uid) is None:
            return await self._api.evict(meta.name, meta.namespace, uid=claim.uid, grace=grace, how=self._how)
        await self._api.delete(PODS, meta.name, meta.namespace, uid=claim.uid, grace=grace, how=self._how)
        return Eviction(Outcome.EVICTED)

    def _must_leave(self, claim: Claim) -> bool:
        lost = claim.uid in self._lost and claim.uid in self._pods.unbound
        return lost or claim.leaving or self._engine.state.cell("revoked", claim.uid) is not None

    def _plan_again(self, claim: Claim, pause: int) -> None:
        claimants = [self._engine.state.claims.get(uid) for uid in holders_of(self._engine.state, claim.uid)]
        if not claimants:
            raise RetryLater("its disruption budget does not allow it yet", _REVOKED_PAUSE)
        now = self._now()
        for claimant in claimants:
            if claimant is not None and claimant.state == HELD:
                self._engine.give_up(claimant.uid, now)
        self._shielded.back_off_for(claim.uid, pause)
        self._spare(claim.uid, spared=True)
        self.changed()
        if self._must_leave(claim):  # not for others only
            raise RetryLater("its disruption budget does not allow it yet", _REVOKED_PAUSE)

    def _spare(self, uid: str, *, spared: bool) -> None:
        if uid in self._engine.state.claims:
            self._engine.spare(uid, spared, self._now())
