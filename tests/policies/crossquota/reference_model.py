"""The reference model of the crossquota policy: a list of who is where; every answer is computed from it."""

from __future__ import annotations

import re
from fractions import Fraction

from bursar.ledger.claims import Claim
from bursar.policies.crossquota.arguments import Arguments, read_arguments
from bursar.policies.crossquota.node_quota import CrossQuotaNodeBody
from bursar.resources import UNLIMITED, dimension

MARK = "volcano.sh/crossquota-"
ALWAYS = ("cpu", "memory", "pods")


class ReferenceModel:
    def __init__(self) -> None:
        self.arguments: Arguments = read_arguments({})
        self.nodes: dict[str, CrossQuotaNodeBody] = {}
        self.placed: dict[str, tuple[Claim, str, bool]] = {}  # by uid: the claim, its node, whether it is leaving

    def copy(self) -> ReferenceModel:
        other = ReferenceModel()
        other.arguments, other.nodes, other.placed = self.arguments, dict(self.nodes), dict(self.placed)
        return other

    def matches(self, resource: str) -> bool:
        return any(re.fullmatch(pattern, resource) for pattern in self.arguments.gpu_names)

    def gpus(self, amounts: dict[str, int]) -> int:
        return sum(amount for name, amount in amounts.items() if self.matches(name))

    def limited(self, claim: Claim) -> bool:
        if not self.arguments.gpu_names or self.gpus(dict(claim.spec.requests.pairs())):
            return False
        if claim.namespace in self.arguments.exempt_namespaces:
            return False
        return self.arguments.selector.matches(claim.spec.labels)

    def is_gpu_node(self, node: str) -> bool:
        return node in self.nodes and self.gpus(self.nodes[node].allocatable) > 0

    def allocatable(self, node: str, resource: str) -> int:
        listed = self.nodes[node].allocatable
        return listed.get(resource, UNLIMITED if resource in ALWAYS else 0)

    def quota(self, node: str, resource: str) -> int:
        base = self.allocatable(node, resource)
        marks = self.nodes[node].annotations
        amount, percent = marks.get(MARK + resource, ""), marks.get(f"{MARK}percentage-{resource}", "")
        if re.fullmatch("[0-9]+", amount):  # the machine draws whole numbers and rubbish only
            return dimension(resource).parse(amount)
        if re.fullmatch("[1-9][0-9]?", percent):
            return base if base == UNLIMITED else base * int(percent) // 100
        if resource in self.arguments.quotas:
            return self.arguments.quotas[resource]
        if resource in self.arguments.percentages:
            share = Fraction(*self.arguments.percentages[resource])
            return base if base == UNLIMITED else int(base * share / 100)
        return base

    def counted(self, node: str) -> list[Claim]:
        return [claim for claim, place, leaving in self.placed.values() if place == node and not leaving]

    def used(self, node: str, resource: str) -> int:
        return sum(amount(claim, resource) for claim in self.counted(node) if self.limited(claim))

    def physical(self, node: str, resource: str) -> int:
        everybody = [claim for claim, place, _ in self.placed.values() if place == node]
        return sum(amount(claim, resource) for claim in everybody if self.limited(claim))

    def kept(self, node: str, resource: str) -> int:
        taken = sum(self.gpus(dict(claim.spec.requests.pairs())) for claim in self.counted(node))
        idle = max(0, self.gpus(self.nodes[node].allocatable) - taken)
        return idle * self.arguments.reserves[resource]

    def reason(self, claim: Claim, node: str) -> str:
        if not self.limited(claim) or not self.is_gpu_node(node):
            return ""
        for resource in self.arguments.resources:
            asked = amount(claim, resource)
            if asked and self.used(node, resource) + asked > self.quota(node, resource):
                return f"crossquota.quota.{resource}"
        for resource in sorted(self.arguments.reserves):
            asked, cap = amount(claim, resource), self.allocatable(node, resource)
            total = sum(amount(one, resource) for one in self.counted(node)) + asked
            if asked and cap != UNLIMITED and total + self.kept(node, resource) > cap:
                return f"crossquota.reserve.{resource}"
        return ""

    def score(self, claim: Claim, node: str) -> int:
        asked = [resource for resource in self.arguments.resources if amount(claim, resource)]
        weights = sum(self.arguments.weight_of(resource) for resource in asked)
        if not self.limited(claim) or not self.is_gpu_node(node) or not weights:
            return 0
        total = Fraction(0)
        for resource in asked:
            share, cap = self.used(node, resource) + amount(claim, resource), self.quota(node, resource)
            if cap and share > cap:
                return 0
            if cap not in {0, UNLIMITED}:
                total += Fraction(share, cap) * self.arguments.weight_of(resource)
        return int(total / weights * self.arguments.weight * 1_000_000)


def amount(claim: Claim, resource: str) -> int:
    return 1 if resource == "pods" else claim.spec.requests.amount(resource)
