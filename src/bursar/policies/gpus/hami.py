"""HAMi's GPUs: what those of a node have together, and what its pods request of them.

On a node of HAMi ``nvidia.com/gpu: n`` asks for slices of n GPUs. Each has the memory and cores that the container asks
for beside it. HAMi's scheduler chooses the GPUs; Bursar counts what they have together.

Memory that is not asked for is the configured default, or all of the GPU. Cores that are not asked for reserve nothing
with HAMi, but allow the whole GPU, so they cost all of its tflops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from bursar.ledger.claims import ClaimSpec, ContainerSpec
from bursar.objects.hami_register import (
    CORES,
    GPU_RESOURCE,
    MEMORY,
    MIB,
    MOST_CORES,
    MOST_MIB,
    PERCENTAGE,
    SlicedGpus,
)
from bursar.policies.placement_kit import SpecWeights
from bursar.quantity import MAX_AMOUNT
from bursar.resources import Vector, dimension, from_amounts


@final
@dataclass(frozen=True)
class SliceDefaults:
    """HAMi's own defaults for containers that do not say."""

    memory: int = 0  # MiB; 0: all of the GPU
    cores: int = 0  # percent; 0: no limit


@final
@dataclass(frozen=True)
class ContainerSlices:
    """What one container asks for; 0 where it does not say."""

    role: str
    gpus: int
    memory: int  # MiB of each
    percentage: int
    cores: int


Taken = tuple[int, int, int, int]
"""(milli-tflops, bytes, percent of cores reserved, GPUs)."""


@final
@dataclass(frozen=True)
class PodSlices:
    """What a pod asks HAMi for."""

    containers: tuple[ContainerSlices, ...]
    explicit: bool  # it asks for parts of GPUs, so that only a node of HAMi can take it

    def suits(self, gpus: SlicedGpus) -> bool:
        """Whether each slice is on a GPU of its own, and none is larger than a GPU."""
        for one in self.containers:
            if one.gpus > gpus.count or one.memory * MIB > gpus.largest:
                return False
        return True

    def of_card(self, tflops: int, vram: int, defaults: SliceDefaults) -> Taken:
        """What it takes of GPUs with that capacity: containers together, or one init container that takes more."""
        together = (0, 0, 0, 0)
        starting = (0, 0, 0, 0)
        for one in self.containers:
            taken = _taken(one, tflops, vram, defaults)
            if one.role == "init":
                starting = _larger(starting, _sum(_sidecars(self, tflops, vram, defaults), taken))
            else:
                together = _sum(together, taken)
        return _larger(together, starting)


def _sidecars(pod: PodSlices, tflops: int, vram: int, defaults: SliceDefaults) -> Taken:
    """Of all sidecars: an init container may run beside those that are declared before it."""
    found = (0, 0, 0, 0)
    for one in pod.containers:
        if one.role == "sidecar":
            found = _sum(found, _taken(one, tflops, vram, defaults))
    return found


def _taken(one: ContainerSlices, tflops: int, vram: int, defaults: SliceDefaults) -> Taken:
    cores = one.cores or defaults.cores
    memory = (one.memory or (0 if one.percentage else defaults.memory)) * MIB
    if not memory:
        memory = vram // MIB * one.percentage // 100 * MIB if one.percentage else vram
    compute = tflops * cores // 100 if cores else tflops
    return one.gpus * compute, one.gpus * memory, one.gpus * cores, one.gpus


def _sum(left: Taken, right: Taken) -> Taken:
    """More than can be counted stays at what can be."""
    sums = [min(left[i] + right[i], MAX_AMOUNT) for i in range(4)]
    return sums[0], sums[1], sums[2], sums[3]


def _larger(left: Taken, right: Taken) -> Taken:
    return max(left[0], right[0]), max(left[1], right[1]), max(left[2], right[2]), max(left[3], right[3])


def set_cost(taken: Taken) -> Vector:
    """What a pod takes of all that the GPUs of a node have."""
    return from_amounts({"vram": taken[1], CORES: taken[2]})


_DIMENSIONS: Final = tuple([dimension(name).index for name in (GPU_RESOURCE, MEMORY, PERCENTAGE, CORES)])


def read_slices(spec: ClaimSpec) -> PodSlices | None:
    """What a pod asks for by the resources that HAMi reads; None for a pod that asks for no GPU of NVIDIA's."""
    asked = False
    for dim in _DIMENSIONS:
        if spec.requests.get(dim) > 0:
            asked = True
    if not asked:
        return None
    containers = spec.containers or (ContainerSpec("", spec.requests, spec.limits),)
    found = [one for one in [_container(container) for container in containers] if one.gpus > 0]
    explicit = [one for one in found if one.memory or one.percentage or one.cores]
    return PodSlices(tuple(found), len(explicit) > 0)


def _container(given: ContainerSpec) -> ContainerSlices:
    """HAMi gives one GPU to a container that asks only for parts."""
    gpus, memory, percentage, cores = [given.requests.get(dim) for dim in _DIMENSIONS]
    if not gpus and (memory or percentage or cores):
        gpus = 1
    return ContainerSlices(given.role, gpus, min(memory, MOST_MIB), min(percentage, 100), min(cores, MOST_CORES))


@final
class SliceCache:
    """What pods ask HAMi for, by spec, which the claims of a job share."""

    def __init__(self) -> None:
        self.known: Final[dict[ClaimSpec, PodSlices | None]] = {}  # by identity
        self.weights: Final = SpecWeights()

    def of(self, spec: ClaimSpec) -> PodSlices | None:
        if spec in self.known:
            return self.known[spec]
        if self.weights.full(spec):
            self.known.clear()
        found = read_slices(spec)
        self.known[spec] = found
        return found
