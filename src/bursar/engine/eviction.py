"""Evictions and holds: claims give back what they have, make room for others, and wait for that room.

An evicted claim is *leaving*: quotas stop counting it, its node stays physically busy. The claim that displaced it is
*held* until all claims that block it are gone. Cells of the engine keep both directions:

* ``leaving``: node -> uids of evicted claims that are not gone;
* ``holders``: uid -> uids of the claims that wait for it to go (the reverse of ``Claim.waits_for``);
* ``unshielded``: uid -> that a disruption budget forbids the eviction, and is ignored (``control.budgets``).
"""

from __future__ import annotations

from typing import Final, cast

from bursar.engine.charging import Core
from bursar.ledger.claims import HELD, PENDING, RESERVED, TERMINATING, Claim
from bursar.ledger.state import State

UNSHIELDED: Final = "unshielded"


def release(core: Core, claim: Claim) -> None:
    """The claim gives back all that it holds."""
    tx = core.tx
    bindings = claim.bindings
    if core.budgets.healthy(claim):
        core.budgets.runs(tx, claim, False)
    counted = claim.state != PENDING
    for i in range(len(bindings)):
        binding = bindings[i]
        if binding is None or not counted:
            continue
        if claim.leaving:
            core.policies[i].finish_eviction(tx, claim, binding)
        else:
            core.policies[i].release(tx, claim, binding)
    if claim.leaving:
        _list_leaving(core, claim, False)
        tx.set_leaving(claim, False)


def drop(core: Core, claim: Claim, evicted: bool) -> None:
    """The claim is gone: only its preemption history stays."""
    release(core, claim)
    core.demand(claim, claim.bindings, False)
    core.budgets.exists(core.tx, claim, False)
    core.history.departed(claim, evicted)
    if claim.waits_for:
        spare_victims(core, claim)
    has_left(core, claim)
    core.tx.put("engine", "revoked", claim.uid, None)
    core.tx.put("engine", "spared", claim.uid, None)
    core.tx.put("engine", UNSHIELDED, claim.uid, None)
    core.tx.drop_claim(claim)
    for policy in core.closing:
        policy.close_accounts(core.tx, claim.namespace)


def begin_eviction(core: Core, victim: Claim) -> None:
    """Evict a victim: it stops counting. A held victim has not started, and is pending again."""
    tx = core.tx
    if victim.state == HELD:
        back_to_pending(core, victim)
        return
    if not core.eviction_rules.shielded(victim) and core.budgets.forbids(victim):
        tx.put("engine", UNSHIELDED, victim.uid, True)
    if core.budgets.healthy(victim):
        core.budgets.runs(tx, victim, False)
    for i in range(len(victim.bindings)):
        binding = victim.bindings[i]
        if binding is not None:
            core.policies[i].begin_eviction(tx, victim, binding)
    tx.set_leaving(victim, True)
    _list_leaving(core, victim, True)


def cancel_eviction(core: Core, victim: Claim) -> None:
    """An evicted claim stays after all, and counts again."""
    tx = core.tx
    for i in range(len(victim.bindings)):
        binding = victim.bindings[i]
        if binding is not None:
            core.policies[i].cancel_eviction(tx, victim, binding)
    _list_leaving(core, victim, False)
    tx.set_leaving(victim, False)
    tx.put("engine", UNSHIELDED, victim.uid, None)
    if core.budgets.healthy(victim):
        core.budgets.runs(tx, victim, True)


def back_to_pending(core: Core, claim: Claim) -> None:
    """A claim that has not started gives back what it holds and is pending again; its victims may stay."""
    release(core, claim)
    spare_victims(core, claim)
    core.tx.set_place(claim, "")
    core.tx.set_state(claim, PENDING)
    # Its binding to a place must not outlive it there: the place's account may be closed at any time.
    core.bind_demand(claim)


