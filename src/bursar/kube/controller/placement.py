"""What a decision over a node becomes on Kubernetes: a pin, a fence around the GPU nodes, or nothing.

Pinned are the claims whose decision is about that very node: parts of its GPUs, or the share of CPU pods on a GPU node.
Everybody else's place is provisional, and the scheduler may find a better one; a CPU pod whose place is elsewhere is
kept off the GPU nodes, where it has no place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bursar.ledger.claims import Claim
from bursar.objects.core import Node
from bursar.policies.base import Policy
from bursar.policies.crossquota.plugin import node_settings
from bursar.policies.crossquota.policy import CrossQuotaPolicy
from bursar.policies.crossquota.quotas import NodeBody, count_gpus

_FRACTIONS = "gpus"


@dataclass(frozen=True, slots=True)
class Orders:
    """How the scheduler is bound to the decision."""

    pin: bool
    keep_off: bool


class Placement:
    """Judges claims that have their place, by the policies of one engine."""

    def __init__(self, policies: Iterable[Policy], *, pin_all: bool = False) -> None:
        self._cross = next((policy for policy in policies if isinstance(policy, CrossQuotaPolicy)), None)
        self.pin_all = pin_all

    def orders(self, claim: Claim, unjudged: tuple[str, ...], *, expressible: bool = True) -> Orders:
        """``expressible``: whether all that narrows the pod can be written without naming the node."""
        shares = self.shares_gpu_node(claim)
        fraction = takes_fractions(claim)
        pin = fraction or shares or ((self.pin_all or not expressible) and not unjudged)
        return Orders(bool(claim.place) and pin, not shares and self.must_stay_off(claim))

    def must_stay_off(self, claim: Claim) -> bool:
        """Whether GPU nodes are closed to the claim except where it was given a share of one."""
        cross = self._cross
        return cross is not None and bool(cross.index.patterns) and cross.index.scope.limited(claim)

    def unmarked(self, node: Node) -> bool:
        """Whether this is a GPU node without the label that keeps pods off."""
        cross = self._cross
        if cross is None or not cross.index.patterns:
            return False
        body = node_settings("", node)[0].body
        if not isinstance(body, NodeBody) or body.labelled:
            return False
        return count_gpus(body.allocatable, cross.index.patterns) > 0

    def shares_gpu_node(self, claim: Claim) -> bool:
        """Whether its place is a GPU node on which it counts among the CPU pods."""
        if not claim.place or not self.must_stay_off(claim):
            return False
        facts = self._cross.index.node(claim.place) if self._cross is not None else None
        return facts is not None and facts.is_gpu_node()


def takes_fractions(claim: Claim) -> bool:
    """Whether its decision names GPUs."""
    return any(binding is not None and binding.policy == _FRACTIONS for binding in claim.bindings)
