"""The status of GPUs and pools, and the annotations that name the GPUs of each worker on its pod.

A pool has real and virtual capacity, summed over its nodes, for people only. Virtual capacity is what it may promise:
its tflops times the oversell ratio, and its vram plus a part of the memory and disk of its nodes. Requests use real
capacity, limits use virtual capacity; without oversubscription both are the same. All amounts are exact integers.

When a GPU changes, the figures of its node are computed again and the sums of its pools move by the difference, so the
cost does not grow with the size of a pool.
"""

from __future__ import annotations

from typing import Final, cast, final

import msgspec

from bursar.ledger.claims import Binding, Claim
from bursar.ledger.state import Account, State
from bursar.policies.gpus.fleet import GPUS, ONLY, POOLS, PREFIX, TFLOPS, VRAM, Fleet, Gpu, gpu_of
from bursar.policies.gpus.inventory import DERIVATION, HOSTS, PLUGIN_PREFIX, plugin_use
from bursar.policies.gpus.selection import gpu_names
from bursar.policies.gpus.settings import HostBody, derivation_of, host_of, is_derived
from bursar.policies.gpus.worker import (
    CONTAINER_GPUS,
    GPU_IDS,
    HARD_PERCENT,
    NOT_GIVEN,
    QOS,
    QOS_LEVELS,
    Unreadable,
    Worker,
    WorkerCache,
)
from bursar.policies.results import Output
from bursar.policies.status import StatusWriter
from bursar.resources import dimension_at

NO_OVERSELL: Final = (0, 0, 100)
BAD_FRACTIONS: Final = "gpus.fractions"  # reasons of events on nodes
UNSAFE_SPLIT: Final = "gpus.unsafe-split"
OVERUSED: Final = "gpus.plugin-overused"
_FIELDS: Final = (
    ("totalTFlops", TFLOPS),
    ("totalVRAM", VRAM),
    ("availableTFlops", TFLOPS),
    ("availableVRAM", VRAM),
    ("virtualTFlops", TFLOPS),
    ("virtualVRAM", VRAM),
    ("virtualAvailableTFlops", TFLOPS),
    ("virtualAvailableVRAM", VRAM),
)


def virtual_tflops(total: int, ratio: int) -> int:
    return total * ratio // 100


def virtual_vram(total: int, memory: int, memory_percent: int, disk: int, disk_percent: int) -> int:
    return total + disk * disk_percent // 100 + memory * memory_percent // 100


@final
class CapacityFigures:
    """The capacity of a pool on one node, or on all of its nodes."""

    def __init__(self, nodes: int = 0, gpus: int = 0, amounts: list[int] | None = None) -> None:
        self.nodes: int = nodes
        self.gpus: int = gpus
        self.down: int = 0  # nodes whose GPUs all do not run
        self.amounts: Final = amounts if amounts is not None else [0] * len(_FIELDS)

    def add(self, other: CapacityFigures, sign: int) -> None:
        self.gpus += sign * other.gpus
        self.nodes += sign * other.nodes
        self.down += sign * other.down
        for i in range(len(self.amounts)):
            self.amounts[i] += sign * other.amounts[i]

    def status(self) -> dict[str, object]:
        found: dict[str, object] = {"totalNodes": self.nodes, "totalGPUs": self.gpus}
        # The CRD of TensorFusion requires these. Patching an empty mapping leaves what is in it.
        found |= {"readyNodes": self.nodes, "notReadyNodes": self.down, "componentStatus": {}}
        for i in range(len(self.amounts)):
            name, dim = _FIELDS[i]
            found[name] = dimension_at(dim).show(self.amounts[i])
        return found


def node_figures(
    gpus: list[Gpu],
    used: list[tuple[int, int]],
    limits: list[tuple[int, int]],
    oversell: tuple[int, int, int],
    host: tuple[int, int],
) -> CapacityFigures:
    """The GPUs of a pool on one node, the requests and limits on each of them, and (memory, disk) of the host.

    What is available is never negative: a GPU may lose capacity, and limits may exceed the virtual capacity.
    """
    memory_percent, disk_percent, ratio = oversell
    tflops = sum([gpu.tflops for gpu in gpus])
    vram = sum([gpu.vram for gpu in gpus])
    virtual = virtual_tflops(tflops, ratio), virtual_vram(vram, host[0], memory_percent, host[1], disk_percent)
    amounts = [
        tflops,
        vram,
        sum([max(gpus[i].tflops - used[i][0], 0) for i in range(len(gpus))]),
        sum([max(gpus[i].vram - used[i][1], 0) for i in range(len(gpus))]),
        *virtual,
        max(virtual[0] - sum([limit[0] for limit in limits]), 0),
        max(virtual[1] - sum([limit[1] for limit in limits]), 0),
    ]
    return CapacityFigures(1, len(gpus), amounts)


