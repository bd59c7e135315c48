"""Settings of the gpus policy: GPUs, the nodes they are in, pools, and how GPUs are chosen.

Where there are no GPU objects for a node, its GPUs are derived from the node itself. Derived GPUs are named
``<node>:<index>``, which no object can be called, and give way as soon as the node has a GPU object.

What GPUs have, where no GPU object says it: half-precision tflops of the usual models, by the name in a label.

Configured models come before these, and match the whole label. The table below matches by a word of the label, the
longest name first, so that L40S is not taken for an L40.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from bursar.policies.gpus.fleet import Gpu, ScoringOptions
from bursar.policies.results import Body

GPU: Final = "gpus.GPU"
HOST: Final = "gpus.Host"
POOL: Final = "gpus.Pool"
TEMPLATE: Final = "gpus.Template"
OPTIONS: Final = "gpus.Options"
KINDS: Final = (GPU, HOST, POOL, TEMPLATE, OPTIONS)


def is_derived(name: str) -> bool:
    return ":" in name


@final
class GpuBody(Body):
    """A GPU object."""

    __slots__ = ("gpu",)

    def __init__(self, gpu: Gpu) -> None:
        self.gpu: Final = gpu


@final
class HostBody(Body):
    """What a node says of its GPUs."""

    __slots__ = ("count", "disk", "fractions", "memory", "model", "vram")

    def __init__(
        self, count: int = 0, model: str = "", vram: int = 0, fractions: int = -1, memory: int = 0, disk: int = 0
    ) -> None:
        self.count: Final = count
        self.model: Final = model
        self.vram: Final = vram  # of one GPU
        self.fractions: Final = fractions  # how many are for fractions; -1: as configured
        self.memory: Final = memory  # of the node itself, as its disk: what pools may extend vram to
        self.disk: Final = disk

    def cell(self) -> tuple[object, ...]:
        return (self.count, self.model, self.vram, self.fractions, self.memory, self.disk)


@final
class PoolBody(Body):
    """A pool: the template with its placement mode, whether workers that name no pool belong to it, and what it
    promises beyond what it has: (percent of host memory, percent of host disk, tflops in percent).
    """

    __slots__ = ("default", "oversell", "template")

    def __init__(self, template: str = "", default: bool = False, oversell: tuple[int, int, int] | None = None) -> None:
        self.template: Final = template
        self.default: Final = default
        self.oversell: Final = oversell


@final
class TemplateBody(Body):
    """A scheduling template: the placement mode of the pools that name it."""

    __slots__ = ("mode",)

    def __init__(self, mode: str) -> None:
        self.mode: Final = mode


@final
class GpuOptionsBody(Body):
    """The section ``gpus`` of the Configuration."""

    __slots__ = ("all_fractions", "models", "options")

    def __init__(
        self, options: ScoringOptions, all_fractions: bool = False, models: Mapping[str, tuple[int, int]] | None = None
    ) -> None:
        self.options: Final = options
        self.all_fractions: Final = all_fractions
        self.models: Final = dict(models) if models is not None else {}

    def cell(self) -> tuple[object, ...]:
        """What GPUs are derived by; the rest has a cell of its own."""
        return (self.all_fractions, tuple(sorted(self.models.items())))


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
