"""The base of every engine call: one ledger behind one lock, one transaction a call, one record a commit.

A call takes the lock, begins a transaction or enters a claim into one, and ends: what it did not commit is undone.

In a *rehearsal* all calls share one transaction, which is never committed: what a call would commit stays in force for
the next one, its listener hears of it, and all of it is undone in the end. So whatever drives an engine can be tried as
it is, at the cost of what it does.

The last decision about each claim is kept on the claim, beside the ledger's state; ``Recall`` also keeps those about
evicted claims. A replay restores them from the records, a snapshot carries them (``rows``). Most decisions of a journal
are plain (admitted, without victims) and about claims long gone: during a replay they are kept as text, and ``settle``
decodes the few that are still the last about a claim.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import RLock
from typing import Final, cast, final

import msgspec
from mypy_extensions import mypyc_attr

from bursar.engine.charging import Core
from bursar.engine.decide import displaced
from bursar.engine.decision import ADMITTED, EVICTED, Decision, GangDecisions, decision_from_record
from bursar.engine.demand import settle
from bursar.engine.time_box import TimeBox
from bursar.ledger.claim_changes import SPEC, SetField
from bursar.ledger.claims import PENDING, STATES, Claim
from bursar.ledger.journal import Journal, Record, Recordable
from bursar.ledger.journal_lines import JournalLine
from bursar.ledger.replay import Replay
from bursar.ledger.state import State
from bursar.ledger.transaction import Snapshot, Transaction
from bursar.policies.policy import Policy

_DEPARTED_KEPT: Final = 10_000
# How a decision without refusals, victims and waiting ends in a record: what follows its time and place.
_NO_NEWS: Final = ("adjust", "grew")  # a claim asks for something else: its last decision still says where, and why
_PLAIN: Final = msgspec.json.encode(Decision("", ADMITTED, 0).record()).partition(b'0,""')[2]


@final
class Recall:
    """The last decisions over one state."""

    __slots__ = ("departed", "rehearsed", "state", "unread")

    def __init__(self, state: State) -> None:
        self.state: Final = state
        self.rehearsed: list[tuple[Claim, object]] | None = None  # in a rehearsal: decisions that it replaced
        self.departed: Final[dict[str, tuple[str, Decision]]] = {}  # evicted and gone: (key, why), the newest only
        self.unread: Final[dict[str, tuple[int, bytes]]] = {}  # plain decisions that a replay came by: (seq, text)

    def note(self, claim: Claim, decision: Decision) -> None:
        """The decision is the last about the claim, and about its victims.

        An evicted claim that is found on another node is still evicted.
        """
        if decision.outcome == EVICTED or not self._must_leave(claim):
            self.set(claim, decision)
        for uid in decision.victims:
            victim = self.state.claims.get(uid)
            if victim is not None and (victim.leaving or victim.state == PENDING):
                self.set(victim, displaced(victim, claim, decision))

    def set(self, claim: Claim, decision: Decision) -> None:
        if self.rehearsed is not None:
            self.rehearsed.append((claim, claim.decision))
        claim.decision = decision

    def end_rehearsal(self) -> None:
        """Restore the decisions from before the rehearsal."""
        replaced = self.rehearsed if self.rehearsed is not None else []
        self.rehearsed = None
        for claim, decision in reversed(replaced):
            claim.decision = decision

    def _must_leave(self, claim: Claim) -> bool:
        return claim.leaving or self.state.cell("revoked", claim.uid) is not None

    def remember(self, uid: str, key: str, decision: Decision) -> None:
        """Keep why a claim was evicted, for later questions."""
        if self.rehearsed is not None:
            return
        self.departed[uid] = (key, decision)
        if len(self.departed) > _DEPARTED_KEPT:
            del self.departed[next(iter(self.departed))]

    def replayed(self, line: JournalLine) -> None:
        """A record was replayed: restore its decision. Call ``settle`` after the last record."""
        cause = line.cause
        kind = cause[0]
        if kind == "release":
            self.unread.pop(cast("str", cause[1]), None)
            return
        text = bytes(line.decided)
        if text == b"null" or kind in _NO_NEWS:
            return
        if kind == "decide" and text.endswith(_PLAIN):
            self.unread[cast("str", cause[1])] = (line.seq, text)
            return
        decided = cast("list[object]", msgspec.json.decode(text))
        for row in decided if kind == "group" else [decided]:
            self._replayed(self._read(cast("list[object]", row), line.seq), cause)

    def _replayed(self, decision: Decision, cause: list[object]) -> None:
        for uid in (decision.uid, *decision.victims):
            self.unread.pop(uid, None)
        claim = self.state.claims.get(decision.uid)
        if claim is not None:
            self.note(claim, decision)
        elif cause[0] == "evicted":
            self.remember(decision.uid, str(cause[2]), decision)

    def settle(self) -> None:
        """Decode the decisions that are kept as text."""
        for uid, (seq, text) in self.unread.items():
            claim = self.state.claims.get(uid)
            if claim is not None:
                claim.decision = self._read(cast("list[object]", msgspec.json.decode(text)), seq)
        self.unread.clear()

    def _read(self, record: list[object], seq: int) -> Decision:
        """A decision from a record; it shares its strings with the claim."""
        claim = self.state.claims.get(cast("str", record[0]))
        if claim is not None:
            record[0] = claim.uid
            if record[3] == claim.place:
                record[3] = claim.place
        return decision_from_record(record, seq)

    def rows(self) -> list[msgspec.Raw]:
        """All of them as text: [key ("" while the claim is there), seq, decision]."""
        found: list[msgspec.Raw] = []
        for claim in self.state.claims.values():
            decision = claim.decision
            if isinstance(decision, Decision):
                found.append(_row("", decision))
        for key, decision in self.departed.values():
            found.append(_row(key, decision))
        return found

    def restore(self, rows: list[msgspec.Raw]) -> None:
        """The inverse of ``rows``, on the same state. One row at a time: all of them decoded would take much memory."""
        for row in rows:
            key, seq, record = cast("list[object]", msgspec.json.decode(row))
            decision = self._read(cast("list[object]", record), cast("int", seq))
            if key:
                self.remember(decision.uid, cast("str", key), decision)
            else:
                self.state.claims[decision.uid].decision = decision


def _row(key: str, decision: Decision) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode([key, decision.seq, decision.record()]))


class EngineError(ValueError):
    """Invalid call: an unknown or duplicate uid, or a step that the claim's state does not allow."""


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
        self._rehearsed: int = -1  # in a rehearsal: up to where the transaction stays in force for the next call
        self._left_out: CommitListener | None = None  # in a rehearsal: the listener that does not hear of it
        self._following: Replay | None = None  # shares equal parts of the lines that are followed

    def __repr__(self) -> str:
        names = [policy.name for policy in self.policies]
        return f"{type(self).__name__}(policies {names}, {len(self.state.claims)} claims, version {self.version})"

    def set_time_box(self, box: TimeBox) -> None:
        """Decisions end when this box is over; they are then refused with ``engine.put-off``."""
        self._core.time.box = box

    # Reading

    @property
    def state(self) -> State:
        """The ledger's state, to read; hold ``lock`` if others may write."""
        return self._core.ledger.state

    @property
    def lock(self) -> RLock:
        """Held during every call; take it to read several things at one version."""
        return self._lock

    @property
    def journal(self) -> Journal:
        """The records of all transactions that were not taken yet."""
        return self._core.ledger.journal

    @property
    def version(self) -> int:
        """How many transactions were committed."""
        return self._core.ledger.version

    @property
    def digest(self) -> int:
        """One number for the whole state."""
        return self._core.ledger.digest

    @property
    def objects(self) -> str:
        """The sum of the objects that replayed records vouch for last; empty if none does."""
        return self._core.ledger.objects

    def note(self, at: int, cause: tuple[object, ...]) -> int:
        """Commit a record that changes nothing, for what happened beside the ledger; its number."""
        self._lock.acquire()
        try:
            self._begin(at)
            return self._commit(cause)
        finally:
            self._end()

    @property
    def policies(self) -> list[Policy]:
        """The policies, in the order in which they decide."""
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

        ``chained`` means that the chain of lines is verified elsewhere.
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

    def follow(self, lines: Iterable[bytes]) -> list[str]:
        """Repeat the next lines of another engine, of which this one is a copy; the listener hears of each commit.

        Returns the uids of the claims that ask for something else since then.
        """
        self._lock.acquire()
        respecified: list[str] = []
        try:
            if self._following is None:
                self._following = Replay(self.state)
            for text in lines:
                line, record = self._core.ledger.follow(text, self._following)
                self._recall.replayed(line)
                if self.listener is not None:
                    self.listener.committed(record)
                fields = [change for change in record.changes if isinstance(change, SetField)]
                respecified.extend([change.claim.uid for change in fields if change.field == SPEC])
            return respecified
        finally:
            self._recall.settle()
            self._lock.release()

    def restore(self, snapshot: Snapshot) -> None:
        """Start from a snapshot; only in a new engine, which must be discarded if this fails."""
        self._lock.acquire()
        try:
            self._core.ledger.restore(snapshot)
            self._recall.restore(snapshot.decisions)
        finally:
            self._lock.release()

    # Rehearsals

    def begin_rehearsal(self, listener: CommitListener, at: int) -> None:
        """Until ``end_rehearsal``, calls are only tried, and this listener hears of them. Holds the lock."""
        self._lock.acquire()
        if self._rehearsed >= 0:
            self._lock.release()
            raise RuntimeError("a rehearsal is under way already")
        self._begin(at)
        self._rehearsed = 0
        self._recall.rehearsed = []
        self._left_out, self.listener = self.listener, listener

    def end_rehearsal(self) -> None:
        """Undo everything since ``begin_rehearsal``."""
        self._rehearsed = -1
        self._recall.end_rehearsal()
        self.listener, self._left_out = self._left_out, None
        self._end()

    # Transactions

    def _begin(self, at: int) -> Transaction:
        if self._rehearsed < 0:
            return self._core.ledger.begin(at)
        self._core.tx.now = at
        return self._core.tx

    def _undo(self) -> None:
        """Undo what was not committed."""
        if self._rehearsed >= 0:
            self._core.tx.rollback_to(self._rehearsed)
        elif self._core.ledger.opened:
            self._core.ledger.abort()

    def _end(self) -> None:
        self._undo()
        self._lock.release()

    def _changed(self) -> bool:
        """Whether the call has changed anything so far."""
        return self._core.tx.savepoint() > max(0, self._rehearsed)

    def _enter(self, claim: Claim, at: int) -> bool:
        """Make sure that a transaction is open and the claim is in it, pending; True if the claim is new."""
        core = self._core
        if not core.ledger.opened:
            core.ledger.begin(at)
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

    def _commit(self, cause: tuple[object, ...], decision: Recordable | None = None) -> int:
        """Commit the open transaction, as of its own time."""
        core = self._core
        settle(core)
        record = self._rehearse(cause, decision)
        if record is None:
            record = core.ledger.commit(core.tx.now, cause, decision)
        if self.listener is not None:
            self.listener.committed(record)
        return record.seq

    def _rehearse(self, cause: tuple[object, ...], decision: Recordable | None) -> Record | None:
        """In a rehearsal: a record of the call that is no record of the journal."""
        if self._rehearsed < 0:
            return None
        tx = self._core.tx
        changes = tuple(tx.log[self._rehearsed :])
        self._rehearsed = tx.savepoint()
        return Record(0, tx.now, "", cause, decision, changes, 0)

    def _conclude(self, claim: Claim, decision: Decision, cause: str) -> Decision:
        """Commit a decision that changed something or differs from the last one, whose record else proves it too."""
        if self._changed() or not decision.same_as(claim.decision):
            decision.seq = self._commit((cause, claim.uid), decision)
        else:
            decision.seq = cast("Decision", claim.decision).seq
        self._recall.note(claim, decision)
        return decision

    def _conclude_group(self, claims: list[Claim], decisions: list[Decision]) -> list[Decision]:
        """The same for decisions that share a record."""
        worth = self._changed()
        for i in range(len(claims)):
            worth = worth or not decisions[i].same_as(claims[i].decision)
        if worth:
            seq = self._commit(("group", *[claim.uid for claim in claims]), GangDecisions(decisions))
            for decision in decisions:
                decision.seq = seq
        else:
            for i in range(len(claims)):
                decisions[i].seq = cast("Decision", claims[i].decision).seq
        for i in range(len(claims)):
            self._recall.note(claims[i], decisions[i])
        return decisions
