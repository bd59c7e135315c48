"""What the allocator tells the outside: the GPUs of each worker on its pod, what is left of each GPU and each pool.

Memory of the outside, not of the ledger: after a restart everything is written once more, except what a pod is seen to
carry already. Only what changed since the last call is looked at.
"""

from __future__ import annotations

from typing import Final, final

import msgspec

from bursar.dimensions import dimension_at
from bursar.ledger.accounts import Account
from bursar.ledger.claims import Binding, Claim
from bursar.ledger.state import State
from bursar.policies.gpus.bodies import is_derived
from bursar.policies.gpus.virtual import PoolFigures
from bursar.policies.settings import Output
from bursar.policies.tensorfusion.fleet import GPUS, ONLY, POOLS, PREFIX, TFLOPS, VERSION, VRAM, Gpu, gpu_of
from bursar.policies.tensorfusion.reading import WorkerCache
from bursar.policies.tensorfusion.worker import (
    CONTAINER_GPUS,
    GPU_IDS,
    HARD_PERCENT,
    NOT_GIVEN,
    Unreadable,
    Worker,
)

GPU_KIND: Final = "GPU.tensor-fusion.ai"
POOL_KIND: Final = "GPUPool.tensor-fusion.ai"


@final
class Publisher:
    """Annotations of worker pods, statuses of GPU objects and pools."""

    __slots__ = ("claims", "figures", "gpus", "pools", "told", "written")

    def __init__(self) -> None:
        self.claims: Final[dict[str, str]] = {}  # to look at: uid -> key of the pod
        self.gpus: Final[dict[str, None]] = {}  # to look at
        self.told: Final[dict[str, dict[str, object]]] = {}  # by uid
        self.written: Final[dict[str, dict[str, object]]] = {}  # by GPU
        self.pools: Final[dict[str, dict[str, object]]] = {}  # by pool: what was written
        self.figures: Final = PoolFigures()

    def touched(self, claim: Claim, account: Account, sign: int) -> None:
        self.gpus[account.name[len(PREFIX) :]] = None
        if sign < 0 and claim.uid not in self.told:
            self.claims.pop(claim.uid, None)  # came and went in between: nobody has heard of it
        else:
            self.claims[claim.uid] = claim.key

    def gpu_changed(self, name: str) -> None:
        self.gpus[name] = None

    def outputs(self, state: State, workers: WorkerCache, residents: dict[str, dict[str, Claim]]) -> list[Output]:
        found: list[Output] = []
        for uid, key in sorted(self.claims.items()):
            self._claim(state, workers, uid, key, found)
        self.claims.clear()
        for name in sorted(self.gpus):
            self._gpu(state, name, residents.get(PREFIX + name, {}), found)
        self._pools(state, workers, residents, found)
        self.gpus.clear()
        return found

    def _claim(self, state: State, workers: WorkerCache, uid: str, key: str, found: list[Output]) -> None:
        claim = state.claims.get(uid)
        if claim is None:
            self.told.pop(uid, None)
            return
        worker = workers.of(claim.spec)
        if worker is None or isinstance(worker, Unreadable):
            return
        binding = binding_of(claim)
        told = self.told.get(uid, {})
        if binding is None or not claim.counts():
            if told and not claim.leaving:  # it waits again; one that leaves keeps its GPUs to the end
                found.append(Output("Pod", key, "annotations", dict.fromkeys(told)))
                del self.told[uid]
            return
        wanted = pod_record(state, worker, binding)
        seen = claim.spec.annotations
        if wanted != told and [name for name in wanted if seen.get(name) != wanted[name]]:
            gone: dict[str, object] = {name: None for name in told if name not in wanted}
            found.append(Output("Pod", key, "annotations", {**gone, **wanted}))
        self.told[uid] = wanted

    def _gpu(self, state: State, name: str, residents: dict[str, Claim], found: list[Output]) -> None:
        gpu = gpu_of(name, state.cell(GPUS, name))
        account = state.accounts.get(PREFIX + name)
        if gpu is None or account is None or is_derived(name):
            self.written.pop(name, None)
            return
        status: dict[str, object] = {"available": _available(gpu, account), "runningApps": _apps(residents)}
        if self.written.get(name) != status:
            self.written[name] = status
            found.append(Output(GPU_KIND, name, "status", status))

    def _pools(
        self, state: State, workers: WorkerCache, residents: dict[str, dict[str, Claim]], found: list[Output]
    ) -> None:
        known = state.cells(POOLS)
        for pool in [pool for pool in self.pools if pool not in known]:
            del self.pools[pool]
        if not known:
            return
        for pool in self.figures.update(state, state.cell(VERSION, ONLY), list(self.gpus), workers, residents):
            status = self.figures.sums[pool].status()
            if self.pools.get(pool) != status:
                self.pools[pool] = status
                found.append(Output(POOL_KIND, pool, "status", status))


def binding_of(claim: Claim) -> Binding | None:
    """The claim's GPUs, if it has some."""
    for binding in claim.bindings:
        if binding is not None and binding.policy == "gpus":
            return binding
    return None


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
    """Who runs on the GPU: pods by workload, in order of names."""
    pods: dict[tuple[str, str], list[str]] = {}
    for claim in residents.values():
        workload = claim.spec.labels.get("tensor-fusion.ai/workload", claim.name)
        pods.setdefault((claim.namespace, workload), []).append(claim.name)
    return [
        {"namespace": namespace, "name": name, "count": len(names), "pods": sorted(names)}
        for (namespace, name), names in sorted(pods.items())
    ]