@final
class PoolFigures:
    """The figures of all pools, brought up to date for the GPUs and nodes that changed."""

    def __init__(self) -> None:
        self.epoch: int = -1  # of the fleet, and how much of its log is read; at first everything is computed
        self.cursor: int = 0
        self.by_node: Final[dict[str, dict[str, CapacityFigures]]] = {}  # by node, by pool
        self.sums: Final[dict[str, CapacityFigures]] = {}  # by pool

    def update(
        self,
        fleet: Fleet,
        changed: list[str],
        workers: WorkerCache,
        residents: dict[str, dict[str, Claim]],
    ) -> list[str]:
        """Follow the ledger; returns the pools that may have changed. ``changed``: nodes on which usage changed."""
        fleet.sync()
        pools: dict[str, None] = {}
        if fleet.epoch != self.epoch:
            self.epoch = fleet.epoch
            self.cursor = 0
            self.by_node.clear()
            self.sums.clear()
            for pool in fleet.state.cells(POOLS):
                self.sums[pool] = CapacityFigures()
            pools.update(dict.fromkeys(self.sums))
        dirty = sorted({*changed, *fleet.log[self.cursor :]})
        self.cursor = len(fleet.log)
        for node in dirty:
            pools.update(dict.fromkeys(self._look(fleet, node, workers, residents)))
        return sorted(pools)

    def _look(self, fleet: Fleet, node: str, workers: WorkerCache, residents: dict[str, dict[str, Claim]]) -> list[str]:
        """Computes the figures of a node again; returns its pools, those that it had included."""
        state = fleet.state
        old = self.by_node.pop(node, {})
        for pool, figures in old.items():
            self.sums[pool].add(figures, -1)
        new: dict[str, CapacityFigures] = {}
        start, end = fleet.spans.get(node, (0, 0))
        there = fleet.gpus[start:end]
        gpus = [gpu for gpu in there if gpu.usable and not gpu.plugin]
        for pool in sorted({gpu.pool for gpu in there if gpu.pool in self.sums}):
            mine = [gpu for gpu in gpus if gpu.pool == pool]
            if mine:
                used = [state.accounts[PREFIX + gpu.name].used for gpu in mine]
                figures = node_figures(
                    mine,
                    [(one.get(TFLOPS), one.get(VRAM)) for one in used],
                    [_limits(gpu, residents.get(PREFIX + gpu.name, {}), workers) for gpu in mine],
                    _oversell(state.cell(POOLS, pool)),
                    _host(host_of(state.cell(HOSTS, node)), len(mine), len(gpus)),
                )
            else:
                figures = CapacityFigures()
                figures.down = 0 if [gpu for gpu in there if gpu.usable and gpu.pool == pool] else 1
            self.sums[pool].add(figures, 1)
            new[pool] = figures
        if new:
            self.by_node[node] = new
        return list({**old, **new})


def _limits(gpu: Gpu, residents: dict[str, Claim], workers: WorkerCache) -> tuple[int, int]:
    """What the limits of a GPU's workers promise of it; each of a worker's GPUs counts."""
    tflops = 0
    vram = 0
    for claim in residents.values():
        worker = workers.of(claim.spec)
        if isinstance(worker, Worker):
            _, _, most, memory = worker.footprint(gpu.tflops, gpu.vram)
            tflops += most
            vram += memory
    return tflops, vram


def _host(host: HostBody, mine: int, all_: int) -> tuple[int, int]:
    """(memory, disk) of the node; pools that share a node share these by the number of their GPUs."""
    return host.memory * mine // all_, host.disk * mine // all_


def _oversell(cell: object) -> tuple[int, int, int]:
    found = cast("tuple[object, ...]", cell)[3]
    return NO_OVERSELL if found is None else cast("tuple[int, int, int]", found)


GPU_KIND: Final = "GPU.tensor-fusion.ai"
POOL_KIND: Final = "GPUPool.tensor-fusion.ai"


