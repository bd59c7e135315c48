"""Why no node takes a claim: nodes counted by reason, and how far the nearest one is.

A node is counted once for the first rule that it fails; one that lacks room is counted for each resource it lacks.
The nearest node is one that lacks nothing but room: the fewest short resources, then the smallest of the largest
missing shares of the request, then by name.
"""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.claims import Claim
from bursar.policies.checks import Check, Refusal
from bursar.policies.nodes.policy import NAME, ROOM, TOPIC, NodesPolicy
from bursar.vectors import Vector

NONE: Final = "nodes.none"


@final
class _Nearest:
    """A node that only lacks room: by how much, and the largest missing share of a request as a fraction."""

    __slots__ = ("asked", "lacking", "missing", "name")

    def __init__(self, name: str, missing: Vector, cost: Vector) -> None:
        self.name: Final = name
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
        return f"the nearest, {self.name}, lacks {', '.join(amounts)}"


@final
class Survey:
    """All nodes, asked about one claim."""

    __slots__ = ("claim", "counts", "fitting", "nearest", "policy", "total")

    def __init__(self, policy: NodesPolicy, claim: Claim) -> None:
        self.policy: Final = policy
        self.claim: Final = claim
        self.counts: Final[dict[str, int]] = {}
        self.fitting: int = 0
        self.nearest: _Nearest | None = None
        names = policy.names()
        self.total: Final = len(names)
        for name in names:
            self._ask(name)

    def _ask(self, name: str) -> None:
        refusal = self.policy.refuse(self.claim, name)
        if refusal is None:
            self.fitting += 1
        elif not refusal.reason.startswith(ROOM):
            self._count(refusal.reason)
        else:
            cost = self.policy.cost(self.claim)
            found = _Nearest(name, self.policy.account(name).missing(cost), cost)
            for resource in found.missing.names():
                self._count(ROOM + resource)
            if self.nearest is None or found.closer_than(self.nearest):
                self.nearest = found

    def _count(self, reason: str) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + 1

    def ranking(self) -> list[tuple[str, int]]:
        """Reasons with their number of nodes, most first, then by reason."""
        return [(reason, -less) for less, reason in sorted([(-count, r) for r, count in self.counts.items()])]

    def reason(self) -> str:
        """The commonest reason."""
        return self.ranking()[0][0] if self.counts else NONE

    def sentence(self) -> str:
        if self.total == 0:
            return "there is no node"
        if self.fitting:
            return f"{self.fitting} of {_nodes(self.total)} can take it"
        text = f"none of {_nodes(self.total)} can take it"
        return text if self.nearest is None else f"{text}; {self.nearest.sentence()}"


def survey(policy: NodesPolicy, claim: Claim) -> Check:
    """The explanation of where a claim without a place could go."""
    found = Survey(policy, claim)
    if found.fitting:
        return Check(NAME, True, found.sentence())
    children = [Check(_nodes(count), False, "", (), reason) for reason, count in found.ranking()]
    if found.nearest is not None:
        name = found.nearest.name
        children.append(Check.of_account(policy.account(name), policy.cost(claim), policy.refuse(claim, name)))
    return Check(NAME, False, found.sentence(), tuple(children), found.reason())


def unplaced(policy: NodesPolicy, claim: Claim) -> Refusal | None:
    """The same as one refusal, under the commonest reason; None when a node can take the claim."""
    found = Survey(policy, claim)
    if found.fitting:
        return None
    counted = ", ".join([f"{count} {reason}" for reason, count in found.ranking()])
    note = f"{found.sentence()} ({counted})" if counted else found.sentence()
    return Refusal(NAME, found.reason(), note, "", "", "", "", "", False, (TOPIC,))


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
