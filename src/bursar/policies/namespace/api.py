"""Manifests of namespace quotas, and of workloads that declare how much they will want."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta, field

from bursar.objects.core import Int32, Lenient, Manifest, Object, Part
from bursar.objects.crds import Rule, WrittenStatus, not_above
from bursar.objects.kinds import Kind, PrinterColumn

GROUP = "tensor-fusion.ai"
VERSION = "v1"

Quantity = str | int | float
Natural = Annotated[Int32, Meta(extra_json_schema={"minimum": 0})]


def _ordered(less: str, more: str, message: str) -> tuple[Rule, Rule]:
    """Two fields, each with amounts of tflops and vram: the one is never above the other where both are given."""
    return (_ordered_in("tflops", less, more, message), _ordered_in("vram", less, more, message))


def _ordered_in(name: str, less: str, more: str, message: str) -> Rule:
    one, other = f"self.{less}.{name}", f"self.{more}.{name}"
    given = f"has(self.{less}) && has({one}) && has(self.{more}) && has({other})"
    return Rule(f"!({given}) || {not_above(one, other)}", message.format(name=name))


class GpuAmounts(Part, frozen=True):
    """Amounts of a quota. What is not given is not limited; zero is none."""

    tflops: Annotated[Quantity | None, Meta(description="Compute in TFLOPS.")] = None
    vram: Annotated[Quantity | None, Meta(description="GPU memory in bytes.")] = None


class Total(Part, frozen=True):
    rules: ClassVar[tuple[Rule, ...]] = _ordered(
        "requests", "limits", "limits.{name} cannot be less than requests.{name}"
    )

    requests: Annotated[GpuAmounts | None, Meta(description="The sum of all requests.")] = None
    limits: Annotated[GpuAmounts | None, Meta(description="The sum of all limits.")] = None
    max_workers: Annotated[Natural | None, Meta(description="How many workers there may be.")] = None
    alert_threshold_percent: Annotated[
        Annotated[Natural, Meta(extra_json_schema={"maximum": 100})] | None,
        Meta(description="The used share from which on the quota alerts; 95 if it is not given."),
    ] = None


class Single(Part, frozen=True):
    rules: ClassVar[tuple[Rule, ...]] = (
        *_ordered("maxRequests", "maxLimits", "maxLimits.{name} cannot be less than maxRequests.{name}"),
        *_ordered(
            "defaultRequests", "defaultLimits", "defaultLimits.{name} cannot be less than defaultRequests.{name}"
        ),
        *_ordered("defaultRequests", "maxRequests", "defaultRequests.{name} cannot be more than maxRequests.{name}"),
        *_ordered("defaultLimits", "maxLimits", "defaultLimits.{name} cannot be more than maxLimits.{name}"),
    )

    max_requests: Annotated[GpuAmounts | None, Meta(description="The most that one workload may request.")] = None
    max_limits: Annotated[GpuAmounts | None, Meta(description="The highest limits of one workload.")] = None
    max_gpu_count: Annotated[Natural | None, Meta(description="The most GPUs of one workload.")] = field(
        name="maxGPUCount", default=None
    )
    default_requests: Annotated[GpuAmounts | None, Meta(description="Requests of workers that give none.")] = None
    default_limits: Annotated[GpuAmounts | None, Meta(description="Limits of workers that give none.")] = None


class QuotaSpec(Part, frozen=True):
    total: Annotated[Total | None, Meta(description="What the namespace may use in all.")] = None
    single: Annotated[Single | None, Meta(description="What one workload may use.")] = None


class GPUResourceQuota(Manifest, frozen=True):
    spec: QuotaSpec = QuotaSpec()


class UsageStatus(Part, frozen=True):
    requests: GpuAmounts = GpuAmounts()
    limits: GpuAmounts = GpuAmounts()
    workers: int = 0


class QuotaStatus(WrittenStatus, frozen=True):
    used: Annotated[UsageStatus | None, Meta(description="What the namespace's workers take.")] = None
    declared: Annotated[
        UsageStatus | None, Meta(description="What its workloads would take with all their replicas.")
    ] = None
    available_percent: Annotated[dict[str, str], Meta(description="What is left of each limit, in percent.")] = field(
        default_factory=dict
    )
    last_update_time: Annotated[
        str | None, Meta(description="When this was written.", extra_json_schema={"format": "date-time"})
    ] = None


class Demand(Lenient, frozen=True):
    """What one GPU of a workload asks for; ``compute`` is in percent of a GPU."""

    tflops: Quantity | None = None
    compute: Quantity | None = None
    vram: Quantity | None = None


class Demands(Lenient, frozen=True):
    requests: Demand = Demand()
    limits: Demand = Demand()


class WorkloadSpec(Lenient, frozen=True):
    replicas: Int32 | None = None
    gpu_count: Int32 = 1
    resources: Demands = Demands()


class Workload(Object, frozen=True):
    spec: WorkloadSpec = WorkloadSpec()


QUOTA_KIND = Kind(
    GROUP,
    VERSION,
    "GPUResourceQuota",
    "gpuresourcequotas",
    True,
    GPUResourceQuota,
    strict=True,
    short_names=("gpuquota",),
    columns=(
        PrinterColumn("TFlops", ".status.used.requests.tflops"),
        PrinterColumn("VRAM", ".status.used.requests.vram"),
        PrinterColumn("Workers", ".status.used.workers"),
        PrinterColumn("Total TFlops", ".spec.total.requests.tflops", wide=True),
        PrinterColumn("Total VRAM", ".spec.total.requests.vram", wide=True),
        PrinterColumn("Max Workers", ".spec.total.maxWorkers", wide=True),
        PrinterColumn("Alert", '.status.conditions[?(@.type=="AlertThresholdReached")].status', wide=True),
        PrinterColumn("Exceeded", '.status.conditions[?(@.type=="Exceeded")].status'),
        PrinterColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
    ),
    status=QuotaStatus,
)
_WORKLOAD_COLUMNS = (PrinterColumn("Replicas", ".spec.replicas"), PrinterColumn("GPUs", ".spec.gpuCount"))
WORKLOAD_KIND = Kind(
    GROUP, VERSION, "TensorFusionWorkload", "tensorfusionworkloads", True, Workload, columns=_WORKLOAD_COLUMNS
)
PROFILE_KIND = Kind(GROUP, VERSION, "WorkloadProfile", "workloadprofiles", True, Workload, columns=_WORKLOAD_COLUMNS)
