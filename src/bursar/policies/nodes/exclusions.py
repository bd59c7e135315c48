"""Nodes that are closed to some claims by other pods, or by what the scheduler found: anti-affinity and refusals.

Required anti-affinity is symmetric: a claim that counts on a node keeps others off all nodes of the same topology if
one of its terms selects them. Claims of one spec in one namespace repel alike and are one *group*. At most ``GROUPS``
of them are judged, because users decide how many there are; the scheduler judges the rest.

Which classes of claims the scheduler refused on a node stands in the node's cell.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.ledger.claims import Claim, ClaimSpec
from bursar.objects.constraints import CONSTRAINTS, EVERYWHERE, REPELS
from bursar.objects.refused_pods import class_of
from bursar.policies.nodes.rules import NodeFacts
from bursar.policies.placement_kit import remember
from bursar.selectors import Requirement, Selector, requirement_from_record

GROUPS: Final = 128
_KEPT: Final = 4096

ClassKey = tuple[ClaimSpec, str]
"""Spec and namespace: such claims are treated alike."""


@final
class RepelTerm:
    """One required anti-affinity term."""

    __slots__ = ("namespaces", "selector", "topology")

    def __init__(self, topology: str, namespaces: tuple[str, ...], selector: Selector) -> None:
        self.topology: Final = topology
        self.namespaces: Final = namespaces
        self.selector: Final = selector

    def selects(self, claim: Claim) -> bool:
        if EVERYWHERE not in self.namespaces and claim.namespace not in self.namespaces:
            return False
        return self.selector.matches(claim.spec.labels)


@final
class RepelGroup:
    """Claims of one spec in one namespace that repel others, and how many of them count on each node."""

    __slots__ = ("claims", "slots", "terms")

    def __init__(self, terms: list[RepelTerm]) -> None:
        self.terms: Final = terms
        self.claims: Final[dict[str, Claim]] = {}
        self.slots: Final[dict[int, int]] = {}


def _terms(spec: ClaimSpec) -> list[RepelTerm]:
    found: list[RepelTerm] = []
    for row in cast("list[list[object]]", spec.details.get(REPELS, [])):
        namespaces = tuple([str(name) for name in cast("list[object]", row[1])])
        requirements: list[Requirement] = [requirement_from_record(one) for one in cast("list[object]", row[2])]
        found.append(RepelTerm(str(row[0]), namespaces, Selector(tuple(requirements))))
    return found


@final
class Exclusions:
    """Follows the claims that count on nodes, and the facts of nodes."""

    def __init__(self) -> None:
        self.groups: Final[dict[ClassKey, RepelGroup]] = {}
        self.refusing: Final[dict[int, NodeFacts]] = {}  # by slot: nodes on which the scheduler refused some classes
        self.classes: Final[dict[ClassKey, str]] = {}

    # What follows from the ledger

    def charged(self, claim: Claim, slot: int, sign: int) -> None:
        """A claim starts (+1) or stops (-1) to count on a node."""
        if REPELS not in claim.spec.details:
            return
        key = (claim.spec, claim.namespace)
        group = self.groups.get(key)
        if group is None:
            group = RepelGroup(_terms(claim.spec))
            self.groups[key] = group
        there = group.slots.get(slot, 0) + sign
        if there:
            group.slots[slot] = there
        else:
            del group.slots[slot]
        if sign > 0:
            group.claims[claim.uid] = claim
        else:
            group.claims.pop(claim.uid, None)
        if not group.slots:
            del self.groups[key]

    def node_changed(self, slot: int, facts: NodeFacts | None) -> None:
        if facts is not None and facts.refused:
            self.refusing[slot] = facts
        else:
            self.refusing.pop(slot, None)

    # Answers

    def narrow(self, claim: Claim, mask: bytearray, facts: list[NodeFacts | None]) -> None:
        """Clears the slots that are closed to the claim now."""
        if self.refusing:
            name = self.class_name(claim)
            for slot, node in self.refusing.items():
                if slot < len(mask) and name in node.refused:
                    mask[slot] = 0
        if not self.groups:
            return
        for topology, values in self._repelling(claim, facts).items():
            for slot in range(len(mask)):
                known = facts[slot] if slot < len(facts) else None
                if mask[slot] and known is not None and known.labels.get(topology) in values:
                    mask[slot] = 0

    def _repelling(self, claim: Claim, facts: list[NodeFacts | None]) -> dict[str, dict[str, Claim]]:
        """From which nodes the claim is kept: by label and its value, a claim that does so."""
        found: dict[str, dict[str, Claim]] = {}
        for judged, group in enumerate(self.groups.values()):
            if judged == GROUPS:
                break
            for term in group.terms:
                if term.selects(claim):
                    other = _first(group, claim)
                    values = found.setdefault(term.topology, {})
                    for slot in group.slots:
                        node = facts[slot]
                        if node is not None and term.topology in node.labels:
                            values[node.labels[term.topology]] = other
        return found

    def refusal_note(self, claim: Claim, node: NodeFacts) -> str:
        """What the scheduler said when it refused such a claim on the node; "" if it did not."""
        return node.refused.get(self.class_name(claim), "") if node.refused else ""

    def repelling(self, claim: Claim, node: NodeFacts, facts: list[NodeFacts | None]) -> Claim | None:
        """A claim that keeps this one off the node by its anti-affinity."""
        if not self.groups:
            return None
        for topology, values in self._repelling(claim, facts).items():
            other = values.get(node.labels.get(topology, ""))
            if other is not None and other is not claim:
                return other
        return None

    def class_name(self, claim: Claim) -> str:
        key = (claim.spec, claim.namespace)
        found = self.classes.get(key)
        if found is None:
            spec = claim.spec
            mark = str(spec.details.get(CONSTRAINTS, ""))
            name = class_of(claim.namespace, spec.labels, spec.needs.selector, mark)
            found = remember(self.classes, key, name, _KEPT)
        return found


def _first(group: RepelGroup, claim: Claim) -> Claim:
    """A member of the group, to name it; another one than the claim itself if there is any."""
    for other in group.claims.values():
        if other is not claim:
            return other
    return claim
