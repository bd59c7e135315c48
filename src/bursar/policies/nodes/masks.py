"""Which nodes a claim may use at all, by rules that only the node and the claim decide: one byte a slot.

A mask is computed once for each set of needs (claims of one job share theirs) and kept until any node changes.
"""

from __future__ import annotations

from typing import Final, final

from bursar.policies.nodes.facts import Facts
from bursar.policies.nodes.rules import failed_rule
from bursar.selectors import NodeNeeds

_BOUND: Final = 256


@final
class Masks:
    """The facts of all nodes by slot, and what follows from them for some needs."""

    __slots__ = ("allowed", "facts", "selected")

    def __init__(self) -> None:
        self.facts: Final[list[Facts | None]] = []
        self.allowed: Final[dict[NodeNeeds, bytes]] = {}  # by identity: needs are compared by nothing else
        self.selected: Final[dict[NodeNeeds, bytes]] = {}

    def set_slot(self, slot: int, facts: Facts | None) -> None:
        while len(self.facts) <= slot:
            self.facts.append(None)
        self.facts[slot] = facts
        self.allowed.clear()
        self.selected.clear()

    def allowing(self, needs: NodeNeeds) -> bytes:
        """Nodes that no rule keeps from a claim with these needs."""
        found = self.allowed.get(needs)
        if found is None:
            found = bytes([0 if f is None or failed_rule(needs, f) else 1 for f in self.facts])
            _keep(self.allowed, needs, found)
        return found

    def selecting(self, needs: NodeNeeds) -> bytes:
        """Nodes that these needs select; taints are not looked at."""
        found = self.selected.get(needs)
        if found is None:
            found = bytes([0 if f is None or not needs.selects(f.name, f.labels) else 1 for f in self.facts])
            _keep(self.selected, needs, found)
        return found


def _keep(cache: dict[NodeNeeds, bytes], needs: NodeNeeds, mask: bytes) -> None:
    if len(cache) >= _BOUND:
        cache.clear()
    cache[needs] = mask
