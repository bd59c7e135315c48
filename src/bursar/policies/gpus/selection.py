"""Which GPUs of a node a worker gets: a function of the ledger's state only.

The order is total: GPUs on which the worker fits now come first, then by score of the pool's placement mode (higher
first), then by index and name. Where too few fit, the best of the others complete the choice, so that the refusal
names them and victims are searched on them. A claim that already counts on the node keeps its GPUs.
"""

from __future__ import annotations

from typing import Final

from bursar.ledger.claims import PENDING, Binding, Claim
from bursar.ledger.state import Account
from bursar.policies.gpus.fleet import COMPACT, LOW_LOAD, PREFIX, TFLOPS, VRAM, Fleet, Gpu
from bursar.policies.gpus.worker import GPU_IDS, Worker

_PLUGIN: Final = "plugin/"


def packs_nodes(mode: str) -> bool:
    """Whether a fuller node is the better one."""
    return mode != LOW_LOAD


def packs_gpus(mode: str) -> bool:
    """Whether, inside a node, a fuller GPU is the better one."""
    return mode == COMPACT


def fits(worker: Worker, gpu: Gpu, account: Account) -> bool:
    """Whether the worker fits on the GPU now."""
    used_tflops = account.used.get(TFLOPS)
    used_vram = account.used.get(VRAM)
    if worker.whole:
        return used_tflops <= 0 and used_vram <= 0
    tflops = worker.request.tflops_of(gpu.tflops)
    vram = worker.request.vram
    if tflops > 0 and used_tflops + tflops > gpu.tflops:
        return False
    return vram <= 0 or used_vram + vram <= gpu.vram


def suiting(fleet: Fleet, worker: Worker, node: str) -> list[int]:
    """Positions of the node's GPUs that suit the worker."""
    span = fleet.spans.get(node)
    if span is None:
        return []
    suits = fleet.suitable(worker)
    return [at for at in range(span[0], span[1]) if suits[at]]


def choose(fleet: Fleet, worker: Worker, node: str) -> list[int]:
    """Positions of the GPUs for a new worker on that node, in order of index; empty when too few suit."""
    found = suiting(fleet, worker, node)
    count = worker.count
    if len(found) < count:
        return []
    if len(found) > count:
        packs = packs_gpus(fleet.mode(worker))
        keyed = [(_preference(fleet, worker, at, packs), at) for at in found]
        keyed.sort()
        found = [at for _, at in keyed[:count]]
        found.sort()
    return found


def _preference(fleet: Fleet, worker: Worker, at: int, packs: bool) -> int:
    """Lower is better; positions, which follow index and name, break ties."""
    if not fits(worker, fleet.gpus[at], fleet.accounts[at]):
        return 1000 - fleet.free_points(at)
    return 100 - (fleet.used_points(at) if packs else fleet.free_points(at))


def held(fleet: Fleet, claim: Claim, worker: Worker, node: str) -> list[str]:
    """Names of the GPUs that the claim already has on that node, by its binding or by its pod's annotation."""
    if claim.state != PENDING and claim.place == node:
        binding = claim.binding_of("gpus")
        names = [] if binding is None else gpu_names(binding)
        if names:
            return names
    return recorded(fleet, claim, worker, node)


def gpu_names(binding: Binding) -> list[str]:
    """The GPUs of a worker; what it has of the device plugin's set beside them is none."""
    names = [account.name[len(PREFIX) :] for account in binding.accounts]
    return [name for name in names if not name.startswith(_PLUGIN)]


def recorded_names(claim: Claim, worker: Worker, node: str) -> list[str]:
    """GPUs that the annotation of a pod bound to this node names, known or not."""
    names = _annotated(claim) if claim.spec.needs.node_name == node else []
    return names if len(names) == worker.count else []


def recorded_positions(fleet: Fleet, claim: Claim, worker: Worker, node: str) -> list[int]:
    """Positions of those of these GPUs that are known."""
    known = _by_name(fleet, node)
    return [known[name] for name in dict.fromkeys(recorded_names(claim, worker, node)) if name in known]


def unknown(fleet: Fleet, claim: Claim, node: str) -> str:
    """A GPU that the annotation of a pod bound to this node names and that is not known yet; or ""."""
    if claim.spec.needs.node_name != node:
        return ""
    known = _by_name(fleet, node)
    return next((name for name in _annotated(claim) if name not in known), "")


def recorded(fleet: Fleet, claim: Claim, worker: Worker, node: str) -> list[str]:
    """GPUs that the pod's own annotation names, if they are of that node: the ledger is rebuilt from these.

    A pod that is not bound to the node yet only gets GPUs that suit it and have room.
    """
    names = _annotated(claim)
    if not names:
        return []
    known = _by_name(fleet, node)
    bound = claim.spec.needs.node_name == node
    suits = fleet.suitable(worker)
    for name in names:
        at = known.get(name)
        if at is None or not (bound or (suits[at] and fits(worker, fleet.gpus[at], fleet.accounts[at]))):
            return []
    return names if len(names) == worker.count and len(set(names)) == len(names) else []


def _annotated(claim: Claim) -> list[str]:
    text = claim.spec.annotations.get(GPU_IDS)
    return [] if text is None else [name.strip() for name in text.split(",")]


def _by_name(fleet: Fleet, node: str) -> dict[str, int]:
    """Positions of the node's GPUs."""
    start, end = fleet.spans.get(node, (0, 0))
    return {fleet.gpus[at].name: at for at in range(start, end)}


def follow(residents: dict[str, dict[str, Claim]], claim: Claim, account: Account, sign: int) -> None:
    """A claim starts (+1) or stops (-1) to count in an account. ``residents`` is by account name, then by uid.

    The mapping of an account is never replaced: searches for victims read it while claims are released.
    """
    there = residents.get(account.name)
    if there is None:
        there = {}
        residents[account.name] = there
    if sign > 0:
        there[claim.uid] = claim
    else:
        there.pop(claim.uid, None)


def importance(claim: Claim) -> tuple[int, int, str, str]:
    """Sorts the least important first: lower priority, then newer, then by name."""
    return (claim.spec.priority, -claim.created, claim.key, claim.uid)
