"""Manifests of the GPU inventory, and the section ``gpus`` of the Configuration."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from bursar.objects.core import Int32, Lenient, Object, Part
from bursar.objects.errors import ManifestError
from bursar.objects.kinds import Kind

GROUP = "tensor-fusion.ai"
VERSION = "v1"

Quantity = str | int | float
Percent = Annotated[int, Meta(ge=0, le=100)]
Mode = Literal["CompactFirst", "LowLoadFirst", "NodeCompactGPULowLoad"]


class Capacity(Lenient, frozen=True):
    tflops: Quantity | None = None
    vram: Quantity | None = None


class GpuStatus(Lenient, frozen=True):
    phase: str = "Pending"
    vendor: str = "NVIDIA"
    capacity: Capacity | None = None
    index: Int32 | None = None
    gpu_model: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)
    used_by: str = ""
    isolation_mode: str = ""
    isolation_policy: str = ""


class Gpu(Object, frozen=True):
    status: GpuStatus = GpuStatus()


class Oversubscription(Lenient, frozen=True):
    """What a pool promises beyond what it has, in percent."""

    vram_expand_to_host_mem: Percent = 50
    vram_expand_to_host_disk: Percent = 70
    tflops_oversell_ratio: Annotated[int, Meta(ge=100, le=100_000)] = 500


class CapacityConfig(Lenient, frozen=True):
    oversubscription: Oversubscription | None = None


class PoolSpec(Lenient, frozen=True):
    scheduling_config_template: str | None = None
    capacity_config: CapacityConfig | None = None


class GpuPool(Object, frozen=True):
    spec: PoolSpec = PoolSpec()


class Placement(Lenient, frozen=True):
    mode: Mode = "NodeCompactGPULowLoad"


class TemplateSpec(Lenient, frozen=True):
    placement: Placement = Placement()


class SchedulingConfigTemplate(Object, frozen=True):
    spec: TemplateSpec = TemplateSpec()


class Model(Part, frozen=True):
    """What a model of GPU has, for GPUs that are derived from their nodes."""

    tflops: Quantity
    vram: Quantity | None = None


class GpusSection(Part, frozen=True):
    """``Configuration.spec.gpus``."""

    placement_mode: Mode = "NodeCompactGPULowLoad"  # of pools that have no mode of their own
    vram_weight: Percent = 70  # what vram weighs in a score; tflops weighs the rest
    fractions: Literal["labelled", "all"] = "labelled"  # GPUs of nodes without GPU objects: which are for fractions
    models: dict[str, Model] = field(default_factory=dict)  # by the product label of nodes


def check_gpu(gpu: Gpu) -> None:
    """A GPU that runs must say what it has; everything else may still be on its way."""
    if gpu.status.phase != "Running":
        return
    capacity = gpu.status.capacity or Capacity()
    for name in ("tflops", "vram"):
        if getattr(capacity, name) is None:
            raise ManifestError("is required of a GPU that runs", f"status.capacity.{name}")


GPU_KIND = Kind(GROUP, VERSION, "GPU", "gpus", False, Gpu, check=check_gpu)
POOL_KIND = Kind(GROUP, VERSION, "GPUPool", "gpupools", False, GpuPool)
TEMPLATE_KIND = Kind(
    GROUP, VERSION, "SchedulingConfigTemplate", "schedulingconfigtemplates", False, SchedulingConfigTemplate
)
