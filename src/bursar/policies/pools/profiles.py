"""Profiles and nodes as the policy sees them: settings from outside, cells in the ledger.

A profile says which nodes make up a tree (or a part of one) and what the tree's root quota is called. The share of
its nodes that it hands out is a fraction, so that it multiplies exactly.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.policies.settings import Body
from bursar.selectors import NodeTerm, Requirement

_ALWAYS_THERE: Final = ("cpu", "memory", "pods")


@final
class Profile(Body):
    """One ElasticQuotaProfile. ``requirements`` None: it selects no node at all."""

    __slots__ = (
        "denominator",
        "key",
        "labels",
        "name",
        "namespace",
        "numerator",
        "pinned",
        "quota_name",
        "requirements",
        "resources",
        "tree",
    )

    def __init__(
        self,
        namespace: str,
        name: str,
        quota_name: str,
        tree: str,
        requirements: tuple[Requirement, ...] | None,
        numerator: int = 1,
        denominator: int = 1,
        resources: tuple[str, ...] = ("cpu", "memory"),
        labels: tuple[tuple[str, str], ...] = (),
        pinned: bool = True,
    ) -> None:
        self.namespace: Final = namespace
        self.name: Final = name
        self.key: Final = f"{namespace}/{name}"
        self.quota_name: Final = quota_name
        self.tree: Final = tree
        self.requirements: Final = requirements
        self.numerator: Final = numerator
        self.denominator: Final = denominator
        self.resources: Final = resources  # what its root quota manages
        self.labels: Final = labels  # of the root quota
        self.pinned: Final = pinned  # the object names the tree itself

    def selects(self, labels: dict[str, str]) -> bool:
        if self.requirements is None:
            return False
        for requirement in self.requirements:
            if not requirement.matches(labels):
                return False
        return True

    def term(self) -> NodeTerm | None:
        """The selector as a term of node affinity; None when it restricts nothing."""
        return NodeTerm(self.requirements) if self.requirements else None

    def scaled(self, amount: int) -> int:
        return amount * self.numerator // self.denominator

    def cell(self) -> tuple[object, ...]:
        rows: object = None
        if self.requirements is not None:
            rows = tuple([(r.key, r.operator, r.values) for r in self.requirements])
        ratio = (self.numerator, self.denominator)
        return (self.quota_name, self.tree, rows, ratio, self.resources, self.labels, self.pinned)


def profile_of(key: str, cell: object) -> Profile | None:
    """The profile in a cell; None for no cell."""
    if cell is None:
        return None
    quota_name, tree, rows, ratio, resources, labels, pinned = cast("tuple[object, ...]", cell)
    requirements: tuple[Requirement, ...] | None = None
    if rows is not None:
        given = cast("tuple[tuple[str, str, tuple[str, ...]], ...]", rows)
        requirements = tuple([Requirement(name, operator, values) for name, operator, values in given])
    namespace, _, name = key.partition("/")
    numerator, denominator = cast("tuple[int, int]", ratio)
    return Profile(
        namespace,
        name,
        cast("str", quota_name),
        cast("str", tree),
        requirements,
        numerator,
        denominator,
        cast("tuple[str, ...]", resources),
        cast("tuple[tuple[str, str], ...]", labels),
        cast("bool", pinned),
    )


@final
class PoolNode(Body):
    """A node: its labels, what it has, and whether pods can be scheduled there now."""

    __slots__ = ("allocatable", "labels", "schedulable")

    def __init__(self, allocatable: dict[str, int], labels: dict[str, str], schedulable: bool = True) -> None:
        self.allocatable: Final = allocatable
        self.labels: Final = labels
        self.schedulable: Final = schedulable

    def has(self, resource: str) -> int | None:
        """The amount of a resource; None: without limit, for what a manifest need not list."""
        found = self.allocatable.get(resource)
        if found is None and resource not in _ALWAYS_THERE:
            return 0
        return found

    def takes(self, wants: list[tuple[str, int]]) -> bool:
        """Whether the node, empty, has room for that."""
        for resource, amount in wants:
            has = self.has(resource)
            if has is not None and has < amount:
                return False
        return True

    def unlisted(self) -> list[str]:
        """What it has without limit."""
        return [resource for resource in _ALWAYS_THERE if resource not in self.allocatable]

    def cell(self) -> tuple[object, ...]:
        return (tuple(sorted(self.allocatable.items())), tuple(sorted(self.labels.items())), self.schedulable)


def node_of(cell: object) -> PoolNode | None:
    """The node in a cell; None for no cell."""
    if cell is None:
        return None
    allocatable, labels, schedulable = cast("tuple[object, ...]", cell)
    return PoolNode(
        dict(cast("tuple[tuple[str, int], ...]", allocatable)),
        dict(cast("tuple[tuple[str, str], ...]", labels)),
        cast("bool", schedulable),
    )
