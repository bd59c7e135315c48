"""What a commit means for the loop: who may start, who must leave, who waits again, and whom it may help.

Hears of each commit inside the engine's lock and only takes notes; the loop acts on them afterwards.

Whom a commit may help is a matter of topics: a policy names in each refusal every topic whose change may resolve it,
also by letting it find other victims. Taking room on a node or GPU (a physical account) helps nobody, so it wakes
nobody; in quota accounts it may (a share that shrinks makes others over-quota), so there every touch counts.
What decides over victims but belongs to no policy (budgets, the no-thrash record) wakes all that may preempt.
"""

from __future__ import annotations

from bursar.control.crowding import Crowd
from bursar.control.queue import Queue
from bursar.engine import budgets
from bursar.engine.locked_ledger import CommitListener
from bursar.ledger.account_changes import PutCell
from bursar.ledger.changes import RELEASE, VACATE, Change, Charge
from bursar.ledger.claim_changes import LEAVING, SPEC, DropClaim, SetBindings, SetField, SetState
from bursar.ledger.claims import HELD, RESERVED, Claim, ClaimSpec
from bursar.ledger.journal import Record

_RELIEF = frozenset({RELEASE, VACATE})  # charges that make room
_VICTIMS = ("displaced", "spared")  # tables that say who may be a victim
_CONFIGURE = "configure"
_REVOKED = "revoked"  # the table of those that a policy takes back


class Watch(CommitListener):
    """Notes of the commits since the loop last looked."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.crowd = Crowd()
        self.reserved: dict[str, Claim] = {}  # may start, by themselves
        self.groups: dict[str, None] = {}  # groups that somebody came to, moved in or left
        self.facts: dict[str, Claim] = {}  # are where they are
        self.leaving: dict[str, Claim] = {}  # must leave
        self.withdrawn: dict[str, Claim] = {}  # must leave, and were never told to start
        self.doubtful: dict[str, Claim] = {}  # have a place that changed, and were never told to start
        self.revoked: set[str] = set()  # uids of those that a policy takes back
        self.moves: dict[str, int] = {}  # by uid: how often it got or lost its place
        self.changes = 0  # commits that changed the state

    def committed(self, record: Record) -> None:
        if record.changes:
            self.changes += 1
        topics: dict[str, None] = {}
        touched: dict[str, Claim] = {}
        gone: dict[str, Claim] = {}
        victims_differ = False
        for change in record.changes:
            if isinstance(change, SetState):
                touched[change.claim.uid] = change.claim
            elif isinstance(change, DropClaim):
                gone[change.claim.uid] = change.claim
            elif isinstance(change, SetField):
                self._field(change, touched, topics)
            elif isinstance(change, SetBindings):
                self._rebound(change.claim)
            elif isinstance(change, PutCell):
                self._cell(change)
                victims_differ = victims_differ or change.table in _VICTIMS
            else:
                victims_differ = touched_topics(change, topics) or victims_differ
        for uid, claim in touched.items():
            if uid not in gone:
                self._moved(claim)
        for claim in gone.values():
            self._gone(claim)
        if record.cause[0] == _CONFIGURE:
            self._doubt({str(entry).partition(" ")[2] for entry in record.cause[1:]})
        self._wake(record, topics, victims_differ)

    def _field(self, change: SetField, touched: dict[str, Claim], topics: dict[str, None]) -> None:
        claim = change.claim
        if change.field == LEAVING:
            touched[claim.uid] = claim
        elif change.field == SPEC:
            # Even when it costs the same as before, it may be a victim now, or none any more.
            for binding in claim.bindings:
                if binding is not None:
                    topics.update((account.topic, None) for account in binding.accounts)
            if claim.uid in self.queue:
                self.queue.add(claim)
            self._regrouped(change.old, change.new)

    def _regrouped(self, *specs: object) -> None:
        self.groups.update((spec.group, None) for spec in specs if isinstance(spec, ClaimSpec) and spec.group)

    def _rebound(self, claim: Claim) -> None:
        if claim.uid in self.crowd:
            self.crowd.take(claim)
        elif self.crowd.keeps(claim.uid):
            self.look_again(claim)

    def _cell(self, change: PutCell) -> None:
        if change.table == _REVOKED and change.new is not None:
            self.revoked.add(change.key)
            self.queue.leaves(change.key)
        elif change.table == _REVOKED:
            self.revoked.discard(change.key)

    def _moved(self, claim: Claim) -> None:
        uid = claim.uid
        unstarted = claim.state == RESERVED and self._unstarted(claim)
        self._forget(uid)
        self.take(claim)
        if claim.leaving:
            (self.withdrawn if unstarted else self.leaving)[uid] = claim
        self.moves[uid] = self.moves.get(uid, 0) + 1

    def _unstarted(self, claim: Claim) -> bool:
        uid = claim.uid
        if uid in self.reserved or uid in self.withdrawn or self.crowd.keeps(uid):
            return True
        group = self.queue.group(claim.spec.group) if claim.spec.group else None
        return group is not None and uid in group.placed

    def _forget(self, uid: str) -> None:
        for notes in (self.reserved, self.facts, self.leaving, self.withdrawn, self.doubtful):
            notes.pop(uid, None)

    def take(self, claim: Claim) -> None:
        """Whether the claim waits, may start, or is about to leave, as things are."""
        uid = claim.uid
        self.crowd.let_go(uid)
        if claim.leaving or claim.state == HELD or uid in self.crowd:
            self.crowd.take(claim)
        self.queue.follow(claim, revoked=uid in self.revoked)
        if claim.spec.group:
            self.groups[claim.spec.group] = None
        elif claim.state == RESERVED and not claim.leaving:
            self.reserved[uid] = claim

    def found(self, claim: Claim) -> None:
        """The claim is where it is, whatever its group does, and whoever is in its way."""
        self._forget(claim.uid)
        self.queue.started(claim.uid)
        self.facts[claim.uid] = claim

    def look_again(self, claim: Claim) -> None:
        """A claim that was kept from starting may start now."""
        self.crowd.let_go(claim.uid)
        if claim.spec.group:
            self.groups[claim.spec.group] = None
        else:
            self.reserved[claim.uid] = claim

    def _gone(self, claim: Claim) -> None:
        uid = claim.uid
        self.queue.remove(uid)
        self.crowd.forget(uid)
        self.crowd.let_go(uid)
        self._forget(uid)
        self._regrouped(claim.spec)

    def _doubt(self, places: set[str]) -> None:
        """These nodes, and whatever else, came, changed or went. The engine sees to those that are held there."""
        for claim in (*self.crowd.kept(), *self.queue.placed()):
            if claim.place in places:
                self.doubtful[claim.uid] = claim

    def _wake(self, record: Record, topics: dict[str, None], victims_differ: bool) -> None:
        if record.cause[0] == _CONFIGURE:
            self.queue.wake_all()
            return
        if topics:
            self.queue.wake(topics)
        if victims_differ:
            self.queue.wake_preempting()


def touched_topics(change: Change, topics: dict[str, None]) -> bool:
    """Add the topics of what the change touched; whether it touched a disruption budget."""
    budget = False
    relief = not isinstance(change, Charge) or change.mode in _RELIEF
    for account in change.touches():
        if account.policy == budgets.POLICY:
            budget = True
        elif relief or not account.physical:
            topics[account.topic] = None
    return budget
