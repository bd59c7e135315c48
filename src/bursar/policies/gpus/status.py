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
from bursar.policies.gpus.fleet import GPUS, ONLY, POOLS, PREFIX, TFLOPS, VERSION, VRAM, Gpu, gpu_of
from bursar.policies.gpus.inventory import HOSTS
from bursar.policies.gpus.settings import is_derived
from bursar.policies.gpus.worker import (
    CONTAINER_GPUS,
    GPU_IDS,
    HARD_PERCENT,
    NOT_GIVEN,
    Unreadable,
    Worker,
    WorkerCache,
)
from bursar.policies.results import Output
from bursar.policies.status import StatusWriter
from bursar.resources import dimension_at

NO_OVERSELL: Final = (0, 0, 100)
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
        self.amounts: Final = amounts if amounts is not None else [0] * len(_FIELDS)

    def add(self, other: CapacityFigures, sign: int) -> None:
        self.gpus += sign * other.gpus
        self.nodes += sign * other.nodes
        for i in range(len(self.amounts)):
            self.amounts[i] += sign * other.amounts[i]

    def status(self) -> dict[str, object]:
        found: dict[str, object] = {"totalNodes": self.nodes, "totalGPUs": self.gpus}
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
        self.version: object = None  # of the fleet: with another one, everything is computed again
        self.node_of: Final[dict[str, str]] = {}  # by GPU
        self.nodes: Final[dict[str, list[Gpu]]] = {}  # GPUs that run and are handed out in parts
        self.by_node: Final[dict[str, dict[str, CapacityFigures]]] = {}  # by node, by pool
        self.sums: Final[dict[str, CapacityFigures]] = {}  # by pool

    def update(
        self,
        state: State,
        version: object,
        changed: list[str],
        workers: WorkerCache,
        residents: dict[str, dict[str, Claim]],
    ) -> list[str]:
        """Follow the ledger; returns the pools that may have changed. ``changed``: names of GPUs."""
        pools: dict[str, None] = {}
        if version is not self.version:
            self.version = version
            self._rebuild(state)
            pools.update(dict.fromkeys(self.sums))
            dirty = list(self.nodes)
        else:
            dirty = sorted({self.node_of[name] for name in changed if name in self.node_of})
        for node in dirty:
            pools.update(dict.fromkeys(self._look(state, node, workers, residents)))
        return sorted(pools)

    def _rebuild(self, state: State) -> None:
        self.node_of.clear()
        self.nodes.clear()
        self.by_node.clear()
        self.sums.clear()
        for pool in state.cells(POOLS):
            self.sums[pool] = CapacityFigures()
        for name, cell in sorted(state.cells(GPUS).items()):
            gpu = gpu_of(name, cell)
            if gpu is not None and gpu.usable and not gpu.plugin:
                self.node_of[name] = gpu.node
                self.nodes.setdefault(gpu.node, []).append(gpu)

    def _look(self, state: State, node: str, workers: WorkerCache, residents: dict[str, dict[str, Claim]]) -> list[str]:
        """Computes the figures of a node again; returns its pools."""
        old = self.by_node.get(node, {})
        for pool, figures in old.items():
            self.sums[pool].add(figures, -1)
        new: dict[str, CapacityFigures] = {}
        gpus = self.nodes[node]
        for pool in sorted({gpu.pool for gpu in gpus if gpu.pool in self.sums}):
            mine = [gpu for gpu in gpus if gpu.pool == pool]
            accounts = [state.accounts[PREFIX + gpu.name].used for gpu in mine]
            used = [(account.get(TFLOPS), account.get(VRAM)) for account in accounts]
            limits = [_limits(gpu, residents.get(PREFIX + gpu.name, {}), workers) for gpu in mine]
            host = _host(state.cell(HOSTS, node), len(mine), len(gpus))
            figures = node_figures(mine, used, limits, _oversell(state.cell(POOLS, pool)), host)
            self.sums[pool].add(figures, 1)
            new[pool] = figures
        self.by_node[node] = new
        return list(new)


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


def _host(cell: object, mine: int, all_: int) -> tuple[int, int]:
    """(memory, disk) of the node; pools that share a node share these by the number of their GPUs."""
    if cell is None:
        return 0, 0
    memory, disk = cast("tuple[object, ...]", cell)[4:6]
    return cast("int", memory) * mine // all_, cast("int", disk) * mine // all_


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
        self.gpus: Final[dict[str, None]] = {}  # that changed
        self.annotated: Final[dict[str, dict[str, object]]] = {}  # by uid: the annotations of its pod
        self.evicted: Final[set[str]] = set()  # uids of those that keep their GPUs until they are gone
        self.figures: Final = PoolFigures()

    def touched(self, claim: Claim, account: Account, sign: int) -> None:
        self.gpus[account.name[len(PREFIX) :]] = None
        if sign < 0 and claim.uid not in self.annotated:
            self.claims.pop(claim.uid, None)  # came and went in between: nothing was written
        else:
            self.claims[claim.uid] = claim.key

    def outputs(self, state: State, workers: WorkerCache, residents: dict[str, dict[str, Claim]]) -> list[Output]:
        for uid, key in sorted(self.claims.items()):
            self._claim(state, workers, uid, key)
        self.claims.clear()
        for uid in [uid for uid in self.evicted if uid not in state.claims]:
            self.evicted.discard(uid)
            self.annotated.pop(uid, None)
        for name in sorted(self.gpus):
            self._gpu(state, name, residents.get(PREFIX + name, {}))
        self._pools(state, workers, residents)
        self.gpus.clear()
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
        if binding is None or not claim.counts():
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

    def _gpu(self, state: State, name: str, residents: dict[str, Claim]) -> None:
        gpu = gpu_of(name, state.cell(GPUS, name))
        account = state.accounts.get(PREFIX + name)
        status: dict[str, object] | None = None
        if gpu is not None and account is not None and not is_derived(name):
            status = {"available": _available(gpu, account), "runningApps": _apps(residents)}
        self.write_status(GPU_KIND, name, status)

    def _pools(self, state: State, workers: WorkerCache, residents: dict[str, dict[str, Claim]]) -> None:
        known = state.cells(POOLS)
        for pool in [pool for pool in self.last.get(POOL_KIND, {}) if pool not in known]:
            self.write_status(POOL_KIND, pool, None)
        if known or self.figures.sums or self.figures.nodes:
            for pool in self.figures.update(state, state.cell(VERSION, ONLY), list(self.gpus), workers, residents):
                self.write_status(POOL_KIND, pool, self.figures.sums[pool].status())


def pod_record(state: State, worker: Worker, binding: Binding) -> dict[str, object]:
    """The record of a worker's GPUs on its pod, from which a ledger can be rebuilt."""
    names = [account.name[len(PREFIX) :] for account in binding.accounts]
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
    return {"tflops": dimension_at(TFLOPS).show(tflops), "vram": dimension_at(VRAM).show(vram)}


def _apps(residents: dict[str, Claim]) -> list[object]:
    """The pods on the GPU by workload, in order of names."""
    pods: dict[tuple[str, str], list[str]] = {}
    for claim in residents.values():
        workload = claim.spec.labels.get("tensor-fusion.ai/workload", claim.name)
        pods.setdefault((claim.namespace, workload), []).append(claim.name)
    return [
        {"namespace": namespace, "name": name, "count": len(names), "pods": sorted(names)}
        for (namespace, name), names in sorted(pods.items())
    ]
