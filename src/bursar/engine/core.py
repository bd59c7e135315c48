"""The parts every decision is made of: bind, charge, release and leave a claim in all policies at once.

``Core`` holds the ledger, the policies in their order, and the engine's own records (budgets). All functions work
inside the open transaction; those that may be refused leave no trace when they are.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.engine.budgets import Budgets, is_healthy
from bursar.ledger import lineage
from bursar.ledger.claims import HELD, PENDING, RESERVED, TERMINATING, Binding, Claim, ClaimSpec
from bursar.ledger.ledger import Ledger
from bursar.ledger.transactions import Transaction
from bursar.policies.base import NeedsSource, NodeIndex, Policy
from bursar.policies.checks import Refusal
from bursar.selectors import NodeNeeds


@final
class DirectedNeeds(NeedsSource):
    """What the quota policies' bindings require of a claim's node (the affinity of a quota tree)."""

    def __init__(self, policies: list[Policy]) -> None:
        self.slots: Final = [i for i in range(len(policies)) if policies[i].directs]
        self.policies: Final = policies

    def needs(self, claim: Claim) -> tuple[NodeNeeds, ...]:
        found: list[NodeNeeds] = []
        for i in self.slots:
            bound = claim.bindings[i] if i < len(claim.bindings) else self.policies[i].bind(claim, "")
            extra = self.policies[i].node_needs(claim, bound) if isinstance(bound, Binding) else None
            if extra is not None:
                found.append(extra)
        return tuple(found)


@final
class Core:
    """The ledger and the policies over it."""

    __slots__ = ("bare", "budgets", "ledger", "nodes", "placing", "policies", "settling", "tx", "wanting")

    def __init__(self, policies: list[Policy]) -> None:
        self.ledger: Final = Ledger()
        self.tx: Final[Transaction] = self.ledger.tx
        self.nodes: Final = NodeIndex()
        self.policies: Final = policies
        self.bare: Final[tuple[Binding | None, ...]] = tuple([None for _ in policies])
        self.placing: Final = [p for p in policies if p.placement]
        self.settling: Final = [p for p in policies if p.settles]
        self.wanting: Final = [i for i in range(len(policies)) if policies[i].demands]
        self.budgets: Final = Budgets(self.ledger.state)
        self.ledger.watch("budgets", self.budgets)
        needs_of = DirectedNeeds(policies)
        names: set[str] = set()
        for policy in policies:
            if policy.name in names:
                raise ValueError(f"two policies are called {policy.name}")
            names.add(policy.name)
            self.ledger.watch(policy.name, policy)
            policy.attach(self.ledger.state, self.nodes, needs_of)

    def needs_place(self, claim: Claim) -> bool:
        return len(self.placing) > 0 and claim.spec.placeable

    # Entering

    def enter(self, claim: Claim) -> None:
        """A claim enters, pending; its demand counts from here."""
        tx = self.tx
        tx.add_claim(claim)
        if claim.spec.owner:
            lineage.submitted(tx, claim)
        self.budgets.exists(tx, claim, True)
        if self.wanting:
            bindings = self._demand_bindings(claim)
            tx.set_bindings(claim, bindings)
            self._demand(claim, bindings, True)

    def _demand_bindings(self, claim: Claim) -> tuple[Binding | None, ...]:
        """What is known before a decision; a policy that refuses to bind has no demand to count."""
        found: list[Binding | None] = []
        for policy in self.policies:
            bound = None if policy.placement else policy.bind(claim, "")
            found.append(bound if isinstance(bound, Binding) else None)
        return tuple(found)

    def _demand(self, claim: Claim, bindings: tuple[Binding | None, ...], wanted: bool) -> None:
        for i in self.wanting:
            binding = bindings[i] if i < len(bindings) else None
            if binding is not None:
                self.policies[i].demand(self.tx, claim, binding, wanted)

    def respec(self, claim: Claim, spec: ClaimSpec) -> tuple[Refusal, ...]:
        """The claim asks for something else where it is. One that waits may ask for anything: it is judged later."""
        healthy = is_healthy(claim)
        relabelled = claim.spec.labels != spec.labels
        if relabelled:
            self._count_in_budgets(claim, healthy, False)
        self.tx.set_spec(claim, spec)
        if relabelled:
            self._count_in_budgets(claim, healthy, True)
        return self.rebind(claim, claim.place, claim.state == PENDING)

    def _count_in_budgets(self, claim: Claim, healthy: bool, present: bool) -> None:
        self.budgets.exists(self.tx, claim, present)
        if healthy:
            self.budgets.runs(self.tx, claim, present)

    # Charging

    def bind_all(self, claim: Claim, place: str, refusals: list[Refusal]) -> tuple[Binding | None, ...]:
        """The claim's bindings at a place; policies that cannot read it add their refusal."""
        policies = self.policies
        found: list[Binding | None] = []
        for policy in policies:
            bound = policy.bind(claim, place)
            if isinstance(bound, Refusal):
                refusals.append(bound)
                found.append(None)
            else:
                found.append(bound)
        return tuple(found)

    def attempt(self, claim: Claim, place: str, forced: bool) -> tuple[Refusal, ...]:
        """Charge the claim everywhere at a place. All or nothing: on refusal, one of each refusing policy."""
        tx = self.tx
        mark = tx.savepoint()
        refusals: list[Refusal] = []
        bindings = self.bind_all(claim, place, refusals)
        if refusals and not forced:
            return tuple(refusals)
        refusals.clear()  # forced: it counts wherever it can be read
        if claim.bindings and self.wanting:
            self._demand(claim, claim.bindings, False)
            self._demand(claim, bindings, True)
        tx.set_bindings(claim, bindings)
        for i in range(len(bindings)):
            binding = bindings[i]
            if binding is not None:
                refusal = self.policies[i].charge(tx, claim, binding, forced)
                if refusal is not None:
                    refusals.append(refusal)
        if refusals:
            tx.rollback_to(mark)
            return tuple(refusals)
        if place:
            tx.set_place(claim, place)
        return ()

    def rebind(self, claim: Claim, place: str, forced: bool) -> tuple[Refusal, ...]:
        """Bind a claim anew, because its spec, its place or the settings changed; all or nothing."""
        tx = self.tx
        mark = tx.savepoint()
        refusals: list[Refusal] = []
        bindings = self.bind_all(claim, place, refusals)
        if forced:
            bindings = self._last_good(claim, bindings, refusals)
        elif refusals:
            return tuple(refusals)
        old = claim.bindings
        self._demand(claim, old, False)
        self._demand(claim, bindings, True)
        if claim.state != PENDING:
            for i in range(len(bindings)):
                refusal = self._move(i, claim, old[i] if i < len(old) else None, bindings[i], forced)
                if refusal is not None:
                    refusals.append(refusal)
        if refusals and not forced:
            tx.rollback_to(mark)
            return tuple(refusals)
        tx.set_bindings(claim, bindings)
        if claim.state != PENDING:
            self._move_leaving(claim, place)
            tx.set_place(claim, place)
        return ()

    def _move_leaving(self, claim: Claim, place: str) -> None:
        if claim.leaving and claim.place != place:
            self._list_leaving(claim, False)
            self._list_at(place, claim.uid, True)

    def _last_good(
        self, claim: Claim, bindings: tuple[Binding | None, ...], refusals: list[Refusal]
    ) -> tuple[Binding | None, ...]:
        """Where a policy can no longer read the claim, what it was bound to stays in force."""
        unread = {refusal.policy for refusal in refusals}
        old = claim.bindings
        found: list[Binding | None] = []
        for i in range(len(bindings)):
            keep = self.policies[i].name in unread and i < len(old)
            found.append(old[i] if keep else bindings[i])
        return tuple(found)

    def _move(self, slot: int, claim: Claim, old: Binding | None, new: Binding | None, forced: bool) -> Refusal | None:
        policy = self.policies[slot]
        if old is new:
            return None
        if claim.leaving:
            return self._move_leaver(policy, claim, old, new)
        if old is None:
            return None if new is None else policy.charge(self.tx, claim, new, forced)
        if new is None:
            policy.release(self.tx, claim, old)
            return None
        return policy.recharge(self.tx, claim, old, new, forced)

    def _move_leaver(self, policy: Policy, claim: Claim, old: Binding | None, new: Binding | None) -> Refusal | None:
        """One that was told to leave counts nowhere but in the physical sums, which follow it."""
        if policy.placement:
            if old is not None:
                policy.left(self.tx, claim, old)
            if new is not None:
                policy.charge(self.tx, claim, new, True)
                policy.leave(self.tx, claim, new)
        return None

    # Leaving

    def release(self, claim: Claim) -> None:
        """The claim gives back all that it holds."""
        tx = self.tx
        bindings = claim.bindings
        if is_healthy(claim):
            self.budgets.runs(tx, claim, False)
        counted = claim.state != PENDING
        for i in range(len(bindings)):
            binding = bindings[i]
            if binding is None or not counted:
                continue
            if claim.leaving:
                self.policies[i].left(tx, claim, binding)
            else:
                self.policies[i].release(tx, claim, binding)
        if claim.leaving:
            self._list_leaving(claim, False)
            tx.set_leaving(claim, False)

    def drop(self, claim: Claim, evicted: bool) -> None:
        """The claim is gone: nothing of it stays but the no-thrash record."""
        self.release(claim)
        self._demand(claim, claim.bindings, False)
        self.budgets.exists(self.tx, claim, False)
        lineage.departed(self.tx, claim, evicted)
        if claim.waits_for:
            self.spare_victims(claim)
        self.has_left(claim)
        self.tx.put("engine", "revoked", claim.uid, None)
        self.tx.drop_claim(claim)

    def leave(self, victim: Claim) -> None:
        """A victim stops counting. One that has not started goes back to pending; others are told to leave."""
        tx = self.tx
        if victim.state == HELD:
            self.back_to_pending(victim)
            return
        if is_healthy(victim):
            self.budgets.runs(tx, victim, False)
        for i in range(len(victim.bindings)):
            binding = victim.bindings[i]
            if binding is not None:
                self.policies[i].leave(tx, victim, binding)
        tx.set_leaving(victim, True)
        self._list_leaving(victim, True)

    def stay(self, victim: Claim) -> None:
        """A claim that was told to leave stays after all, and counts again."""
        tx = self.tx
        for i in range(len(victim.bindings)):
            binding = victim.bindings[i]
            if binding is not None:
                self.policies[i].stay(tx, victim, binding)
        self._list_leaving(victim, False)
        tx.set_leaving(victim, False)
        if is_healthy(victim):
            self.budgets.runs(tx, victim, True)

    def back_to_pending(self, claim: Claim) -> None:
        """A claim that has not started loses what it holds and waits again; its own victims may stay."""
        self.release(claim)
        self.spare_victims(claim)
        self.tx.set_place(claim, "")
        self.tx.set_state(claim, PENDING)

    def spare_victims(self, holder: Claim) -> None:
        """Victims that only this claim waits for, and that have not begun to go, keep their place."""
        tx = self.tx
        waited = holder.waits_for
        self.wait_for(holder, ())
        for uid in waited:
            victim = self.ledger.state.claims.get(uid)
            if victim is None or not victim.leaving or victim.state == TERMINATING:
                continue
            if not self.holders(uid) and tx.get("revoked", uid) is None:
                self.stay(victim)

    def _list_leaving(self, claim: Claim, leaving: bool) -> None:
        if claim.place:
            self._list_at(claim.place, claim.uid, leaving)

    def _list_at(self, place: str, uid: str, leaving: bool) -> None:
        """Who was told to leave a place and has not gone: the cells of ``leaving``."""
        others = tuple([other for other in self.leavers(place) if other != uid])
        self.tx.put("engine", "leaving", place, (*others, uid) if leaving else (others or None))

    def leavers(self, place: str) -> tuple[str, ...]:
        found = self.ledger.state.cell("leaving", place)
        return () if found is None else cast("tuple[str, ...]", found)

    # Holding

    def hold(self, claim: Claim, victims: list[Claim]) -> None:
        """The claim has its place; it may start once whoever is in the way has left."""
        for victim in victims:
            lineage.displaced(self.tx, claim, victim)
        waits = [v.uid for v in victims if v.leaving]
        if claim.place and not self._physically_free(claim):
            waits.extend([uid for uid in self.leavers(claim.place) if uid not in waits])
        self.wait_for(claim, tuple(waits))
        self.tx.set_state(claim, HELD if waits else RESERVED)

    def wait_for(self, claim: Claim, uids: tuple[str, ...]) -> None:
        """Set whom the claim waits for, and keep the way back (``holders``) in step."""
        tx = self.tx
        for uid in claim.waits_for:
            if uid not in uids:
                rest = tuple([other for other in self.holders(uid) if other != claim.uid])
                tx.put("engine", "holders", uid, rest or None)
        for uid in uids:
            if uid not in claim.waits_for:
                tx.put("engine", "holders", uid, (*self.holders(uid), claim.uid))
        tx.set_waits_for(claim, uids)

    def holders(self, uid: str) -> tuple[str, ...]:
        """Claims that wait for this one to leave."""
        found = self.ledger.state.cell("holders", uid)
        return () if found is None else cast("tuple[str, ...]", found)

    def has_left(self, claim: Claim) -> None:
        """Whoever waited for this claim waits for one less; who waits for nobody may start."""
        for uid in self.holders(claim.uid):
            holder = self.ledger.state.claims[uid]
            self.wait_for(holder, tuple([other for other in holder.waits_for if other != claim.uid]))
            if not holder.waits_for and holder.state == HELD:
                self.tx.set_state(holder, RESERVED)

    def _physically_free(self, claim: Claim) -> bool:
        for i in range(len(claim.bindings)):
            binding = claim.bindings[i]
            if binding is not None and self.policies[i].placement and not self.policies[i].ready(claim, binding):
                return False
        return True

    def approves(self, claim: Claim, victims: list[Claim]) -> bool:
        for i in range(len(claim.bindings)):
            binding = claim.bindings[i]
            if binding is not None and not self.policies[i].approve(self.tx, claim, binding, victims):
                return False
        return True

    def set_seen(self, claim: Claim, state: int) -> None:
        """The claim was seen in a later state; budgets follow."""
        if is_healthy(claim):
            self.budgets.runs(self.tx, claim, False)
        self.tx.set_state(claim, state)
        if is_healthy(claim):
            self.budgets.runs(self.tx, claim, True)

    def settle(self) -> None:
        for policy in self.settling:
            policy.settle(self.tx)
