"""What device plugins may hand out on a node, where that is limited: the account ``gpus/plugin/<node>``.

On a node that hands out fractions too, pods with whole GPUs get those of the plugin's set. On a node of HAMi, pods get
slices of its GPUs: the sum of memory and cores is limited, HAMi finds the GPUs. Other nodes limit whole GPUs by their
allocatable amounts alone.
"""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account, State
from bursar.objects.hami_register import MIB, SlicedGpus
from bursar.policies.gpus.hami import PodSlices, SliceCache, set_cost
from bursar.policies.gpus.inventory import NAME, PLUGIN_PREFIX, TOPIC, Inventory
from bursar.policies.gpus.settings import PLUGIN_RESOURCES
from bursar.policies.placement_kit import NOTHING_USED, NodeIndex, remember
from bursar.policies.results import Refusal
from bursar.resources import EMPTY, Vector, dimension, first_short, from_indices

NOT_SLICED: Final = "gpus.slices"
_DIMENSIONS: Final = tuple([dimension(name).index for name in PLUGIN_RESOURCES])
_NO_SLICES: Final = "HAMi hands out the GPUs of no node, and the pod asks for parts of GPUs by HAMi's resources"


@final
class PluginSets:
    def __init__(self, state: State, nodes: NodeIndex, inventory: Inventory) -> None:
        self.state: Final = state
        self.nodes: Final = nodes
        self.inventory: Final = inventory
        self.slices: Final = SliceCache()
        self.whole_costs: Final[dict[Vector, Vector]] = {}  # by requests
        self.slice_costs: Final[dict[tuple[PodSlices, int, int, int], Vector]] = {}

    def concern(self, claim: Claim) -> bool:
        return self.slices.of(claim.spec) is not None or bool(self.whole_cost(claim))

    def whole_cost(self, claim: Claim) -> Vector:
        """What the claim requests of the device plugin's GPUs."""
        requests = claim.spec.requests
        found = self.whole_costs.get(requests)
        if found is None:
            asked = [(dim, requests.get(dim)) for dim in _DIMENSIONS if requests.get(dim) > 0]
            found = remember(self.whole_costs, requests, from_indices(asked))
        return found

    def only_slices(self, claim: Claim) -> bool:
        """Whether only a node of HAMi can take the claim."""
        slices = self.slices.of(claim.spec)
        return slices is not None and slices.explicit

    def closed(self, claim: Claim, place: str) -> Refusal | None:
        """The refusal of a node that hands out no slices, or only smaller ones, to a claim that asks for them."""
        gpus = self.inventory.sliced.get(place)
        if gpus is not None:
            return self._too_small(claim, gpus, place)
        if not self.only_slices(claim):
            return None
        note = f"HAMi hands out no GPUs of node {place}, and the pod asks for parts of GPUs by HAMi's resources"
        return Refusal(NAME, NOT_SLICED, note, NAME, topics=(TOPIC,), place=place)

    def _too_small(self, claim: Claim, gpus: SlicedGpus, place: str) -> Refusal | None:
        slices = self.slices.of(claim.spec)
        if slices is None or slices.suits(gpus):
            return None
        note = f"node {place} has {gpus.count} GPUs of at most {gpus.largest // MIB} MiB, and a container asks for more"
        return Refusal(NAME, NOT_SLICED, note, NAME, topics=(TOPIC,), place=place)

    def cost(self, claim: Claim, node: str) -> Vector:
        """What the claim takes of the node's set; nothing where there is none."""
        if node not in self.inventory.sliced:
            return self.whole_cost(claim) if node in self.inventory.divided else EMPTY
        slices = self.slices.of(claim.spec)
        if slices is None:
            return EMPTY
        vram = self.inventory.sliced[node].largest
        defaults = self.inventory.derivation.slices
        key = (slices, vram, defaults.memory, defaults.cores)
        found = self.slice_costs.get(key)
        if found is None:
            found = remember(self.slice_costs, key, set_cost(slices.of_card(0, vram, defaults)))
        return found

    def account(self, claim: Claim, node: str) -> Account | None:
        """That of the node's set, if the claim takes some of it."""
        return self.state.accounts.get(PLUGIN_PREFIX + node) if self.cost(claim, node) else None

    def limited(self) -> list[str]:
        """The nodes that have a set."""
        inventory = self.inventory
        return [*inventory.divided, *[node for node in inventory.sliced if node not in inventory.divided]]

    def narrow(self, claim: Claim, mask: bytearray, now: bool) -> None:
        """Clears the nodes whose set is too small for the claim: now, or even if all GPUs were empty."""
        slices = self.slices.of(claim.spec)
        if slices is not None:
            self._narrow_sliced(claim, slices, mask, now)
        cost = self.whole_cost(claim)
        for node in self.inventory.divided if cost else ():
            slot = self.nodes.slot(node)
            if slot < len(mask) and mask[slot] and node not in self.inventory.sliced:
                mask[slot] = 1 if self._has_room(node, cost, now) else 0

    def _narrow_sliced(self, claim: Claim, slices: PodSlices, mask: bytearray, now: bool) -> None:
        """The same for nodes of HAMi. Nodes whose GPUs are of one size cost the claim the same."""
        kept = bytearray(len(mask)) if slices.explicit else mask
        costs: dict[int, Vector] = {}  # by size of the GPUs
        for node, gpus in self.inventory.sliced.items():
            slot = self.nodes.slot(node)
            if slot >= len(mask) or not mask[slot]:
                continue
            cost = costs.get(gpus.largest)
            if cost is None:
                cost = self.cost(claim, node)
                costs[gpus.largest] = cost
            kept[slot] = 1 if slices.suits(gpus) and self._has_room(node, cost, now) else 0
        if slices.explicit:
            mask[:] = kept

    def _has_room(self, node: str, cost: Vector, now: bool) -> bool:
        if not now:
            return first_short(NOTHING_USED, cost, self.inventory.plugin_limits(node)) < 0
        account = self.state.accounts.get(PLUGIN_PREFIX + node)
        return account is None or account.short_dimension(cost) < 0

    def why_none(self, claim: Claim) -> str:
        """Why no node of those that fit could ever have what the claim asks of the device plugin."""
        if not self.only_slices(claim):
            return "no node has so many GPUs that are not for fractions"
        return "no node of HAMi has GPUs of that number and size" if self.inventory.sliced else _NO_SLICES
