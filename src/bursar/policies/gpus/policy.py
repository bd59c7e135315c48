"""The gpus policy: a worker gets GPUs of its node that suit it and have room, in fractions or whole.

In the ledger: an account for each GPU, charged with what workers take of it, and the cells of the fleet. The namespace
quota chooses GPUs by the same function (``selection.choose``). On nodes that hand out fractions, pods that ask the
device plugin for whole GPUs are limited to the plugin's set.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from bursar.ledger.claims import Binding, Claim
from bursar.ledger.state import Account, State
from bursar.ledger.transaction import Transaction
from bursar.policies.gpus.fleet import GPUS, OPTIONS, POOLS, PREFIX, TFLOPS, VRAM, Fleet, Gpu, gpu_of
from bursar.policies.gpus.index import GpuNodeIndex
from bursar.policies.gpus.inventory import NAME, PLUGIN_PREFIX, PLUGIN_RESOURCE, TOPIC, Inventory
from bursar.policies.gpus.selection import choose, fits, held, importance, suiting, unknown
from bursar.policies.gpus.settings import GPU, HOST, KINDS, GpuBody
from bursar.policies.gpus.status import GpuStatusWriter
from bursar.policies.gpus.worker import Unreadable, Worker, WorkerCache, gpu_share
from bursar.policies.placement_kit import NOTHING_USED, NodeIndex, checks_by_reason, counted
from bursar.policies.policy import NeedsSource, PlacementPolicy
from bursar.policies.results import Check, Output, Refusal, Setting, refusal_for
from bursar.resources import Vector, dimension, dimension_at, first_short, from_amounts

ROOM: Final = "gpus.room."
SUITABLE: Final = "gpus.suitable"
CAPACITY: Final = "gpus.capacity"


def check_nodes(policy: PlacementPolicy, claim: Claim, worker: Worker, fleet: Fleet) -> Check:
    """Why no node takes a worker: GPUs counted by the first reason against each; or how many nodes do."""
    counts: dict[str, int] = {}
    for at, gpu in enumerate(fleet.gpus):
        reason = against(fleet, worker, at, gpu)
        counts[reason] = counts.get(reason, 0) + 1
    nodes = [node for node in fleet.spans if policy.explain_node(claim, node) is None]
    if nodes:
        return Check(policy.name, True, f"{len(nodes)} of {len(fleet.spans)} nodes with GPUs fit")
    wanted = counted(worker.count, "GPU")
    scattered = f"with room, but no node has {wanted} of them"
    children = checks_by_reason(counts, "GPU")
    children = [one if one.reason else Check(one.title, False, scattered, (), SUITABLE) for one in children]
    note = f"no node has {wanted} for it" if fleet.gpus else "no GPU is known"
    return Check(policy.name, False, note, tuple(children), children[0].reason if children else SUITABLE)


def against(fleet: Fleet, worker: Worker, at: int, gpu: Gpu) -> str:
    """The reason why a GPU does not take the worker now, or ""."""
    if gpu.plugin:
        return "gpus.plugin"
    if not gpu.usable:
        return "gpus.phase"
    if (worker.pool or fleet.default_pool) not in ("", gpu.pool):
        return "gpus.pool"
    if worker.model not in ("", gpu.model):
        return "gpus.model"
    if not gpu.meets(worker, fleet.default_pool):
        return SUITABLE
    if not gpu.knows(worker):
        return CAPACITY
    account = fleet.accounts[at]
    if fits(worker, gpu, account):
        return ""
    tflops = gpu.tflops if worker.whole else worker.request.tflops_of(gpu.tflops)
    short = TFLOPS if account.used.get(TFLOPS) + tflops > gpu.tflops else VRAM
    return ROOM + dimension_at(short).name


_PLUGIN: Final = dimension(PLUGIN_RESOURCE).index


@final
class GpusPolicy(PlacementPolicy):
    def __init__(self) -> None:
        super().__init__(NAME, KINDS)
        self.workers: Final = WorkerCache()
        self.index: GpuNodeIndex = GpuNodeIndex(self.state, self.nodes)
        self.inventory: Inventory = Inventory(self.state)
        self.status: Final = GpuStatusWriter()

    def attach(self, state: State, nodes: NodeIndex, needs_of: NeedsSource | None = None) -> None:
        super().attach(state, nodes, needs_of)
        self.index = GpuNodeIndex(state, nodes)
        self.inventory = Inventory(state)

    # Settings

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        known = self._gpu_names(setting)
        stale: dict[str, None] = {}
        for node in self.inventory.configure(tx, setting):
            gpus = sorted(self.inventory.by_node.get(node, {}))
            if self.inventory.share_out(tx, node) or [name for name in gpus if name not in known]:
                stale.update(dict.fromkeys(self._claims_at(node)))
            for name in gpus:
                stale.update(dict.fromkeys(sorted(self.index.residents.get(PREFIX + name, {}))))
        return list(stale)

    def _gpu_names(self, setting: Setting) -> set[str]:
        """The known GPUs of the nodes that a setting may change."""
        if setting.kind == GPU and isinstance(setting.body, GpuBody):
            return set(self.inventory.by_node.get(setting.body.gpu.node, {}))
        if setting.kind == HOST:
            return set(self.inventory.by_node.get(setting.key, {}))
        return {name for gpus in self.inventory.by_node.values() for name in gpus}

    def _claims_at(self, node: str) -> list[str]:
        """Claims that may count differently on a node that got GPUs. Slow: for new GPUs, not for decisions."""
        claims = [claim for claim in self.state.claims.values() if claim.place == node]
        return sorted([claim.uid for claim in claims if self._takes_gpus(claim)])

    def _takes_gpus(self, claim: Claim) -> bool:
        return claim.spec.requests.get(_PLUGIN) > 0 or isinstance(self.workers.of(claim.spec), Worker)

    def settle(self, tx: Transaction) -> None:
        if self.inventory.removed or self.inventory.joining or self.inventory.undivided:
            self.inventory.settle(tx)
        for name in self.inventory.closed:
            self.index.residents.pop(name, None)
        self.inventory.closed.clear()

    # What follows from the ledger

    def charged(self, claim: Claim, account: Account, cost: Vector, sign: int) -> None:
        self.index.charged(claim, account, sign)
        if account.name.startswith(PLUGIN_PREFIX):
            self.inventory.plugin_charged(account)
        elif sign > 0 and self.inventory.plugins:
            self.inventory.charged(account)
        self.status.touched(claim, account, sign)

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        if table == GPUS:
            self.inventory.cell_changed(key, old, new)
            for gpu in (gpu_of(key, old), gpu_of(key, new)):
                if gpu is not None:
                    self.nodes.node_changed(self.nodes.slot(gpu.node))
            self.status.gpus[key] = None
        elif table in (POOLS, OPTIONS):
            self.nodes.any_node_changed()

    # One claim

    def concerns(self, claim: Claim) -> bool:
        return claim.spec.requests.get(_PLUGIN) > 0 or self.workers.of(claim.spec) is not None

    def bind(self, claim: Claim, place: str) -> Binding | Refusal | None:
        worker = self.workers.of(claim.spec)
        if worker is None:
            return self._whole_gpus(claim, place) if place else None
        if isinstance(worker, Unreadable):
            return Refusal(NAME, "gpus.annotation", str(worker), permanent=True)
        if not place:
            return None
        fleet = self.index.sync()
        names = held(fleet, claim, worker, place)
        if names:
            return self._bind_held(claim, worker, names, place)
        missing = unknown(fleet, claim, place)
        if missing:
            note = f"it has GPU {missing} of node {place}, which is not known"
            return Refusal(NAME, "gpus.unknown", note, NAME, topics=(TOPIC,), place=place)
        positions = choose(fleet, worker, place)
        if not positions:
            return self._too_few(worker, place)
        accounts = tuple([fleet.accounts[at] for at in positions])
        return Binding(NAME, accounts, _costs(worker, [fleet.gpus[at] for at in positions]))

    def _whole_gpus(self, claim: Claim, place: str) -> Binding | None:
        """The binding of a pod that asks the device plugin for GPUs, on a node that also hands out fractions."""
        wanted = claim.spec.requests.get(_PLUGIN)
        account = self.state.accounts.get(PLUGIN_PREFIX + place) if wanted > 0 else None
        return None if account is None else Binding(NAME, (account,), (from_amounts({PLUGIN_RESOURCE: wanted}),))

    def _bind_held(self, claim: Claim, worker: Worker, names: list[str], place: str) -> Binding | Refusal:
        """The binding to the GPUs that the claim has, at what the worker asks for now."""
        if len(names) != worker.count:
            note = f"it has {len(names)} GPUs and keeps them while it runs: {worker.count} are asked for now"
            return Refusal(NAME, "gpus.fixed", note, PREFIX + names[0], topics=(TOPIC,), place=place)
        gpus: list[Gpu] = []
        for name in names:
            gpu = gpu_of(name, self.state.cell(GPUS, name))
            if gpu is None:
                note = f"GPU {name} is gone"
                return Refusal(NAME, "gpus.gone", note, PREFIX + name, topics=(TOPIC,), place=place)
            gpus.append(gpu)
        accounts = tuple([self.state.accounts[PREFIX + name] for name in names])
        return Binding(NAME, accounts, _costs(worker, gpus))

    def _too_few(self, worker: Worker, place: str) -> Refusal:
        found = len(suiting(self.index.sync(), worker, place))
        note = f"node {place} has {found} GPUs that suit, {worker.count} are wanted"
        return Refusal(NAME, SUITABLE, note, NAME, topics=(TOPIC,), place=place)

    def refusal(self, claim: Claim, account: Account, dim: int, cost: Vector) -> Refusal:
        if account.name.startswith(PLUGIN_PREFIX):
            return refusal_for(NAME, "plugin", account, dim, cost, False, account.name[len(PLUGIN_PREFIX) :])
        gpu = gpu_of(account.name, self.state.cell(GPUS, account.name[len(PREFIX) :]))
        return refusal_for(NAME, "room", account, dim, cost, False, "" if gpu is None else gpu.node)

    def victims(self, tx: Transaction, claim: Claim, binding: Binding, refusal: Refusal) -> Iterator[Claim]:
        account = binding.accounts[0]
        worker = self.workers.of(claim.spec)
        if account.name.startswith(PLUGIN_PREFIX):
            return self._plugin_victims(claim, account, binding.costs[0])
        if not isinstance(worker, Worker) or not refusal.reason.startswith(ROOM):
            return iter(())
        return self._victims(claim, worker, refusal.place)

    def victims_on_node(self, tx: Transaction, claim: Claim, binding: Binding, refusal: Refusal) -> list[Claim] | None:
        """Quotas guarantee whole GPUs, so any claim of the plugin's set may be a victim.

        No quota guarantees parts of a GPU: there a quota chooses among the claims of lower priority.
        """
        account = binding.accounts[0]
        if account.name.startswith(PLUGIN_PREFIX):
            if first_short(NOTHING_USED, binding.costs[0], account.limits) >= 0:
                return []
            return sorted(self.index.residents.get(account.name, {}).values(), key=importance)
        worker = self.workers.of(claim.spec)
        if not isinstance(worker, Worker) or not refusal.reason.startswith(ROOM):
            return None
        fleet = self.index.sync()
        return self._lower(claim, [fleet.accounts[at] for at in suiting(fleet, worker, refusal.place)])

    def _lower(self, claim: Claim, accounts: list[Account]) -> list[Claim]:
        """Claims of lower priority in some accounts, the least important first."""
        found: dict[str, Claim] = {}
        for account in accounts:
            for other in self.index.residents.get(account.name, {}).values():
                if other.spec.priority < claim.spec.priority:
                    found[other.uid] = other
        return sorted(found.values(), key=importance)

    def _victims(self, claim: Claim, worker: Worker, place: str) -> Iterator[Claim]:
        """Workers of lower priority on GPUs that suit, until enough GPUs have room."""
        fleet = self.index.sync()
        positions = suiting(fleet, worker, place)
        for other in self._lower(claim, [fleet.accounts[at] for at in positions]):
            if sum([fits(worker, fleet.gpus[at], fleet.accounts[at]) for at in positions]) >= worker.count:
                return
            if other.counts():
                yield other

    def _plugin_victims(self, claim: Claim, account: Account, cost: Vector) -> Iterator[Claim]:
        for other in self._lower(claim, [account]):
            if not account.missing(cost):
                return
            if other.counts():
                yield other

    # Answers

    def explain_nodes(self, claim: Claim) -> Check | None:
        worker = self.workers.of(claim.spec)
        if isinstance(worker, Unreadable):
            return Check(NAME, False, str(worker), (), "gpus.annotation")
        if worker is None:
            return None
        return check_nodes(self, claim, worker, self.index.sync())

    def outputs(self, now: int) -> list[Output]:
        return self.status.outputs(self.state, self.workers, self.index.residents)

    # All nodes at once

    def feasible(self, claim: Claim, mask: bytearray) -> None:
        worker = self.workers.of(claim.spec)
        if isinstance(worker, Worker):
            self.index.could(worker, mask)

    def filter(self, claim: Claim, mask: bytearray) -> None:
        worker = self.workers.of(claim.spec)
        if isinstance(worker, Worker):
            self.index.filter(worker, mask)
        elif worker is None and claim.spec.requests.get(_PLUGIN) > 0:
            self._filter_plugin(claim, mask)

    def _filter_plugin(self, claim: Claim, mask: bytearray) -> None:
        cost = from_amounts({PLUGIN_RESOURCE: claim.spec.requests.get(_PLUGIN)})
        for node in self.inventory.by_node:
            account = self.state.accounts.get(PLUGIN_PREFIX + node)
            slot = self.nodes.slot(node)
            if account is not None and slot < len(mask) and account.short_dimension(cost) >= 0:
                mask[slot] = 0

    def rank(self, claim: Claim, mask: bytearray, ranks: list[int]) -> bool:
        """The placement mode ranks nodes; the scores of other policies only break ties."""
        worker = self.workers.of(claim.spec)
        if not isinstance(worker, Worker):
            return False
        self.index.rank(worker, mask, ranks)
        return True

    def why_no_node(self, claim: Claim, mask: bytearray) -> Refusal | None:
        """The refusal if the nodes of the mask fit, but their GPUs do not."""
        worker = self.workers.of(claim.spec)
        if not isinstance(worker, Worker):
            return None
        possible = bytearray(mask)
        self.index.could(worker, possible)
        gpus = "a GPU" if worker.count == 1 else counted(worker.count, "GPU")
        if 1 in possible:
            note = f"no node has {gpus} with room for it now"
            return Refusal(NAME, "gpus.full", note, NAME, topics=(TOPIC,))
        unknown_models = self.index.fleet.unknown_models(worker)
        if unknown_models:
            note = f"what a GPU of model {', '.join(unknown_models)} has is not known: set spec.gpus.models"
            return Refusal(NAME, CAPACITY, note, NAME, topics=(TOPIC,))
        note = f"no node has {gpus} that could take it"
        return Refusal(NAME, "gpus.none", note, NAME, topics=(TOPIC,))


def _costs(worker: Worker, gpus: list[Gpu]) -> tuple[Vector, ...]:
    """What the worker takes of each GPU. Equal costs are one object, as they are after a replay."""
    share = worker.share
    if share is not None:
        return (share,) * len(gpus)
    known: dict[Vector, Vector] = {}
    footprints = [worker.footprint(gpu.tflops, gpu.vram) for gpu in gpus]
    costs = [gpu_share(tflops, vram) for tflops, vram, _, _ in footprints]
    return tuple([known.setdefault(cost, cost) for cost in costs])
