"""What claims cost on a GPU node, and their bindings, one for all claims that ask for the same on the same node.

A claim that the quota is about costs its requests of the resources with a quota. Where idle GPUs keep a reserve,
every claim also counts in the account of all claims of the node: with what it requests of the reserved resources, and
with its GPUs. Whom the quota is not about is ``FREE``: counted there, never refused. A claim that costs nothing has
no binding. The caches are bounded: a full one starts anew.
"""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.accounts import Account
from bursar.ledger.claims import Binding
from bursar.policies.crossquota.arguments import Arguments
from bursar.policies.crossquota.names import GPUS, NAME
from bursar.policies.crossquota.scope import Scope
from bursar.vectors import EMPTY, Vector, from_amounts

BOUND: Final = 65_536
FREE: Final[tuple[object, ...]] = ("free",)
_ONE_POD: Final = from_amounts({"pods": 1})


@final
class _Shape:
    """One request vector: its costs, and its bindings by account name."""

    __slots__ = ("cost", "everybody", "free", "limited")

    def __init__(self, cost: Vector, everybody: Vector) -> None:
        self.cost: Final = cost
        self.everybody: Final = everybody  # its cost in the account of all claims
        self.limited: Final[dict[str, Binding]] = {}
        self.free: Final[dict[str, Binding]] = {}


@final
class BindingCache:
    """Costs and bindings by request vector, for some arguments."""

    __slots__ = ("arguments", "scope", "shapes", "size")

    def __init__(self, arguments: Arguments, scope: Scope) -> None:
        self.arguments: Final = arguments
        self.scope: Final = scope
        self.shapes: Final[dict[Vector, _Shape]] = {}
        self.size: int = 0

    def cost(self, requests: Vector) -> Vector:
        """What a claim that the quota is about uses of it."""
        return self._shape(requests).cost

    def wanted(self, requests: Vector) -> Vector:
        """The same, and what it wants of the reserved resources: all that quota and reserve are asked for."""
        shape = self._shape(requests)
        return shape.cost.peak(shape.everybody)

    def limited(self, account: Account, reserve: Account | None, requests: Vector) -> Binding | None:
        """The binding of a claim that the quota is about."""
        shape = self._shape(requests)
        second = reserve if shape.everybody else None
        if not shape.cost:
            return None if second is None else self._alone(shape, second)
        found = shape.limited.get(account.name)
        if found is None or not _same(found, account, second):
            if second is None:
                found = Binding(NAME, (account,), (shape.cost,))
            else:
                found = Binding(NAME, (account, second), (shape.cost, shape.everybody))
            self._count()
            shape.limited[account.name] = found
        return found

    def _alone(self, shape: _Shape, reserve: Account) -> Binding:
        """It wants nothing that has a quota, but something of which idle GPUs keep a reserve."""
        found = shape.limited.get(reserve.name)
        if found is None or found.accounts[0] is not reserve:
            found = Binding(NAME, (reserve,), (shape.everybody,))
            self._count()
            shape.limited[reserve.name] = found
        return found

    def free(self, reserve: Account | None, requests: Vector) -> Binding | None:
        """The binding of a claim that the quota is not about."""
        shape = self._shape(requests)
        if reserve is None or not shape.everybody:
            return None
        found = shape.free.get(reserve.name)
        if found is None or found.accounts[0] is not reserve:
            found = Binding(NAME, (reserve,), (shape.everybody,), FREE)
            self._count()
            shape.free[reserve.name] = found
        return found

    def _shape(self, requests: Vector) -> _Shape:
        found = self.shapes.get(requests)
        if found is None:
            found = _Shape(self._cost(requests), self._everybody(requests))
            self._count()
            self.shapes[requests] = found
        return found

    def _count(self) -> None:
        self.size += 1
        if self.size > BOUND:
            self.shapes.clear()
            self.size = 0

    def _cost(self, requests: Vector) -> Vector:
        resources = self.arguments.resources
        cost = requests.only(resources)
        return cost.plus(_ONE_POD) if "pods" in resources else cost

    def _everybody(self, requests: Vector) -> Vector:
        if not self.arguments.reserves:
            return EMPTY
        gpus = from_amounts({GPUS: self.scope.gpus(requests)})
        return requests.only(self.arguments.reserves).plus(gpus)


def _same(binding: Binding, account: Account, second: Account | None) -> bool:
    """Whether it is about these very accounts: a node that came back has others under the same names."""
    if binding.accounts[0] is not account:
        return False
    return len(binding.accounts) == 1 if second is None else binding.accounts[-1] is second
