"""Worker pods: the names of the annotations ``tensor-fusion.ai/...``, and what a worker asks for once they are read.

The quota (limits) and the allocator (gpus) must never disagree about what a worker asks for, so neither reads
annotations itself (``reading`` does); this is why the contract lives in a package of its own.

Amounts are per GPU. ``whole``: the GPU is the worker's alone (isolation shared, or dedicated), so it costs what the GPU
has, whatever else was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from bursar.quantity import MILLI
from bursar.vectors import Vector, from_amounts

DOMAIN: Final = "tensor-fusion.ai/"
COMPONENT: Final = DOMAIN + "component"
TFLOPS_REQUEST: Final = DOMAIN + "tflops-request"
TFLOPS_LIMIT: Final = DOMAIN + "tflops-limit"
VRAM_REQUEST: Final = DOMAIN + "vram-request"
VRAM_LIMIT: Final = DOMAIN + "vram-limit"
PERCENT_REQUEST: Final = DOMAIN + "compute-percent-request"
PERCENT_LIMIT: Final = DOMAIN + "compute-percent-limit"
GPU_COUNT: Final = DOMAIN + "gpu-count"
GPU_INDICES: Final = DOMAIN + "gpu-indices"
GPU_POOL: Final = DOMAIN + "gpupool"
GPU_MODEL: Final = DOMAIN + "gpu-model"
VENDOR: Final = DOMAIN + "vendor"
ISOLATION: Final = DOMAIN + "isolation"
DEDICATED: Final = DOMAIN + "dedicated-gpu"
CONTAINER_COUNTS: Final = DOMAIN + "container-gpu-count"
GPU_IDS: Final = DOMAIN + "gpu-ids"
CONTAINER_GPUS: Final = DOMAIN + "container-gpus"
HARD_PERCENT: Final = DOMAIN + "effective-hard-sm-percent"

MOST_GPUS: Final = 128
FULL_PERCENT: Final = 100 * MILLI
NOT_GIVEN: Final = -1
ISOLATIONS: Final = ("shared", "soft", "hard")

# Any of these makes a pod without the component label a worker.
_DEMANDS: Final = (
    TFLOPS_REQUEST,
    TFLOPS_LIMIT,
    VRAM_REQUEST,
    VRAM_LIMIT,
    PERCENT_REQUEST,
    PERCENT_LIMIT,
    GPU_COUNT,
    GPU_INDICES,
    GPU_POOL,
    GPU_MODEL,
    ISOLATION,
    DEDICATED,
    CONTAINER_COUNTS,
)


class Unreadable(Exception):  # noqa: N818 it is also an answer, not only raised
    """A worker whose annotations cannot be read: which one, and what is wrong with it."""

    def __init__(self, annotation: str, problem: str) -> None:
        super().__init__(f"annotation {annotation}: {problem}")
        self.annotation = annotation
        self.problem = problem


@final
class Side:
    """The requests or the limits of one GPU; compute is given in tflops or in percent of the GPU, never in both."""

    __slots__ = ("percent", "tflops", "vram")

    def __init__(self, tflops: int, percent: int, vram: int) -> None:
        self.tflops: Final = tflops  # milli, or NOT_GIVEN
        self.percent: Final = percent  # thousandths of a percent, or NOT_GIVEN
        self.vram: Final = vram  # bytes, or NOT_GIVEN

    def compute_given(self) -> bool:
        return self.tflops != NOT_GIVEN or self.percent != NOT_GIVEN

    def tflops_of(self, capacity: int) -> int:
        """Milli-tflops on a GPU that has ``capacity`` of them; a percentage is cut to the resolution."""
        if self.percent != NOT_GIVEN:
            return self.percent * capacity // FULL_PERCENT
        return max(self.tflops, 0)


@final
class Worker:
    """What a worker pod asks for."""

    __slots__ = (
        "containers",
        "cost",
        "count",
        "indices",
        "isolation",
        "limit",
        "model",
        "needs",
        "pool",
        "request",
        "shape",
        "share",
        "vendor",
        "whole",
    )

    def __init__(
        self,
        request: Side,
        limit: Side,
        count: int,
        indices: tuple[int, ...],
        containers: tuple[tuple[str, int], ...],
        marks: Mapping[str, str],
    ) -> None:
        self.request: Final = request
        self.limit: Final = limit
        self.count: Final = count
        self.indices: Final = indices
        self.pool: Final = marks.get(GPU_POOL, "").strip()
        self.model: Final = marks.get(GPU_MODEL, "").strip()
        self.vendor: Final = marks.get(VENDOR, "").strip()
        self.isolation: Final = marks.get(ISOLATION, "").strip() or "soft"
        self.whole: Final = self.isolation == "shared" or marks.get(DEDICATED, "") == "true"
        self.containers: Final = containers  # (container, number of GPUs), by name
        # What decides which GPUs suit at all: workers with equal needs share what is derived from it.
        self.needs: Final = (self.pool, self.model, self.vendor, self.isolation, indices, self.varies(), self.whole)
        # What decides where it has room: workers of one shape fit on the same GPUs.
        self.shape: Final = (*self.needs, count, request.tflops, request.percent, request.vram)
        # Known without knowing the GPU; None where it depends on the GPU's capacity.
        self.share: Final = None if self.varies() else _share(request)
        self.cost: Final = None if self.varies() else total_cost([self.footprint(0, 0)] * count)

    def varies(self) -> bool:
        """Whether what it takes depends on the GPU that it gets."""
        return self.whole or self.request.percent != NOT_GIVEN or self.limit.percent != NOT_GIVEN

    def footprint(self, tflops: int, vram: int) -> tuple[int, int, int, int]:
        """(request tflops, request vram, limit tflops, limit vram) on a GPU with that capacity."""
        if self.whole:
            return (tflops, vram, tflops, vram)
        asked = self.request.tflops_of(tflops)
        memory = max(self.request.vram, 0)
        # The two sides may be given in different units: a limit below the request then only shows on the GPU.
        return (asked, memory, max(self.limit.tflops_of(tflops), asked), max(self.limit.vram, memory))


def _share(request: Side) -> Vector:
    return gpu_share(max(request.tflops, 0), max(request.vram, 0))


def gpu_share(tflops: int, vram: int) -> Vector:
    """What is taken of one GPU."""
    return from_amounts({"tflops": tflops, "vram": vram})


def total_cost(footprints: list[tuple[int, int, int, int]]) -> Vector:
    """What a worker costs its namespace: the sum over its GPUs, and one worker."""
    sums = [0, 0, 0, 0]
    for footprint in footprints:
        for i in range(4):
            sums[i] += footprint[i]
    return from_amounts(
        {
            "requests.tflops": sums[0],
            "requests.vram": sums[1],
            "limits.tflops": sums[2],
            "limits.vram": sums[3],
            "workers": 1,
        }
    )


def is_worker(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    """Whether a pod takes GPUs by this contract: labelled as a worker, or not labelled and asking for a GPU."""
    component = labels.get(COMPONENT)
    if component is not None:
        return component == "worker"
    for name in _DEMANDS:
        if name in annotations:
            return True
    return False
