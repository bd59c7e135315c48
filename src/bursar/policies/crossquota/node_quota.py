"""What is known of a node: whether it is a GPU node, its quota for each resource, and where that comes from.

The first of these that applies gives the quota of a resource: the node's annotation with an amount, its annotation
with a percentage, the argument with an amount, the argument with a percentage, and at last all that is allocatable.
An annotation that cannot be read is a *problem*, reported, and the next level applies.

Whom the quota is about: claims that ask for no GPU, that the selector selects and that are not exempt.

The answer is the same for usage, filter, score and rank. A claim asks for a GPU if it requests a resource that one
of the configured names matches, a part of a GPU as other dialects spell it, has claims for devices, or is a
TensorFusion worker, which requests no GPU resource at all. Answers are remembered by spec: the claims of one job share
theirs.
"""

from __future__ import annotations

import re
from typing import Final, cast, final

from bursar.ledger.claims import Claim, ClaimSpec
from bursar.objects.pods import CLAIMS_DEVICES
from bursar.policies.crossquota.arguments import (
    GPU_DRIVER,
    NODE_MARKS,
    NODE_PERCENTAGE_MARKS,
    PERCENTAGE,
    QUOTA,
    Arguments,
    PercentError,
    parse_percent,
    percent_of,
    spelt,
)
from bursar.policies.crossquota.gpu_patterns import Patterns
from bursar.policies.gpus.worker import is_worker
from bursar.policies.nodes.rules import stock
from bursar.policies.placement_kit import REMOVED, remember
from bursar.policies.results import Body
from bursar.quantity import QuantityError
from bursar.resources import NO_LIMITS, Limits, Vector, dimension

ALLOCATABLE: Final = "allocatable"


@final
class CrossQuotaNodeBody(Body):
    """A node as it comes from outside."""

    __slots__ = ("allocatable", "annotations", "labelled")

    def __init__(self, allocatable: dict[str, int], annotations: dict[str, str], labelled: bool = False) -> None:
        self.allocatable: Final = allocatable
        self.annotations: Final = {k: v for k, v in annotations.items() if k.startswith(NODE_MARKS)}
        self.labelled: Final = labelled  # it carries the label of GPU nodes

    def cell(self) -> tuple[object, ...]:
        return (tuple(sorted(self.allocatable.items())), tuple(sorted(self.annotations.items())), self.labelled)


@final
class NodeQuota:
    """The quota of one resource, and its source."""

    __slots__ = ("cap", "resource", "source")

    def __init__(self, resource: str, cap: int, source: str) -> None:
        self.resource: Final = resource
        self.cap: Final = cap
        self.source: Final = source


@final
class GpuNodeFacts:
    """A node as the rules see it. Without a GPU it has no quotas."""

    __slots__ = ("allocatable", "gpus", "labelled", "limits", "name", "problems", "quotas")

    def __init__(
        self,
        name: str,
        allocatable: Limits,
        gpus: int,
        quotas: tuple[NodeQuota, ...],
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


def facts_of(name: str, cell: object, arguments: Arguments, patterns: Patterns) -> GpuNodeFacts | None:
    """The facts that follow from a cell; None for no cell or a deleted node."""
    if cell is None or cell == REMOVED:
        return None
    pairs, marks, labelled = cast("tuple[object, ...]", cell)
    listed = dict(cast("tuple[tuple[str, int], ...]", pairs))
    gpus = count_gpus(listed, patterns)
    allocatable = stock(listed)
    quotas: list[NodeQuota] = []
    problems: list[str] = []
    if gpus > 0:
        annotations = dict(cast("tuple[tuple[str, str], ...]", marks))
        quotas = [quota_of(name, allocatable, annotations, arguments, problems) for name in arguments.resources]
    return GpuNodeFacts(name, allocatable, gpus, tuple(quotas), tuple(problems), bool(labelled))


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
) -> NodeQuota:
    """The quota by the first level that applies; what cannot be read is added to ``problems``."""
    base = allocatable.cap(resource)
    found = _annotated_amount(resource, annotations, problems)
    if found is None:
        found = _annotated_percentage(resource, base, annotations, problems)
    if found is not None:
        return found
    if resource in arguments.quotas:
        return NodeQuota(resource, arguments.quotas[resource], f"argument {QUOTA}{spelt(resource)}")
    if resource in arguments.percentages:
        cap = percent_of(arguments.percentages[resource], base)
        return NodeQuota(resource, cap, f"argument {PERCENTAGE}{spelt(resource)}")
    return NodeQuota(resource, base, ALLOCATABLE)


