"""What a commit means for the control loop: which pods may start, must leave or wait again, and which it may help.

``Wakeups`` hears of each commit inside the engine's lock and only takes notes; the loop acts on them afterwards.
Topics say which waiting pods a commit may help: a refusal names every topic whose change may resolve it, also by
other victims. In quota accounts taking room may help, because a share that shrinks makes others over-quota. Budgets and
preemption history wake all entries that may preempt. On a node or GPU (a physical account)

* room that is taken helps gangs of different pods, whose members are placed one by one and may now go elsewhere, and
  claims that may displace others by what the node is short of;
* a victim that cannot come back any more helps all that may displace its claimant, and with it use the victim's room.

``TerminatingUsage`` keeps pods from starting while evicted pods still run in their quotas. A victim may be larger
than its claimant needs, and decisions give the rest to others at once. These start only when what really runs (all
that counts, without the held, with the terminating) stays within every limit. Nodes and GPUs check that themselves.
It follows the commits, so that a look costs the same however many pods terminate, are held or are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from bursar.control.gangs import Gang, QueueEntry, forked
from bursar.control.queue import Queue
from bursar.engine import disruption_budgets
from bursar.engine.session import CommitListener
from bursar.ledger.changes import RELEASE, VACATE, Change, Charge, PutCell
from bursar.ledger.claim_changes import LEAVING, SPEC, DropClaim, SetBindings, SetField, SetState
from bursar.ledger.claims import HELD, RESERVED, TERMINATING, Binding, Claim, ClaimSpec
from bursar.ledger.journal import Record
from bursar.ledger.state import Account
from bursar.objects.pods import DEVICE_DETAILS
from bursar.policies.policy import Policy
from bursar.policies.rights import ROOM_TAKEN
from bursar.resources import Vector

Spot = tuple[Account, int]
"""An account, and the dimension in which too much runs."""


class _Sums:
    """Of one account: the claims that leave it, and by dimension the cost of those and of the held claims."""

    __slots__ = ("held", "leavers", "leaving")

    def __init__(self) -> None:
        self.leavers: set[str] = set()  # uids
        self.leaving: Counter[int] = Counter()
        self.held: Counter[int] = Counter()

    def fork(self) -> _Sums:
        return forked(self, leavers=set(self.leavers), leaving=Counter(self.leaving), held=Counter(self.held))


class TerminatingUsage:
    """Claims that leave, claims that are held, and claims that both keep from starting."""

    def __init__(self) -> None:
        self._sums: dict[Account, _Sums] = {}
        self._known: dict[str, tuple[bool, list[tuple[Account, Vector]]]] = {}  # by uid: whether it leaves; its costs
        self._blocked: dict[Spot, dict[str, Claim]] = {}
        self._spot_of: dict[str, Spot] = {}  # by uid of blocked claims

    def fork(self) -> TerminatingUsage:
        """A copy to go on with; the claims are the same."""
        return forked(
            self,
            _sums={account: sums.fork() for account, sums in self._sums.items()},
            _known=dict(self._known),
            _blocked={spot: dict(claims) for spot, claims in self._blocked.items()},
            _spot_of=dict(self._spot_of),
        )

    # Leaving and held claims

    def __contains__(self, uid: str) -> bool:
        return uid in self._known

    def take(self, claim: Claim) -> None:
        """Count the claim if it leaves or is held now."""
        self.forget(claim.uid)
        if claim.leaving or claim.state == HELD:
            costs = list(_quota_costs(claim))
            self._known[claim.uid] = claim.leaving, costs
            for account, cost in costs:
                self._count(account, cost, claim.uid, claim.leaving, 1)

    def forget(self, uid: str) -> None:
        leaves, costs = self._known.pop(uid, (False, []))
        for account, cost in costs:
            self._count(account, cost, uid, leaves, -1)

    def _count(self, account: Account, cost: Vector, uid: str, leaves: bool, sign: int) -> None:
        sums = self._sums.setdefault(account, _Sums())
        amounts = sums.leaving if leaves else sums.held
        for dim in cost.indices():
            amounts[dim] += sign * cost.get(dim)
            if not amounts[dim]:
                del amounts[dim]
        if leaves:
            (sums.leavers.add if sign > 0 else sums.leavers.discard)(uid)
        if not (sums.leavers or sums.leaving or sums.held):
            del self._sums[account]

    def held(self) -> list[str]:
        """The uids of the held claims."""
        return [uid for uid, (leaves, _) in self._known.items() if not leaves]

    # Blocked claims

    def spot(self, claim: Claim) -> Spot | None:
        """Where too much runs for the claim to start; mostly None."""
        return next(self._spots(claim), None)

    def blockers(self, claim: Claim) -> list[str]:
        """The uids of claims that must be gone before this one may start."""
        found: set[str] = set()
        for account, _ in self._spots(claim):
            found |= self._sums[account].leavers
        return sorted(found)

    def _spots(self, claim: Claim) -> Iterator[Spot]:
        if self._sums:
            for account, cost in _quota_costs(claim):
                if account in self._sums:
                    yield from ((account, dim) for dim in cost.indices() if self._exceeded(account, dim))

    def _exceeded(self, account: Account, dim: int) -> bool:
        sums = self._sums.get(account)
        if sums is None or sums.leaving[dim] <= 0:
            return False
        return account.used.get(dim) + sums.leaving[dim] - sums.held[dim] > account.limits.get(dim)

    def block(self, claim: Claim, spot: Spot) -> None:
        """The claim does not start before there is room at that spot."""
        self.unblock(claim.uid)
        self._blocked.setdefault(spot, {})[claim.uid] = claim
        self._spot_of[claim.uid] = spot

    def unblock(self, uid: str) -> None:
        """The claim may be tried again, or is not to start."""
        spot = self._spot_of.pop(uid, None)
        if spot is not None:
            claims = self._blocked[spot]
            del claims[uid]
            if not claims:
                del self._blocked[spot]

    def unblocked(self) -> list[Claim]:
        """Claims with room at the spot where they were blocked; another spot may block them."""
        found: list[Claim] = []
        for spot in [spot for spot in self._blocked if not self._exceeded(*spot)]:
            found.extend(self._blocked[spot].values())
        for claim in found:
            self.unblock(claim.uid)
        return found

    @property
    def blocks_any(self) -> bool:
        return bool(self._blocked)

    def blocks(self, uid: str) -> bool:
        return uid in self._spot_of

    def blocked(self) -> list[Claim]:
        """The claims that are blocked."""
        return [claim for claims in self._blocked.values() for claim in claims.values()]


def _quota_costs(claim: Claim) -> Iterator[tuple[Account, Vector]]:
    for binding in claim.bindings:
        if binding is not None:
            for account, cost in zip(binding.accounts, binding.costs, strict=True):
                if not account.physical:
                    yield account, cost


_RELIEF = frozenset({RELEASE, VACATE})  # charges that make room
_VICTIMS = ("displaced", "spared")  # tables that say who may be a victim
_CONFIGURE = "configure"
_REVOKED = "revoked"  # the table of revoked claims


class Helped:
    """Whom the changes of a transaction may help, by topics; see the text of this module."""

    __slots__ = ("displacing", "preempting", "taken", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, None] = {}
        self.displacing: dict[str, None] = {}  # topics of victims that cannot come back
        self.taken: dict[str, None] = {}  # topics of physical accounts in which room was taken
        self.preempting = False  # whether the set of possible victims changed

    def add(self, change: Change) -> None:
        """A change of accounts or cells."""
        if isinstance(change, PutCell):
            self.preempting = self.preempting or change.table in _VICTIMS
            return
        relief = not isinstance(change, Charge) or change.mode in _RELIEF
        for account in change.touches():
            if account.policy == disruption_budgets.POLICY:
                self.preempting = True
            else:
                (self.topics if relief or not account.physical else self.taken)[account.topic] = None

    def changed(self, topics: Iterable[str]) -> None:
        """The claim whose bindings have these topics is another one now."""
        self.topics.update(dict.fromkeys(topics))

    def left(self, topics: Iterable[str]) -> None:
        """A victim whose bindings had these topics cannot come back, whatever becomes of its claimant."""
        self.displacing.update(dict.fromkeys(topics))


_NOTES = ("reserved", "groups", "bound", "leaving", "withdrawn", "doubtful", "claiming")


class Wakeups(CommitListener):
    """Notes of the commits since the last step that carried out decisions."""

    def __init__(
        self, queue: Queue, policies: Iterable[Policy], stands: Callable[[Claim], bool] = lambda _: False
    ) -> None:
        """``stands``: whether a claim would certainly be refused as it was; it is left asleep then."""
        self.queue = queue
        self._policies = {policy.name: policy for policy in policies}
        self._stands = stands
        self.terminating = TerminatingUsage()
        self.reserved: dict[str, Claim] = {}  # may start on their own
        self.groups: dict[str, None] = {}  # gangs of which a member came, moved or left
        self.bound: dict[str, Claim] = {}  # observed on a node
        self.leaving: dict[str, Claim] = {}  # must leave
        self.withdrawn: dict[str, Claim] = {}  # must leave, and were never started
        self.doubtful: dict[str, Claim] = {}  # have a node that changed, and were never started
        self.claiming: dict[str, Claim] = {}  # have claims of devices, and came, moved or left
        self.revoked: set[str] = set()  # uids of claims that a policy revoked
        self.moves: dict[str, int] = {}  # by uid: how often it got or lost its place

    def fork(self) -> Wakeups:
        """A copy to go on with, over a copy of the queue; the claims are the same."""
        return forked(
            self,
            queue=self.queue.fork(),
            terminating=self.terminating.fork(),
            revoked=set(self.revoked),
            moves={},
            **{notes: dict(getattr(self, notes)) for notes in _NOTES},
        )

    @property
    def noted(self) -> bool:
        """Whether a step that carries out decisions has anything to look at."""
        return bool(
            self.reserved
            or self.groups
            or self.bound
            or self.leaving
            or self.withdrawn
            or self.doubtful
            or self.terminating.blocks_any
        )

    def committed(self, record: Record) -> None:
        helped = Helped()
        touched: dict[str, Claim] = {}
        gone: dict[str, Claim] = {}
        for change in record.changes:
            if isinstance(change, SetState):
                touched[change.claim.uid] = change.claim
                if change.new == TERMINATING and change.claim.leaving:
                    helped.left(self._topics_of(change.claim.bindings))
            elif isinstance(change, DropClaim):
                gone[change.claim.uid] = change.claim
                if change.claim.uid in touched:
                    helped.left(self._topics_of(change.bindings))
            elif isinstance(change, SetField):
                self._field(change, touched, helped)
            elif isinstance(change, SetBindings):
                self._rebound(change.claim)
            else:
                self._revoked(change)
                helped.add(change)
        self._follow(touched, gone)
        if record.cause[0] == _CONFIGURE:
            self._doubt({str(entry).partition(" ")[2] for entry in record.cause[1:]})
            self.queue.wake_all()
        else:
            self._wake(helped)

    def _topics_of(self, bindings: tuple[Binding | None, ...]) -> Iterator[str]:
        for binding in bindings:
            if binding is not None:
                yield from self._policies[binding.policy].topics_of(binding)

    def _follow(self, touched: dict[str, Claim], gone: dict[str, Claim]) -> None:
        for uid, claim in touched.items():
            if uid not in gone:
                self._moved(claim)
        for claim in gone.values():
            self._gone(claim)

    def _field(self, change: SetField, touched: dict[str, Claim], helped: Helped) -> None:
        claim = change.claim
        if change.field == LEAVING:
            touched[claim.uid] = claim
        elif change.field == SPEC:
            # Even when it costs the same as before, it may be a victim now, or none any more.
            helped.changed(self._topics_of(claim.bindings))
            if claim.uid in self.queue:
                self.queue.add(claim)
            self._regrouped(change.old, change.new)

    def _regrouped(self, *specs: object) -> None:
        self.groups.update((spec.group, None) for spec in specs if isinstance(spec, ClaimSpec) and spec.group)

    def _rebound(self, claim: Claim) -> None:
        if claim.uid in self.terminating:
            self.terminating.take(claim)
        elif self.terminating.blocks(claim.uid):
            self.try_start(claim)

    def _revoked(self, change: Change) -> None:
        if isinstance(change, PutCell) and change.table == _REVOKED:
            if change.new is None:
                self.revoked.discard(change.key)
            else:
                self.revoked.add(change.key)
                self.queue.leaves(change.key)

    def _moved(self, claim: Claim) -> None:
        uid = claim.uid
        if DEVICE_DETAILS in claim.spec.details:
            self.claiming[uid] = claim
        unstarted = claim.state == RESERVED and self._unstarted(claim)
        self._forget(uid)
        self.take(claim)
        if claim.leaving:
            (self.withdrawn if unstarted else self.leaving)[uid] = claim
        self.moves[uid] = self.moves.get(uid, 0) + 1

    def take_claiming(self) -> list[Claim]:
        """Claims of devices that came, moved or left; they are returned once."""
        found = list(self.claiming.values())
        self.claiming.clear()
        return found

    def _unstarted(self, claim: Claim) -> bool:
        uid = claim.uid
        if uid in self.reserved or uid in self.withdrawn or self.terminating.blocks(uid):
            return True
        group = self.queue.group(claim.spec.group) if claim.spec.group else None
        return group is not None and uid in group.placed

    def _forget(self, uid: str) -> None:
        for notes in (self.reserved, self.bound, self.leaving, self.withdrawn, self.doubtful):
            notes.pop(uid, None)

    def take(self, claim: Claim) -> None:
        """Note whether the claim is pending, may start, or leaves."""
        uid = claim.uid
        self.terminating.unblock(uid)
        if claim.leaving or claim.state == HELD or uid in self.terminating:
            self.terminating.take(claim)
        self.queue.follow(claim, revoked=uid in self.revoked)
        if claim.spec.group:
            self.groups[claim.spec.group] = None
        elif claim.state == RESERVED and not claim.leaving:
            self.reserved[uid] = claim

    def found(self, claim: Claim) -> None:
        """The claim is bound, whatever its gang does and whatever blocks it."""
        self._forget(claim.uid)
        self.queue.started(claim.uid)
        self.bound[claim.uid] = claim

    def try_start(self, claim: Claim) -> None:
        """A claim that was blocked may start now."""
        self.terminating.unblock(claim.uid)
        if claim.spec.group:
            self.groups[claim.spec.group] = None
        else:
            self.reserved[claim.uid] = claim

    def _gone(self, claim: Claim) -> None:
        uid = claim.uid
        if DEVICE_DETAILS in claim.spec.details:
            self.claiming[uid] = claim
        self.queue.remove(uid)
        self.terminating.forget(uid)
        self.terminating.unblock(uid)
        self._forget(uid)
        self._regrouped(claim.spec)

    def _may_be_admitted(self, entry: QueueEntry) -> bool:
        return isinstance(entry, Gang) or not self._stands(next(iter(entry.pending.values())))

    def _doubt(self, places: set[str]) -> None:
        """These objects, some of them nodes, changed. The engine withdraws held claims by itself."""
        for claim in (*self.terminating.blocked(), *self.queue.placed()):
            if claim.place in places:
                self.doubtful[claim.uid] = claim

    def _wake(self, helped: Helped) -> None:
        if helped.topics:
            self.queue.wake(helped.topics, self._may_be_admitted)
        if helped.displacing:
            self.queue.wake(helped.displacing, lambda entry: entry.preempts)
        if helped.taken:
            self.queue.wake(helped.taken, lambda entry: entry.mixed)
            self.queue.wake((ROOM_TAKEN,), self._may_be_admitted)
        if helped.preempting:
            self.queue.wake_preempting()
