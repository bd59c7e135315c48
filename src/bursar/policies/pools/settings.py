"""The names of the dialect, and its quotas and options as the policy keeps them in the ledger's cells.

Amounts are in the resolution of their dimension. A quota manages the resources that its max lists, zeros included.
Where it has no weight for a resource, the weight follows the max.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast, final

from bursar.policies.results import Body

NAME: Final = "pools"
QUOTA_OBJECT: Final = "ElasticQuota.scheduling.sigs.k8s.io"
PROFILE_OBJECT: Final = "ElasticQuotaProfile.quota.koordinator.sh"

ROOT: Final = "koordinator-root-quota"
SYSTEM: Final = "koordinator-system-quota"
DEFAULT: Final = "koordinator-default-quota"
BUILT_IN: Final = (ROOT, SYSTEM, DEFAULT)
BUILT_IN_NAMESPACE: Final = "koordinator-system"
DEFAULT_TREE: Final = ""

PREFIX: Final = "quota.scheduling.koordinator.sh/"
# Labels of quotas
PARENT: Final = PREFIX + "parent"
IS_PARENT: Final = PREFIX + "is-parent"
LENDS: Final = PREFIX + "allow-lent-resource"
TREE: Final = PREFIX + "tree-id"
IS_ROOT: Final = PREFIX + "is-root"
PROFILE: Final = PREFIX + "profile"
IGNORE_DEFAULT_TREE: Final = PREFIX + "ignore-default-tree"
FORCE_UPDATE: Final = PREFIX + "allow-force-update"
# Labels of pods
QUOTA_OF_POD: Final = PREFIX + "name"
PREEMPTIBLE: Final = PREFIX + "preemptible"
# Annotations that people write
WEIGHT: Final = PREFIX + "shared-weight"
NAMESPACES: Final = PREFIX + "namespaces"
RESOURCE_KEYS: Final = PREFIX + "resource-keys"  # on a profile
EXCLUSIVE: Final = "quota.bursar.dev/exclusive"  # on a profile
STRICT_KEYS: Final = PREFIX + "max-strict-check-resource-keys"
# Annotations that Bursar writes
TOTAL: Final = PREFIX + "total-resource"
UNSCHEDULABLE: Final = PREFIX + "unschedulable-resource"
RUNTIME: Final = PREFIX + "runtime"
REQUEST: Final = PREFIX + "request"
CHILD_REQUEST: Final = PREFIX + "child-request"
GUARANTEED: Final = PREFIX + "guaranteed"
ALLOCATED: Final = PREFIX + "allocated"
NON_PREEMPTIBLE_REQUEST: Final = PREFIX + "non-preemptible-request"
NON_PREEMPTIBLE_USED: Final = PREFIX + "non-preemptible-used"

# A max that does not limit, as upstream writes it: the largest number of cores whose millicores still fit 64 bits.
ENDLESS: Final = 4611686018427387


Amounts = tuple[tuple[str, int], ...]
"""(resource, amount), sorted by resource, zeros kept."""

QuotaCell = tuple[str, str, str, bool, bool, Amounts, Amounts, Amounts, tuple[str, ...], bool]
"""The fields of a ``PoolQuotaBody`` after its name, in their order."""


@final
@dataclass
class PoolQuotaBody(Body):
    name: str
    namespace: str = ""
    parent: str = ROOT
    tree: str = DEFAULT_TREE
    is_parent: bool = False
    lends: bool = True
    maximum: dict[str, int] = field(default_factory=dict)
    minimum: dict[str, int] = field(default_factory=dict)
    weight: dict[str, int] = field(default_factory=dict)
    namespaces: tuple[str, ...] = ()
    is_root: bool = False  # made from a profile, not by a user

    @property
    def key(self) -> str:
        """The namespace and name of the object."""
        return f"{self.namespace}/{self.name}"

    def weight_of(self, resource: str) -> int:
        return self.weight.get(resource, self.maximum.get(resource, 0))

    def binds_like(self, other: PoolQuotaBody) -> bool:
        """Whether claims belong to either in the same way, and cost the same there."""
        mine = (self.namespace, self.parent, self.tree, self.is_parent, self.namespaces, self.maximum)
        return mine == (other.namespace, other.parent, other.tree, other.is_parent, other.namespaces, other.maximum)

    def cell(self) -> QuotaCell:
        return (
            self.namespace,
            self.parent,
            self.tree,
            self.is_parent,
            self.lends,
            tuple(sorted(self.maximum.items())),
            tuple(sorted(self.minimum.items())),
            tuple(sorted(self.weight.items())),
            self.namespaces,
            self.is_root,
        )


def quota_of(name: str, cell: object) -> PoolQuotaBody | None:
    """The quota in a cell; None for no cell."""
    if cell is None:
        return None
    namespace, parent, tree, is_parent, lends, most, least, weight, namespaces, is_root = cast("QuotaCell", cell)
    place = (name, namespace, parent, tree)
    return PoolQuotaBody(*place, is_parent, lends, dict(most), dict(least), dict(weight), namespaces, is_root)


@final
@dataclass
class QuotaObject(Body):
    """An ElasticQuota object: the quota, and all labels and annotations that it carries."""

    quota: PoolQuotaBody
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


DELAY: Final = 120_000


@final
@dataclass
class PoolOptions(Body):
    """The section ``pools`` of the Configuration."""

    guarantee: bool = False  # what is in use is never taken back for others
    runtime: bool = True  # False: quotas are held to their max only
    revoke: bool = False
    delay: int = DELAY  # milliseconds of over-use before claims are revoked
    default_preemption: bool = False  # pods of the default quota may be preempted

    def cell(self) -> tuple[bool, bool, bool, int, bool]:
        return (self.guarantee, self.runtime, self.revoke, self.delay, self.default_preemption)


def options_of(cell: object) -> PoolOptions:
    """The options in a cell; the defaults for no cell."""
    return PoolOptions() if cell is None else PoolOptions(*cast("tuple[bool, bool, bool, int, bool]", cell))
