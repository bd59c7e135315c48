"""GPUs that a DRA driver publishes: ResourceSlices as inventory of a node, before its labels.

A device of type ``gpu`` is a GPU. A MIG device counts as a GPU of its own, with its part of the compute, where its
parent is not published and it draws on no shared counters: such devices exist side by side, the others exclude each
other. Of a pool only the newest generation counts.

The cell of a slice has its pool, its generation and its GPUs; ``PublishedGpus`` follows these cells by node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast, final

from bursar.objects.devices import Device, DeviceCapacity, ResourceSlice
from bursar.objects.gpu_models import compute_slices, model_capacity
from bursar.policies.results import Body, Setting
from bursar.quantity import UNIT, parse

SLICE: Final = "gpus.Slice"
SLICES: Final = "gpus.slices"  # table: ResourceSlice -> its cell
DRIVER: Final = "gpu.nvidia.com"
_MEMORY: Final = "memory"
_PROFILE: Final = re.compile(r"(\d)g\.\d{1,4}gb(?:\+.*)?", re.IGNORECASE)
_NUMBER: Final = re.compile(r"\d{1,9}")

GpuRow = tuple[str, str, str, int, str, tuple[int, int]]
"""Device, uuid, model, bytes, uuid of the GPU that it is a part of, part of its compute."""


@final
@dataclass(frozen=True)
class PublishedGpu:
    device: str
    uuid: str
    model: str
    vram: int  # bytes
    parent: str = ""  # uuid of the GPU of a MIG device
    part: tuple[int, int] = (1, 1)  # of the compute of a GPU

    def cell(self) -> GpuRow:
        return (self.device, self.uuid, self.model, self.vram, self.parent, self.part)

    def tflops(self, models: Mapping[str, tuple[int, int]]) -> int:
        """Milli-tflops; 0 where the model is not known."""
        whole = models[self.model][0] if self.model in models else model_capacity(self.model).tflops
        return whole * self.part[0] // self.part[1]


SliceCell = tuple[str, str, int, tuple[GpuRow, ...]]
"""Node, pool, generation, GPUs."""


@final
@dataclass
class SliceBody(Body):
    """One ResourceSlice with GPUs of a node."""

    node: str
    pool: str
    generation: int
    gpus: tuple[PublishedGpu, ...]

    def cell(self) -> SliceCell:
        return (self.node, self.pool, self.generation, tuple([gpu.cell() for gpu in self.gpus]))


def slice_settings(key: str, given: ResourceSlice | None) -> list[Setting]:
    """A slice of a driver whose devices are GPUs; any other one has none."""
    if given is None or given.spec.driver != DRIVER or not given.spec.node_name:
        return [Setting(SLICE, key, None)]
    spec = given.spec
    gpus = [gpu for gpu in [_gpu(device) for device in spec.devices] if gpu is not None]
    return [Setting(SLICE, key, SliceBody(spec.node_name, spec.pool.name, spec.pool.generation, tuple(gpus)))]


def _gpu(device: Device) -> PublishedGpu | None:
    """The GPU that a device is; None for other devices, and for MIG devices that exclude others."""
    kind, profile = _text(device, "type"), _PROFILE.fullmatch(_text(device, "profile"))
    if kind not in {"gpu", "mig"} or (kind == "mig" and (device.consumes_counters or profile is None)):
        return None
    model = _text(device, "productName").replace(" ", "-")
    parent = ""
    part = (1, 1)
    if kind == "mig" and profile is not None:
        parts = compute_slices(model)
        part = (min(int(profile[1]), parts), parts)
        parent = _text(device, "parentUUID") or "unknown"
    memory = device.capacity.get(_MEMORY, device.capacity.get(f"{DRIVER}/{_MEMORY}", DeviceCapacity(0)))
    return PublishedGpu(device.name, _text(device, "uuid"), model, parse(memory.value, UNIT), parent, part)


def _text(device: Device, name: str) -> str:
    found = device.attributes.get(name) or device.attributes.get(f"{DRIVER}/{name}")
    return "" if found is None or found.text is None else found.text


def slice_node(cell: object) -> str:
    """The node of a slice that is known; "" if it is not."""
    return "" if cell is None else cast("SliceCell", cell)[0]


@final
class PublishedGpus:
    """The published GPUs of each node, by the cells of slices."""

    def __init__(self) -> None:
        self.slices: Final[dict[str, dict[str, SliceCell]]] = {}  # by node, by slice

    def slice_changed(self, name: str, old: object, new: object) -> None:
        if old is not None:
            node = cast("SliceCell", old)[0]
            del self.slices[node][name]
            if not self.slices[node]:
                del self.slices[node]
        if new is not None:
            cell = cast("SliceCell", new)
            self.slices.setdefault(cell[0], {})[name] = cell

    def of(self, node: str) -> tuple[PublishedGpu, ...]:
        """In the order of their numbers."""
        cells = self.slices.get(node)
        if cells is None:
            return ()
        newest: dict[str, int] = {}
        for _, pool, generation, _ in cells.values():
            newest[pool] = max(newest.get(pool, generation), generation)
        rows = [row for cell in cells.values() if cell[2] == newest[cell[1]] for row in cell[3]]
        whole = {row[1] for row in rows if not row[4]}
        found = [PublishedGpu(*row) for row in rows if not row[4] or row[4] not in whole]
        return tuple(sorted(found, key=lambda gpu: _order(gpu.device)))


def _order(device: str) -> tuple[list[int], str]:
    """``gpu-10`` comes after ``gpu-9``."""
    return [int(number) for number in _NUMBER.findall(device)], device
