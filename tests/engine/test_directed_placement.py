"""A quota policy whose bindings say on which nodes a claim may run."""

from __future__ import annotations

from bursar.engine.engine import Engine
from bursar.ledger.claims import Claim
from bursar.policies.nodes.policy import NodesPolicy
from bursar.policies.nodes.rules import NodeBody
from bursar.policies.results import Setting
from bursar.resources import Limits
from bursar.selectors import NodeNeeds
from tests.engine.toy_policies import Pots, Room, spec


class PoolPots(Pots):
    """Pots that own the nodes labelled with their name."""

    def __init__(self) -> None:
        super().__init__("teams")

    def node_needs(self, claim: Claim) -> NodeNeeds | None:
        return NodeNeeds({"pool": claim.spec.labels["teams"]})


def node(name: str, pool: str, cpu: int) -> Setting:
    return Setting("nodes.Node", name, NodeBody(Limits({"cpu": cpu}, stock=True), {"pool": pool}, (), False))


def test_claims_go_to_the_nodes_of_their_pot_only() -> None:
    engine = Engine([PoolPots(), NodesPolicy()])
    engine.configure([node("n1", "a", 9), node("n2", "b", 2), Setting("teams.Pot", "b", Room(cpu=99))])
    first = Claim("x", spec({"cpu": 2}, {"teams": "b"}))
    assert engine.decide(first).place == "n2"
    second = Claim("y", spec({"cpu": 2}, {"teams": "b"}))
    assert engine.decide(second).reason == "nodes.full"
    assert engine.place("x", "n1").reason == "nodes.affinity"


def test_a_claim_that_fits_no_node_of_its_pot_is_told_so() -> None:
    engine = Engine([PoolPots(), NodesPolicy()])
    engine.configure([node("n1", "a", 9), Setting("teams.Pot", "b", Room(cpu=99))])
    assert engine.decide(Claim("x", spec({"cpu": 1}, {"teams": "b"}))).reason == "nodes.none"
