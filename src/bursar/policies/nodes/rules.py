"""The names of the reasons, and the rules that have nothing to do with room: selection, taints and host ports.

They are checked in a fixed order, so that a node is always refused for the same rule: selector, affinity,
unschedulable, taint, then (by the policy) port and room.
"""

from __future__ import annotations

from typing import Final

from bursar.policies.nodes.facts import UNSCHEDULABLE, Facts
from bursar.selectors import NodeNeeds, any_term, any_tolerates

NAME: Final = "nodes"
PREFIX: Final = "nodes/"  # of the names of accounts
ROOM: Final = "nodes.room."  # then the resource
PORT: Final = "nodes.port"
NONE: Final = "nodes.none"

SELECTOR: Final = "selector"
AFFINITY: Final = "affinity"
CORDONED: Final = "unschedulable"
TAINT: Final = "taint"

Port = tuple[str, str, int]
"""Protocol, host address, port."""

_ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 compared, not bound to


def failed_rule(needs: NodeNeeds, facts: Facts) -> str:
    """The first rule by which a claim with these needs may not run on the node, or ""."""
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


def rule_note(rule: str, needs: NodeNeeds, facts: Facts) -> str:
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


def _unmatched(needs: NodeNeeds, facts: Facts) -> str:
    missing = [f"{k}={needs.selector[k]}" for k in sorted(needs.selector) if facts.labels.get(k) != needs.selector[k]]
    return ", ".join(missing)


def untolerated_soft(needs: NodeNeeds, facts: Facts) -> int:
    """How many PreferNoSchedule taints of the node the claim does not tolerate."""
    count = 0
    for taint in facts.soft:
        if not any_tolerates(needs.tolerations, taint):
            count += 1
    return count


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
