"""TensorFusion worker pods: their annotations ``tensor-fusion.ai/...``, and what they ask for.

The namespace quota and the GPU allocator both read workers here, so that they never disagree on what a worker asks
for. Amounts are per GPU. A worker with isolation ``shared``, or a dedicated GPU, takes whole GPUs and costs all that
they have.

An annotation that is unreadable or contradicts another one makes the worker ``Unreadable``: it is never read as zero or
unlimited. A missing request is the limit, a missing limit is the request. A worker without any amount must ask for
whole GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import msgspec

from bursar.ledger.claims import ClaimSpec
from bursar.policies.placement_kit import SpecWeights
from bursar.quantity import MILLI, UNIT, QuantityError, parse
from bursar.resources import Vector, from_amounts

DOMAIN: Final = "tensor-fusion.ai/"
COMPONENT: Final = DOMAIN + "component"
WORKER: Final = "worker"  # the value of the component label
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
QOS: Final = DOMAIN + "qos"
QOS_LEVELS: Final = ("low", "medium", "high", "critical")

MOST_GPUS: Final = 128
FULL_PERCENT: Final = 100 * MILLI
NOT_GIVEN: Final = -1
ISOLATIONS: Final = ("shared", "soft", "hard")

# Any of these makes a pod without the component label a worker.
DEMANDS: Final = (
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


class Unreadable(Exception):  # noqa: N818 it is also returned, not only raised
    """The annotation of a worker that cannot be read, and what is wrong with it."""

    def __init__(self, annotation: str, problem: str) -> None:
        super().__init__(f"annotation {annotation}: {problem}")
        self.annotation = annotation
        self.problem = problem


@final
class Side:
    """The requests or the limits of one GPU; compute is given in tflops or in percent of the GPU, never in both."""

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
        self.needs_compute: Final = self.varies() or request.tflops > 0  # the capacity of its GPU must be known
        self.needs_memory: Final = self.whole or request.vram > 0
        known = (self.needs_compute, self.needs_memory)
        # What decides which GPUs suit: workers with equal needs share the results.
        self.needs: Final = (self.pool, self.model, self.vendor, self.isolation, indices, self.whole, *known)
        # What decides where it has room: workers of one shape fit the same GPUs.
        self.shape: Final = (*self.needs, count, request.tflops, request.percent, request.vram)
        # None where they depend on the GPU's capacity.
        self.share: Final = None if self.varies() else gpu_share(max(request.tflops, 0), max(request.vram, 0))
        self.cost: Final = None if self.varies() else total_cost([self.footprint(0, 0)] * count)

    def varies(self) -> bool:
        """Whether its cost depends on the GPU that it gets."""
        return self.whole or self.request.percent != NOT_GIVEN or self.limit.percent != NOT_GIVEN

    def footprint(self, tflops: int, vram: int) -> tuple[int, int, int, int]:
        """(request tflops, request vram, limit tflops, limit vram) on a GPU with that capacity."""
        if self.whole:
            return (tflops, vram, tflops, vram)
        asked = self.request.tflops_of(tflops)
        memory = max(self.request.vram, 0)
        # Request and limit may be in different units, so a limit below the request only shows on the GPU.
        return (asked, memory, max(self.limit.tflops_of(tflops), asked), max(self.limit.vram, memory))


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
    """Whether a pod is labelled as a worker, or has no such label and asks for a GPU by annotation."""
    component = labels.get(COMPONENT)
    if component is not None:
        return component == WORKER
    return any(name in annotations for name in DEMANDS)


def read_worker(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Worker | None:
    """The worker, or None for another pod; raises ``Unreadable``."""
    if not is_worker(labels, annotations):
        return None
    _check_marks(annotations)
    request = _side(annotations, TFLOPS_REQUEST, PERCENT_REQUEST, VRAM_REQUEST)
    limit = _side(annotations, TFLOPS_LIMIT, PERCENT_LIMIT, VRAM_LIMIT)
    request, limit = _completed(request, limit), _completed(limit, request)
    _check_order(request, limit)
    indices = _indices(annotations)
    containers = _container_counts(annotations)
    worker = Worker(request, limit, _count(annotations, indices, containers), indices, containers, annotations)
    if not worker.whole and not request.compute_given() and request.vram == NOT_GIVEN:
        raise Unreadable(TFLOPS_REQUEST, "is missing, and so are vram and percent: say how much of a GPU it needs")
    return worker


def _completed(side: Side, other: Side) -> Side:
    """Fills in what one side does not give from the other."""
    given = side if side.compute_given() else other
    return Side(given.tflops, given.percent, side.vram if side.vram != NOT_GIVEN else other.vram)


def _side(annotations: Mapping[str, str], tflops: str, percent: str, vram: str) -> Side:
    compute = _amount(annotations, tflops, MILLI)
    share = _amount(annotations, percent, MILLI)
    if NOT_GIVEN not in (compute, share):
        raise Unreadable(percent, f"cannot be given together with {tflops}")
    if share > FULL_PERCENT:
        raise Unreadable(percent, f"{annotations[percent]!r:.40} is more than 100 percent of a GPU")
    return Side(compute, share, _amount(annotations, vram, UNIT))


def _amount(annotations: Mapping[str, str], name: str, resolution: int) -> int:
    text = annotations.get(name)
    if text is None:
        return NOT_GIVEN
    try:
        return parse(text.strip(), resolution)
    except QuantityError as error:
        raise Unreadable(name, str(error)) from None


def _check_order(request: Side, limit: Side) -> None:
    pairs = (
        (TFLOPS_LIMIT, request.tflops, limit.tflops),
        (PERCENT_LIMIT, request.percent, limit.percent),
        (VRAM_LIMIT, request.vram, limit.vram),
    )
    for name, asked, most in pairs:
        if most not in (NOT_GIVEN, asked) and asked > most:
            raise Unreadable(name, "is less than the request")


def _count(annotations: Mapping[str, str], indices: tuple[int, ...], containers: tuple[tuple[str, int], ...]) -> int:
    """The number of GPUs; all annotations that give it must agree."""
    implied = len(indices) or sum([count for _, count in containers])
    text = annotations.get(GPU_COUNT)
    if text is None:
        return implied or 1
    count = _whole_number(text.strip())
    if count is None or not 1 <= count <= MOST_GPUS:
        raise Unreadable(GPU_COUNT, f"{text!r:.40} is not a number of GPUs from 1 to {MOST_GPUS}")
    if implied not in (0, count):
        other = GPU_INDICES if indices else CONTAINER_COUNTS
        raise Unreadable(GPU_COUNT, f"{count} is not the {implied} of {other}")
    return count


def _indices(annotations: Mapping[str, str]) -> tuple[int, ...]:
    text = annotations.get(GPU_INDICES)
    if text is None or not text.strip():
        return ()
    found: list[int] = []
    for token in text.split(","):
        number = _whole_number(token.strip())
        if number is None or number >= 2**31:
            raise Unreadable(GPU_INDICES, f"{token!r:.40} is not the index of a GPU")
        if number in found:
            raise Unreadable(GPU_INDICES, f"{number} is listed twice")
        found.append(number)
    if len(found) > MOST_GPUS:
        raise Unreadable(GPU_INDICES, f"lists more than {MOST_GPUS} GPUs")
    return tuple(sorted(found))


def _whole_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def _container_counts(annotations: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """(container, number of GPUs), by name."""
    text = annotations.get(CONTAINER_COUNTS)
    if text is None:
        return ()
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        found = None
    if not isinstance(found, dict) or not found:
        raise Unreadable(CONTAINER_COUNTS, f"{text!r:.40} is not a JSON mapping of containers to numbers of GPUs")
    counts: list[tuple[str, int]] = []
    for name in sorted(found):
        count = found[name]
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_GPUS:
            raise Unreadable(CONTAINER_COUNTS, f"{count!r:.40} is not a number of GPUs from 0 to {MOST_GPUS}")
        counts.append((str(name), count))
    total = sum([count for _, count in counts])
    if not 1 <= total <= MOST_GPUS:
        raise Unreadable(CONTAINER_COUNTS, f"gives {total} GPUs in all, not 1 to {MOST_GPUS}")
    return tuple(counts)


def _check_marks(annotations: Mapping[str, str]) -> None:
    isolation = annotations.get(ISOLATION, "").strip()
    if isolation and isolation not in ISOLATIONS:
        raise Unreadable(ISOLATION, f"{isolation!r:.40} is none of {', '.join(ISOLATIONS)}")
    dedicated = annotations.get(DEDICATED, "false")
    if dedicated not in ("true", "false"):
        raise Unreadable(DEDICATED, f"{dedicated!r:.40} is neither 'true' nor 'false'")
    if dedicated == "true" and not annotations.get(GPU_MODEL, "").strip():
        raise Unreadable(GPU_MODEL, f"is required beside {DEDICATED}")


@final
class WorkerCache:
    """Workers by spec, which the claims of a job share."""

    def __init__(self) -> None:
        self.known: Final[dict[ClaimSpec, Worker | Unreadable | None]] = {}  # by identity
        self.weights: Final = SpecWeights()

    def of(self, spec: ClaimSpec) -> Worker | Unreadable | None:
        if spec in self.known:
            return self.known[spec]
        found: Worker | Unreadable | None
        try:
            found = read_worker(spec.labels, spec.annotations)
        except Unreadable as problem:
            found = Unreadable(problem.annotation, problem.problem)  # without the traceback of the caught one
        if self.weights.full(spec):
            self.known.clear()
        self.known[spec] = found
        return found
