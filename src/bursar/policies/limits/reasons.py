"""What the quotas of namespaces say when they refuse; the codes of single and total are those of their origin."""

from __future__ import annotations

from typing import Final

from bursar.policies.reasons import Reason

_SINGLE: Final = "Ask for less in one workload, or raise `spec.single` of the quota. Waiting does not help."
_TOTAL: Final = "Wait for workloads of the namespace to end, ask for less, or raise `spec.total` of the quota."


def _single(part: str, what: str) -> Reason:
    return Reason(f"single.max.{part}", f"One workload asks for more {what} than a single one may.", _SINGLE)


def _total(part: str, what: str) -> Reason:
    return Reason(f"total.max.{part}", f"All workloads of the namespace together would have too much: {what}.", _TOTAL)


REASONS: Final = (
    _single("tflops.request", "tflops (request)"),
    _single("vram.request", "vram (request)"),
    _single("tflops.limit", "tflops (limit)"),
    _single("vram.limit", "vram (limit)"),
    _single("gpuCount.limit", "GPUs"),
    _total("tflops.request", "tflops (requests)"),
    _total("vram.request", "vram (requests)"),
    _total("tflops.limit", "tflops (limits)"),
    _total("vram.limit", "vram (limits)"),
    _total("workers.limit", "workers"),
    Reason(
        "limits.annotation",
        "An annotation that says what part of a GPU the pod wants cannot be read; the note names it.",
        "Correct the annotation, and create the pod anew.",
    ),
    Reason(
        "limits.capacity",
        "The pod asks for a share of a GPU, and the capacity of no GPU that it may use is known.",
        "Apply `GPU` objects, or ask for tflops and vram.",
    ),
    Reason(
        "limits.invalid",
        "A quota of the namespace is invalid and has never been valid, so nothing can be judged by it.",
        "Correct the quota: the note says what is wrong with it.",
    ),
)
