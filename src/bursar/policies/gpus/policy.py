"""The gpus policy: a worker gets GPUs of its node that suit it and have room, in fractions or whole.

In the ledger: an account for each GPU, charged with what workers take of it, and the cells of the fleet. The namespace
quota chooses GPUs by the same function (``selection.choose``). On nodes that hand out fractions, pods that ask the
device plugin for whole GPUs are limited to the plugin's set. On nodes of HAMi, pods are limited to what all GPUs of the
node have together; HAMi chooses the GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from bursar.ledger.claims import Binding, Claim
from bursar.ledger.state import Account, State
from bursar.ledger.transaction import Transaction
from bursar.policies.gpus.fleet import GPUS, LENT, OPTIONS, POOLS, PREFIX, TFLOPS, VRAM, Fleet, Gpu, gpu_of
from bursar.policies.gpus.index import GpuNodeIndex
from bursar.policies.gpus.inventory import DERIVATION, HOSTS, NAME, PLUGIN_PREFIX, TOPIC, Inventory
from bursar.policies.gpus.plugin_sets import NOT_SLICED, PluginSets
from bursar.policies.gpus.published import SLICE, SLICES, SliceBody, slice_node
from bursar.policies.gpus.selection import (
    choose,
    fits,
    gpu_names,
    held,
    importance,
    recorded_positions,
    suiting,
    unknown,
)
from bursar.policies.gpus.settings import GPU, HOST, KINDS, GpuBody
from bursar.policies.gpus.status import GpuStatusWriter
from bursar.policies.gpus.units import UnitRequests
from bursar.policies.gpus.worker import Unreadable, Worker, WorkerCache, gpu_share
from bursar.policies.placement_kit import NOTHING_USED, NodeIndex, checks_by_reason, counted
from bursar.policies.policy import NeedsSource, PlacementPolicy
from bursar.policies.results import Check, Output, Refusal, Setting, refusal_for
from bursar.resources import Vector, dimension_at, first_short

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


SHOWN: Final = 20  # nodes that an explanation lists


@final
class GpusPolicy(PlacementPolicy):
    def __init__(self) -> None:
        super().__init__(NAME, KINDS)
        self.workers: Final = WorkerCache()
        self.index: GpuNodeIndex = GpuNodeIndex(self.state, self.nodes)
        self.inventory: Inventory = Inventory(self.state, self.index.fleet)
        self.status: Final = GpuStatusWriter()
        self.whole: Final = UnitRequests()
        self.sets: PluginSets = PluginSets(self.state, self.nodes, self.inventory)

    def attach(self, state: State, nodes: NodeIndex, needs_of: NeedsSource | None = None) -> None:
        super().attach(state, nodes, needs_of)
        self.index = GpuNodeIndex(state, nodes)
        self.inventory = Inventory(state, self.index.fleet)
        self.sets = PluginSets(state, nodes, self.inventory)

    # Settings

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        """Returns the claims on nodes whose GPUs changed, or on which whole GPUs are something else than before."""
        stale: dict[str, None] = {}
        nodes = self._nodes_of(setting)
        gpus = {node: dict(self.inventory.by_node.get(node, {})) for node in nodes}
        units = {node: self.inventory.units(node) for node in nodes}
        limited = {node for node in nodes if self.inventory.has_set(node)}
        changed: set[str] = set()
        for node in self.inventory.configure(tx, setting):
            known = gpus.get(node, {})
            now = self.inventory.by_node.get(node, {})
            self.inventory.share_out(tx, node)
            other_set = (node in limited) != self.inventory.has_set(node)
            other_units = units.get(node) != self.inventory.units(node)
            if other_set or other_units or [name for name in now if name not in known]:
                changed.add(node)
            for name in sorted(now):
                if now[name] is not known.get(name):
                    stale.update(dict.fromkeys(sorted(self.index.residents.get(PREFIX + name, {}))))
        if changed:
            stale.update(dict.fromkeys(self._claims_at(changed)))
        return list(stale)

    def _nodes_of(self, setting: Setting) -> list[str]:
        """The nodes whose GPUs a setting may change."""
        if setting.kind == HOST:
            return [setting.key]
        if setting.kind == SLICE:
            nodes = [slice_node(self.state.cell(SLICES, setting.key))]
            return [*nodes, setting.body.node] if isinstance(setting.body, SliceBody) else nodes
        if setting.kind != GPU:
            return list({**self.inventory.by_node, **self.state.cells(HOSTS)})
        old = gpu_of(setting.key, self.state.cell(GPUS, setting.key))
        nodes = [] if old is None else [old.node]
        if isinstance(setting.body, GpuBody):
            nodes.append(setting.body.gpu.node)
        return nodes

    def _claims_at(self, nodes: set[str]) -> list[str]:
        """Claims that may count differently on nodes whose GPUs changed. Slow: not for decisions."""
        claims = [claim for claim in self.state.claims.values() if claim.place in nodes]
        return sorted([claim.uid for claim in claims if self._takes_gpus(claim)])

    def _takes_gpus(self, claim: Claim) -> bool:
        return bool(self.whole.of(claim.spec.requests)) or isinstance(self.workers.of(claim.spec), Worker)

    def settle(self, tx: Transaction) -> None:
        if self.inventory.removed or self.inventory.unsettled:
            self.inventory.settle(tx)
        for name in self.inventory.closed:
            self.index.residents.pop(name, None)
        self.inventory.closed.clear()

    # What follows from the ledger

    def charged(self, claim: Claim, account: Account, cost: Vector, sign: int) -> None:
        self.index.charged(claim, account, sign)
        self.inventory.charged(account)
        self.status.touched(claim, account, sign)

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        fleet = self.index.fleet
        if table == GPUS:
            fleet.gpu_changed(key, old, new)
            self.inventory.gpu_changed(key, old, new)
            for gpu in (gpu_of(key, old), gpu_of(key, new)):
                if gpu is not None:
                    self.nodes.node_changed(self.nodes.slot(gpu.node))
            self.status.gpus[key] = None
        elif table == LENT:
            node = str(old if new is None else new)
            fleet.lent_changed(key, node, new is not None)
            self.nodes.node_changed(self.nodes.slot(node))
        elif table == SLICES:
            self.inventory.published.slice_changed(key, old, new)
        elif table == HOSTS:
            fleet.host_changed(key)
            self.inventory.host_changed(key)
            self.nodes.node_changed(self.nodes.slot(key))
            self.status.hosts[key] = None
        elif table == DERIVATION:
            self.inventory.derivation_changed()
            fleet.settings_changed()
            self.nodes.any_node_changed()
        elif table in (POOLS, OPTIONS):
            fleet.settings_changed()
            self.nodes.any_node_changed()

    # One claim

    def concerns(self, claim: Claim) -> bool:
        return self.sets.concern(claim) or self.workers.of(claim.spec) is not None

    def bind(self, claim: Claim, place: str) -> Binding | Refusal | None:
        worker = self.workers.of(claim.spec)
        if isinstance(worker, Unreadable):
            return Refusal(NAME, "gpus.annotation", str(worker), permanent=True)
        if not place:
            return None
        closed = self.sets.closed(claim, place)
        if closed is not None:
            return closed
        if worker is None:
            return self._whole_gpus(claim, place)
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
        accounts = [fleet.accounts[at] for at in positions]
        return self._bound(claim, place, accounts, _costs(worker, [fleet.gpus[at] for at in positions]))

    def bind_anyway(self, claim: Claim, place: str, old: Binding | None) -> Binding | None:
        """A pod that runs counts in the node's set, also where HAMi could not give it what it asks for any more.

        A worker counts on those of its GPUs that are known.
        """
        worker = self.workers.of(claim.spec)
        if worker is None:
            return self._whole_gpus(claim, place)
        if isinstance(worker, Unreadable):
            return old
        fleet = self.index.sync()
        found = recorded_positions(fleet, claim, worker, place)
        if old is not None and len(found) <= len(gpu_names(old)):
            return old
        gpus = [fleet.gpus[at] for at in found]
        return self._bound(claim, place, [fleet.accounts[at] for at in found], _costs(worker, gpus)) if found else old

    def _whole_gpus(self, claim: Claim, place: str) -> Binding | None:
        """The binding of a pod that asks the device plugin for GPUs."""
        account = self.sets.account(claim, place)
        return None if account is None else Binding(NAME, (account,), (self.sets.cost(claim, place),))

    def _bound(self, claim: Claim, place: str, accounts: list[Account], costs: tuple[Vector, ...]) -> Binding:
        """The binding of a worker: its GPUs, and what it requests of the device plugin beside them."""
        account = self.sets.account(claim, place)
        if account is None:
            return Binding(NAME, tuple(accounts), costs)
        return Binding(NAME, (*accounts, account), (*costs, self.sets.cost(claim, place)))

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
        accounts = [self.state.accounts[PREFIX + name] for name in names]
        return self._bound(claim, place, accounts, _costs(worker, gpus))

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
        worker = self.workers.of(claim.spec)
        if refusal.account.startswith(PLUGIN_PREFIX):
            return self._plugin_victims(claim, binding.accounts[-1], binding.costs[-1])
        if not isinstance(worker, Worker) or not refusal.reason.startswith(ROOM):
            return iter(())
        return self._victims(claim, worker, refusal.place)

    def victims_on_node(self, tx: Transaction, claim: Claim, binding: Binding, refusal: Refusal) -> list[Claim] | None:
        """Quotas guarantee whole GPUs, so any claim of the plugin's set may be a victim.

        No quota guarantees parts of a GPU: there a quota chooses among the claims of lower priority.
        """
        if refusal.account.startswith(PLUGIN_PREFIX):
            account = binding.accounts[-1]
            if first_short(NOTHING_USED, binding.costs[-1], account.limits) >= 0:
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
            return self._explain_sets(claim)
        return check_nodes(self, claim, worker, self.index.sync())

    def _explain_sets(self, claim: Claim) -> Check | None:
        """How many of the nodes whose device plugin is limited have what the claim requests."""
        inventory = self.inventory
        nodes = sorted([node for node in self.sets.limited() if self.sets.account(claim, node) is not None])
        only_slices = self.sets.only_slices(claim)
        if not nodes:
            return Check(NAME, False, self.sets.why_none(claim), (), NOT_SLICED) if only_slices else None
        refusals = [one for one in [self.explain_node(claim, node) for node in nodes] if one is not None]
        others = len([node for node in inventory.offering if node not in inventory.divided])
        which = "nodes of HAMi have GPUs" if inventory.sliced else "nodes with GPUs for fractions have whole ones"
        note = f"{len(nodes) - len(refusals)} of {len(nodes)} {which} for it"
        if only_slices:
            others = 0
        if others:
            note += f", {counted(others, 'node')} with whole GPUs only"
        if others or len(refusals) < len(nodes):
            return Check(NAME, True, note)
        checks = tuple([Check.of_refusal(one) for one in refusals[:SHOWN]])
        return Check(NAME, False, note, checks, refusals[0].reason)

    def outputs(self, now: int) -> list[Output]:
        return self.status.outputs(self.index.sync(), self.workers, self.index.residents)

    # All nodes at once

    def feasible(self, claim: Claim, mask: bytearray) -> None:
        worker = self.workers.of(claim.spec)
        if isinstance(worker, Worker):
            self.index.could(worker, mask)
        if self.sets.concern(claim):
            self.sets.narrow(claim, mask, False)

    def filter(self, claim: Claim, mask: bytearray) -> None:
        worker = self.workers.of(claim.spec)
        if isinstance(worker, Worker):
            self.index.filter(worker, mask)
        if self.sets.concern(claim):
            self.sets.narrow(claim, mask, True)

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
            return self._why_no_set(claim, mask) if self.sets.concern(claim) else None
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

    def _why_no_set(self, claim: Claim, mask: bytearray) -> Refusal | None:
        """The refusal of the first node by name that has room, but too few GPUs that the device plugin may give."""
        possible = bytearray(mask)
        self.sets.narrow(claim, possible, False)
        if 1 not in possible:
            return Refusal(NAME, "gpus.none", self.sets.why_none(claim), NAME, topics=(TOPIC,))
        nodes = [node for node in self.sets.limited() if possible[self.nodes.slot(node)]]
        for node in sorted(nodes):
            refusal = self.explain_node(claim, node)
            if refusal is not None:
                return refusal
        return None


def _costs(worker: Worker, gpus: list[Gpu]) -> tuple[Vector, ...]:
    """What the worker takes of each GPU. Equal costs are one object, as they are after a replay."""
    share = worker.share
    if share is not None:
        return (share,) * len(gpus)
    known: dict[Vector, Vector] = {}
    footprints = [worker.footprint(gpu.tflops, gpu.vram) for gpu in gpus]
    costs = [gpu_share(tflops, vram) for tflops, vram, _, _ in footprints]
    return tuple([known.setdefault(cost, cost) for cost in costs])
