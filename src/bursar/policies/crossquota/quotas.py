"""What is known of a node: whether it is a GPU node, its quota for each resource, and where that comes from.

The first of these that applies gives the quota of a resource: the node's annotation with an amount, its annotation
with a percentage, the argument with an amount, the argument with a percentage, and at last all that is allocatable.
An annotation that cannot be read is a *problem*, reported, and the next level applies.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.dimensions import dimension
from bursar.limits import NO_LIMITS, Limits
from bursar.policies.crossquota.amounts import PercentError, parse_percent, percent_of
from bursar.policies.crossquota.arguments import Arguments
from bursar.policies.crossquota.names import GPU_DRIVER, NODE_MARKS, NODE_PERCENTAGE_MARKS, PERCENTAGE, QUOTA, spelt
from bursar.policies.crossquota.patterns import Patterns
from bursar.policies.nodes.facts import stock
from bursar.policies.settings import Body
from bursar.quantity import QuantityError

REMOVED: Final[tuple[object, ...]] = ()  # the cell of a deleted node on which claims still count
ALLOCATABLE: Final = "allocatable"


@final
class NodeBody(Body):
    """A node as it comes from outside."""

    __slots__ = ("allocatable", "annotations", "labelled")

    def __init__(self, allocatable: dict[str, int], annotations: dict[str, str], labelled: bool = False) -> None:
        self.allocatable: Final = allocatable
        self.annotations: Final = {k: v for k, v in annotations.items() if k.startswith(NODE_MARKS)}
        self.labelled: Final = labelled  # it carries the label of GPU nodes

    def cell(self) -> tuple[object, ...]:
        return (tuple(sorted(self.allocatable.items())), tuple(sorted(self.annotations.items())), self.labelled)


@final
class Quota:
    """The quota of one resource, and its source."""

    __slots__ = ("cap", "resource", "source")

    def __init__(self, resource: str, cap: int, source: str) -> None:
        self.resource: Final = resource
        self.cap: Final = cap
        self.source: Final = source


@final
class Facts:
    """A node as the rules see it. Without a GPU it has no quotas."""

    __slots__ = ("allocatable", "gpus", "labelled", "limits", "name", "problems", "quotas")

    def __init__(
        self,
        name: str,
        allocatable: Limits,
        gpus: int,
        quotas: tuple[Quota, ...],
        problems: tuple[str, ...],
        labelled: bool,
    ) -> None:
        self.name: Final = name
        self.allocatable: Final = allocatable
        self.gpus: Final = gpus
        self.quotas: Final = quotas
        self.problems: Final = problems
        self.labelled: Final = labelled
        self.limits: Final = Limits({q.resource: q.cap for q in quotas}) if quotas else NO_LIMITS

    def is_gpu_node(self) -> bool:
        return self.gpus > 0

    def source(self, resource: str) -> str:
        for quota in self.quotas:
            if quota.resource == resource:
                return quota.source
        return ""


def facts_of(name: str, cell: object, arguments: Arguments, patterns: Patterns) -> Facts | None:
    """The facts that follow from a cell; None for no cell or a deleted node."""
    if cell is None or cell == REMOVED:
        return None
    pairs, marks, labelled = cast("tuple[object, ...]", cell)
    listed = dict(cast("tuple[tuple[str, int], ...]", pairs))
    gpus = count_gpus(listed, patterns)
    allocatable = stock(listed)
    quotas: list[Quota] = []
    problems: list[str] = []
    if gpus > 0:
        annotations = dict(cast("tuple[tuple[str, str], ...]", marks))
        quotas = [quota_of(name, allocatable, annotations, arguments, problems) for name in arguments.resources]
    return Facts(name, allocatable, gpus, tuple(quotas), tuple(problems), bool(labelled))


def count_gpus(amounts: dict[str, int], patterns: Patterns) -> int:
    """How many of these are GPUs."""
    total = 0
    for name, amount in amounts.items():
        if amount > 0 and (patterns.match(name) or (bool(patterns) and is_gpu_driver(name))):
            total += amount
    return total


def is_gpu_driver(name: str) -> bool:
    """Whether this is no resource but a driver that publishes GPUs; resources of that form have a slash."""
    return name.startswith(GPU_DRIVER) and "/" not in name


def quota_of(
    resource: str, allocatable: Limits, annotations: dict[str, str], arguments: Arguments, problems: list[str]
) -> Quota:
    """The quota by the first level that applies; what cannot be read is added to ``problems``."""
    base = allocatable.cap(resource)
    found = _annotated_amount(resource, annotations, problems)
    if found is None:
        found = _annotated_percentage(resource, base, annotations, problems)
    if found is not None:
        return found
    if resource in arguments.quotas:
        return Quota(resource, arguments.quotas[resource], f"argument {QUOTA}{spelt(resource)}")
    if resource in arguments.percentages:
        cap = percent_of(arguments.percentages[resource], base)
        return Quota(resource, cap, f"argument {PERCENTAGE}{spelt(resource)}")
    return Quota(resource, base, ALLOCATABLE)


def _annotated_amount(resource: str, annotations: dict[str, str], problems: list[str]) -> Quota | None:
    key = NODE_MARKS + spelt(resource)
    text = annotations.get(key, "")
    if not text.strip():
        return None
    try:
        return Quota(resource, dimension(resource).parse(text), f"annotation {key}")
    except QuantityError as error:
        problems.append(f"annotation {key}: {error}")
        return None


def _annotated_percentage(resource: str, base: int, annotations: dict[str, str], problems: list[str]) -> Quota | None:
    key = NODE_PERCENTAGE_MARKS + spelt(resource)
    text = annotations.get(key, "")
    if not text.strip():
        return None
    try:
        return Quota(resource, percent_of(parse_percent(text), base), f"annotation {key}")
    except PercentError as error:
        problems.append(f"annotation {key}: {error}")
        return None
