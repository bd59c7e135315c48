"""The manifests of elastic quotas, as their users have them: strict, so that a misspelt limit is an error."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from bursar.objects.core import Manifest, Part, Quantities
from bursar.objects.errors import ManifestError
from bursar.objects.kinds import Kind
from bursar.objects.names import check_namespace, is_qualified
from bursar.objects.quantities import amounts_from
from bursar.policies.elastic.gpu_memory import DEFAULT_GB
from bursar.policies.elastic.names import COMPOSITE, ELASTIC_QUOTA, GROUP
from bursar.vectors import dimension

VERSION = "v1alpha1"
LARGEST_GPU_GB = 1_000_000

_COLUMNS = (
    ("Used", ".status.used"),
    ("Reserved", ".status.reserved"),
    ("Min", ".spec.min"),
    ("Max", ".spec.max"),
    ("Age", ".metadata.creationTimestamp"),
)


class ElasticQuotaSpec(Part, frozen=True):
    min: Quantities = field(default_factory=dict)
    max: Quantities = field(default_factory=dict)


class ElasticQuota(Manifest, frozen=True):
    spec: ElasticQuotaSpec = ElasticQuotaSpec()


class CompositeElasticQuotaSpec(Part, frozen=True, kw_only=True):
    namespaces: tuple[str, ...]
    min: Quantities = field(default_factory=dict)
    max: Quantities = field(default_factory=dict)
    takeover: bool = False  # replaces the ElasticQuotas of its namespaces


class CompositeElasticQuota(Manifest, frozen=True, kw_only=True):
    spec: CompositeElasticQuotaSpec


class ElasticSection(Part, frozen=True):
    """``Configuration.spec.elastic``."""

    gpu_memory: int = field(name="nvidiaGPUResourceMemoryGB", default=DEFAULT_GB)
    slices: dict[str, int] = field(
        default_factory=dict
    )  # GB by resource name, for slices that do not carry their size in the name
    borrowing: Literal["min", "capacity"] = "min"
    order: Literal["priority", "creation"] = "priority"


def check_elastic_quota(quota: ElasticQuota) -> None:
    _check_bounds(quota.spec.min, quota.spec.max)


def check_composite(quota: CompositeElasticQuota) -> None:
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
)
