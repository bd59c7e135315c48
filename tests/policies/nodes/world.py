"""A ledger with the nodes policy alone, and short ways to put nodes and claims into it."""

from __future__ import annotations

from bursar.ledger.claims import Binding, Claim, ClaimSpec
from bursar.policies.nodes.policy import KIND, NodesPolicy
from bursar.policies.nodes.rules import NodeBody
from bursar.policies.results import Setting
from bursar.resources import parse_vector
from bursar.selectors import NO_NEEDS, NodeNeeds, Taint, Toleration
from tests.amounts import parse_limits
from tests.policies.placement_machine import PlacementWorld


def body(
    allocatable: dict[str, object] | None = None,
    labels: dict[str, str] | None = None,
    taints: tuple[str, ...] = (),
    unschedulable: bool = False,
) -> NodeBody:
    return NodeBody(parse_limits(allocatable or {}), labels or {}, tuple(taint(text) for text in taints), unschedulable)


def taint(text: str) -> Taint:
    """``key=value:effect`` or ``key:effect``."""
    mark, _, effect = text.rpartition(":")
    key, _, value = mark.partition("=")
    return Taint(key, value, effect)


def tolerating(*keys: str) -> NodeNeeds:
    return NodeNeeds({}, tolerations=tuple(Toleration(key, "Exists", "", "") for key in keys))


def porting(*ports: tuple[str, str, int]) -> NodeNeeds:
    return NodeNeeds({}, host_ports=ports)


def claim(
    uid: str,
    requests: dict[str, object] | None = None,
    needs: NodeNeeds = NO_NEEDS,
    priority: int = 0,
    created: int = 0,
    namespace: str = "",
) -> Claim:
    spec = ClaimSpec(parse_vector(requests or {}), priority=priority, needs=needs)
    return Claim(uid, spec, created, namespace)


class World(PlacementWorld):
    """The nodes policy and its questions."""

    policy: NodesPolicy

    def __init__(self) -> None:
        super().__init__("nodes", NodesPolicy())

    def node(self, name: str, what: NodeBody | None) -> None:
        self.policy.configure(self.tx, Setting(KIND, name, what))

    def bind(self, one: Claim, node: str) -> Binding:
        bound = self.policy.bind(one, node)
        assert isinstance(bound, Binding)
        return bound

    def replayed(self) -> World:
        other = World()
        other.repeat(self)
        return other

    # Questions

    def open_for(self, one: Claim) -> list[str]:
        return self._names(one, "filter")

    def possible_for(self, one: Claim) -> list[str]:
        return self._names(one, "feasible")

    def _names(self, one: Claim, question: str) -> list[str]:
        mask = bytearray(b"\x01" * (len(self.nodes) + 3))  # longer than the arrays of the policy
        getattr(self.policy, question)(one, mask)
        return sorted(self.nodes.names[slot] for slot in range(len(mask)) if mask[slot])

    def scores_for(self, one: Claim) -> dict[str, int]:
        mask = bytearray(b"\x01" * len(self.nodes))
        self.policy.filter(one, mask)
        scores = self.policy.spread(one, mask)
        return {name: scores[slot] for name, slot in self.nodes.slots.items() if mask[slot]}

    def indexed(self) -> dict[str, object]:
        index = self.policy.index
        free: dict[str, object] = {}
        for name, slot in self.nodes.slots.items():
            rows = {
                dim: (int(column.free[slot]), int(column.caps[slot]))
                for dim, column in enumerate(index.columns.by_dimension)
                if column is not None and (column.free[slot] or column.caps[slot])
            }
            residents = sorted(index.residents[slot].claims)
            ports = dict(sorted(index.ports.get(slot, {}).items()))
            order = [one.uid for one in index.residents[slot].least_important_first()]
            facts = index.masks.facts[slot]
            if rows or residents or facts is not None:
                free[name] = (rows, residents, ports, order, facts is not None and facts.name)
        marked = [sorted(self.nodes.names[slot] for slot in slots) for slots in (index.ports, index.soft)]
        derived = [sorted(index.removed), marked, sorted((at, sorted(h)) for at, h in index.leaving_ports.items())]
        return {"nodes": free, "derived": repr(derived)}
