"""Reads the annotations of worker pods, once for everybody.

What cannot be read, or contradicts itself, is an ``Unreadable`` that names the annotation: never zero, never unlimited.
A request that is missing is the limit, a limit that is missing is the request; a worker that gives no amount at all
must say that it wants whole GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import msgspec

from bursar.ledger.claims import ClaimSpec
from bursar.policies.tensorfusion.worker import (
    CONTAINER_COUNTS,
    DEDICATED,
    FULL_PERCENT,
    GPU_COUNT,
    GPU_INDICES,
    GPU_MODEL,
    ISOLATION,
    ISOLATIONS,
    MOST_GPUS,
    NOT_GIVEN,
    PERCENT_LIMIT,
    PERCENT_REQUEST,
    TFLOPS_LIMIT,
    TFLOPS_REQUEST,
    VRAM_LIMIT,
    VRAM_REQUEST,
    Side,
    Unreadable,
    Worker,
    is_worker,
)
from bursar.quantity import MILLI, UNIT, QuantityError, parse

_CACHED: Final = 65_536


def read_worker(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Worker | None:
    """The worker, None for a pod that is none; raises ``Unreadable``."""
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
    """What one side leaves open is as on the other."""
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
    """The number of GPUs, however it is given; all that give it must agree."""
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
    """Workers by spec: claims of one job share their spec, and each is read once."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: Final[dict[ClaimSpec, Worker | Unreadable | None]] = {}  # by identity

    def of(self, spec: ClaimSpec) -> Worker | Unreadable | None:
        if spec in self.known:
            return self.known[spec]
        found: Worker | Unreadable | None
        try:
            found = read_worker(spec.labels, spec.annotations)
        except Unreadable as problem:
            found = Unreadable(problem.annotation, problem.problem)  # without the frames that the caught one keeps
        if len(self.known) >= _CACHED:
            self.known.clear()
        self.known[spec] = found
        return found
