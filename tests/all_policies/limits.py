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
    """What is in use, and what claims that are leaving would use again if their eviction was called off."""
    there, back = _physically_there(state), _may_come_back(state)
    found: Usage = {}
    for name, account in state.accounts.items():
        for resource, limit in account.limits.listed.items():
            if limit != UNLIMITED:
                found["used", name, resource] = account.used.amount(resource) + back[name][resource]
                if account.physical:
                    found["there", name, resource] = there[name][resource]
    return found


def _may_come_back(state: State) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for claim in state.claims.values():
        for binding in claim.bindings if claim.leaving else ():
            if binding is not None:
                for account, cost in zip(binding.accounts, binding.costs, strict=True):
                    found[account.name].update(dict(cost.pairs()))
                if binding.policy == "trees":
                    for name in state.accounts:
                        if name.startswith("trees/"):
                            found[name].update(dict(claim.spec.requests.pairs()))
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
    """Nothing is above its limit, unless it was as high before: there, or in use by claims that had yet to start."""
    there = _physically_there(state)
    for name, account in state.accounts.items():
        for resource, limit in account.limits.listed.items():
            used, known = account.used.amount(resource), before.get(("used", name, resource), 0)
            what = f"{name}: {used} of {limit} {resource}, {known} before"
            require(limit == UNLIMITED or used <= max(limit, known), "above limit", what)
            if account.physical and limit != UNLIMITED:
                present = there[name][resource]
                known = max(known, before.get(("there", name, resource), 0))
                what = f"{name}: {present} of {limit} {resource} there, {known} before"
                require(present <= max(limit, known), "physically full", what)
