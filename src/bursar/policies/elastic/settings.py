"""Settings of elastic quotas and their form in the ledger's cells, names of accounts and tables, and GPU memory.

GPU memory is counted in whole GB and derived from the GPU resources that a claim requests. ``nvidia.com/gpu`` counts a
configured number of GB each. MIG devices and MPS slices carry their size in the name (``nvidia.com/mig-1g.10gb``,
``nvidia.com/gpu-10gb``). A configured table gives the size of other resources and overrides sizes in names. The derived
amount replaces what the claim states about gpu-memory, so that users cannot understate it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, cast, final

from bursar.policies.results import Body
from bursar.resources import NO_LIMITS, Limits, Vector, dimension, dimension_at, from_indices

NAME: Final = "elastic"
GROUP: Final = "n8s.nebuly.ai"
CAPACITY_LABEL: Final = "n8s.nebuly.ai/capacity"
IN_QUOTA: Final = "in-quota"
OVER_QUOTA: Final = "over-quota"
GPU_MEMORY: Final = "n8s.nebuly.ai/gpu-memory"

ELASTIC_QUOTA: Final = "ElasticQuota"
COMPOSITE: Final = "CompositeElasticQuota"

# Kinds of settings.
QUOTA_SETTING: Final = "elastic.Quota"
OPTIONS_SETTING: Final = "elastic.Options"

# Tables of cells.
QUOTAS: Final = "elastic.quotas"
OPTIONS: Final = "elastic.options"

# Accounts. A quota has three of its own: what counts in decisions, what of it may not be preempted, what runs.
PREFIX: Final = "elastic/"
TOTAL: Final = "elastic/total"
FIRM_SUFFIX: Final = "#firm"
RUNNING_SUFFIX: Final = "#running"

# Rules, as reasons name them: elastic.<rule>.<resource>.
MAX_RULE: Final = "max"
TOTAL_RULE: Final = "total"
MIN_RULE: Final = "min"

# Classes of claims, in the order in which they are preempted.
BEYOND_SHARE: Final = 0
WITHIN_SHARE: Final = 1
IN_MIN: Final = 2
CLASSES: Final = ("over-quota, beyond its quota's share", "over-quota, within its quota's share", "in-quota")


def quota_id(kind: str, key: str) -> str:
    """One name space for both kinds of quotas."""
    return f"{kind}/{key}"


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

    def __init__(self, whole: int, table: dict[str, int]) -> None:
        self.whole: Final = whole  # GB of a whole GPU
        self.table: Final = table  # GB of other resources
        self.index: Final = dimension(GPU_MEMORY).index
        self.sizes: Final[dict[int, int]] = {}  # by dimension, computed once

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


BY_MIN: Final = "min"
BY_CAPACITY: Final = "capacity"
BY_PRIORITY: Final = "priority"


# States of a quota. Only the first is in force, but claims may still be charged to the accounts of the others.
IN_FORCE: Final = 0
REMOVED: Final = 1
TAKEN_OVER: Final = 2  # by a composite; its object is still to be deleted

_Amounts = tuple[tuple[str, int], ...]


@final
@dataclass
class ElasticQuotaBody(Body):
    """An ElasticQuota or CompositeElasticQuota. ``min`` and ``max`` keep zeros; absent is unlimited."""

    kind: str
    key: str  # namespace/name of the object
    namespaces: tuple[str, ...]
    min: Limits
    max: Limits = NO_LIMITS
    takeover: bool = False  # a composite that replaces the ElasticQuotas of its namespaces

    def __post_init__(self) -> None:
        self.namespaces = tuple(sorted(set(self.namespaces)))

    @property
    def subject(self) -> str:
        return f"{self.kind} {self.key}"

    def cell(self, state: int) -> tuple[object, ...]:
        bounds = tuple(self.min.listed.items()), tuple(self.max.listed.items())
        return (self.kind, self.key, self.namespaces, *bounds, self.takeover, state)


def quota_in(cell: object) -> tuple[ElasticQuotaBody, int]:
    """The quota in a cell, and its state."""
    kind, key, namespaces, minimum, maximum, takeover, state = cast(
        "tuple[str, str, tuple[str, ...], _Amounts, _Amounts, bool, int]", cell
    )
    body = ElasticQuotaBody(kind, key, namespaces, Limits(dict(minimum)), Limits(dict(maximum)), takeover)
    return body, state


@final
@dataclass
class ElasticOptionsBody(Body):
    """The section ``elastic`` of the Configuration."""

    gpu_gb: int = DEFAULT_GB
    slices: dict[str, int] = field(default_factory=dict)
    borrowing: str = BY_MIN  # bounded by the sum of the minimums, or by real capacity only
    order: str = BY_PRIORITY  # whether priority comes before age in the classes

    def cell(self) -> tuple[object, ...]:
        return (self.gpu_gb, tuple(sorted(self.slices.items())), self.borrowing, self.order)


DEFAULT_OPTIONS: Final = ElasticOptionsBody()


def options_in(cell: object) -> ElasticOptionsBody:
    if cell is None:
        return DEFAULT_OPTIONS
    gpu_gb, slices, borrowing, order = cast("tuple[int, _Amounts, str, str]", cell)
    return ElasticOptionsBody(gpu_gb, dict(slices), borrowing, order)