def _annotated_amount(resource: str, annotations: dict[str, str], problems: list[str]) -> NodeQuota | None:
    key = NODE_MARKS + spelt(resource)
    text = annotations.get(key, "")
    if not text.strip():
        return None
    try:
        return NodeQuota(resource, dimension(resource).parse(text), f"annotation {key}")
    except QuantityError as error:
        problems.append(f"annotation {key}: {error}")
        return None


def _annotated_percentage(
    resource: str, base: int, annotations: dict[str, str], problems: list[str]
) -> NodeQuota | None:
    key = NODE_PERCENTAGE_MARKS + spelt(resource)
    text = annotations.get(key, "")
    if not text.strip():
        return None
    try:
        return NodeQuota(resource, percent_of(parse_percent(text), base), f"annotation {key}")
    except PercentError as error:
        problems.append(f"annotation {key}: {error}")
        return None


MIRROR: Final = "kubernetes.io/config.mirror"
DAEMON_SET: Final = "DaemonSet/"  # how the owner of such a pod begins
_PARTS: Final = re.compile(r"nvidia\.com/(mig-.*|gpu-[0-9]+gb)|n8s\.nebuly\.ai/gpu-memory", re.ASCII)


@final
class Scope:
    """Judges claims by some arguments."""

    __slots__ = ("arguments", "patterns", "reasons")

    def __init__(self, arguments: Arguments, patterns: Patterns) -> None:
        self.arguments: Final = arguments
        self.patterns: Final = patterns
        self.reasons: Final[dict[ClaimSpec, str]] = {}  # by identity: why it is not limited, "" if it is

    def limited(self, claim: Claim) -> bool:
        """Whether the quota is about the claim."""
        return not self.why_not(claim)

    def why_not(self, claim: Claim) -> str:
        """Why the quota is not about the claim; "" when it is."""
        if claim.namespace in self.arguments.exempt_namespaces:
            return f"namespace {claim.namespace} is exempt"
        spec = claim.spec
        found = self.reasons.get(spec)
        if found is None:
            found = remember(self.reasons, spec, self._why_not(spec))
        return found

    def _why_not(self, spec: ClaimSpec) -> str:
        arguments = self.arguments
        if not self.patterns:
            return "no GPU resources are named"
        if self._asks_for_gpu(spec):
            return "it asks for a GPU"
        if arguments.exempt_daemon_sets and spec.owner.startswith(DAEMON_SET):
            return "pods of DaemonSets are exempt"
        if arguments.exempt_mirrors and MIRROR in spec.annotations:
            return "mirror pods are exempt"
        if not arguments.selector.matches(spec.labels):
            return "the label selector does not select it"
        return ""

    def _asks_for_gpu(self, spec: ClaimSpec) -> bool:
        for name in spec.requests.names():
            if self.patterns.match(name) or _PARTS.fullmatch(name) is not None:
                return True
        if CLAIMS_DEVICES in spec.annotations:
            return True
        return is_worker(spec.labels, spec.annotations)

    def gpus(self, requests: Vector) -> int:
        """How many GPUs are requested by the configured names."""
        total = 0
        for name, amount in requests.pairs():
            if self.patterns.match(name):
                total += amount
        return total
