"""What workers, pods with whole GPUs and pods with claims of devices cost their namespace.

Without a node, a cost that depends on the GPU is an upper bound: the largest among all GPUs that the claim may get. On
a node it is what the GPUs there have. A claim that runs keeps what it was charged when nothing says any more what its
GPUs have.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.ledger.claims import PENDING, Binding, Claim, ClaimSpec
from bursar.ledger.state import Account, State
from bursar.objects.gpu_models import GPU_RESOURCES
from bursar.objects.hami_register import GPU_RESOURCE
from bursar.objects.pods import DEVICE_DETAILS
from bursar.policies.gpus.fleet import GONE, GPUS, Kind, fleet_of, gpu_of, peak
from bursar.policies.gpus.hami import SliceCache
from bursar.policies.gpus.selection import choose, held, recorded_names, suiting
from bursar.policies.gpus.units import Capacity, UnitRequests, Units, UnitTable, peak_of
from bursar.policies.gpus.worker import Worker, total_cost
from bursar.policies.nodes.masks import masks_of
from bursar.policies.placement_kit import NodeIndex
from bursar.resources import Vector
from bursar.selectors import NO_NEEDS, NodeNeeds

NAME: Final = "limits"
NO_UNITS: Final = Units()
_BOUND: Final = 65_536  # of shared bindings
_GPUS: Final = frozenset([resource.name for resource in GPU_RESOURCES])
_MIG: Final = "nvidia.com/mig-"


@final
class Costs:
    """Costs of claims, and bindings that many claims share."""

    def __init__(self, state: State, nodes: NodeIndex) -> None:
        self.state: Final = state
        self.fleet: Final = fleet_of(state, nodes)
        self.masks: Final = masks_of(nodes)
        self.units: Final = UnitTable(state, self.fleet)
        self.requests: Final = UnitRequests()
        self.slices: Final = SliceCache()
        self.bindings: Final[dict[Account, dict[tuple[Vector, int], Binding]]] = {}
        self.size: int = 0

    def shared(self, account: Account, cost: Vector, count: int) -> Binding:
        """One binding for all claims of a namespace that cost the same."""
        alike = self.bindings.get(account)
        found = None if alike is None else alike.get((cost, count))
        if found is None:
            if self.size >= _BOUND:
                self.bindings.clear()
                self.size = 0
            self.size += 1
            found = Binding(NAME, (account,), (cost,), (count,))
            self.bindings.setdefault(account, {})[cost, count] = found
        return found

    def forget(self, account: Account) -> None:
        self.size -= len(self.bindings.pop(account, {}))

    # Workers

    def varying(self, claim: Claim, worker: Worker, place: str) -> Vector | None:
        """The cost of a worker whose footprint depends on its GPUs; None when no GPU's capacity is known."""
        self.fleet.sync()
        kinds = self._kinds(claim, worker, place) if place else []
        if kinds:
            return total_cost([worker.footprint(tflops, vram) for tflops, vram in kinds])
        most = self._largest(worker, claim.spec.needs)
        return None if most is None else total_cost([most] * worker.count)

    def _kinds(self, claim: Claim, worker: Worker, place: str) -> list[Kind]:
        """What the worker's GPUs on the node have, also those that are gone."""
        fleet = self.fleet
        names = held(fleet, claim, worker, place) or recorded_names(claim, worker, place)
        if not names:
            return [(fleet.gpus[at].tflops, fleet.gpus[at].vram) for at in choose(fleet, worker, place)]
        found: list[Kind] = []
        for name in names:
            gpu = gpu_of(name, self.state.cell(GPUS, name)) or gpu_of(name, self.state.cell(GONE, name))
            if gpu is not None:
                found.append((gpu.tflops, gpu.vram))
        if not found:
            found = self._on_node(worker, place)
        if found and len(found) < len(names):  # of a GPU that was never seen nothing is known: it is like the others
            found.extend([peak_of(found)] * (len(names) - len(found)))
        return found

    def _on_node(self, worker: Worker, place: str) -> list[Kind]:
        """The largest GPU of the node that suits the worker, if one is left."""
        gpus = [self.fleet.gpus[at] for at in suiting(self.fleet, worker, place)]
        return [peak_of([(gpu.tflops, gpu.vram) for gpu in gpus])] if gpus else []

    def _largest(self, worker: Worker, needs: NodeNeeds) -> tuple[int, int, int, int] | None:
        if _anywhere(needs):
            return self.fleet.largest(worker)
        suits = self.fleet.suitable(worker)
        gpus = self.fleet.gpus
        masks = self.masks
        kinds = [(one.tflops, one.vram) for at, one in enumerate(gpus) if suits[at] and masks.selects(needs, one.node)]
        return peak(worker, kinds)

    # Whole GPUs

    def whole(self, claim: Claim, place: str) -> tuple[Capacity, int, list[str]] | None:
        """(tflops and vram, units) of the GPUs that the claim requests whole, or as slices of HAMi; and the models
        that are not known, if that is why something is missing. None if what it was charged stays.
        """
        tflops = 0
        vram = 0
        count = 0
        unknown: dict[str, None] = {}
        for resource, amount in self.requests.of(claim.spec.requests):
            units = self.units.of(resource) or NO_UNITS
            cards = self.units.sliced() if resource == GPU_RESOURCE else NO_UNITS
            runs = bool(place) and claim.state != PENDING and claim.place == place
            known = place in units.by_node or place in cards.by_node
            if not known and runs and claim.binding_of(NAME) is not None:
                return None
            taken = self._at(claim, place, amount, units, cards) if known else (0, 0)
            if 0 in taken:
                most = self._most(claim, amount, units, cards)
                taken = (taken[0] or most[0], taken[1] or most[1])
            if 0 in taken:
                unknown.update(dict.fromkeys([*units.models(), *cards.models()]))
            count += amount
            tflops += taken[0]
            vram += taken[1]
        return (tflops, vram), count, sorted(unknown)[:3]

    def _at(self, claim: Claim, place: str, amount: int, units: Units, cards: Units) -> Capacity:
        """What the claim takes on a node that is known."""
        card = cards.by_node.get(place)
        if card is not None:
            return self._slices(claim, [card])
        unit = units.by_node[place]
        return unit[0] * amount, unit[1] * amount

    def _most(self, claim: Claim, amount: int, units: Units, cards: Units) -> Capacity:
        """Per dimension the most that it takes on any node where it may run."""
        slices = self.slices.of(claim.spec)
        explicit = slices is not None and slices.explicit
        needs = claim.spec.needs
        whole = (0, 0) if explicit else peak_of(self._kinds_for(units, needs))
        parts = self._slices(claim, self._kinds_for(cards, needs))
        return max(whole[0] * amount, parts[0]), max(whole[1] * amount, parts[1])

    def _kinds_for(self, units: Units, needs: NodeNeeds) -> list[Capacity]:
        """What units have on nodes where a claim with these needs may run."""
        if _anywhere(needs):
            return list(units.kinds)
        return [units.by_node[node] for node in units.by_node if self.masks.selects(needs, node)]

    def _slices(self, claim: Claim, cards: list[Capacity]) -> Capacity:
        """Per dimension the most that the claim's slices take of GPUs of any of these capacities."""
        slices = self.slices.of(claim.spec)
        if slices is None:
            return 0, 0
        defaults = self.units.derivation.slices
        taken = [slices.of_card(tflops, vram, defaults) for tflops, vram in cards]
        return peak_of([(tflops, vram) for tflops, vram, _, _ in taken])


def claimed(spec: ClaimSpec) -> tuple[Capacity, int, list[str]]:
    """The same of devices that the claim gets by ResourceClaims: an upper bound, or what was allocated."""
    details = cast("dict[str, object]", spec.details.get(DEVICE_DETAILS, {}))
    unknown = str(details.get("unknown", ""))
    units = 0
    for name, amount in spec.devices.pairs():
        if name in _GPUS or name.startswith(_MIG):
            units += amount
    return (spec.devices.amount("tflops"), spec.devices.amount("vram")), units, [unknown] if unknown else []


def _anywhere(needs: NodeNeeds) -> bool:
    return needs is NO_NEEDS or not (needs.selector or needs.terms is not None or needs.node_name)
