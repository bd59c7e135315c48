"""Which nodes some needs allow: masks over node slots, computed from an index of the labels of all nodes.

A mask is one byte a slot, 0 or 1. Here it is mostly a *lane*: those bytes as one integer, slot 0 lowest. Requirements
are ANDed and terms ORed as whole lanes, so a requirement costs its values and one pass of machine words, not a
comparison on every node. A pod of a thousand requirements costs about as much on 5,000 nodes as a handful did
when every node was asked.

``failed_rule`` says the same of one node, with the rule that fails. Tests compare both.
"""

from __future__ import annotations

from typing import Final, final

from bursar.policies.nodes.rules import UNSCHEDULABLE, NodeFacts
from bursar.policies.placement_kit import NodeIndex, remember
from bursar.selectors import NodeNeeds, NodeTerm, Requirement, any_tolerates, integer_of

_MASKS: Final = 256  # node needs whose masks are cached
_LANES: Final = 1_024  # values whose lanes are cached, of each of both kinds
_FEW: Final = 8  # nodes of a value that are not worth a cached lane
NAME_FIELD: Final = "metadata.name"
SHARED: Final = "nodes.masks"

Marks = tuple[tuple[str, str, str], ...]
"""The taints of a node that keep claims away, as plain values."""


@final
class LabelValues:
    """The nodes that have one label key, by its value."""

    __slots__ = ("numbers", "slots")

    def __init__(self) -> None:
        self.slots: Final[dict[str, dict[int, None]]] = {}
        self.numbers: list[tuple[int, str]] | None = None  # the values that are integers, sorted; None: not known now

    def add(self, value: str, slot: int) -> None:
        found = self.slots.get(value)
        if found is None:
            found = {}
            self.slots[value] = found
            self.numbers = None
        found[slot] = None

    def remove(self, value: str, slot: int) -> None:
        found = self.slots[value]
        del found[slot]
        if not found:
            del self.slots[value]
            self.numbers = None

    def sorted_numbers(self) -> list[tuple[int, str]]:
        if self.numbers is None:
            found: list[tuple[int, str]] = []
            for value in self.slots:
                number = integer_of(value)
                if number is not None:
                    found.append((number, value))
            found.sort()
            self.numbers = found
        return self.numbers


