"""Settings of the gpus policy: GPUs, the nodes they are in, pools, templates and options.

The GPUs of a node without GPU objects are derived from the node itself. They are named ``<node>:<index>``, which no
object can be called, and are removed as soon as the node has a GPU object.

What a model of GPU has comes from the Configuration, or else from the usual figures that the node's setting carries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
@dataclass
class GpuBody(Body):
    gpu: Gpu


@final
@dataclass
class HostBody(Body):
    """What a node offers of GPUs, and the memory and disk to which pools may extend vram."""

    count: int = 0
    model: str = ""
    vram: int = 0  # of one GPU, as the node has it; 0: it does not say
    fractions: int = -1  # how many are for fractions; -1: as configured
    memory: int = 0
    disk: int = 0
    usual: tuple[int, int] = (0, 0)  # (milli-tflops, vram) of GPUs of that model; 0: not known

    def cell(self) -> tuple[object, ...]:
        return (self.count, self.model, self.vram, self.fractions, self.memory, self.disk, self.usual)


@final
@dataclass
class PoolBody(Body):
    template: str = ""  # with its placement mode
    default: bool = False  # for workers that name no pool
    oversell: tuple[int, int, int] | None = None  # percent of host memory, of host disk, of tflops


@final
@dataclass
class TemplateBody(Body):
    """A scheduling template: the placement mode of the pools that name it."""

    mode: str


@final
@dataclass
class GpuOptionsBody(Body):
    """The section ``gpus`` of the Configuration."""

    options: ScoringOptions
    all_fractions: bool = False
    models: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def cell(self) -> tuple[object, ...]:
        """How GPUs are derived from nodes; the scoring options have a cell of their own."""
        return (self.all_fractions, tuple(sorted(self.models.items())))
