"""The names of the reasons, and the rules that have nothing to do with room: selection, taints and host ports.

They are checked in a fixed order, so that a node is always refused for the same rule: selector, affinity,
unschedulable, taint, then (by the policy) port and room.

What is known of a node, in its three forms: the setting, the cell in the ledger, and the typed facts.

A node that its cluster no longer has, but on which claims still count, keeps the cell ``REMOVED``: it has no facts,
so nothing fits, but what stands there stays findable.

The cell repeats what the limits of the node's account say. It must: policies hear of changed cells, not of changed
limits, and the dense arrays over all nodes have to follow an undo and a replay too.

The claims that count on one node: who would be asked to leave first, and who holds which host port.

Kept by charges being done, undone and replayed, so it only ever follows the ledger. The order is built when it is
first asked for and kept from then on: most nodes are never searched for victims, and a charge should cost little.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast, final

from bursar.ledger.claims import Claim
from bursar.ledger.state import Ordered
from bursar.policies.results import Body
from bursar.resources import UNLIMITED, Limits
from bursar.selectors import NodeNeeds, Taint, any_term, any_tolerates

PREFER: Final = "PreferNoSchedule"
UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
REMOVED: Final[tuple[object, ...]] = ()
NOTHING: Final = Limits({}, True)

# A manifest for the embedded cluster need not list these; a node without them is none that somebody wants.
_ALWAYS_THERE: Final = ("cpu", "memory", "pods")


def stock(listed: Mapping[str, int]) -> Limits:
    """What a node has: cpu, memory and pods without limit unless listed, of anything else what is listed."""
    whole = dict(listed)
    for name in _ALWAYS_THERE:
        whole.setdefault(name, UNLIMITED)
    return Limits(whole, True)


@final
class NodeBody(Body):
    """A node as it comes from outside; the limits are read as a stock."""

    __slots__ = ("allocatable", "labels", "taints", "unschedulable")

    def __init__(
        self,
        allocatable: Limits,
        labels: dict[str, str] | None = None,
        taints: tuple[Taint, ...] = (),
        unschedulable: bool = False,
    ) -> None:
        self.allocatable: Final = stock(allocatable.listed)
        self.labels: Final = labels if labels is not None else {}
        self.taints: Final = taints
        self.unschedulable: Final = unschedulable

    def cell(self) -> tuple[object, ...]:
        """The plain form for the ledger."""
        taints = tuple([(t.key, t.value, t.effect) for t in self.taints])
        return (
            tuple(sorted(self.labels.items())),
            taints,
            self.unschedulable,
            tuple(self.allocatable.listed.items()),
        )


@final
class NodeFacts:
    """A node as the rules see it."""

    __slots__ = ("labels", "limits", "name", "soft", "taints", "unschedulable")

    def __init__(
        self, name: str, labels: dict[str, str], taints: tuple[Taint, ...], unschedulable: bool, limits: Limits
    ) -> None:
        self.name: Final = name
        self.labels: Final = labels
        self.taints: Final = tuple([t for t in taints if t.effect != PREFER])
        self.soft: Final = tuple([t for t in taints if t.effect == PREFER])
        self.unschedulable: Final = unschedulable
        self.limits: Final = limits


def facts_of(name: str, cell: object) -> NodeFacts | None:
    """The facts in a cell; None for no cell or a removed node."""
    if cell is None or cell == REMOVED:
        return None
    labels, taints, unschedulable, listed = cast("tuple[object, ...]", cell)
    return NodeFacts(
        name,
        dict(cast("tuple[tuple[str, str], ...]", labels)),
        tuple([Taint(key, value, effect) for key, value, effect in cast("tuple[tuple[str, str, str], ...]", taints)]),
        cast("bool", unschedulable),
        Limits(dict(cast("tuple[tuple[str, int], ...]", listed)), True),
    )


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


def failed_rule(needs: NodeNeeds, facts: NodeFacts) -> str:
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


NOBODY: Final = 2**40  # above every priority


@final
class Residents:
    """The counted claims of one node."""

    __slots__ = ("claims", "lowest", "lowest_known", "order", "ports")

    def __init__(self) -> None:
        self.claims: Final[dict[str, Claim]] = {}
        self.ports: Final[dict[str, tuple[Port, ...]]] = {}  # by uid, of those that hold some
        self.order: Ordered | None = None
        self.lowest: int = NOBODY
        self.lowest_known: bool = True

    def add(self, claim: Claim) -> None:
        self.claims[claim.uid] = claim
        self.lowest = min(self.lowest, claim.spec.priority)
        ports = claim.spec.needs.host_ports
        if ports:
            self.ports[claim.uid] = ports
        if self.order is not None:
            self.order.add(importance(claim))

    def remove(self, claim: Claim) -> None:
        del self.claims[claim.uid]
        if claim.spec.priority == self.lowest:
            self.lowest_known = False
        if self.ports:
            self.ports.pop(claim.uid, None)
        if self.order is not None:
            try:
                self.order.remove(importance(claim))
            except KeyError:
                self.order = None  # its priority changed while it stood here: sort anew when asked

    def lowest_priority(self) -> int:
        """The lowest priority of all who stand here; ``NOBODY`` on an empty node."""
        if not self.lowest_known:
            self.lowest = min([claim.spec.priority for claim in self.claims.values()], default=NOBODY)
            self.lowest_known = True
        return self.lowest

    def least_important_first(self) -> list[Claim]:
        if self.order is None:
            self.order = Ordered()
            for claim in self.claims.values():
                self.order.add(importance(claim))
        keys = self.order.keys()
        return [self.claims[str(key[-1])] for key in keys]

    def clash(self, wanted: tuple[Port, ...]) -> Port | None:
        """The first wanted port that is taken."""
        taken = [port for held in self.ports.values() for port in held]
        return clash(wanted, tuple(taken))

    def clashing(self, wanted: tuple[Port, ...]) -> list[Claim]:
        """Those who hold a wanted port."""
        return [self.claims[uid] for uid, held in self.ports.items() if clash(wanted, held) is not None]


def importance(claim: Claim) -> tuple[object, ...]:
    """Sorts the least important first: lower priority, then newer, then by name."""
    return (claim.spec.priority, -claim.created, claim.namespace, claim.name, claim.uid)
