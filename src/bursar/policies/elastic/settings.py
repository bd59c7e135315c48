"""Quotas and options as settings, and their plain form in the ledger's cells."""

from __future__ import annotations

from typing import Final, cast, final

from bursar.limits import NO_LIMITS, Limits
from bursar.policies.elastic.gpu_memory import DEFAULT_GB
from bursar.policies.elastic.names import COMPOSITE
from bursar.policies.settings import Body

BY_MIN: Final = "min"
BY_CAPACITY: Final = "capacity"
BY_PRIORITY: Final = "priority"
BY_CREATION: Final = "creation"


# What became of a quota; all but the first are no longer in force, but claims may still stand on their accounts.
IN_FORCE: Final = 0
REMOVED: Final = 1
TAKEN_OVER: Final = 2  # by a composite; its object is still to be deleted


@final
class QuotaBody(Body):
    """An ElasticQuota or CompositeElasticQuota. ``min`` and ``max`` keep zeros; absent is unlimited."""

    __slots__ = ("key", "kind", "max", "min", "namespaces", "takeover")

    def __init__(
        self,
        kind: str,
        key: str,
        namespaces: tuple[str, ...],
        minimum: Limits,
        maximum: Limits = NO_LIMITS,
        takeover: bool = False,
    ) -> None:
        self.kind: Final = kind
        self.key: Final = key  # namespace/name of the object
        self.namespaces: Final = tuple(sorted(set(namespaces)))
        self.min: Final = minimum
        self.max: Final = maximum
        self.takeover: Final = takeover  # a composite that replaces the ElasticQuotas of its namespaces

    @property
    def subject(self) -> str:
        return f"{self.kind} {self.key}"

    @property
    def composite(self) -> bool:
        return self.kind == COMPOSITE

    def cell(self, state: int) -> tuple[object, ...]:
        return (
            self.kind,
            self.key,
            self.namespaces,
            tuple(self.min.listed.items()),
            tuple(self.max.listed.items()),
            self.takeover,
            state,
        )


def state_of(cell: tuple[object, ...]) -> int:
    return cast("int", cell[-1])


def body_of(cell: tuple[object, ...]) -> QuotaBody:
    """The quota in a cell."""
    kind, key, namespaces, minimum, maximum, takeover, _ = cell
    return QuotaBody(
        cast("str", kind),
        cast("str", key),
        cast("tuple[str, ...]", namespaces),
        Limits(dict(cast("tuple[tuple[str, int], ...]", minimum))),
        Limits(dict(cast("tuple[tuple[str, int], ...]", maximum))),
        bool(takeover),
    )


@final
class OptionsBody(Body):
    """The section ``elastic`` of the Configuration."""

    __slots__ = ("borrowing", "gpu_gb", "order", "slices")

    def __init__(
        self,
        gpu_gb: int = DEFAULT_GB,
        slices: dict[str, int] | None = None,
        borrowing: str = BY_MIN,
        order: str = BY_PRIORITY,
    ) -> None:
        self.gpu_gb: Final = gpu_gb
        self.slices: Final = slices if slices is not None else {}
        self.borrowing: Final = borrowing  # bounded by the sum of the minimums, or by real capacity only
        self.order: Final = order  # whether priority comes before age in the classes

    def cell(self) -> tuple[object, ...]:
        return (self.gpu_gb, tuple(sorted(self.slices.items())), self.borrowing, self.order)


DEFAULT_OPTIONS: Final = OptionsBody()


def options_of(cell: object) -> OptionsBody:
    if cell is None:
        return DEFAULT_OPTIONS
    gpu_gb, slices, borrowing, order = cast("tuple[object, ...]", cell)
    table = dict(cast("tuple[tuple[str, int], ...]", slices))
    return OptionsBody(cast("int", gpu_gb), table, cast("str", borrowing), cast("str", order))
