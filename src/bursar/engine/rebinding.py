"""Binding a claim again: it was resized or moved, or the settings that govern it changed.

What a claim holds moves from the old bindings to the new ones; only growth is checked. All or nothing.
"""

from __future__ import annotations

from bursar.engine.charging import Core
from bursar.engine.eviction import moved
from bursar.ledger.claims import PENDING, Binding, Claim, ClaimSpec
from bursar.policies.policy import Policy
from bursar.policies.results import Refusal


def respec(core: Core, claim: Claim, spec: ClaimSpec, forced: bool = False) -> tuple[Refusal, ...]:
    """The claim asks for something else where it is. A pending claim may ask for anything: it is checked later."""
    if claim.state != PENDING:
        fixed = _fixed(claim.spec, spec)
        if fixed is not None:
            return (fixed,)
    healthy = core.budgets.healthy(claim)
    relabelled = claim.spec.labels != spec.labels
    if relabelled:
        _count_in_budgets(core, claim, healthy, False)
    core.tx.set_spec(claim, spec)
    if relabelled:
        _count_in_budgets(core, claim, healthy, True)
    core.open_accounts(claim)
    return rebind(core, claim, claim.place, forced or claim.state == PENDING)


def _fixed(old: ClaimSpec, new: ClaimSpec) -> Refusal | None:
    """What a claim with a place may not change: the place was chosen by these, and victims are ordered by them."""
    if old.needs.record() != new.needs.record():
        note = "what it requires of its node cannot change while it holds a place there"
        return Refusal("engine", "engine.fixed-needs", note, permanent=True)
    if old.priority != new.priority:
        note = f"its priority cannot change from {old.priority} to {new.priority} while it holds a place"
        return Refusal("engine", "engine.fixed-priority", note, permanent=True)
    return None


def _count_in_budgets(core: Core, claim: Claim, healthy: bool, present: bool) -> None:
    core.budgets.exists(core.tx, claim, present)
    if healthy:
        core.budgets.runs(core.tx, claim, present)


def rebind(core: Core, claim: Claim, place: str, forced: bool) -> tuple[Refusal, ...]:
    """Bind a claim again, because its spec, its place or the settings changed; all or nothing."""
    tx = core.tx
    mark = tx.savepoint()
    refusals: list[Refusal] = []
    old = claim.bindings
    bindings = core.bind_by_force(claim, place, old) if forced else core.bind_all(claim, place, refusals)
    if refusals:
        return tuple(refusals)
    core.move_demand(claim, old, bindings)
    if claim.state != PENDING:
        for i in range(len(bindings)):
            refusal = _move(core, i, claim, old[i] if i < len(old) else None, bindings[i], forced)
            if refusal is not None:
                refusals.append(refusal)
    if refusals and not forced:
        tx.rollback_to(mark)
        return tuple(refusals)
    tx.set_bindings(claim, bindings)
    if claim.state != PENDING:
        moved(core, claim, place)
        tx.set_place(claim, place)
    return ()


def _move(
    core: Core, slot: int, claim: Claim, old: Binding | None, new: Binding | None, forced: bool
) -> Refusal | None:
    policy = core.policies[slot]
    if old is new:
        return None
    if claim.leaving:
        return _move_leaver(core, policy, claim, old, new)
    if old is None:
        return None if new is None else policy.charge(core.tx, claim, new, forced)
    if new is None:
        policy.release(core.tx, claim, old)
        return None
    return policy.recharge(core.tx, claim, old, new, forced)


def _move_leaver(core: Core, policy: Policy, claim: Claim, old: Binding | None, new: Binding | None) -> Refusal | None:
    """An evicted claim counts only where policies keep something until it is gone (physical sums); these follow it."""
    if core.evictees[policy.slot]:
        if old is not None:
            policy.finish_eviction(core.tx, claim, old)
        if new is not None:
            policy.charge(core.tx, claim, new, True)
            policy.begin_eviction(core.tx, claim, new)
    return None
