"""The quotas of a GPU node, and the claims that they limit.

The first of these that applies is the quota of a resource: the node's annotation with an amount, its annotation with
a percentage, the argument with an amount, the argument with a percentage, and all that is allocatable. An annotation
that cannot be read is reported as a *problem*, and the next level applies.

The quota limits claims that ask for no GPU, that the selector selects and that are not exempt. A claim asks for a GPU
if it requests a resource that a configured name matches or a part of a GPU as another dialect spells it, has
ResourceClaims, or is a TensorFusion worker.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast, final

from bursar.ledger.claims import Claim, ClaimSpec
from bursar.objects.pods import DEVICE_DETAILS
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
from bursar.policies.placement_kit import REMOVED, SpecWeights
from bursar.policies.results import Body
from bursar.quantity import QuantityError
from bursar.resources import NO_LIMITS, Limits, Vector, dimension

ALLOCATABLE: Final = "allocatable"


@final
@dataclass
class CrossQuotaNodeBody(Body):
    """A node, as far as quotas follow from it."""

    allocatable: dict[str, int]
    annotations: dict[str, str]
    labelled: bool = False  # whether it has the label of GPU nodes

    def cell(self) -> tuple[object, ...]:
        marks = [(key, value) for key, value in self.annotations.items() if key.startswith(NODE_MARKS)]
        return (tuple(sorted(self.allocatable.items())), tuple(sorted(marks)), self.labelled)


@final
@dataclass
class NodeQuota:
    """The quota of one resource, and its source."""

    resource: str
    cap: int
    source: str


@final
@dataclass
class GpuNodeFacts:
    """A node as the rules see it. Without a GPU it has no quotas."""

    name: str
    allocatable: Limits
    gpus: int
    quotas: tuple[NodeQuota, ...]
    limits: Limits  # the quotas as limits
    problems: tuple[str, ...]
    labelled: bool

    def is_gpu_node(self) -> bool:
        return self.gpus > 0


def facts_of(name: str, cell: object, arguments: Arguments, patterns: Patterns) -> GpuNodeFacts | None:
    """The facts that follow from a cell; None for no cell or a deleted node."""
    if cell is None or cell == REMOVED:
        return None
    pairs, marks, labelled = cast("tuple[tuple[tuple[str, int], ...], tuple[tuple[str, str], ...], bool]", cell)
    listed = dict(pairs)
    gpus = count_gpus(listed, patterns)
    allocatable = stock(listed)
    quotas: list[NodeQuota] = []
    problems: list[str] = []
    if gpus > 0:
        quotas = [quota_of(resource, allocatable, dict(marks), arguments, problems) for resource in arguments.resources]
    limits = Limits({quota.resource: quota.cap for quota in quotas}) if quotas else NO_LIMITS
    return GpuNodeFacts(name, allocatable, gpus, tuple(quotas), limits, tuple(problems), labelled)


def count_gpus(amounts: dict[str, int], patterns: Patterns) -> int:
    """How many of these are GPUs."""
    total = 0
    for name, amount in amounts.items():
        if amount > 0 and (patterns.match(name) or (bool(patterns) and is_gpu_driver(name))):
            total += amount
    return total


def is_gpu_driver(name: str) -> bool:
    """Whether this is a driver that publishes GPUs, and no resource: resources of that form have a slash."""
    return name.startswith(GPU_DRIVER) and "/" not in name


def quota_of(
    resource: str, allocatable: Limits, annotations: dict[str, str], arguments: Arguments, problems: list[str]
) -> NodeQuota:
    """The quota by the first level that applies. Annotations that cannot be read are added to ``problems``."""
    base = allocatable.cap(resource)
    levels: list[tuple[str, Callable[[str], int]]] = [
        (NODE_MARKS + spelt(resource), dimension(resource).parse),
        (NODE_PERCENTAGE_MARKS + spelt(resource), lambda text: percent_of(parse_percent(text), base)),
    ]
    for key, read in levels:
        text = annotations.get(key, "")
        if text.strip():
            try:
                return NodeQuota(resource, read(text), f"annotation {key}")
            except (QuantityError, PercentError) as error:
                problems.append(f"annotation {key}: {error}")
    if resource in arguments.quotas:
        return NodeQuota(resource, arguments.quotas[resource], f"argument {QUOTA}{spelt(resource)}")
    if resource in arguments.percentages:
        cap = percent_of(arguments.percentages[resource], base)
        return NodeQuota(resource, cap, f"argument {PERCENTAGE}{spelt(resource)}")
    return NodeQuota(resource, base, ALLOCATABLE)


MIRROR: Final = "kubernetes.io/config.mirror"
DAEMON_SET: Final = "DaemonSet/"  # prefix of a pod's owner
_PARTS: Final = re.compile(r"nvidia\.com/(mig-.*|gpu-[0-9]+gb)|n8s\.nebuly\.ai/gpu-memory", re.ASCII)


@final
class Scope:
    """Which claims the quota limits, by some arguments. Answers are cached by spec, which the claims of a job share."""

    def __init__(self, arguments: Arguments, patterns: Patterns) -> None:
        self.arguments: Final = arguments
        self.patterns: Final = patterns
        self.reasons: Final[dict[ClaimSpec, str]] = {}  # by identity: why it is not limited, "" if it is
        self.weights: Final = SpecWeights()

    def limited(self, claim: Claim) -> bool:
        return not self.why_not(claim)

    def why_not(self, claim: Claim) -> str:
        """Why the quota does not limit the claim; "" if it does."""
        if claim.namespace in self.arguments.exempt_namespaces:
            return f"namespace {claim.namespace} is exempt"
        spec = claim.spec
        found = self.reasons.get(spec)
        if found is None:
            if self.weights.full(spec):
                self.reasons.clear()
            found = self._why_not(spec)
            self.reasons[spec] = found
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
        if DEVICE_DETAILS in spec.details:
            return True
        return is_worker(spec.labels, spec.annotations)

    def gpus(self, requests: Vector) -> int:
        """How many GPUs are requested by the configured names."""
        total = 0
        for name, amount in requests.pairs():
            if self.patterns.match(name):
                total += amount
        return total