@final
class NodeMasks:
    """Node facts by slot, and the nodes that some needs allow or select. Masks are cached until any node changes."""

    def __init__(self) -> None:
        self.facts: Final[list[NodeFacts | None]] = []
        self.allowed: Final[dict[NodeNeeds, bytes]] = {}  # needs are compared by identity
        self.selected: Final[dict[NodeNeeds, bytes]] = {}
        self.keys: Final[dict[str, LabelValues]] = {}
        self.slots: Final[dict[str, int]] = {}  # by name, of the nodes that are there
        self.lanes: Final[dict[tuple[str, str], int]] = {}  # by key and value
        self.ranges: Final[dict[tuple[str, bool, int], int]] = {}  # by key, whether above, and a number
        self.closed: Final[dict[Marks, dict[int, None]]] = {}  # the nodes that only some claims tolerate, by why
        self.every: int = 0  # the lane of all nodes that are there

    def set_slot(self, slot: int, facts: NodeFacts | None) -> None:
        while len(self.facts) <= slot:
            self.facts.append(None)
        before = self.facts[slot]
        self.facts[slot] = facts
        self.allowed.clear()
        self.selected.clear()
        if before is not None:
            self._remove(slot, before)
        if facts is not None:
            self._add(slot, facts)

    def _add(self, slot: int, facts: NodeFacts) -> None:
        self.every |= 1 << (8 * slot)
        self.slots[facts.name] = slot
        marks = _marks(facts)
        if marks:
            self.closed.setdefault(marks, {})[slot] = None
        for key, value in facts.labels.items():
            found = self.keys.get(key)
            if found is None:
                found = LabelValues()
                self.keys[key] = found
            found.add(value, slot)
        self._forget(facts)

    def _remove(self, slot: int, facts: NodeFacts) -> None:
        self.every &= ~(1 << (8 * slot))
        del self.slots[facts.name]
        marks = _marks(facts)
        if marks:
            del self.closed[marks][slot]
            if not self.closed[marks]:
                del self.closed[marks]
        for key, value in facts.labels.items():
            found = self.keys[key]
            found.remove(value, slot)
            if not found.slots:
                del self.keys[key]
        self._forget(facts)

    def _forget(self, facts: NodeFacts) -> None:
        """Drops what is cached of the labels of a node."""
        self.ranges.clear()
        if self.lanes:
            for key, value in facts.labels.items():
                self.lanes.pop((key, value), None)

    # Masks

    def selects(self, needs: NodeNeeds, node: str) -> bool:
        """Whether these needs select the node; of one that is not known, nothing speaks against it."""
        slot = self.slots.get(node, -1)
        return slot < 0 or self.selecting(needs)[slot] != 0

    def allowing(self, needs: NodeNeeds) -> bytes:
        """Nodes that no rule closes to a claim with these needs."""
        found = self.allowed.get(needs)
        if found is None:
            found = remember(self.allowed, needs, self._open(needs), _MASKS)
        return found

    def selecting(self, needs: NodeNeeds) -> bytes:
        """Nodes that these needs select, whatever their taints."""
        found = self.selected.get(needs)
        if found is None:
            mask = self._chosen(needs).to_bytes(len(self.facts), "little")
            found = remember(self.selected, needs, mask, _MASKS)
        return found

    def _open(self, needs: NodeNeeds) -> bytes:
        """The chosen nodes whose taints the claim tolerates. Of nodes with equal taints, one is asked."""
        mask = bytearray(self._chosen(needs).to_bytes(len(self.facts), "little"))
        for slots in self.closed.values():
            facts = self.facts[next(iter(slots))]
            if facts is None or not _tolerates(needs, facts):
                for slot in slots:
                    mask[slot] = 0
        return bytes(mask)

    def _chosen(self, needs: NodeNeeds) -> int:
        """nodeName, nodeSelector and required node affinity."""
        lane = self._named(needs.node_name) if needs.node_name else self.every
        for key, value in needs.selector.items():
            lane &= self._lane(key, value)
        return lane if needs.terms is None or not lane else lane & self._any_term(needs.terms)

    def _any_term(self, terms: tuple[NodeTerm, ...]) -> int:
        lane = 0
        for term in terms:
            if not term.expressions and not term.fields:
                continue
            part = self.every
            for requirement in term.expressions:
                if part:
                    part &= self._matching(requirement)
            for requirement in term.fields:
                if part:
                    part &= self._by_field(requirement)
            lane |= part
        return lane

    # Lanes

    def _matching(self, requirement: Requirement) -> int:
        operator = requirement.operator
        if operator == "In":
            return self._among(requirement.key, requirement.values)
        if operator == "NotIn":
            return self.every & ~self._among(requirement.key, requirement.values)
        if operator == "Exists":
            return self._having(requirement.key)
        if operator == "DoesNotExist":
            return self.every & ~self._having(requirement.key)
        bound = integer_of(requirement.values[0]) if len(requirement.values) == 1 else None
        return 0 if bound is None else self._beyond(requirement.key, operator == "Gt", bound)

    def _by_field(self, requirement: Requirement) -> int:
        """Of fields, only the name exists; all others are absent."""
        lane = 0
        if requirement.key == NAME_FIELD:
            for value in requirement.values:
                lane |= self._named(value)
        operator = requirement.operator
        if operator == "In":
            return lane
        if operator == "NotIn":
            return self.every & ~lane
        if operator == "Exists":
            return self.every if requirement.key == NAME_FIELD else 0
        if operator == "DoesNotExist":
            return 0 if requirement.key == NAME_FIELD else self.every
        return self._by_name(requirement)

    def _by_name(self, requirement: Requirement) -> int:
        """Comparisons of names as numbers: nothing that a manifest may hold, but the same as for one node."""
        lane = 0
        for name, slot in self.slots.items():
            if requirement.matches({NAME_FIELD: name}):
                lane |= 1 << (8 * slot)
        return lane

    def _named(self, name: str) -> int:
        slot = self.slots.get(name, -1)
        return 0 if slot < 0 else 1 << (8 * slot)

    def _among(self, key: str, values: tuple[str, ...]) -> int:
        found = self.keys.get(key)
        if found is None:
            return 0
        lane = 0
        few = bytearray()
        for value in values:
            slots = found.slots.get(value)
            if slots is None:
                continue
            if len(slots) > _FEW:
                lane |= self._lane(key, value)
                continue
            if not few:
                few = bytearray(len(self.facts))
            for slot in slots:
                few[slot] = 1
        return lane | int.from_bytes(few, "little") if few else lane

    def _lane(self, key: str, value: str) -> int:
        at = (key, value)
        known = self.lanes.get(at)
        if known is not None:
            return known
        values = self.keys.get(key)
        slots = None if values is None else values.slots.get(value)
        if slots is None:
            return 0
        lane = self._lane_of(slots)
        return lane if len(slots) <= _FEW else remember(self.lanes, at, lane, _LANES)

    def _lane_of(self, slots: dict[int, None]) -> int:
        mask = bytearray(len(self.facts))
        for slot in slots:
            mask[slot] = 1
        return int.from_bytes(mask, "little")

    def _having(self, key: str) -> int:
        at = (key, False, 0)
        known = self.ranges.get(at)
        if known is not None:
            return known
        values = self.keys.get(key)
        if values is None:
            return 0
        mask = bytearray(len(self.facts))
        for slots in values.slots.values():
            for slot in slots:
                mask[slot] = 1
        return remember(self.ranges, at, int.from_bytes(mask, "little"), _LANES)

    def _beyond(self, key: str, above: bool, bound: int) -> int:
        """Nodes whose value is an integer above (or below) a bound.

        Bounds between the same two numbers are one range, so there are no more of them than numbers.
        """
        values = self.keys.get(key)
        if values is None:
            return 0
        numbers = values.sorted_numbers()
        begin = _position(numbers, bound, above)
        at = (key, True, begin) if above else (key, True, -1 - begin)
        known = self.ranges.get(at)
        if known is not None:
            return known
        mask = bytearray(len(self.facts))
        for i in range(begin, len(numbers)) if above else range(begin):
            for slot in values.slots[numbers[i][1]]:
                mask[slot] = 1
        return remember(self.ranges, at, int.from_bytes(mask, "little"), _LANES)


def masks_of(nodes: NodeIndex) -> NodeMasks:
    """The masks that the policies of one engine share; the nodes policy keeps them."""
    found = nodes.shared.get(SHARED)
    if not isinstance(found, NodeMasks):
        found = NodeMasks()
        nodes.shared[SHARED] = found
    return found


def _position(numbers: list[tuple[int, str]], bound: int, above: bool) -> int:
    """How many of the sorted numbers are below the bound, or (``above``) not above it."""
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        number = numbers[middle][0]
        if number < bound or (above and number == bound):
            low = middle + 1
        else:
            high = middle
    return low


def _marks(facts: NodeFacts) -> Marks:
    taints = (UNSCHEDULABLE, *facts.taints) if facts.unschedulable else facts.taints
    return tuple([(taint.key, taint.value, taint.effect) for taint in taints])


def _tolerates(needs: NodeNeeds, facts: NodeFacts) -> bool:
    if facts.unschedulable and not any_tolerates(needs.tolerations, UNSCHEDULABLE):
        return False
    return needs.untolerated(facts.taints) is None
