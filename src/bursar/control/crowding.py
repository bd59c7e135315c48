"""Who is still in the way of a claim in its quotas, although decisions count them no longer.

A victim may be larger than what its claimant needs, and decisions give the rest to others at once. But a pod counts
until it is gone: so others start only when what really runs (all that counts, without those that are held, with those
that are leaving) stays within every limit of theirs. Nodes and GPUs see to that themselves; this is about quotas.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from bursar.ledger.accounts import Account
from bursar.ledger.claims import HELD, Claim
from bursar.ledger.state import State
from bursar.vectors import Vector


def in_the_way(state: State, claim: Claim) -> list[str]:
    """The uids of claims that must be gone before this one may start; nearly always none."""
    leaving = _claims(state, state.cells("leaving").values())
    if not leaving:
        return []
    held = [one for one in _claims(state, state.cells("holders").values()) if one.state == HELD]
    found: dict[str, None] = {}
    for binding in claim.bindings:
        if binding is None:
            continue
        for account, cost in zip(binding.accounts, binding.costs, strict=True):
            if not account.physical and _exceeded(account, cost, leaving, held):
                found.update((one.uid, None) for one in leaving if _cost_in(one, account) is not None)
    return list(found)


def _claims(state: State, lists: Iterable[object]) -> list[Claim]:
    uids = dict.fromkeys(uid for listed in lists for uid in cast("tuple[str, ...]", listed))
    return [state.claims[uid] for uid in uids if uid in state.claims]


def _exceeded(account: Account, cost: Vector, leaving: list[Claim], held: list[Claim]) -> bool:
    for dim in cost.indices():
        limit = account.limits.get(dim)
        running = account.used.get(dim) + _sum(leaving, account, dim) - _sum(held, account, dim)
        if running > limit and _sum(leaving, account, dim):
            return True
    return False


def _sum(claims: list[Claim], account: Account, dim: int) -> int:
    costs = (_cost_in(claim, account) for claim in claims)
    return sum(cost.get(dim) for cost in costs if cost is not None)


def _cost_in(claim: Claim, account: Account) -> Vector | None:
    for binding in claim.bindings:
        if binding is not None:
            for other, cost in zip(binding.accounts, binding.costs, strict=True):
                if other is account:
                    return cost
    return None
