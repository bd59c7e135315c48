"""Whether some node could ever take a claim, however empty the nodes are; and whose demand counts.

The demand of a pending claim counts only if it could run: some node could take it, and its gang is complete and could
be admitted as a whole. ``engine.demand`` binds claims again when that changes.

The answer is the same for claims of one spec in one namespace. It is kept with a *witness*, the first node that could
take them. A witness that has not changed still proves it, so a change of one node costs the classes without a witness,
and those whose witness it was. What quotas require of nodes is compared by identity: policies keep one object for each
answer.

The cells of the table ``gangs`` say which gangs are held back, and why.
"""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.claims import Claim, ClaimSpec
from bursar.ledger.state import State
from bursar.policies.placement_kit import NodeIndex, SpecWeights
from bursar.policies.policy import DemandRules, NeedsSource, PlacementPolicy, Policy, overrides
from bursar.selectors import NodeNeeds

GANGS: Final = "gangs"
INCOMPLETE: Final = "incomplete"  # members are missing
HOPELESS: Final = "hopeless"  # it could never be admitted as a whole


@final
class Witness:
    """What is known of the claims of one spec in one namespace."""

    __slots__ = ("needs", "slot", "version")

    def __init__(self, needs: tuple[NodeNeeds, ...], slot: int, version: int) -> None:
        self.needs: Final = needs  # what quotas required of the node
        self.slot: Final = slot  # of a node that could take them; -1 if none could
        self.version: int = version  # of the nodes, when this was known to hold


@final
class PossibleNodes(DemandRules):
    def __init__(self, state: State, nodes: NodeIndex, placing: list[PlacementPolicy], needs_of: NeedsSource) -> None:
        self.state: Final = state
        self.nodes: Final = nodes
        self.placing: Final = placing
        self.selective: Final = [overrides(policy, Policy, "concerns") for policy in placing]
        self.needs_of: Final = needs_of
        self.known: Final[dict[tuple[ClaimSpec, str], Witness]] = {}
        self.weights: Final = SpecWeights()
        self.changes: int = 0  # of what policies count
        self.judged: tuple[int, int] = (0, 0)  # the versions at which all pending claims were judged last

    def counts(self, claim: Claim) -> bool:
        group = claim.spec.group
        if group and self.state.cell(GANGS, group) is not None:
            return False
        return self.has_node(claim)

    def changed(self) -> None:
        self.changes += 1

    def version(self) -> tuple[int, int]:
        """Of what decides whether demand counts, apart from the claims."""
        return (self.nodes.version, self.changes)

    def has_node(self, claim: Claim) -> bool:
        if not self.placing or not claim.spec.placeable:
            return True
        needs = self.needs_of.needs(claim)
        key = (claim.spec, claim.namespace)
        found = self.known.get(key)
        if found is None or not self._holds(found, needs):
            if found is None and self.weights.full(claim.spec):
                self.known.clear()
            found = Witness(needs, self._first(claim), self.nodes.version)
            self.known[key] = found
        return found.slot >= 0

    def _holds(self, found: Witness, needs: tuple[NodeNeeds, ...]) -> bool:
        if len(found.needs) != len(needs):
            return False
        for i in range(len(needs)):
            if found.needs[i] is not needs[i]:
                return False
        if found.version == self.nodes.version:
            return True
        if found.slot < 0 or not self.nodes.same_since(found.slot, found.version):
            return False
        found.version = self.nodes.version
        return True

    def _first(self, claim: Claim) -> int:
        mask = bytearray(b"\x01" * len(self.nodes))
        for i in range(len(self.placing)):
            policy = self.placing[i]
            if not self.selective[i] or policy.concerns(claim):
                policy.feasible(claim, mask)
        return mask.find(1)