def spare_victims(core: Core, holder: Claim) -> None:
    """Cancel the eviction of victims that only this claim waits for and that do not terminate yet."""
    tx = core.tx
    waited = holder.waits_for
    wait_for(core, holder, ())
    for uid in waited:
        victim = core.ledger.state.claims.get(uid)
        if victim is None or not victim.leaving or victim.state == TERMINATING:
            continue
        if not holders(core, uid) and tx.get("revoked", uid) is None:
            cancel_eviction(core, victim)
            core.history.spared(holder, victim)


def _list_leaving(core: Core, claim: Claim, leaving: bool) -> None:
    if claim.place:
        _list_at(core, claim.place, claim.uid, leaving)


def _list_at(core: Core, place: str, uid: str, leaving: bool) -> None:
    """Keep ``leaving``, the evicted claims of a node that are not gone."""
    others = tuple([other for other in leavers(core, place) if other != uid])
    core.tx.put("engine", "leaving", place, (*others, uid) if leaving else (others or None))


def leavers(core: Core, place: str) -> tuple[str, ...]:
    found = core.ledger.state.cell("leaving", place)
    return () if found is None else cast("tuple[str, ...]", found)


def hold(core: Core, claim: Claim, victims: list[Claim]) -> None:
    """The claim has its place by displacing these; it may start once the claims that block it are gone."""
    for victim in victims:
        core.history.displaced(claim, victim)
    keep_place(core, claim, victims)


def keep_place(core: Core, claim: Claim, victims: list[Claim]) -> None:
    """The claim has its place, and waits for these and for all that still block the place."""
    waits = [v.uid for v in victims if v.leaving]
    if claim.place and not _physically_free(core, claim):
        waits.extend([uid for uid in leavers(core, claim.place) if uid not in waits])
    wait_for(core, claim, tuple(waits))
    core.tx.set_state(claim, HELD if waits else RESERVED)


def wait_for(core: Core, claim: Claim, uids: tuple[str, ...]) -> None:
    """Set the claims that this one waits for, and their ``holders``."""
    tx = core.tx
    for uid in claim.waits_for:
        if uid not in uids:
            rest = tuple([other for other in holders(core, uid) if other != claim.uid])
            tx.put("engine", "holders", uid, rest or None)
    for uid in uids:
        if uid not in claim.waits_for:
            tx.put("engine", "holders", uid, (*holders(core, uid), claim.uid))
    tx.set_waits_for(claim, uids)


def holders(core: Core, uid: str) -> tuple[str, ...]:
    """Claims that wait for this one to leave."""
    return holders_of(core.ledger.state, uid)


def holders_of(state: State, uid: str) -> tuple[str, ...]:
    found = state.cell("holders", uid)
    return () if found is None else cast("tuple[str, ...]", found)


def all_held(core: Core) -> list[Claim]:
    """The held claims, by uid."""
    waiting: set[str] = set()
    for uids in core.ledger.state.cells("holders").values():
        waiting.update(cast("tuple[str, ...]", uids))
    claims = [core.ledger.state.claims[uid] for uid in sorted(waiting)]
    return [claim for claim in claims if claim.state == HELD]


def has_left(core: Core, claim: Claim) -> None:
    """Claims that waited for this one wait for one less; one that waits for none may start."""
    for uid in holders(core, claim.uid):
        holder = core.ledger.state.claims[uid]
        wait_for(core, holder, tuple([other for other in holder.waits_for if other != claim.uid]))
        if not holder.waits_for and holder.state == HELD:
            core.tx.set_state(holder, RESERVED)


def _physically_free(core: Core, claim: Claim) -> bool:
    for policy in core.placing:
        binding = claim.bindings[policy.slot] if policy.slot < len(claim.bindings) else None
        if binding is not None and not policy.ready(claim, binding):
            return False
    return True


def moved(core: Core, claim: Claim, place: str) -> None:
    """An evicted claim turned out to run on another node."""
    if claim.leaving and claim.place != place:
        _list_leaving(core, claim, False)
        _list_at(core, place, claim.uid, True)
