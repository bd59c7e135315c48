"""The manifests of elastic quotas, as their users have them: strict, so that a misspelt limit is an error."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, field

from bursar.objects.core import Manifest, Part, Quantities
from bursar.objects.crds import MIN_WITHIN_MAX, Rule, WrittenStatus
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import Kind, PrinterColumn
from bursar.objects.requests import amounts_from
from bursar.objects.validation import check_namespace, is_qualified
from bursar.policies.elastic.settings import COMPOSITE, DEFAULT_GB, ELASTIC_QUOTA, GROUP
from bursar.policies.ownership import named_by
from bursar.resources import dimension

VERSION = "v1alpha1"
LARGEST_GPU_GB = 1_000_000

_COLUMNS = (
    PrinterColumn("Used", ".status.used"),
    PrinterColumn("Reserved", ".status.reserved", wide=True),
    PrinterColumn("Borrowed", ".status.borrowed", wide=True),
    PrinterColumn("Min", ".spec.min"),
    PrinterColumn("Max", ".spec.max"),
)

Min = Annotated[Quantities, Meta(description="What is guaranteed; what is not in use is lent to other quotas.")]
Max = Annotated[Quantities, Meta(description="What is never exceeded. A resource that is not listed has no ceiling.")]
GigaBytes = Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": LARGEST_GPU_GB})]


class ElasticQuotaSpec(Part, frozen=True):
    rules: ClassVar[tuple[Rule, ...]] = (MIN_WITHIN_MAX,)

    min: Min = field(default_factory=dict)
    max: Max = field(default_factory=dict)


class ElasticQuota(Manifest, frozen=True):
    spec: ElasticQuotaSpec = ElasticQuotaSpec()


class CompositeElasticQuotaSpec(Part, frozen=True, kw_only=True):
    rules: ClassVar[tuple[Rule, ...]] = (MIN_WITHIN_MAX,)

    namespaces: Annotated[
        tuple[
            Annotated[str, Meta(extra_json_schema={"pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63})], ...
        ],
        Meta(
            description="The namespaces that share this quota.",
            extra_json_schema={"minItems": 1, "x-kubernetes-list-type": "set"},
        ),
    ]
    min: Min = field(default_factory=dict)
    max: Max = field(default_factory=dict)
    takeover: Annotated[bool, Meta(description="Replace the ElasticQuotas of these namespaces.")] = False


class CompositeElasticQuota(Manifest, frozen=True, kw_only=True):
    spec: CompositeElasticQuotaSpec


class ElasticQuotaStatus(WrittenStatus, frozen=True):
    used: Annotated[Quantities, Meta(description="What runs.")] = field(default_factory=dict)
    reserved: Annotated[Quantities, Meta(description="What decisions count: what runs, and what was admitted.")] = (
        field(default_factory=dict)
    )
    borrowed: Annotated[Quantities, Meta(description="What is in use beyond min.")] = field(default_factory=dict)


class ElasticSection(Part, frozen=True):
    """``Configuration.spec.elastic``."""

    gpu_memory: Annotated[GigaBytes, Meta(description="The GB of gpu-memory that one nvidia.com/gpu stands for.")] = (
        field(name="nvidiaGPUResourceMemoryGB", default=DEFAULT_GB)
    )
    slices: Annotated[
        dict[str, GigaBytes],
        Meta(description="GB by resource name, for slices that do not carry their size in the name."),
    ] = field(default_factory=dict)
    borrowing: Annotated[
        Literal["min", "capacity"],
        Meta(description="What all may use together: the sum of min, or what the cluster has."),
    ] = "min"
    order: Annotated[
        Literal["priority", "creation"], Meta(description="Which pods of a quota count as in-quota first.")
    ] = "priority"


def check_elastic_quota(quota: ElasticQuota) -> None:
    named_by(quota.metadata.annotations)
    _check_bounds(quota.spec.min, quota.spec.max)


def check_composite(quota: CompositeElasticQuota) -> None:
    named_by(quota.metadata.annotations)
    _check_bounds(quota.spec.min, quota.spec.max)
    if not quota.spec.namespaces:
        raise ManifestError("must name at least one namespace", "spec.namespaces")
    for index, namespace in enumerate(quota.spec.namespaces):
        path = f"spec.namespaces[{index}]"
        check_namespace(namespace, path)
        if namespace in quota.spec.namespaces[:index]:
            raise ManifestError(f"{namespace} is named twice", path)


def _check_bounds(minimum: Quantities, maximum: Quantities) -> None:
    least = amounts_from(minimum, "spec.min")
    for name, most in amounts_from(maximum, "spec.max").items():
        if name in least and most < least[name]:
            show = dimension(name).show
            raise ManifestError(f"{show(most)} is less than the min of {show(least[name])}", f"spec.max.{name}")


def check_section(section: ElasticSection) -> None:
    """Raises with paths inside the section."""
    _check_size(section.gpu_memory, "nvidiaGPUResourceMemoryGB")
    for name, size in section.slices.items():
        if not is_qualified(name):
            raise ManifestError("is not the name of a resource", f"slices.{name}")
        _check_size(size, f"slices.{name}")


def _check_size(size: int, path: str) -> None:
    if not 0 <= size <= LARGEST_GPU_GB:
        raise ManifestError(f"{size} is not a number of GB from 0 to {LARGEST_GPU_GB}", path)


ELASTIC_QUOTA_KIND = Kind(
    GROUP,
    VERSION,
    ELASTIC_QUOTA,
    "elasticquotas",
    True,
    ElasticQuota,
    strict=True,
    short_names=("eq", "eqs"),
    check=check_elastic_quota,
    columns=_COLUMNS,
    status=ElasticQuotaStatus,
)
COMPOSITE_KIND = Kind(
    GROUP,
    VERSION,
    COMPOSITE,
    "compositeelasticquotas",
    True,
    CompositeElasticQuota,
    strict=True,
    short_names=("ceq", "ceqs"),
    check=check_composite,
    columns=_COLUMNS,
    status=ElasticQuotaStatus,
)