@final
class GpuStatusWriter(StatusWriter):
    """Writes annotations of worker pods, and statuses of GPUs and pools."""

    def __init__(self) -> None:
        super().__init__()
        self.claims: Final[dict[str, str]] = {}  # that changed: uid -> key of the pod
        self.hosts: Final[dict[str, None]] = {}  # nodes whose GPUs or plugin's set changed
        self.gpus: Final[dict[str, None]] = {}  # that changed
        self.annotated: Final[dict[str, dict[str, object]]] = {}  # by uid: the annotations of its pod
        self.evicted: Final[set[str]] = set()  # uids of those that keep their GPUs until they are gone
        self.figures: Final = PoolFigures()

    def touched(self, claim: Claim, account: Account, sign: int) -> None:
        if account.name.startswith(PLUGIN_PREFIX):
            self.hosts[account.name[len(PLUGIN_PREFIX) :]] = None
        else:
            self.gpus[account.name[len(PREFIX) :]] = None
        if sign < 0 and claim.uid not in self.annotated:
            self.claims.pop(claim.uid, None)  # came and went in between: nothing was written
        else:
            self.claims[claim.uid] = claim.key

    def outputs(self, fleet: Fleet, workers: WorkerCache, residents: dict[str, dict[str, Claim]]) -> list[Output]:
        state = fleet.state
        for uid, key in sorted(self.claims.items()):
            self._claim(state, workers, uid, key)
        self.claims.clear()
        for uid in [uid for uid in self.evicted if uid not in state.claims]:
            self.evicted.discard(uid)
            self.annotated.pop(uid, None)
        for name in sorted(self.gpus):
            self._gpu(state, name, workers, residents.get(PREFIX + name, {}))
        self._pools(fleet, workers, residents)
        self.gpus.clear()
        for node in sorted(self.hosts):
            self._host_events(fleet, node)
        self.hosts.clear()
        return self.take()

    def _claim(self, state: State, workers: WorkerCache, uid: str, key: str) -> None:
        claim = state.claims.get(uid)
        if claim is None:
            self.annotated.pop(uid, None)
            return
        worker = workers.of(claim.spec)
        if worker is None or isinstance(worker, Unreadable):
            return
        binding = claim.binding_of("gpus")
        old = self.annotated.get(uid, {})
        if binding is None or not claim.counts() or not gpu_names(binding):
            if old and claim.leaving:
                self.evicted.add(uid)
            elif old:  # it is pending again
                self.write("Pod", key, "annotations", dict.fromkeys(old))
                del self.annotated[uid]
            return
        wanted = pod_record(state, worker, binding)
        seen = claim.spec.annotations
        if wanted != old and [name for name in wanted if seen.get(name) != wanted[name]]:
            gone: dict[str, object] = {name: None for name in old if name not in wanted}
            self.write("Pod", key, "annotations", {**gone, **wanted})
        self.annotated[uid] = wanted

    def _gpu(self, state: State, name: str, workers: WorkerCache, residents: dict[str, Claim]) -> None:
        gpu = gpu_of(name, state.cell(GPUS, name))
        account = state.accounts.get(PREFIX + name)
        status: dict[str, object] | None = None
        # A status without a capacity is not filled in yet: the CRD of TensorFusion refuses a part of one.
        if gpu is not None and account is not None and not is_derived(name) and (gpu.tflops > 0 or gpu.vram > 0):
            status = {"available": _available(gpu, account), "runningApps": _apps(gpu, residents, workers)}
        self.write_status(GPU_KIND, name, status)

    def _host_events(self, fleet: Fleet, node: str) -> None:
        """Events about what a node says of its GPUs, and about a device plugin that hands out more than its set."""
        state = fleet.state
        host = host_of(state.cell(HOSTS, node))
        every = derivation_of(state.cell(DERIVATION, ONLY)).every
        complaint = host.complaint()
        if self.changed(BAD_FRACTIONS, node, complaint):
            self._event(node, BAD_FRACTIONS, complaint)
        offer = host.offer()
        gpus = fleet.by_node.get(node, {})
        fractions, whole, unsafe = host.split(every)
        derived = bool(gpus) and is_derived(next(iter(gpus)))
        problem = ""
        if unsafe and derived:
            problem = (
                f"the device plugin serves all {fractions + whole} GPUs, and may hand out one of the {fractions} that "
                f"are for fractions: let it serve {whole}"
            )
        elif fractions and derived and host.published:
            problem = (
                f"a DRA driver publishes the {fractions} GPUs that are for fractions, and the scheduler may allocate "
                "them: taint them by a DeviceTaintRule, or keep the driver off the node"
            )
        if self.changed(UNSAFE_SPLIT, node, problem):
            self._event(node, UNSAFE_SPLIT, problem)
        account = state.accounts.get(PLUGIN_PREFIX + node)
        own = len([gpu for gpu in gpus.values() if gpu.plugin]) * offer.replicas
        used = 0 if account is None else plugin_use(account)
        problem = ""
        if derived and used > own:
            lent = len([gpu for gpu in gpus.values() if gpu.lent])
            problem = (
                f"pods have {used} {offer.resource} of the device plugin, whose set has {own}: {lent} GPUs for "
                "fractions that are empty take no workers until fewer are in use"
            )
        if self.changed(OVERUSED, node, problem):
            self._event(node, OVERUSED, problem)

    def _event(self, node: str, reason: str, problem: str) -> None:
        if problem:
            self.write_event("Node", node, reason, problem)

    def _nodes(self, state: State) -> list[str]:
        """The nodes of the GPUs that changed."""
        found = [gpu_of(name, state.cell(GPUS, name)) for name in self.gpus]
        return [gpu.node for gpu in found if gpu is not None]

    def _pools(self, fleet: Fleet, workers: WorkerCache, residents: dict[str, dict[str, Claim]]) -> None:
        state = fleet.state
        known = state.cells(POOLS)
        for pool in [pool for pool in self.last.get(POOL_KIND, {}) if pool not in known]:
            self.write_status(POOL_KIND, pool, None)
        if known or self.figures.sums:
            for pool in self.figures.update(fleet, self._nodes(state), workers, residents):
                self.write_status(POOL_KIND, pool, self.figures.sums[pool].status())


