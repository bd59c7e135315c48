"""Whole GPUs and parts of them as device plugins hand them out: what one unit of each resource stands for.

A node says by its labels what its GPUs are (``HostBody.offers``). Where the labels do not tell, GPU objects of the node
do. On nodes of HAMi a unit is a slice of a GPU, as large as the pod says: ``cards`` has their GPUs. The table follows
the fleet, so a change of one node costs what that node has.
"""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.state import State
from bursar.objects.gpu_models import GPU_RESOURCES
from bursar.objects.hami_register import GPU_RESOURCE, PART_RESOURCES
from bursar.policies.gpus.fleet import ONLY, Fleet, Gpu
from bursar.policies.gpus.inventory import DERIVATION, HOSTS
from bursar.policies.gpus.settings import PLUGIN_RESOURCES, Derivation, Offer, derivation_of, host_of
from bursar.policies.placement_kit import remember
from bursar.resources import Vector

Capacity = tuple[int, int]
"""(milli-tflops, bytes)."""

_MIG: Final = "nvidia.com/mig-"
_RESOURCES: Final = frozenset({*PLUGIN_RESOURCES, *[one.name for one in GPU_RESOURCES]})
_NOTHING: Final = (0, 0)


def is_unit(resource: str) -> bool:
    """Whether units of the resource are GPUs or parts of GPUs."""
    return resource in _RESOURCES or resource.startswith(_MIG)


@final
class UnitRequests:
    """The units of GPU resources in requests, by vector: claims share few of these."""

    def __init__(self) -> None:
        self.known: Final[dict[Vector, tuple[tuple[str, int], ...]]] = {}

    def of(self, requests: Vector) -> tuple[tuple[str, int], ...]:
        found = self.known.get(requests)
        if found is None:
            pairs = [(name, amount) for name, amount in requests.pairs() if amount > 0 and is_unit(name)]
            parts = [name for name in PART_RESOURCES if requests.amount(name) > 0]
            if parts and requests.amount(GPU_RESOURCE) <= 0:
                pairs.append((GPU_RESOURCE, 1))
            found = remember(self.known, requests, tuple(pairs))
        return found


@final
class Units:
    """What one unit of a resource stands for on the nodes that offer it."""

    def __init__(self) -> None:
        self.by_node: Final[dict[str, Capacity]] = {}
        self.kinds: Final[dict[Capacity, int]] = {}  # how many nodes have each
        self.unknown: Final[dict[str, str]] = {}  # by node that does not tell all: the model of its GPUs

    def set_node(self, node: str, capacity: Capacity | None, model: str) -> None:
        old = self.by_node.pop(node, None)
        self.unknown.pop(node, None)
        if old is not None:
            self.kinds[old] -= 1
            if not self.kinds[old]:
                del self.kinds[old]
        if capacity is None:
            return
        if capacity[0] <= 0 or capacity[1] <= 0:
            self.unknown[node] = model
        if capacity == _NOTHING:
            return
        self.by_node[node] = capacity
        self.kinds[capacity] = self.kinds.get(capacity, 0) + 1

    def clear(self) -> None:
        self.by_node.clear()
        self.kinds.clear()
        self.unknown.clear()

    def models(self) -> list[str]:
        """Up to three models whose tflops or vram are not known."""
        return sorted({model or "(no product label)" for model in self.unknown.values()})[:3]


def peak_of(kinds: list[Capacity]) -> Capacity:
    """Per dimension the most of any of these."""
    return max([tflops for tflops, _ in kinds], default=0), max([vram for _, vram in kinds], default=0)


@final
class UnitTable:
    """The units of all nodes, up to date with the fleet."""

    def __init__(self, state: State, fleet: Fleet) -> None:
        self.state: Final = state
        self.fleet: Final = fleet
        self.epoch: int = -1  # of the fleet, and how much of its log is read
        self.cursor: int = 0
        self.derivation: Derivation = Derivation()
        self.resources: Final[dict[str, Units]] = {}
        self.cards: Final = Units()
        self.offered: Final[dict[str, tuple[str, ...]]] = {}  # by node: the resources that it offers

    def sync(self) -> None:
        fleet = self.fleet
        fleet.sync()
        if fleet.epoch != self.epoch:
            self.epoch = fleet.epoch
            self.cursor = len(fleet.log)
            self.derivation = derivation_of(self.state.cell(DERIVATION, ONLY))
            self.resources.clear()
            self.offered.clear()
            self.cards.clear()
            for node in self.state.cells(HOSTS):
                self._node(node)
        while self.cursor < len(fleet.log):
            self._node(fleet.log[self.cursor])
            self.cursor += 1

    def _node(self, node: str) -> None:
        for resource in self.offered.pop(node, ()):
            self.resources[resource].set_node(node, None, "")
        self.cards.set_node(node, None, "")
        cell = self.state.cell(HOSTS, node)
        if cell is None:
            return
        host = host_of(cell)
        if host.slicing is not None:
            for offer in host.offers:
                self.cards.set_node(node, offer.unit(self.derivation.models), offer.model)
            return
        offers = [offer for offer in host.described() if offer.count > 0]
        for offer in offers:
            units = self.resources.setdefault(offer.resource, Units())
            units.set_node(node, self._capacity(node, offer), offer.model)
        if offers:
            self.offered[node] = tuple([offer.resource for offer in offers])

    def _capacity(self, node: str, offer: Offer) -> Capacity:
        """What the labels say of a unit, or else the largest GPU object of the node."""
        tflops, vram = offer.unit(self.derivation.models)
        if (tflops > 0 and vram > 0) or offer.resource not in PLUGIN_RESOURCES:
            return tflops, vram
        gpus: list[Gpu] = list(self.fleet.by_node.get(node, {}).values())
        most, memory = peak_of([(gpu.tflops // offer.replicas, gpu.vram // offer.replicas) for gpu in gpus])
        return tflops or most, vram or memory

    def of(self, resource: str) -> Units | None:
        self.sync()
        return self.resources.get(resource)

    def sliced(self) -> Units:
        """The GPUs of the nodes of HAMi."""
        self.sync()
        return self.cards
