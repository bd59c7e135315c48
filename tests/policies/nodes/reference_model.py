"""A reference model of the nodes policy: a list of who is where, everything else worked out anew for every question."""

from __future__ import annotations

from bursar.ledger.claims import Claim
from bursar.policies.nodes.rules import NodeBody
from bursar.resources import UNLIMITED


class ReferenceModel:
    def __init__(self) -> None:
        self.nodes: dict[str, NodeBody | None] = {}  # None: deleted, but somebody is still there
        self.placed: dict[str, tuple[Claim, str, bool]] = {}  # by uid: the claim, its node, whether it is leaving

    def copy(self) -> ReferenceModel:
        other = ReferenceModel()
        other.nodes, other.placed = dict(self.nodes), dict(self.placed)
        return other

    def remove(self, name: str) -> None:
        if name in self.nodes:
            self.nodes[name] = None
            self.settle([name])

    def settle(self, names: list[str]) -> None:
        for name in names:
            if self.nodes[name] is None and name not in [node for _, node, _ in self.placed.values()]:
                del self.nodes[name]

    def counted(self, node: str) -> list[Claim]:
        return [claim for claim, place, leaving in self.placed.values() if place == node and not leaving]

    def physical(self, node: str) -> list[Claim]:
        return [claim for claim, place, _ in self.placed.values() if place == node]

    def reason(self, claim: Claim, node: str) -> str:
        if node not in self.nodes:
            return "nodes.unknown"
        body = self.nodes[node]
        if body is None:
            return "nodes.removed"
        return self.rule(claim, node, body) or self.lack(claim, body, self.counted(node))

    def could(self, claim: Claim, node: str) -> bool:
        body = self.nodes[node]
        return body is not None and not self.rule(claim, node, body) and not self.lack(claim, body, [])

    @staticmethod
    def rule(claim: Claim, node: str, body: NodeBody) -> str:
        needs = claim.spec.needs
        marks = [t for t in body.taints if t.effect != "PreferNoSchedule"]
        accepted = {t.key for t in needs.tolerations}  # the machine only draws tolerations by key
        if needs.node_name not in {"", node} or not needs.selector.items() <= body.labels.items():
            return "nodes.selector"
        if needs.terms is not None and not any(term.matches(node, body.labels) for term in needs.terms):
            return "nodes.affinity"
        if body.unschedulable and "node.kubernetes.io/unschedulable" not in accepted:
            return "nodes.unschedulable"
        return "nodes.taint" if any(t.key not in accepted for t in marks) else ""

    @staticmethod
    def lack(claim: Claim, body: NodeBody, others: list[Claim]) -> str:
        wanted = ports_of(claim)
        if any(wanted & ports_of(other) for other in others):
            return "nodes.port"
        for name in sorted(amounts_of(claim)):
            cap = body.allocatable.listed.get(name, 0)
            total = sum(amounts_of(one).get(name, 0) for one in [claim, *others])
            if cap != UNLIMITED and total > cap:
                return f"nodes.room.{name}"
        return ""

    def victims(self, claim: Claim, node: str) -> list[str]:
        """Those whom the policy must name, if each of them leaves before the next is named."""
        body = self.nodes[node]
        staying = self.counted(node)
        wanted = ports_of(claim)
        if body is None or self.rule(claim, node, body) or self.lack(claim, body, []):
            return []
        if any(wanted & ports_of(one) and one.spec.priority >= claim.spec.priority for one in staying):
            return []
        found: list[str] = []
        for one in sorted(staying, key=lambda c: (c.spec.priority, -c.created, c.namespace, c.name, c.uid)):
            others = [other for other in staying if other.uid not in found]
            short = [n for n, a in amounts_of(claim).items() if self.lack_of(n, a, body, others)]
            if one.spec.priority >= claim.spec.priority or not self.lack(claim, body, others):
                break
            if wanted & ports_of(one) or any(amounts_of(one).get(name, 0) for name in short):
                found.append(one.uid)
        return found

    @staticmethod
    def lack_of(name: str, amount: int, body: NodeBody, others: list[Claim]) -> bool:
        cap = body.allocatable.listed.get(name, 0)
        return cap != UNLIMITED and amount + sum(amounts_of(one).get(name, 0) for one in others) > cap


def ports_of(claim: Claim) -> set[tuple[str, str, int]]:
    return set(claim.spec.needs.host_ports)  # the machine only draws ports at every address


def amounts_of(claim: Claim) -> dict[str, int]:
    return {**dict(claim.spec.requests.pairs()), "pods": 1}
