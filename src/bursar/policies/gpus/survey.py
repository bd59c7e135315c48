"""Why no node takes a worker: GPUs counted by the first thing that speaks against them, for explanations."""

from __future__ import annotations

from bursar.dimensions import dimension_at
from bursar.ledger.claims import Claim
from bursar.policies.base import Policy
from bursar.policies.checks import Check
from bursar.policies.tensorfusion.choice import fits
from bursar.policies.tensorfusion.fleet import TFLOPS, VRAM, Fleet, Gpu
from bursar.policies.tensorfusion.worker import Worker


def survey(policy: Policy, claim: Claim, worker: Worker, fleet: Fleet) -> Check:
    """Counts over all GPUs, and over the nodes that have them."""
    counts: dict[str, int] = {}
    for at, gpu in enumerate(fleet.gpus):
        reason = against(fleet, worker, at, gpu)
        counts[reason] = counts.get(reason, 0) + 1
    nodes = [node for node in fleet.spans if policy.refuse(claim, node) is None]
    if nodes:
        return Check(policy.name, True, f"{len(nodes)} of {len(fleet.spans)} nodes with GPUs can take it")
    children: list[Check] = []
    for reason, count in sorted(counts.items(), key=_most_first):
        if reason:
            children.append(Check(_gpus(count), False, "", (), reason))
        else:
            note = f"with room, but no node has {_gpus(worker.count)} of them"
            children.append(Check(_gpus(count), False, note, (), "gpus.suitable"))
    note = f"no node has {_gpus(worker.count)} for it" if fleet.gpus else "no GPU is known"
    return Check(policy.name, False, note, tuple(children), children[0].reason if children else "gpus.suitable")


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
    if not gpu.suits(worker, fleet.default_pool):
        return "gpus.suitable"
    account = fleet.accounts[at]
    if fits(worker, gpu, account):
        return ""
    tflops = gpu.tflops if worker.whole else worker.request.tflops_of(gpu.tflops)
    short = TFLOPS if account.used.get(TFLOPS) + tflops > gpu.tflops else VRAM
    return f"gpus.room.{dimension_at(short).name}"


def _most_first(item: tuple[str, int]) -> tuple[int, str]:
    return (-item[1], item[0])


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
