"""What a worker costs its namespace, where that depends on the GPUs it gets, and bindings that many workers share.

Without a place the cost is an upper bound: the largest footprint among the GPUs that the worker may land on. At a
place it is the sum over the GPUs that the allocator chooses there, in the very state that the decision is made in.
"""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.accounts import Account
from bursar.ledger.claims import Binding, Claim
from bursar.ledger.state import State
from bursar.policies.nodes.facts import facts_of
from bursar.policies.tensorfusion.choice import choose, held
from bursar.policies.tensorfusion.fleet import GPUS, Fleet, Gpu, gpu_of, peak
from bursar.policies.tensorfusion.worker import Worker, total_cost
from bursar.selectors import NO_NEEDS, NodeNeeds
from bursar.vectors import Vector

_BOUND: Final = 65_536


@final
class Costs:
    """Costs and bindings of workers."""

    __slots__ = ("bindings", "fleet", "state")

    def __init__(self, state: State) -> None:
        self.state: Final = state
        self.fleet: Final = Fleet(state)
        self.bindings: Final[dict[tuple[str, Vector, int], Binding]] = {}

    def shared(self, account: Account, cost: Vector, count: int) -> Binding:
        """One binding for all workers of a namespace that cost the same."""
        key = (account.name, cost, count)
        found = self.bindings.get(key)
        if found is None or found.accounts[0] is not account:
            if len(self.bindings) >= _BOUND:
                self.bindings.clear()
            found = Binding("limits", (account,), (cost,), (count,))
            self.bindings[key] = found
        return found

    def varying(self, claim: Claim, worker: Worker, place: str) -> Vector | None:
        """The cost of a worker whose footprint depends on its GPUs; None when no GPU's capacity is known."""
        self.fleet.sync()
        gpus = self._gpus(claim, worker, place) if place else []
        if gpus:
            return total_cost([worker.footprint(gpu.tflops, gpu.vram) for gpu in gpus])
        most = self._largest(worker, claim.spec.needs)
        return None if most is None else total_cost([most] * worker.count)

    def _gpus(self, claim: Claim, worker: Worker, place: str) -> list[Gpu]:
        fleet = self.fleet
        names = held(fleet, claim, worker, place)
        if not names:
            return [fleet.gpus[at] for at in choose(fleet, worker, place)]
        found = [gpu_of(name, self.state.cell(GPUS, name)) for name in names]
        known = [gpu for gpu in found if gpu is not None]
        return known if len(known) == len(names) else []

    def _largest(self, worker: Worker, needs: NodeNeeds) -> tuple[int, int, int, int] | None:
        if needs is NO_NEEDS or not (needs.selector or needs.terms is not None or needs.node_name):
            return self.fleet.largest(worker)
        suits = self.fleet.suitable(worker)
        gpus = [gpu for at, gpu in enumerate(self.fleet.gpus) if suits[at] and self._selects(needs, gpu.node)]
        return peak(worker, gpus)

    def _selects(self, needs: NodeNeeds, node: str) -> bool:
        facts = facts_of(node, self.state.cell("nodes", node))
        return facts is None or needs.selects(node, facts.labels)
