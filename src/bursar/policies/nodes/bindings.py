"""Bindings to nodes, one for all claims that ask for the same on the same node.

A million claims then share a few thousand bindings. The cache is bounded: when it is full it starts anew, which
costs memory for a while and changes nothing else.
"""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.accounts import Account
from bursar.ledger.claims import Binding
from bursar.vectors import Vector, from_amounts

BOUND: Final = 65_536
_ONE_POD: Final = from_amounts({"pods": 1})


@final
class _Shape:
    """One request vector: what it costs on a node, and its bindings by account name."""

    __slots__ = ("bindings", "cost")

    def __init__(self, cost: Vector) -> None:
        self.cost: Final = cost
        self.bindings: Final[dict[str, Binding]] = {}


@final
class BindingCache:
    """Costs and bindings by request vector."""

    __slots__ = ("bound", "shapes", "size")

    def __init__(self, bound: int = BOUND) -> None:
        self.bound: Final = bound
        self.shapes: Final[dict[Vector, _Shape]] = {}
        self.size: int = 0  # shapes and bindings together

    def cost(self, requests: Vector) -> Vector:
        """What a claim with these requests takes of a node: those, and one place for a pod."""
        return self._shape(requests).cost

    def binding(self, policy: str, account: Account, requests: Vector) -> Binding:
        shape = self._shape(requests)
        found = shape.bindings.get(account.name)
        # A node that came back has another account under the same name.
        if found is None or found.accounts[0] is not account:
            found = Binding(policy, (account,), (shape.cost,))
            shape.bindings[account.name] = found
            self.size += 1
        return found

    def _shape(self, requests: Vector) -> _Shape:
        found = self.shapes.get(requests)
        if found is None:
            found = _Shape(requests.plus(_ONE_POD))
            self.shapes[requests] = found
            self.size += 1
        if self.size > self.bound:
            self.shapes.clear()
            self.shapes[requests] = found = _Shape(found.cost)
            self.size = 1
        return found
