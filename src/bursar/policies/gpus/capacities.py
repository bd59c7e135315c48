"""What GPUs have, where no GPU object says it: half-precision tflops of the usual models, by the name in a label.

Configured models come before these, and match the whole label. The table below matches by a word of the label, the
longest name first, so that L40S is not taken for an L40.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Dense half-precision tflops, in thousandths.
_TFLOPS: Final[dict[str, int]] = {
    "A10": 125_000,
    "A100": 312_000,
    "A30": 165_000,
    "A40": 149_700,
    "H100": 989_000,
    "H200": 989_000,
    "L4": 121_000,
    "L40": 181_000,
    "L40S": 362_000,
    "T4": 65_000,
    "V100": 125_000,
}


def capacity_of(model: str, vram: int, models: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """(milli-tflops, bytes) of a model; 0 for what is not known. ``vram`` is what the node says, 0 if nothing."""
    configured = models.get(model)
    if configured is not None:
        return configured[0], vram or configured[1]
    for word in model.replace("_", "-").replace(" ", "-").split("-"):
        known = _TFLOPS.get(word.upper())
        if known is not None:
            return known, vram
    return 0, vram
