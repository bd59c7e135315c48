"""HAMi: the resources that its scheduler reads of pods, and the GPUs that its device plugin registers on a node.

The annotation ``hami.io/node-nvidia-register`` lists them: a JSON list of id, count, devmem (MiB), devcore (percent),
type and health, or in older versions ``uuid,count,devmem,devcore,type,numa,healthy`` with a colon after each. What is
read is checked; further fields are ignored, because the list grows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

GPU_RESOURCE: Final = "nvidia.com/gpu"
MEMORY: Final = "nvidia.com/gpumem"  # MiB of each GPU
PERCENTAGE: Final = "nvidia.com/gpumem-percentage"
CORES: Final = "nvidia.com/gpucores"  # percent of each GPU
TASK_PRIORITY: Final = "nvidia.com/priority"
PART_RESOURCES: Final = (MEMORY, PERCENTAGE, CORES, TASK_PRIORITY)  # which no node has
REGISTER = "hami.io/node-nvidia-register"
MIB = 1 << 20
MOST_MIB = 1 << 24  # 16 TiB
MOST_CORES = 100_000
_MOST_GPUS = 128
_FIELDS = 7  # at least, in the older form


class RegisteredGpu(msgspec.Struct, frozen=True):
    """One GPU in the annotation."""

    id: str = ""
    devmem: int = 0
    devcore: int = 100
    type: str = ""
    health: bool = True

    def model(self) -> str:
        """The product, as the label ``nvidia.com/gpu.product`` has it."""
        return self.type.removeprefix("NVIDIA-").replace(" ", "-")

    def problem(self) -> str:
        if not 0 <= self.devmem <= MOST_MIB:
            return f"GPU {self.id:.40} has devmem {self.devmem}"
        if not 0 <= self.devcore <= MOST_CORES:
            return f"GPU {self.id:.40} has devcore {self.devcore}"
        return ""


def read_register(text: str) -> tuple[list[RegisteredGpu], str]:
    """The GPUs of the annotation, or what is wrong with it."""
    found: list[RegisteredGpu] | None
    try:
        if text.lstrip().startswith("["):
            found = msgspec.json.decode(text, type=list[RegisteredGpu])
        else:
            found = [_older(row) for row in text.split(":") if row.strip()]
    except (msgspec.DecodeError, ValueError, RecursionError):
        return [], "is no list of GPUs"
    if len(found) > _MOST_GPUS:
        return [], f"lists more than {_MOST_GPUS} GPUs"
    problems = [problem for problem in [gpu.problem() for gpu in found] if problem]
    return ([], problems[0]) if problems else (found, "")


def _older(row: str) -> RegisteredGpu:
    fields = row.strip().split(",")
    if len(fields) < _FIELDS:
        raise ValueError(row)
    return RegisteredGpu(fields[0], int(fields[2]), int(fields[3]), fields[4], fields[6] == "true")


@dataclass(frozen=True)
class SlicedGpus:
    """What the healthy GPUs of a node of HAMi have together."""

    vram: int  # bytes
    cores: int  # percent of a GPU
    largest: int  # vram of the largest of all GPUs, in bytes
    count: int

    def cell(self) -> tuple[int, int, int, int]:
        return (self.vram, self.cores, self.largest, self.count)


def sliced(gpus: list[RegisteredGpu]) -> SlicedGpus:
    healthy = [gpu for gpu in gpus if gpu.health]
    largest = max([gpu.devmem for gpu in gpus], default=0)
    cores = sum([gpu.devcore for gpu in healthy])
    return SlicedGpus(sum([gpu.devmem for gpu in healthy]) * MIB, cores, largest * MIB, len(healthy))
