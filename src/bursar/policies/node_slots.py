"""The numbers of nodes, shared by all placement policies: what one of them keeps by slot, the others can read by slot.

A slot once given stays with its node, whether the node is there or not, so that arrays only grow.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64


@final
class NodeIndex:
    """A slot for every node ever seen, shared by all placement policies, so that bulk work is over plain arrays."""

    def __init__(self) -> None:
        self.slots: Final[dict[str, int]] = {}
        self.names: Final[list[str]] = []
        self.sorted: vec[i64] = vec[i64]()

    def __len__(self) -> int:
        return len(self.names)

    def slot(self, name: str) -> int:
        """The node's slot; a new name gets the next one. Slots are never given to another node."""
        found = self.slots.get(name)
        if found is None:
            found = len(self.names)
            self.slots[name] = found
            self.names.append(name)
        return found

    def places(self) -> vec[i64]:
        """By slot: the place of its name among all names. Slots are only ever added, so it is kept until one is."""
        if len(self.sorted) != len(self.names):
            found = vec[i64]([0] * len(self.names))
            for place, name in enumerate(sorted(self.names)):
                found[self.slots[name]] = place
            self.sorted = found
        return self.sorted
