"""What models of GPU have: dense half-precision tflops and memory, from ``gpu_models.csv``.

A model is found by the words of its name as nodes and drivers write it, such as ``NVIDIA-H100-80GB-HBM3`` or ``AMD
Instinct MI300X OAM``. A row matches if all its words are there; of several, the one with the most words counts. Memory
is given where a model comes in one size, and as the vendor states it, which is never more than the card has.

The table states a source for each row. ``Configuration.spec.gpus.models`` adds models and comes first.

``GPU_RESOURCES`` lists the resources by which device plugins hand out whole GPUs, and the labels with which each vendor
describes the GPUs of a node.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from bursar.resources import dimension

_BREAKS = re.compile(r"[-_ /(),]+")


_MEMORY = re.compile(r"(\d{1,12})([MGT]?)")
_UNITS = {"M": 2**20, "G": 2**30, "T": 2**40}


class GpuResource(NamedTuple):
    """A resource whose units are GPUs, and the labels of nodes that say what these are."""

    name: str
    vendor: str
    product: str
    memory: str = ""
    unit: str = "M"  # of a memory label that has none: vendors count in powers of 1024

    def product_of(self, labels: Mapping[str, str]) -> str:
        return labels.get(self.product, "")

    def memory_of(self, labels: Mapping[str, str]) -> int:
        """Bytes of one GPU; 0 where the node does not say, or not readably."""
        found = _MEMORY.fullmatch(labels.get(self.memory, ""))
        return int(found[1]) * _UNITS[found[2] or self.unit] if found else 0


GPU_RESOURCES = (
    GpuResource("nvidia.com/gpu", "NVIDIA", "nvidia.com/gpu.product", "nvidia.com/gpu.memory"),
    GpuResource("amd.com/gpu", "AMD", "amd.com/gpu.product-name", "amd.com/gpu.vram"),
    GpuResource("gpu.intel.com/i915", "Intel", "gpu.intel.com/product"),
    GpuResource("gpu.intel.com/xe", "Intel", "gpu.intel.com/product"),
)


class KnownModel(NamedTuple):
    name: str
    tflops: int  # milli
    vram: int  # bytes; 0 where the model comes in several sizes
    source: str


UNKNOWN_MODEL = KnownModel("", 0, 0, "")


@cache
def known_models() -> tuple[KnownModel, ...]:
    """All rows, in order of the file."""
    tflops, vram = dimension("tflops"), dimension("vram")
    with files("bursar.objects").joinpath("gpu_models.csv").open(encoding="utf-8") as lines:
        return tuple(
            KnownModel(row["model"], tflops.parse(row["tflops"]), vram.parse(row["vram"] or "0"), row["source"])
            for row in csv.DictReader(lines)
        )


@cache
def _by_words() -> tuple[tuple[frozenset[str], KnownModel], ...]:
    """The rows with the most words first."""
    rows = ((_words(model.name), model) for model in known_models())
    return tuple(sorted(rows, key=lambda row: (-len(row[0]), row[1].name)))


def _words(name: str) -> frozenset[str]:
    return frozenset(word for word in _BREAKS.split(name.upper()) if word)


def compute_slices(name: str) -> int:
    """Into how many slices MIG divides the compute of a GPU: an A30 into four, all others into seven."""
    return 4 if "A30" in _words(name) else 7


def model_capacity(name: str) -> KnownModel:
    """The row of a product name; ``UNKNOWN_MODEL`` if there is none."""
    words = _words(name)
    return next((model for wanted, model in _by_words() if wanted <= words), UNKNOWN_MODEL)
