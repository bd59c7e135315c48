"""Who is the least important claim of a node, as the search for victims bounds the harm there."""

from __future__ import annotations

from random import Random

from bursar.engine.engine import Engine
from bursar.ledger.claims import Claim, ClaimSpec
from bursar.policies.nodes.policy import NodesPolicy
from bursar.policies.nodes.rules import NodeBody
from bursar.policies.results import Setting
from bursar.resources import Limits, from_amounts


def test_says_the_same_as_looking_at_everybody() -> None:
    policy = NodesPolicy()
    engine = Engine([policy])
    body = NodeBody(Limits({"cpu": 4}, stock=True), {}, (), False)
    engine.configure([Setting("nodes.Node", f"n{i}", body) for i in range(4)])
    rng = Random(5)
    for step in range(400):
        claims = sorted(engine.state.claims)
        if claims and rng.random() < 0.5:
            engine.release(rng.choice(claims))
        else:
            engine.decide(Claim(f"c{step}", ClaimSpec(from_amounts({"cpu": 1}), priority=rng.randrange(-2, 4)), step))
        for slot, name in enumerate(policy.nodes.names):
            there = [c for c in engine.state.claims.values() if c.counts() and c.place == name]
            least = min(there, key=lambda c: (c.spec.priority, -c.created), default=None)
            assert policy.least_important(slot) is least
            assert policy.residents(slot) == {c.uid: c for c in there}
