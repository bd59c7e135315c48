"""Raising quotas: which of them, and to what at least, so that a claim that waits gets in."""

from __future__ import annotations

from bursar.control.edits import Edit, Path, look_up
from bursar.control.lining import Raise
from bursar.control.quotafields import Holder, holders
from bursar.control.trying import Attempt, Tries, number
from bursar.dimensions import dimension
from bursar.policies.checks import Refusal

ROUNDS = 6

Raised = dict[tuple[str, str, Path], tuple[Holder, int]]
Accounts = dict[tuple[str, str], Raise]


def smallest_raise(tries: Tries) -> tuple[Attempt, str] | None:
    """The smallest raise of the quotas that refuse, until none does; and a sentence. None: that is not what it takes.

    Each round raises what refused in the one before: one quota may stand behind another.
    """
    raised: Raised = {}
    accounts: Accounts = {}
    for _ in range(ROUNDS):
        verdict = tries.attempt(_raising(tries, raised, accounts))
        if verdict.admitted:
            _smallest(tries, raised, accounts)
            found = _raising(tries, raised, accounts)
            return (found, _sentence(found)) if raised or accounts else None
        before = (dict(raised), dict(accounts))
        for refusal in verdict.refusals:
            _add(tries, refusal, raised, accounts)
        if before == (raised, accounts):
            return None
    return None


def _add(
    tries: Tries,
    refusal: Refusal,
    raised: Raised,
    accounts: Accounts,
) -> None:
    """Raise what refused to what is used and wanted together."""
    wanted, used = number(refusal.resource, refusal.requested), number(refusal.resource, refusal.used) or 0
    if wanted is None:
        return
    found = holders(tries.desk, tries.unit[0], refusal)
    if found is None:
        account = tries.engine.state.accounts.get(refusal.account)
        if account is not None and not account.physical and refusal.resource in account.limits.listed:
            accounts[refusal.account, refusal.resource] = Raise(refusal.account, refusal.resource, used + wanted)
        return
    for holder in found:
        place = (holder.kind, holder.key, holder.path)
        # A member of a group comes on top of those before it.
        known = raised[place][1] + wanted if place in raised else 0
        free = (number(refusal.resource, refusal.limit) or 0) - used
        target = max(holder.amount + wanted - free if holder.shared else used + wanted, known)
        if target > holder.amount:
            raised[place] = (holder, target)


def _smallest(tries: Tries, raised: Raised, accounts: Accounts) -> None:
    """Each of them as little as it can be, given the others."""
    for place, (holder, target) in list(raised.items()):
        low, high = holder.amount, target
        while low < high:
            middle = (low + high) // 2
            enough = tries.admits(_raising(tries, {**raised, place: (holder, middle)}, accounts))
            low, high = (low, middle) if enough else (middle + 1, high)
        if high > holder.amount:
            raised[place] = (holder, high)
        else:
            del raised[place]


def _sentence(wanted: Attempt) -> str:
    parts = [
        f"{edit.field} of {edit.kind.partition('.')[0]} {edit.key} from {edit.before or 0} to {edit.after}"
        for edit in wanted.edits
    ]
    parts.extend(
        f"{one.resource} of {one.account} to {dimension(one.resource).show(one.amount)}" for one in wanted.raised
    )
    return f"raise {', and '.join(parts)}"


def _raising(
    tries: Tries,
    raised: Raised,
    accounts: Accounts,
) -> Attempt:
    edits: list[Edit] = []
    for holder, target in raised.values():
        body = tries.desk.applied(holder.kind, holder.key)
        value = holder.value(target)
        if target > holder.amount:
            edits.append(Edit(holder.kind, holder.key, holder.path, look_up(body, holder.path), value))
        most = look_up(body, holder.ceiling) if holder.ceiling else None
        ceiling = None if most is None else number(holder.resource, most)
        if ceiling is not None and ceiling < target:
            edits.append(Edit(holder.kind, holder.key, holder.ceiling, most, value))
    return Attempt(tuple(edits), raised=tuple(accounts.values()))
