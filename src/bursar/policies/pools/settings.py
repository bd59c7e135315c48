"""A quota as the policy sees it: the setting that brings it, and the cell in the ledger that keeps it.

The amounts are in the resolution of their dimension. ``weight`` None in a dimension means: follow the max. A resource
that ``max`` does not list is not managed by the quota; an explicit zero is none.

The keys and names of the dialect: labels, annotations, built-in quotas.

The options of the policy: the setting that brings them and the cell that keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
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
STRICT_KEYS: Final = PREFIX + "max-strict-check-resource-keys"
# Annotations that Bursar writes
TOTAL: Final = PREFIX + "total-resource"
UNSCHEDULABLE: Final = PREFIX + "unschedulable-resource"
RUNTIME: Final = PREFIX + "runtime"
REQUEST: Final = PREFIX + "request"
CHILD_REQUEST: Final = PREFIX + "child-request"
GUARANTEED: Final = PREFIX + "guaranteed"
ALLOCATED: Final = PREFIX + "allocated"
FIRM_REQUEST: Final = PREFIX + "non-preemptible-request"
FIRM_USED: Final = PREFIX + "non-preemptible-used"

# The max of a root quota: the largest number of cores whose millicores still fit 64 bits.
ENDLESS: Final = 4611686018427387


Amounts = tuple[tuple[str, int], ...]
"""(resource, amount), sorted by resource, zeros kept."""


@final
class PoolQuotaBody(Body):
    """One elastic quota."""

    __slots__ = (
        "is_parent",
        "is_root",
        "lends",
        "maximum",
        "minimum",
        "name",
        "namespace",
        "namespaces",
        "parent",
        "tree",
        "weight",
    )

    def __init__(
        self,
        name: str,
        namespace: str = "",
        parent: str = ROOT,
        tree: str = "",
        is_parent: bool = False,
        lends: bool = True,
        maximum: Mapping[str, int] | None = None,
        minimum: Mapping[str, int] | None = None,
        weight: Mapping[str, int] | None = None,
        namespaces: tuple[str, ...] = (),
        is_root: bool = False,
    ) -> None:
        self.name: Final = name
        self.namespace: Final = namespace
        self.parent: Final = parent
        self.tree: Final = tree
        self.is_parent: Final = is_parent
        self.lends: Final = lends
        self.maximum: Final = _sorted(maximum)
        self.minimum: Final = _sorted(minimum)
        self.weight: Final = _sorted(weight)
        self.namespaces: Final = namespaces
        self.is_root: Final = is_root  # made from a profile, not by a user

    @property
    def key(self) -> str:
        """What the object is called."""
        return f"{self.namespace}/{self.name}"

    def keys(self) -> list[str]:
        """The resources that the quota manages."""
        return list(self.maximum)

    def weight_of(self, resource: str) -> int:
        return self.weight.get(resource, self.maximum.get(resource, 0))

    def binds_like(self, other: PoolQuotaBody) -> bool:
        """Whether claims belong to either in the same way, and cost the same there."""
        mine = (self.namespace, self.parent, self.tree, self.is_parent, self.namespaces, self.maximum)
        return mine == (other.namespace, other.parent, other.tree, other.is_parent, other.namespaces, other.maximum)

    def cell(self) -> tuple[object, ...]:
        """The plain form for the ledger."""
        return (
            self.namespace,
            self.parent,
            self.tree,
            self.is_parent,
            self.lends,
            tuple(self.maximum.items()),
            tuple(self.minimum.items()),
            tuple(self.weight.items()),
            self.namespaces,
            self.is_root,
        )


def _sorted(amounts: Mapping[str, int] | None) -> dict[str, int]:
    return {} if amounts is None else {name: amounts[name] for name in sorted(amounts)}


def quota_of(name: str, cell: object) -> PoolQuotaBody | None:
    """The quota in a cell; None for no cell."""
    if cell is None:
        return None
    namespace, parent, tree, is_parent, lends, maximum, minimum, weight, namespaces, is_root = cast(
        "tuple[object, ...]", cell
    )
    return PoolQuotaBody(
        name,
        cast("str", namespace),
        cast("str", parent),
        cast("str", tree),
        cast("bool", is_parent),
        cast("bool", lends),
        dict(cast("Amounts", maximum)),
        dict(cast("Amounts", minimum)),
        dict(cast("Amounts", weight)),
        cast("tuple[str, ...]", namespaces),
        cast("bool", is_root),
    )


DELAY: Final = 120_000


@final
class PoolOptions(Body):
    """What the section ``pools`` of the Configuration says."""

    __slots__ = ("default_preemption", "delay", "guarantee", "revoke", "runtime")

    def __init__(
        self,
        guarantee: bool = False,
        runtime: bool = True,
        revoke: bool = True,
        delay: int = DELAY,
        default_preemption: bool = False,
    ) -> None:
        self.guarantee: Final = guarantee  # what is in use is never taken back for others
        self.runtime: Final = runtime  # False: quotas are held to their max only
        self.revoke: Final = revoke
        self.delay: Final = delay  # milliseconds of over-use before claims are taken back
        self.default_preemption: Final = default_preemption  # pods of the default quota may be preempted

    def cell(self) -> tuple[object, ...]:
        return (self.guarantee, self.runtime, self.revoke, self.delay, self.default_preemption)


def options_of(cell: object) -> PoolOptions:
    """The options in a cell; the defaults for no cell."""
    if cell is None:
        return PoolOptions()
    guarantee, runtime, revoke, delay, default_preemption = cast("tuple[object, ...]", cell)
    return PoolOptions(
        cast("bool", guarantee),
        cast("bool", runtime),
        cast("bool", revoke),
        cast("int", delay),
        cast("bool", default_preemption),
    )
