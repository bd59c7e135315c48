"""No account rises above its limit by a decision: what is above was above before, or the limit was lowered.

The same holds of what is physically on nodes and GPUs, where claims that are being evicted are until they are gone.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from bursar.ledger.claims import BOUND
from bursar.ledger.state import State
from bursar.resources import UNLIMITED
from tests.all_policies.violation import require

Usage = dict[tuple[str, str, str], int]
"""By sum (``used`` or ``there``), account and resource, for all that a limit holds."""


def limited_usage(state: State) -> Usage:
    there = _physically_there(state)
    found: Usage = {}
    for name, account in state.accounts.items():
        for resource, limit in account.limits.listed.items():
            if limit != UNLIMITED:
                found["used", name, resource] = account.used.amount(resource)
                if account.physical:
                    found["there", name, resource] = there[name][resource]
    return found


def _physically_there(state: State) -> dict[str, Counter[str]]:
    """By account: what claims that run, or are leaving, take of nodes and GPUs."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for claim in state.claims.values():
        if claim.state >= BOUND:
            for binding in claim.bindings:
                if binding is not None:
                    for account, cost in zip(binding.accounts, binding.costs, strict=True):
                        if account.physical:
                            found[account.name].update(dict(cost.pairs()))
    return found


def check_limits(state: State, before: Usage) -> None:
    """Nothing is above its limit, unless it was as high before."""
    for (word, name, resource), amount in limited_usage(state).items():
        limit = state.accounts[name].limits.listed[resource]
        known = before.get((word, name, resource), 0)
        what = f"{name}: {amount} of {limit} {resource} {word}, {known} before"
        require(amount <= max(limit, known), "above limit" if word == "used" else "physically full", what)
