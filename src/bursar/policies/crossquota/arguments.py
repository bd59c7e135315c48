"""The arguments in force: typed, and in the plain form in which they stand in the ledger.

Without arguments there are no GPU names, so nothing is a GPU node, nothing is limited and every score is 0.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.policies.crossquota.amounts import Percent
from bursar.policies.settings import Body
from bursar.selectors import Requirement, Selector

DEFAULT_RESOURCES: Final = ("cpu",)
DEFAULT_WEIGHT: Final = 10
DEFAULT_WEIGHTS: Final[dict[str, int]] = {"cpu": 10, "memory": 1}
DEFAULT_EXEMPT: Final = ("kube-system",)


@final
class Arguments(Body):
    """What the administrator says; amounts are in the resolution of their dimension."""

    __slots__ = (
        "exempt_daemon_sets",
        "exempt_mirrors",
        "exempt_namespaces",
        "gpu_names",
        "percentages",
        "prefer_others",
        "quotas",
        "reserves",
        "resources",
        "selector",
        "weight",
        "weights",
    )

    def __init__(
        self,
        gpu_names: tuple[str, ...] = (),
        resources: tuple[str, ...] = DEFAULT_RESOURCES,
        quotas: dict[str, int] | None = None,
        percentages: dict[str, Percent] | None = None,
        weight: int = DEFAULT_WEIGHT,
        weights: dict[str, int] | None = None,
        selector: Selector | None = None,
        prefer_others: bool = True,
        reserves: dict[str, int] | None = None,
        exempt_namespaces: tuple[str, ...] = DEFAULT_EXEMPT,
        exempt_daemon_sets: bool = True,
        exempt_mirrors: bool = True,
    ) -> None:
        self.gpu_names: Final = gpu_names  # regular expressions
        self.resources: Final = resources  # in the order in which they are checked
        self.quotas: Final = quotas if quotas is not None else {}
        self.percentages: Final = percentages if percentages is not None else {}
        self.weight: Final = weight
        self.weights: Final = weights if weights is not None else {}
        self.selector: Final = selector if selector is not None else Selector()
        self.prefer_others: Final = prefer_others  # nodes without a GPU come first
        self.reserves: Final = reserves if reserves is not None else {}  # to be left for each idle GPU
        self.exempt_namespaces: Final = exempt_namespaces
        self.exempt_daemon_sets: Final = exempt_daemon_sets
        self.exempt_mirrors: Final = exempt_mirrors

    def weight_of(self, resource: str) -> int:
        return self.weights.get(resource, DEFAULT_WEIGHTS.get(resource, 1))

    def binding_part(self) -> tuple[object, ...]:
        """What decides which claims are bound, and at what cost: if it changes, they are bound anew."""
        return (
            self.gpu_names,
            self.resources,
            _selector_cell(self.selector),
            tuple(sorted(self.reserves)),
            (self.exempt_namespaces, self.exempt_daemon_sets, self.exempt_mirrors),
        )

    def cell(self) -> tuple[object, ...]:
        return (
            self.gpu_names,
            self.resources,
            tuple(sorted(self.quotas.items())),
            tuple(sorted(self.percentages.items())),
            (self.weight, tuple(sorted(self.weights.items()))),
            _selector_cell(self.selector),
            self.prefer_others,
            tuple(sorted(self.reserves.items())),
            (self.exempt_namespaces, self.exempt_daemon_sets, self.exempt_mirrors),
        )


NO_ARGUMENTS: Final = Arguments()


def arguments_of(cell: object) -> Arguments:
    """The inverse of ``Arguments.cell``; no cell: no arguments."""
    if cell is None:
        return NO_ARGUMENTS
    names, resources, quotas, percentages, weights, rows, prefer, reserves, exempt = cast("tuple[object, ...]", cell)
    weight, by_resource = cast("tuple[object, ...]", weights)
    namespaces, daemon_sets, mirrors = cast("tuple[object, ...]", exempt)
    return Arguments(
        cast("tuple[str, ...]", names),
        cast("tuple[str, ...]", resources),
        _by_name(quotas),
        dict(cast("tuple[tuple[str, Percent], ...]", percentages)),
        cast("int", weight),
        _by_name(by_resource),
        _selector_of(rows),
        bool(prefer),
        _by_name(reserves),
        cast("tuple[str, ...]", namespaces),
        bool(daemon_sets),
        bool(mirrors),
    )


def _by_name(pairs: object) -> dict[str, int]:
    return dict(cast("tuple[tuple[str, int], ...]", pairs))


def _selector_cell(selector: Selector) -> tuple[object, ...]:
    return tuple([(r.key, r.operator, r.values) for r in selector.requirements])


def _selector_of(rows: object) -> Selector:
    requirements = cast("tuple[tuple[str, str, tuple[str, ...]], ...]", rows)
    return Selector(tuple([Requirement(key, operator, values) for key, operator, values in requirements]))
