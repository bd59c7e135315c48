"""Manifests of namespace quotas, and of workloads that declare how much they will want."""

from __future__ import annotations

from msgspec import field

from bursar.objects.core import Int32, Lenient, Manifest, Object, Part
from bursar.objects.kinds import Kind

GROUP = "tensor-fusion.ai"
VERSION = "v1"

Quantity = str | int | float


class Resource(Part, frozen=True):
    """Amounts of a quota. What is not given is not limited; zero is none."""

    tflops: Quantity | None = None
    vram: Quantity | None = None


class Total(Part, frozen=True):
    requests: Resource | None = None
    limits: Resource | None = None
    max_workers: Int32 | None = None
    alert_threshold_percent: Int32 | None = None


class Single(Part, frozen=True):
    max_requests: Resource | None = None
    max_limits: Resource | None = None
    max_gpu_count: Int32 | None = field(name="maxGPUCount", default=None)
    default_requests: Resource | None = None
    default_limits: Resource | None = None


class QuotaSpec(Part, frozen=True):
    total: Total | None = None
    single: Single | None = None


class GPUResourceQuota(Manifest, frozen=True):
    spec: QuotaSpec = QuotaSpec()


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
)
WORKLOAD_KIND = Kind(GROUP, VERSION, "TensorFusionWorkload", "tensorfusionworkloads", True, Workload)
PROFILE_KIND = Kind(GROUP, VERSION, "WorkloadProfile", "workloadprofiles", True, Workload)
