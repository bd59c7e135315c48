"""Nodes as settings, as cells of the ledger and as facts; the placement rules apart from room, and why no node fits.

The rules are checked in a fixed order, so that a node is always refused for the same one: selector, affinity,
unschedulable, taint, then (in the policy) host port and room.

A deleted node on which claims still count keeps the cell ``REMOVED`` and has no facts, so nothing fits there. The
cell repeats the limits of the node's account, because policies are notified of changed cells only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast, final

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account
from bursar.policies.placement_kit import REMOVED, checks_by_reason
from bursar.policies.policy import PlacementPolicy
from bursar.policies.results import Body, Check, Refusal
from bursar.resources import UNLIMITED, Limits, Vector, dimension_at
from bursar.selectors import NodeNeeds, Taint, any_term, any_tolerates

PREFER: Final = "PreferNoSchedule"
UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")

# Manifests for the embedded cluster may leave these out.
_ALWAYS_THERE: Final = ("cpu", "memory", "pods")


def stock(listed: Mapping[str, int]) -> Limits:
    """The capacity of a node: what is listed, and cpu, memory and pods without limit where they are not."""
    return Limits(dict.fromkeys(_ALWAYS_THERE, UNLIMITED) | dict(listed), True)


@final
@dataclass
class NodeBody(Body):
    """A node; cpu, memory and pods are unlimited where ``allocatable`` does not list them."""

    allocatable: Limits
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    refused: tuple[tuple[str, str], ...] = ()  # classes of pods that the scheduler refused here, and what it said

    def __post_init__(self) -> None:
        self.allocatable = stock(self.allocatable.listed)

    def cell(self) -> tuple[object, ...]:
        taints = tuple([(taint.key, taint.value, taint.effect) for taint in self.taints])
        listed = tuple(self.allocatable.listed.items())
        cell = (tuple(sorted(self.labels.items())), taints, self.unschedulable, listed)
        return (*cell, tuple(sorted(self.refused))) if self.refused else cell


@final
@dataclass
class IgnoredBody(Body):
    """Resources that something else hands out: nodes have none of them, and claims take none from nodes."""

    names: tuple[str, ...]


@final
@dataclass
class NodeFacts:
    """A node as the rules see it."""

    name: str
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    soft: tuple[Taint, ...]  # those with the effect PreferNoSchedule
    unschedulable: bool
    limits: Limits
    refused: dict[str, str] = field(default_factory=dict)  # by class of pods


NodeCell = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str, str], ...], bool, tuple[tuple[str, int], ...]]
"""Labels, taints, whether it is unschedulable, what is allocatable; then, if there are any, refused classes."""


def facts_of(name: str, cell: object) -> NodeFacts | None:
    """The facts in a cell; None for no cell or a removed node."""
    if cell is None or cell == REMOVED:
        return None
    whole = cast("tuple[object, ...]", cell)
    labels, rows, unschedulable, listed = cast("NodeCell", whole[:4])
    refused = dict(cast("tuple[tuple[str, str], ...]", whole[4])) if len(whole) > 4 else {}
    taints = [Taint(key, value, effect) for key, value, effect in rows]
    hard = tuple([taint for taint in taints if taint.effect != PREFER])
    soft = tuple([taint for taint in taints if taint.effect == PREFER])
    return NodeFacts(name, dict(labels), hard, soft, unschedulable, Limits(dict(listed), True), refused)


NAME: Final = "nodes"
PREFIX: Final = "nodes/"  # of the names of accounts
ROOM: Final = "nodes.room."  # then the resource
PORT: Final = "nodes.port"
NONE: Final = "nodes.none"
REFUSED: Final = "refused"
REPELLED: Final = "anti-affinity"

SELECTOR: Final = "selector"
AFFINITY: Final = "affinity"
CORDONED: Final = "unschedulable"
TAINT: Final = "taint"

Port = tuple[str, str, int]
"""Protocol, host address, port."""

_ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 compared, not bound to


def failed_rule(needs: NodeNeeds, facts: NodeFacts) -> str:
    """The first rule that keeps a claim with these needs off the node, or ""."""
    if needs.node_name and needs.node_name != facts.name:
        return SELECTOR
    for key, value in needs.selector.items():
        if facts.labels.get(key) != value:
            return SELECTOR
    if needs.terms is not None and not any_term(needs.terms, facts.name, facts.labels):
        return AFFINITY
    if facts.unschedulable and not any_tolerates(needs.tolerations, UNSCHEDULABLE):
        return CORDONED
    if facts.taints and needs.untolerated(facts.taints) is not None:
        return TAINT
    return ""


def rule_note(rule: str, needs: NodeNeeds, facts: NodeFacts) -> str:
    """A sentence on why that rule failed."""
    node = f"node {facts.name}"
    if rule == SELECTOR:
        return f"{node} is not {needs.node_name or _unmatched(needs, facts)}, which the claim selects"
    if rule == AFFINITY:
        return f"{node} matches no term of the claim's required node affinity"
    if rule == CORDONED:
        return f"{node} is marked unschedulable"
    taint = needs.untolerated(facts.taints)
    return f"{node} has the taint {'' if taint is None else taint.show()}, which the claim does not tolerate"


def _unmatched(needs: NodeNeeds, facts: NodeFacts) -> str:
    missing = [f"{k}={needs.selector[k]}" for k in sorted(needs.selector) if facts.labels.get(k) != needs.selector[k]]
    return ", ".join(missing)


def untolerated_soft(needs: NodeNeeds, facts: NodeFacts) -> int:
    """How many PreferNoSchedule taints of the node the claim does not tolerate."""
    return len([taint for taint in facts.soft if not any_tolerates(needs.tolerations, taint)])


def clash(wanted: tuple[Port, ...], held: tuple[Port, ...]) -> Port | None:
    """The first wanted port that one of the held ones excludes."""
    for mine in wanted:
        for other in held:
            if _excludes(mine, other):
                return mine
    return None


def _excludes(mine: Port, other: Port) -> bool:
    """Same protocol and number, at the same address or with one of them at every address."""
    if mine[2] != other[2] or mine[2] <= 0 or (mine[0] or "TCP") != (other[0] or "TCP"):
        return False
    here = mine[1] or _ANY_ADDRESS
    there = other[1] or _ANY_ADDRESS
    return here == there or _ANY_ADDRESS in {here, there}


def show_port(port: Port) -> str:
    protocol, address, number = port
    return f"{protocol or 'TCP'} {address or _ANY_ADDRESS}:{number}"


def check_nodes(policy: PlacementPolicy, claim: Claim, accounts: list[Account], cost: Vector) -> Check:
    """Explain where a claim without a node could run, over the accounts of all nodes sorted by name.

    A node counts once, for the first rule that it fails; a node that lacks room counts for each resource that it
    lacks. The nearest node lacks only room: the fewest short resources, then the smallest missing share of a request,
    then by name.
    """
    counts: dict[str, int] = {}
    fitting = 0
    nearest: tuple[tuple[int, int], Account, Refusal] | None = None
    for account in accounts:
        refusal = policy.explain_node(claim, account.name[len(PREFIX) :])
        if refusal is None:
            fitting += 1
            continue
        reasons = [refusal.reason]
        if refusal.reason.startswith(ROOM):
            missing = account.missing(cost)
            reasons = [ROOM + resource for resource in missing.names()]
            distance = _distance(missing, cost)
            if nearest is None or distance < nearest[0]:
                nearest = (distance, account, refusal)
        for reason in reasons:
            counts[reason] = counts.get(reason, 0) + 1
    note = f"{fitting} of {len(accounts)} nodes fit" if accounts else "there is no node"
    if fitting:
        return Check(NAME, True, note)
    children = checks_by_reason(counts, "node")
    reason = children[0].reason if children else NONE
    if nearest is not None:
        _, account, refusal = nearest
        missing = account.missing(cost)
        beyond = _beyond_all(accounts, cost, missing)
        amounts = [f"{amount} {name}" for name, amount in missing.show().items()]
        note += f"; the nearest, {refusal.place}, lacks {', '.join(amounts)}{beyond}"
        children.append(Check.of_account(account, cost, refusal))
    return Check(NAME, False, note, tuple(children), reason)


def _beyond_all(accounts: list[Account], cost: Vector, missing: Vector) -> str:
    """What the largest node has of that of which no node has enough, however empty it is."""
    found: list[str] = []
    for dim in missing.indices():
        most = max([account.limits.get(dim) for account in accounts])
        if cost.get(dim) > most:
            found.append(f"{dimension_at(dim).show(most)} {dimension_at(dim).name}")
    return f"; the largest node has {', '.join(found)}" if found else ""


def _distance(missing: Vector, cost: Vector) -> tuple[int, int]:
    """The number of short resources, and the largest missing share of a request.

    Shares are scaled by 2**128, so that fractions of 64-bit numbers that differ stay different.
    """
    return len(missing), max([(missing.get(dim) << 128) // cost.get(dim) for dim in missing.indices()], default=0)
