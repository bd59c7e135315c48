"""How GPUs are scored: placement modes, weights, and the points of one GPU, in exact integers."""

from __future__ import annotations

from typing import Final, final

COMPACT: Final = "CompactFirst"
LOW_LOAD: Final = "LowLoadFirst"
NODE_COMPACT: Final = "NodeCompactGPULowLoad"


@final
class Options:
    """How GPUs are chosen: the placement mode, and what vram and tflops weigh in a score, in percent."""

    __slots__ = ("mode", "tflops_weight", "vram_weight")

    def __init__(self, mode: str = NODE_COMPACT, vram_weight: int = 70) -> None:
        self.mode: Final = mode
        self.vram_weight: Final = vram_weight
        self.tflops_weight: Final = 100 - vram_weight

    def cell(self) -> tuple[object, ...]:
        return (self.mode, self.vram_weight)


def points(options: Options, tflops: int, tflops_cap: int, vram: int, vram_cap: int) -> int:
    """The weighted share of a GPU, from 0 to 100, rounded half up. A dimension that the GPU does not have counts as
    the other one. In Python integers: the products leave 64 bits.
    """
    if tflops_cap <= 0 and vram_cap <= 0:
        return 0
    if tflops_cap <= 0:
        tflops, tflops_cap = vram, vram_cap
    elif vram_cap <= 0:
        vram, vram_cap = tflops, tflops_cap
    share = options.vram_weight * vram * tflops_cap + options.tflops_weight * tflops * vram_cap
    whole = tflops_cap * vram_cap
    return min(max((2 * share + whole) // (2 * whole), 0), 100)
