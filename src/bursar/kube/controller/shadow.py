"""Shadow mode: compares what Bursar would have decided with what the cluster did. It writes nothing.

Governed pods without a gate are treated as pending, in the order of their creation. When one is bound, the two
decisions are compared and the bound pod is charged, so that both continue from the same state. A victim that Bursar
would have evicted keeps running.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from dataclasses import dataclass

from bursar.control.controller import Controller
from bursar.kube.controller.work_queue import PendingActions
from bursar.ledger.claims import RESERVED

log = logging.getLogger(__name__)
_KEPT = 1000

AGREED = "agreed"  # it was bound, and Bursar had admitted it
WOULD_WAIT = "would-wait"  # it was bound, and Bursar would have let it wait
WOULD_START = "would-start"  # Bursar admits it; it was not bound yet
WOULD_EVICT = "would-evict"


@dataclass(frozen=True, slots=True)
class Finding:
    """One decision of Bursar, compared with that of the cluster."""

    at: int  # milliseconds
    pod: str
    verdict: str
    reason: str


class Shadow:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.counts: Counter[str] = Counter()
        self.findings: deque[Finding] = deque(maxlen=_KEPT)
        self._bound: list[Finding] = []  # reported after the starts that were noted before them

    def bound(self, uid: str, now: int) -> None:
        """A pod that Bursar treated as pending was bound by another scheduler."""
        claim = self._controller.engine.state.claims.get(uid)
        if claim is None:
            return
        if claim.state < RESERVED:
            self._controller.settle()  # what was seen before it was bound counts, however soon that came after
        if claim.state >= RESERVED:
            self._bound.append(Finding(now, claim.key, AGREED, ""))
        else:
            self._bound.append(Finding(now, claim.key, WOULD_WAIT, self._controller.reason(uid)[1]))

    def take(self, notes: PendingActions) -> None:
        """What the loop wants done is only noted."""
        now = notes.now()
        for claim in notes.starts.values():
            self._found(Finding(now, claim.key, WOULD_START, claim.place))
        for claim, decision in notes.evictions.values():
            self._found(Finding(now, claim.key, WOULD_EVICT, decision.sentence()))
        bound, self._bound = self._bound, []
        for finding in bound:
            self._found(finding)
        for notice in notes.events:
            log.info("%s %s: %s: %s", notice.kind, notice.key, notice.reason, notice.message)
        notes.starts, notes.evictions, notes.marks, notes.outputs, notes.events = {}, {}, {}, {}, []

    def _found(self, finding: Finding) -> None:
        self.counts[finding.verdict] += 1
        self.findings.append(finding)
        log.info("shadow: %s", f"{finding.pod} {finding.verdict} {finding.reason}".rstrip())