def pod_record(state: State, worker: Worker, binding: Binding) -> dict[str, object]:
    """The record of a worker's GPUs on its pod, from which a ledger can be rebuilt."""
    names = gpu_names(binding)
    found: dict[str, object] = {GPU_IDS: ",".join(names)}
    if worker.containers:
        dealt: dict[str, list[str]] = {}
        at = 0
        for container, count in worker.containers:
            dealt[container] = names[at : at + count]
            at += count
        found[CONTAINER_GPUS] = msgspec.json.encode(dealt).decode()
    gpu = gpu_of(names[0], state.cell(GPUS, names[0]))
    if worker.isolation == "hard" and worker.limit.tflops != NOT_GIVEN and gpu is not None and gpu.tflops > 0:
        percent = -(-worker.limit.tflops * 100 // gpu.tflops)
        found[HARD_PERCENT] = str(min(max(percent, 1), 100))
    return found


def _available(gpu: Gpu, account: Account) -> dict[str, object]:
    """What is left, never less than nothing: a GPU that lost capacity may be over-used for a while."""
    tflops = max(gpu.tflops - account.used.get(TFLOPS), 0)
    vram = max(gpu.vram - account.used.get(VRAM), 0)
    return _amounts(tflops, vram)


def _amounts(tflops: int, vram: int) -> dict[str, object]:
    return {"tflops": dimension_at(TFLOPS).show(tflops), "vram": dimension_at(VRAM).show(vram)}


def _apps(gpu: Gpu, residents: dict[str, Claim], workers: WorkerCache) -> list[object]:
    """The pods on the GPU by workload, in order of names, each with what it takes of this GPU."""
    pods: dict[tuple[str, str], list[Claim]] = {}
    for claim in residents.values():
        workload = claim.spec.labels.get("tensor-fusion.ai/workload", claim.name)
        pods.setdefault((claim.namespace, workload), []).append(claim)
    apps: list[object] = []
    for (namespace, name), claims in sorted(pods.items()):
        claims.sort(key=lambda claim: (claim.name, claim.uid))
        rows: list[object] = [_app_pod(gpu, claim, workers) for claim in claims]
        apps.append({"namespace": namespace, "name": name, "count": len(rows), "pods": rows})
    return apps


def _app_pod(gpu: Gpu, claim: Claim, workers: WorkerCache) -> dict[str, object]:
    row: dict[str, object] = {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid}
    worker = workers.of(claim.spec)
    if isinstance(worker, Worker):
        tflops, vram, most_tflops, most_vram = worker.footprint(gpu.tflops, gpu.vram)
        row["requests"] = _amounts(tflops, vram)
        row["limits"] = _amounts(most_tflops, most_vram)
    qos = claim.spec.annotations.get(QOS, "")
    if qos in QOS_LEVELS:
        row["qos"] = qos
    return row
