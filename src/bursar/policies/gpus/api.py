"""Manifests of the GPU inventory, and the section ``gpus`` of the Configuration."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from bursar.objects.core import Int32, Lenient, Object, Part
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import Kind, PrinterColumn

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


class GpuObject(Object, frozen=True):
    status: GpuStatus = GpuStatus()


class AppPod(Lenient, frozen=True):
    """A pod on a GPU, and what it takes of it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    requests: Capacity | None = None
    limits: Capacity | None = None
    qos: str = ""


class RunningApp(Lenient, frozen=True):
    """The pods of one workload that run on a GPU."""

    namespace: str = ""
    name: str = ""
    count: int = 0
    pods: tuple[AppPod, ...] = ()


class GpuReport(GpuStatus, frozen=True):
    """The status with what Bursar writes there."""

    available: Annotated[Capacity | None, Meta(description="What is left.")] = None
    running_apps: Annotated[tuple[RunningApp, ...], Meta(description="Who uses it.")] = ()


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


class PoolReport(Lenient, frozen=True):
    """What a pool has, promises and has left, as Bursar writes it."""

    total_nodes: int = 0
    ready_nodes: Annotated[int, Meta(description="Nodes with a GPU of the pool that runs.")] = 0
    not_ready_nodes: Annotated[int, Meta(description="Nodes whose GPUs of the pool all do not run.")] = 0
    component_status: Annotated[dict[str, object], Meta(description="Filled in by TensorFusion.")] = field(
        default_factory=dict
    )
    total_gpus: int = field(name="totalGPUs", default=0)
    total_tflops: Quantity | None = field(name="totalTFlops", default=None)
    total_vram: Quantity | None = field(name="totalVRAM", default=None)
    available_tflops: Quantity | None = field(name="availableTFlops", default=None)
    available_vram: Quantity | None = field(name="availableVRAM", default=None)
    virtual_tflops: Quantity | None = field(name="virtualTFlops", default=None)
    virtual_vram: Quantity | None = field(name="virtualVRAM", default=None)
    virtual_available_tflops: Quantity | None = field(name="virtualAvailableTFlops", default=None)
    virtual_available_vram: Quantity | None = field(name="virtualAvailableVRAM", default=None)


class PlacementSpec(Lenient, frozen=True):
    mode: Mode = "NodeCompactGPULowLoad"


class TemplateSpec(Lenient, frozen=True):
    placement: PlacementSpec = PlacementSpec()


class SchedulingConfigTemplate(Object, frozen=True):
    spec: TemplateSpec = TemplateSpec()


class Model(Part, frozen=True):
    """What a model of GPU has, for GPUs that are derived from their nodes."""

    tflops: Quantity
    vram: Quantity | None = None


class HamiSection(Part, frozen=True):
    """HAMi's own defaults, for containers that do not say."""

    default_memory: Annotated[
        int, Meta(ge=0, le=1 << 24, description="MiB of each GPU; 0: all of it. HAMi's nvidia.defaultMem.")
    ] = 0
    default_cores: Annotated[
        int, Meta(ge=0, le=100, description="Percent of each GPU; 0: no limit. HAMi's nvidia.defaultCores.")
    ] = 0


class GpusSection(Part, frozen=True):
    placement_mode: Annotated[Mode, Meta(description="Of pools that have no mode of their own.")] = (
        "NodeCompactGPULowLoad"
    )
    vram_weight: Annotated[Percent, Meta(description="What vram weighs in a score; tflops weighs the rest.")] = 70
    fractions: Annotated[
        Literal["labelled", "all"],
        Meta(description="Of nodes without GPU objects: which of their GPUs are handed out in fractions."),
    ] = "labelled"
    whole_gpus: Annotated[
        Literal["count", "ignore"],
        Meta(description="Whether GPUs that a device plugin hands out whole count in GPUResourceQuotas."),
    ] = field(name="wholeGPUs", default="count")
    models: Annotated[dict[str, Model], Meta(description="What GPUs have, by the product label of their nodes.")] = (
        field(default_factory=dict)
    )
    hami: Annotated[HamiSection, Meta(description="How HAMi is configured.")] = HamiSection()


def check_gpu(gpu: GpuObject) -> None:
    """A GPU that runs must say what it has; everything else may still be on its way."""
    if gpu.status.phase != "Running":
        return
    capacity = gpu.status.capacity or Capacity()
    for name in ("tflops", "vram"):
        if getattr(capacity, name) is None:
            raise ManifestError("is required of a GPU that runs", f"status.capacity.{name}")


GPU_KIND = Kind(
    GROUP,
    VERSION,
    "GPU",
    "gpus",
    False,
    GpuObject,
    check=check_gpu,
    columns=(
        PrinterColumn("Phase", ".status.phase"),
        PrinterColumn("Model", ".status.gpuModel"),
        PrinterColumn("TFlops", ".status.capacity.tflops"),
        PrinterColumn("VRAM", ".status.capacity.vram"),
        PrinterColumn("Free TFlops", ".status.available.tflops"),
        PrinterColumn("Free VRAM", ".status.available.vram"),
        PrinterColumn("Used By", ".status.usedBy", wide=True),
    ),
    status=GpuReport,
)
POOL_KIND = Kind(
    GROUP,
    VERSION,
    "GPUPool",
    "gpupools",
    False,
    GpuPool,
    columns=(
        PrinterColumn("Nodes", ".status.totalNodes"),
        PrinterColumn("GPUs", ".status.totalGPUs"),
        PrinterColumn("TFlops", ".status.totalTFlops"),
        PrinterColumn("VRAM", ".status.totalVRAM"),
        PrinterColumn("Free TFlops", ".status.availableTFlops"),
        PrinterColumn("Free VRAM", ".status.availableVRAM"),
        PrinterColumn("Virtual TFlops", ".status.virtualTFlops", wide=True),
        PrinterColumn("Virtual VRAM", ".status.virtualVRAM", wide=True),
    ),
    status=PoolReport,
)
TEMPLATE_KIND = Kind(
    GROUP,
    VERSION,
    "SchedulingConfigTemplate",
    "schedulingconfigtemplates",
    False,
    SchedulingConfigTemplate,
    columns=(PrinterColumn("Mode", ".spec.placement.mode"),),
)
