"""The engine: decisions over one ledger. One lock, one transaction a call, one journal record a commit.

Every call takes ``at``, the time in milliseconds, from the caller; the engine reads no clock. A call that is refused or
fails leaves the ledger exactly as it was. Calls may come from many threads.
"""

from __future__ import annotations

from typing import final

from bursar.engine import decide as deciding
from bursar.engine import eviction
from bursar.engine.decide import apply_settings
from bursar.engine.decision import ADMITTED, EVICTED, RELEASED, WAITING, Decision, explain_claim, explain_departed
from bursar.engine.demand import tell_gang
from bursar.engine.eligibility import may_take
from bursar.engine.placement import is_possible
from bursar.engine.possible import GANGS
from bursar.engine.rebinding import respec
from bursar.engine.session import EngineError, LockedLedger
from bursar.engine.what_if import Assumption, Outlook, look_ahead
from bursar.ledger.claims import BOUND, HELD, PENDING, RESERVED, RUNNING, STATES, TERMINATING, Binding, Claim, ClaimSpec
from bursar.ledger.preemption_history import Displacement
from bursar.policies.ownership import OwnerRules
from bursar.policies.results import Check, Output, Refusal, Revocation, Setting


@final
class Engine(LockedLedger):
    """Decides over one ledger with the given policies, in their order."""

    # Deciding

    def submit(self, claim: Claim, at: int = 0) -> None:
        """Enter a pending claim; its demand counts from now on."""
        self._lock.acquire()
        try:
            if not self._enter(claim, at):
                raise EngineError(f"claim {claim.uid} exists already")
            self._commit(("submit", claim.uid))
        finally:
            self._end()

    def decide(self, claim: Claim, at: int = 0) -> Decision:
        """Decide quota and place of a claim in one transaction; a new claim is submitted by it.

        A refused claim stays submitted: its demand counts, and the decision changes nothing else.
        """
        self._lock.acquire()
        try:
            self._enter(claim, at)
            return self._conclude(claim, deciding.decide_in_time(self._core, claim, at), "decide")
        finally:
            self._end()

    def admit(self, claim: Claim, at: int = 0) -> Decision:
        """Decide quota only: reserve in the quota policies."""
        self._lock.acquire()
        try:
            self._enter(claim, at)
            return self._conclude(claim, deciding.admit(self._core, claim, at), "admit")
        finally:
            self._end()

    def place(self, uid: str, node: str = "", at: int = 0, forced: bool = False) -> Decision:
        """Place an admitted claim on the given node or the best one.

        ``forced`` records that the claim runs on that node, whatever quotas and nodes say, admitted or not.
        """
        self._lock.acquire()
        try:
            claim = self.claim(uid)
            if claim.state == PENDING and not (forced and node):
                raise EngineError(f"{claim.key} is not admitted yet: admit it first, or decide both")
            self._begin(at)
            decision = deciding.place(self._core, claim, node, forced, at)
            return self._conclude(claim, decision, "found" if forced else "place")
        finally:
            self._end()

    def decide_group(self, claims: list[Claim], at: int = 0) -> list[Decision]:
        """Decide all of them or none; new claims are submitted by it."""
        self._lock.acquire()
        try:
            for claim in claims:
                self._enter(claim, at)
            decisions = deciding.group_in_time(self._core, claims, at)
            return self._conclude_group(claims, decisions)
        finally:
            self._end()

    def decide_many(self, claims: list[Claim], at: int = 0) -> list[Decision]:
        """One decision each, in order: for simulation."""
        return [self.decide(claim, at) for claim in claims]

    def adjust(self, uid: str, spec: ClaimSpec, at: int = 0, forced: bool = False) -> Decision:
        """Resize a claim where it is; only growth is checked. A refusal changes nothing.

        A pending claim may ask for anything: it is checked when it is decided. ``forced`` records that it has grown.
        """
        self._lock.acquire()
        try:
            claim = self.claim(uid)
            self._begin(at)
            refusals = respec(self._core, claim, spec, forced)
            if refusals:
                return deciding.refused(claim, at, refusals)
            decision = Decision(uid, WAITING if claim.state == PENDING else ADMITTED, at, claim.place)
            cause = "grew" if forced and claim.state != PENDING else "adjust"
            decision.seq = self._commit((cause, uid), decision)
            last = claim.decision
            if claim.state == PENDING and isinstance(last, Decision):
                last.outdated = True
            return decision
        finally:
            self._end()

    def release(self, uid: str, at: int = 0) -> Decision:
        """The claim is gone: ended, deleted by its owner, or evicted."""
        self._lock.acquire()
        try:
            claim = self.claim(uid)
            taken = claim.leaving or self.state.cell("revoked", uid) is not None
            self._begin(at)
            eviction.drop(self._core, claim, taken)
            if not taken:
                decision = Decision(uid, RELEASED, at, claim.place)
                self._commit(("release", uid), decision)
                return decision
            return self._depart(claim, at)
        finally:
            self._end()

    def release_many(self, uids: list[str], at: int = 0) -> list[Decision]:
        """Release each, in order: for simulation."""
        return [self.release(uid, at) for uid in uids]

    def observe(self, uid: str, state: int, at: int = 0) -> None:
        """The claim was observed to be bound, running or terminating."""
        self._lock.acquire()
        try:
            claim = self.claim(uid)
            if state not in (BOUND, RUNNING, TERMINATING):
                raise EngineError(f"a claim cannot be seen to become {STATES[state]}")
            if claim.state >= state:
                return
            if claim.state < RESERVED:
                raise EngineError(f"{claim.key} is {STATES[claim.state]}: it cannot be seen {STATES[state]}")
            self._begin(at)
            self._core.set_seen(claim, state)
            self._commit(("observe", uid, STATES[state]))
        finally:
            self._end()

    def give_up(self, uid: str, at: int = 0) -> None:
        """A claim that has not started is pending again; its victims that do not terminate yet keep their place.

        For an evicted claim the eviction is finished by this.
        """
        self._lock.acquire()
        try:
            claim = self.claim(uid)
            if claim.state not in (HELD, RESERVED):
                raise EngineError(f"{claim.key} is {STATES[claim.state]}, neither held nor reserved")
            self._begin(at)
            eviction.back_to_pending(self._core, claim)
            eviction.has_left(self._core, claim)
            self._commit(("give-up", uid))
        finally:
            self._end()

    def unplace(self, uid: str, at: int = 0) -> Decision:
        """The claim is admitted and counts on no node: another scheduler has to find one.

        A claim that has a place keeps its quotas only. One that is pending counts in its quotas, whatever they say.
        """
        self._lock.acquire()
        try:
            claim = self.claim(uid)
            if claim.leaving or claim.state not in (PENDING, RESERVED):
                raise EngineError(f"{claim.key} is {STATES[claim.state]}: only a claim that waits gives its node back")
            self._begin(at)
            decision = deciding.unplace(self._core, claim, at)
            return self._conclude(claim, decision, "unplace")
        finally:
            self._end()

    def spare(self, uid: str, spared: bool, at: int = 0) -> None:
        """Set whether the claim may not be a victim for now, for a reason outside of the ledger.

        Unlike a non-preemptible claim it is charged as before, and a revocation stays in force.
        """
        self._lock.acquire()
        try:
            claim = self.claim(uid)
            self._begin(at).put("engine", "spared", claim.uid, True if spared else None)
            self._commit(("spare", uid))
        finally:
            self._end()

    def gang(self, name: str, complete: bool, at: int = 0) -> None:
        """Set whether all members of a gang are there. The demand of an incomplete gang does not count."""
        self._lock.acquire()
        try:
            if complete and name not in self.state.gangs and self.state.cell(GANGS, name) is None:
                return
            self._begin(at)
            tell_gang(self._core, name, complete)
            if self._changed():
                self._commit(("gang", name))
        finally:
            self._end()

    # Taking over from another engine

    def resume_hold(self, uid: str, node: str, victims: list[str], at: int = 0) -> Decision:
        """Restore the hold of a pending claim on a node until these victims have left; unknown ones are gone."""
        self._lock.acquire()
        try:
            claim = self.claim(uid)
            if claim.state != PENDING:
                raise EngineError(f"{claim.key} is {STATES[claim.state]}, not pending")
            self._begin(at)
            found = [self.state.claims[victim] for victim in victims if victim in self.state.claims]
            return self._conclude(claim, deciding.resume_hold(self._core, claim, node, found, at), "resume")
        finally:
            self._end()

    def preemption_history(self, uid: str) -> tuple[str, list[Displacement]]:
        """The claim's lineage ("" if that is its uid), and what it displaced, directly and through others."""
        self._lock.acquire()
        try:
            return self._core.history.record(self.claim(uid))
        finally:
            self._lock.release()

    def recall_history(self, uid: str, lineage: str, displacements: list[Displacement], at: int = 0) -> None:
        """Restore the preemption history of a claim, as ``preemption_history`` of another engine had it."""
        self._lock.acquire()
        try:
            claim = self.claim(uid)
            self._begin(at)
            self._core.history.recall(claim, lineage, displacements)
            if self._changed():
                self._commit(("recall", uid))
        finally:
            self._end()

    # Settings and time

    def configure(self, settings: list[Setting], at: int = 0) -> None:
        """Create, change or delete quotas, nodes and options: all of them, or none if one is not acceptable."""
        self._lock.acquire()
        try:
            self._begin(at)
            apply_settings(self._core, settings)
            self._commit(("configure", *[f"{s.kind} {s.key}" for s in settings]))
        finally:
            self._end()

    def advance(self, now: int) -> bool:
        """Time passed: policies set the limits that hold now, in one record. Returns whether anything changed."""
        self._lock.acquire()
        try:
            return self._advance(now)
        finally:
            self._end()

    def tick(self, now: int) -> list[Decision]:
        """Time passed: ``advance``, then evict over-use. Evicted claims count until they are gone."""
        self._lock.acquire()
        try:
            self._advance(now)
            self._note_overuse(now)
            decisions: list[Decision] = []
            for policy in self._core.revoking:
                for wanted in policy.revocations(now):
                    claim = self.state.claims.get(wanted.uid)
                    if claim is not None and may_take(self._core, claim):
                        decisions.append(self._revoke(claim, wanted, now))
            return decisions
        finally:
            self._end()

    def revoke(self, wanted: Revocation, at: int = 0) -> Decision | None:
        """Evict a claim that counts, for a reason outside of the policies; None if it may not be evicted now."""
        self._lock.acquire()
        try:
            claim = self.claim(wanted.uid)
            return self._revoke(claim, wanted, at) if may_take(self._core, claim) else None
        finally:
            self._end()

    def next_due(self, now: int) -> int | None:
        """The first moment after ``now`` at which a tick alone may change something; as of the last tick."""
        self._lock.acquire()
        try:
            earliest: int | None = None
            for policy in self._core.waking:
                moment = policy.next_due(now)
                if moment is not None and (earliest is None or moment < earliest):
                    earliest = moment
            return earliest
        finally:
            self._lock.release()

    def last_revocation(self) -> int | None:
        """The moment by which the over-use that there is now will be revoked; as of the last tick."""
        self._lock.acquire()
        try:
            latest: int | None = None
            for policy in self._core.revoking:
                moment = policy.last_revocation()
                if moment is not None and (latest is None or moment > latest):
                    latest = moment
            return latest
        finally:
            self._lock.release()

    def outputs(self, now: int) -> list[Output]:
        """The statuses, labels, objects and events that changed since the last call."""
        self._lock.acquire()
        try:
            found: list[Output] = []
            for policy in self._core.writing:
                found.extend(policy.outputs(now))
            return found
        finally:
            self._lock.release()

    # Asking

    def governing(self, claim: Claim) -> tuple[str, ...]:
        """The accounts by which quotas would count the claim wherever it runs."""
        self._lock.acquire()
        try:
            found: list[str] = []
            for policy in self._core.concerned(claim).quotas:
                bound = policy.bind(claim, "")
                if isinstance(bound, Binding):
                    found.extend([account.name for account in bound.accounts])
            return tuple(found)
        finally:
            self._lock.release()

    @property
    def owner_rules(self) -> OwnerRules:
        """What the rules about owners of quotas say about claims."""
        return self._core.owner_rules

    def standing_refusal(self, claim: Claim) -> Refusal | None:
        """The claim's last refusal with today's numbers, if it is certain that a decision would repeat it."""
        self._lock.acquire()
        try:
            last = claim.decision
            if claim.state != PENDING or not isinstance(last, Decision) or last.outdated or not last.refusals:
                return None
            first = last.refusals[0]
            for policy in self._core.concerned(claim).quotas:
                if policy.name == first.policy:
                    bound = policy.bind(claim, "")
                    found = policy.standing_refusal(claim, bound) if isinstance(bound, Binding) else None
                    return found if found is not None and found.reason == first.reason else None
            return None
        finally:
            self._lock.release()

    def misspelt(self, resources: list[str]) -> str:
        """Which of these resources no node has, although one has nearly that name; "" if there is none."""
        with self._lock:
            return self._core.nodes.misspelt(resources)

    def possible(self, uid: str) -> bool:
        """Whether the claim could still run on its node, if that were empty."""
        with self._lock:
            claim = self.claim(uid)
            return not claim.place or is_possible(self._core, claim, claim.place)

    def what_if(self, changes: list[Assumption], at: int = 0, pending: bool = False) -> Outlook:
        """Dry run: the decisions after the changes; ``pending`` also tries the pending claims. Changes nothing."""
        self._lock.acquire()
        try:
            self._begin(at)
            return look_ahead(self._core, changes, at, pending)
        finally:
            self._end()

    def explain(self, uid: str) -> Check:
        """The tree of checks for a pending, admitted or evicted claim."""
        self._lock.acquire()
        try:
            claim = self.state.claims.get(uid)
            if claim is not None:
                self._begin(self._core.tx.now)
                return explain_claim(self._core, claim)
            past = self._recall.departed.get(uid)
            if past is None:
                raise EngineError(f"no claim {uid}")
            return explain_departed(past[0], past[1])
        finally:
            self._end()

    # Time

    def _advance(self, now: int) -> bool:
        core = self._core
        if not core.advancing:
            return False
        tx = self._begin(now)
        changed: list[str] = []
        for policy in core.advancing:
            mark = tx.savepoint()
            policy.advance(tx, now)
            if tx.savepoint() > mark:
                changed.append(policy.name)
        if changed:
            self._commit(("advance", *changed))
        else:
            self._undo()
        return len(changed) > 0

    def _note_overuse(self, now: int) -> None:
        if self._core.revoking:
            tx = self._begin(now)
            for policy in self._core.revoking:
                policy.note_overuse(tx, now)
            if self._changed():
                self._commit(("tick", "over-use"))
            else:
                self._undo()

    def _revoke(self, claim: Claim, wanted: Revocation, now: int) -> Decision:
        """The claim counts until it is gone, but is not healthy for budgets any more."""
        tx = self._begin(now)
        if self._core.budgets.healthy(claim):
            self._core.budgets.runs(tx, claim, False)
        tx.put("engine", "revoked", claim.uid, wanted.reason)
        why = Refusal(wanted.reason.partition(".")[0], wanted.reason, wanted.sentence)
        decision = Decision(claim.uid, EVICTED, now, claim.place, (why,))
        decision.seq = self._commit(("tick", wanted.sentence), decision)
        self._recall.set(claim, decision)
        return decision

    def _depart(self, claim: Claim, at: int) -> Decision:
        last = claim.decision
        decision = last if isinstance(last, Decision) else Decision(claim.uid, EVICTED, at, claim.place)
        self._commit(("evicted", claim.uid, claim.key), decision)
        self._recall.remember(claim.uid, claim.key, decision)
        return decision
