"""Why no node takes a claim: nodes counted by reason, and the nearest one.

A node counts once, for the first rule that it fails; a node that lacks room counts for each resource that it lacks.
The nearest node lacks only room: the fewest short resources, then the smallest missing share of a request, then by
name.
"""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account
from bursar.policies.nodes.rules import NAME, NONE, PREFIX, ROOM
from bursar.policies.placement_kit import checks_by_reason, counted
from bursar.policies.policy import PlacementPolicy
from bursar.policies.results import Check, Refusal
from bursar.resources import Vector


@final
class _Nearest:
    """A node that only lacks room: by how much, and the largest missing share of a request as a fraction."""

    __slots__ = ("account", "asked", "lacking", "missing", "refusal")

    def __init__(self, account: Account, cost: Vector, refusal: Refusal) -> None:
        self.account: Final = account
        self.refusal: Final = refusal
        missing = account.missing(cost)
        self.missing: Final = missing
        lacking = 0
        asked = 1
        for dim in missing.indices():
            if missing.get(dim) * asked > lacking * cost.get(dim):
                lacking = missing.get(dim)
                asked = cost.get(dim)
        self.lacking: Final = lacking
        self.asked: Final = asked

    def closer_than(self, other: _Nearest) -> bool:
        if len(self.missing) != len(other.missing):
            return len(self.missing) < len(other.missing)
        return self.lacking * other.asked < other.lacking * self.asked

    def sentence(self) -> str:
        amounts = [f"{amount} {name}" for name, amount in self.missing.show().items()]
        return f"the nearest, {self.refusal.place}, lacks {', '.join(amounts)}"


@final
class _Survey:
    """All nodes, asked about one claim."""

    __slots__ = ("cost", "counts", "fitting", "nearest", "total")

    def __init__(self, policy: PlacementPolicy, claim: Claim, accounts: list[Account], cost: Vector) -> None:
        self.cost: Final = cost
        self.counts: Final[dict[str, int]] = {}
        self.fitting: int = 0
        self.nearest: _Nearest | None = None
        self.total: Final = len(accounts)
        for account in accounts:
            self._add(account, policy.explain_node(claim, account.name[len(PREFIX) :]))

    def _add(self, account: Account, refusal: Refusal | None) -> None:
        if refusal is None:
            self.fitting += 1
        elif not refusal.reason.startswith(ROOM):
            self._count(refusal.reason)
        else:
            found = _Nearest(account, self.cost, refusal)
            for resource in found.missing.names():
                self._count(ROOM + resource)
            if self.nearest is None or found.closer_than(self.nearest):
                self.nearest = found

    def _count(self, reason: str) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + 1

    def sentence(self) -> str:
        if self.total == 0:
            return "there is no node"
        if self.fitting:
            return f"{self.fitting} of {counted(self.total, 'node')} can take it"
        text = f"none of {counted(self.total, 'node')} can take it"
        return text if self.nearest is None else f"{text}; {self.nearest.sentence()}"


def survey(policy: PlacementPolicy, claim: Claim, accounts: list[Account], cost: Vector) -> Check:
    """Where a claim without a place could go, over the accounts of all nodes in order of their names."""
    found = _Survey(policy, claim, accounts, cost)
    if found.fitting:
        return Check(NAME, True, found.sentence())
    children = checks_by_reason(found.counts, "node")
    reason = children[0].reason if children else NONE
    nearest = found.nearest
    if nearest is not None:
        children.append(Check.of_account(nearest.account, cost, nearest.refusal))
    return Check(NAME, False, found.sentence(), tuple(children), reason)
