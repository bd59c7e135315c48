"""A quota as the policy sees it: the setting that brings it, and the cell in the ledger that keeps it.

The amounts are in the resolution of their dimension. ``weight`` None in a dimension means: follow the max. A resource
that ``max`` does not list is not managed by the quota; an explicit zero is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast, final

from bursar.policies.pools.names import ROOT
from bursar.policies.settings import Body

Amounts = tuple[tuple[str, int], ...]
"""(resource, amount), sorted by resource, zeros kept."""


@final
class Quota(Body):
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

    def binds_like(self, other: Quota) -> bool:
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


def quota_of(name: str, cell: object) -> Quota | None:
    """The quota in a cell; None for no cell."""
    if cell is None:
        return None
    namespace, parent, tree, is_parent, lends, maximum, minimum, weight, namespaces, is_root = cast(
        "tuple[object, ...]", cell
    )
    return Quota(
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
