"""Why no node takes a claim: nodes counted by reason, and the nearest one.

A node counts once, for the first rule that it fails; a node that lacks room counts for each resource that it lacks.
The nearest node lacks only room: the fewest short resources, then the smallest missing share of a request, then by
name.
"""

from __future__ import annotations

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account
from bursar.policies.nodes.rules import NAME, NONE, PREFIX, ROOM
from bursar.policies.placement_kit import checks_by_reason
from bursar.policies.policy import PlacementPolicy
from bursar.policies.results import Check, Refusal
from bursar.resources import Vector


def check_nodes(policy: PlacementPolicy, claim: Claim, accounts: list[Account], cost: Vector) -> Check:
    """Where a claim without a node could run, over the accounts of all nodes in order of their names."""
    counts: dict[str, int] = {}
    fitting = 0
    nearest: tuple[tuple[int, int], Account, Refusal] | None = None
    for account in accounts:
        refusal = policy.explain_node(claim, account.name[len(PREFIX) :])
        if refusal is None:
            fitting += 1
            continue
        reasons = [refusal.reason]
        if refusal.reason.startswith(ROOM):
            missing = account.missing(cost)
            reasons = [ROOM + resource for resource in missing.names()]
            distance = _distance(missing, cost)
            if nearest is None or distance < nearest[0]:
                nearest = (distance, account, refusal)
        for reason in reasons:
            counts[reason] = counts.get(reason, 0) + 1
    note = f"{fitting} of {len(accounts)} nodes fit" if accounts else "there is no node"
    if fitting:
        return Check(NAME, True, note)
    children = checks_by_reason(counts, "node")
    reason = children[0].reason if children else NONE
    if nearest is not None:
        _, account, refusal = nearest
        amounts = [f"{amount} {name}" for name, amount in account.missing(cost).show().items()]
        note += f"; the nearest, {refusal.place}, lacks {', '.join(amounts)}"
        children.append(Check.of_account(account, cost, refusal))
    return Check(NAME, False, note, tuple(children), reason)


def _distance(missing: Vector, cost: Vector) -> tuple[int, int]:
    """The number of short resources, and the largest missing share of a request.

    Shares are scaled by 2**128, so that fractions of 64-bit numbers that differ stay different.
    """
    return len(missing), max([(missing.get(dim) << 128) // cost.get(dim) for dim in missing.indices()], default=0)
