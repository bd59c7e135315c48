"""Judges again whose demand counts, when nodes, settings or gangs change.

Policies bind the demand of a pending claim as ``PossibleNodes.counts`` says. When that changes, the claims concerned
are bound again in the transaction that changes it: their demand moves in the journal, and a replay asks no policy.

Claims of one spec in one namespace are judged once, by one of them. A gang is judged as a whole: it counts once control
says that it is complete, each pending member fits some node alone, and no policy finds that all of them could never
count together. Nothing is packed.
"""

from __future__ import annotations

from bursar.engine.charging import Core
from bursar.engine.placement import no_node
from bursar.engine.possible import GANGS, HOPELESS, INCOMPLETE
from bursar.engine.rebinding import rebind
from bursar.ledger.claims import PENDING, Binding, Claim
from bursar.policies.results import Refusal


def settle(core: Core) -> None:
    """What policies and demand need at the end of a transaction, before it is committed."""
    core.settle()
    rules = core.possible
    if rules.judged != rules.version():
        rules.judged = rules.version()
        if _judge_all(core):
            core.settle()


def tell_gang(core: Core, name: str, complete: bool) -> None:
    """Control says whether all members of a gang are there; a gang without members is complete."""
    before = core.ledger.state.cell(GANGS, name)
    if not complete and before == INCOMPLETE:
        return
    value: str | None = INCOMPLETE
    if complete:
        value = HOPELESS if gang_obstacle(core, name) is not None else None
    core.tx.put("engine", GANGS, name, value)
    if value != before:  # members that came since are bound as the cell said
        _bind_again(core, [claim for claim in _members(core, name) if claim.state == PENDING])


def gang_obstacle(core: Core, name: str) -> tuple[Claim, Refusal] | None:
    """A pending member that keeps a complete gang from ever being admitted, and why; None if nothing does."""
    members = [claim for claim in _members(core, name) if not claim.leaving]
    pending = [claim for claim in members if claim.state == PENDING and _demands(core, claim)]
    if not pending:
        return None
    for policy in core.demanding:
        refusal = policy.gang_obstacle(members)
        if refusal is not None:
            return pending[0], refusal
    for claim in pending:
        if not core.possible.has_node(claim):
            return claim, no_node(core, claim)[0]
    return None


def _members(core: Core, name: str) -> list[Claim]:
    members = core.ledger.state.gangs.get(name, {})
    return sorted(members.values(), key=_age)


def _age(claim: Claim) -> tuple[int, str, str]:
    return (claim.created, claim.key, claim.uid)


def _judge_all(core: Core) -> bool:
    """Judge all pending claims; returns whether any is bound again."""
    state = core.ledger.state
    if not core.demanding:
        return False
    for name in sorted(state.gangs):
        if state.cell(GANGS, name) != INCOMPLETE:
            core.tx.put("engine", GANGS, name, HOPELESS if gang_obstacle(core, name) is not None else None)
    stale: list[Claim] = []
    for alike in state.pending.values():
        for claim in alike.values():
            if not _is_stale(core, claim):
                break  # nor is any other of them
            stale.append(claim)
    _bind_again(core, stale)
    return len(stale) > 0


def _bind_again(core: Core, claims: list[Claim]) -> None:
    for claim in claims:
        if _is_stale(core, claim):
            rebind(core, claim, claim.place, True)


def _is_stale(core: Core, claim: Claim) -> bool:
    """Whether a policy would bind the demand of the pending claim differently now."""
    for policy in core.demanding:
        old = claim.bindings[policy.slot] if policy.slot < len(claim.bindings) else None
        if old is not None:
            new = policy.bind(claim, "")
            if not isinstance(new, Binding) or new.mark != old.mark:
                return True
    return False


def _demands(core: Core, claim: Claim) -> bool:
    """Whether the demand of the claim is any policy's concern."""
    for policy in core.demanding:
        if policy.slot < len(claim.bindings) and claim.bindings[policy.slot] is not None:
            return True
    return False
