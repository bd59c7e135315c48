"""What every call of the engine stands on: one ledger behind one lock, a transaction a call, a record a commit.

A call takes the lock, begins a transaction or enters a claim into one, and ends: whatever it did not commit is undone,
to the byte. Decisions stand beside the ledger, on the claims and in ``Recall``; commits, replay and restore keep both
in step.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import RLock
from typing import Final

from mypy_extensions import mypyc_attr

from bursar.engine.core import Core
from bursar.engine.decisions import Decision, DecisionList
from bursar.engine.errors import EngineError
from bursar.engine.recalling import Recall
from bursar.ledger.claims import PENDING, STATES, Claim
from bursar.ledger.journal import Journal, Record, Recordable
from bursar.ledger.snapshot import Snapshot
from bursar.ledger.state import State
from bursar.ledger.transactions import Transaction
from bursar.policies.base import Policy


@mypyc_attr(allow_interpreted_subclasses=True)
class CommitListener:
    """Hears of each commit, inside the lock: must be quick and must not call the engine."""

    def committed(self, record: Record) -> None:
        """A transaction was committed."""


class LockedLedger:
    """One ledger with its policies, for one caller at a time."""

    def __init__(self, policies: Iterable[Policy]) -> None:
        self._core: Final = Core(list(policies))
        self._lock: Final = RLock()
        self._recall: Final = Recall(self._core.ledger.state)
        self.listener: CommitListener | None = None

    # Reading

    @property
    def state(self) -> State:
        """The ledger's state, to read while nobody writes (take ``lock`` if others may)."""
        return self._core.ledger.state

    @property
    def lock(self) -> RLock:
        """Held during every call; take it to read several things at one version."""
        return self._lock

    @property
    def journal(self) -> Journal:
        return self._core.ledger.journal

    @property
    def version(self) -> int:
        """How many transactions were committed."""
        return self._core.ledger.version

    @property
    def digest(self) -> int:
        return self._core.ledger.digest

    @property
    def policies(self) -> list[Policy]:
        return self._core.policies

    def claim(self, uid: str) -> Claim:
        """The claim with that uid."""
        found = self._core.ledger.state.claims.get(uid)
        if found is None:
            raise EngineError(f"no claim {uid}")
        return found

    # Going on from what was recorded

    def replay(self, lines: Iterable[bytes], chained: bool = False) -> int:
        """Repeat sealed journal lines on top of this engine's ledger; returns how many.

        ``chained``: somebody else proves that each continues the chain.
        """
        self._lock.acquire()
        try:
            count = 0
            for line in self._core.ledger.replay(lines, None, chained):
                count += 1
                self._recall.replayed(line)
            return count
        finally:
            self._recall.settle()
            self._lock.release()

    def restore(self, snapshot: Snapshot) -> None:
        """Begin where a snapshot was taken; only in a new engine, which is of no use any more if this fails."""
        self._lock.acquire()
        try:
            self._core.ledger.restore(snapshot)
            self._recall.restore(snapshot.decisions)
        finally:
            self._lock.release()

    # Transactions

    def _begin(self) -> Transaction:
        return self._core.ledger.begin()

    def _end(self) -> None:
        """Whatever was not committed is undone."""
        if self._core.ledger.opened:
            self._core.ledger.abort()
        self._lock.release()

    def _enter(self, claim: Claim) -> bool:
        """Open the transaction (unless it is) and make sure the claim is in it, pending; True if it is new."""
        core = self._core
        if not core.ledger.opened:
            core.ledger.begin()
        known = core.ledger.state.claims.get(claim.uid)
        if known is None:
            if claim.uid in self._recall.departed:
                raise EngineError(f"uid {claim.uid} was used before; a new claim needs a new one")
            core.enter(claim)
            return True
        if known is not claim:
            raise EngineError(f"claim {claim.uid} exists already")
        if claim.state != PENDING:
            raise EngineError(f"{claim.key} is {STATES[claim.state]} already")
        return False

    def _commit(self, at: int, cause: tuple[object, ...], decision: Recordable | None) -> int:
        core = self._core
        if core.settling:
            core.settle()
        record = core.ledger.commit(at, cause, decision)
        if self.listener is not None:
            self.listener.committed(record)
        return record.seq

    def _conclude(self, claim: Claim, decision: Decision, at: int, cause: str) -> Decision:
        """Commit a decision that changed something or says something new."""
        if self._core.tx.log or not decision.same_as(claim.decision):
            decision.seq = self._commit(at, (cause, claim.uid), decision)
        self._recall.note(claim, decision)
        return decision

    def _conclude_group(self, claims: list[Claim], decisions: list[Decision], at: int) -> list[Decision]:
        """The same for decisions that share a record."""
        worth = len(self._core.tx.log) > 0
        for i in range(len(claims)):
            worth = worth or not decisions[i].same_as(claims[i].decision)
        if worth:
            seq = self._commit(at, ("group", *[claim.uid for claim in claims]), DecisionList(decisions))
            for decision in decisions:
                decision.seq = seq
        for i in range(len(claims)):
            self._recall.note(claims[i], decisions[i])
        return decisions
