"""GPU memory in whole GB, derived from the GPU resources that a claim requests.

``nvidia.com/gpu`` counts a configured number of GB a piece; a MIG device and an MPS slice carry their size in the name
(``nvidia.com/mig-1g.10gb``, ``nvidia.com/gpu-10gb``); any other resource counts what a configured table says, which
also overrides the sizes in names. The derived amount replaces whatever the claim itself says about gpu-memory: a user
must not be able to understate it.
"""

from __future__ import annotations

import re
from typing import Final, final

from bursar.dimensions import dimension, dimension_at
from bursar.policies.elastic.names import GPU_MEMORY
from bursar.vectors import Vector, from_indices

WHOLE_GPU: Final = "nvidia.com/gpu"
DEFAULT_GB: Final = 16
_MIG: Final = re.compile(r"nvidia\.com/mig-(?:[0-9]+c\.)?[0-9]+g\.([0-9]{1,6})gb(?:\.[a-z0-9.+-]+)?", re.ASCII)
_MPS: Final = re.compile(r"nvidia\.com/gpu-([0-9]{1,6})gb", re.ASCII)


def mig_gb(resource: str) -> int:
    """The size of a MIG device; 0 when the resource is none."""
    found = _MIG.fullmatch(resource)
    return int(found.group(1)) if found else 0


def slice_gb(resource: str) -> int:
    """The size that a resource carries in its name; 0 when it carries none."""
    found = _MPS.fullmatch(resource)
    return int(found.group(1)) if found else mig_gb(resource)


@final
class GpuMemory:
    """GB by resource, and the request vectors that follow from it."""

    __slots__ = ("index", "sizes", "table", "whole")

    def __init__(self, whole: int, table: dict[str, int]) -> None:
        self.whole: Final = whole  # GB of a whole GPU
        self.table: Final = table  # GB of other resources
        self.index: Final = dimension(GPU_MEMORY).index
        self.sizes: Final[dict[int, int]] = {}  # by dimension, worked out once

    def size(self, dim: int) -> int:
        """GB of one unit of the dimension."""
        known = self.sizes.get(dim)
        if known is None:
            name = dimension_at(dim).name
            named = self.whole if name == WHOLE_GPU else slice_gb(name)
            known = self.table.get(name, named)
            self.sizes[dim] = known
        return known

    def gigabytes(self, requests: Vector) -> int:
        total = 0
        for dim in requests.indices():
            size = self.size(dim)
            if size:
                total += size * requests.get(dim)
        return total

    def cost(self, requests: Vector) -> Vector:
        """The requests with the derived gpu-memory instead of any that they state themselves."""
        derived = self.gigabytes(requests)
        if derived == requests.get(self.index):
            return requests
        rest = [(dim, requests.get(dim)) for dim in requests.indices() if dim != self.index]
        return from_indices([*rest, (self.index, derived)])
