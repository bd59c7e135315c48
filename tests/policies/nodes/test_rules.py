"""Which nodes a claim may use, rule by rule, for one node at a time and in bulk."""

from __future__ import annotations

import pytest

from bursar.ledger.claims import Claim
from bursar.policies.nodes.rules import NodeBody, clash
from bursar.policies.policy import NeedsSource
from bursar.selectors import NodeNeeds, NodeTerm, Requirement, Toleration
from tests.policies.nodes.world import World, body, claim, porting, tolerating

ZONE_A = {"zone": "a"}
IN_A = (NodeTerm((Requirement("zone", "In", ("a",)),)),)
NAMED = (NodeTerm((), (Requirement("metadata.name", "In", ("n1",)),)),)
GPU_TAINT = ("gpu=yes:NoSchedule",)


def tolerate(key: str, operator: str, value: str, effect: str) -> NodeNeeds:
    return NodeNeeds({}, tolerations=(Toleration(key, operator, value, effect),))


RULES = [
    ("no needs, plain node", NodeNeeds({}), body(), ""),
    ("selector matches", NodeNeeds(ZONE_A), body(labels=ZONE_A), ""),
    ("selector of another value", NodeNeeds(ZONE_A), body(labels={"zone": "b"}), "nodes.selector"),
    ("selector without the label", NodeNeeds(ZONE_A), body(), "nodes.selector"),
    ("node name is this", NodeNeeds({}, node_name="n1"), body(), ""),
    ("node name is another", NodeNeeds({}, node_name="n2"), body(), "nodes.selector"),
    ("affinity matches", NodeNeeds({}, IN_A), body(labels=ZONE_A), ""),
    ("affinity does not", NodeNeeds({}, IN_A), body(), "nodes.affinity"),
    ("affinity to the name", NodeNeeds({}, NAMED), body(), ""),
    ("terms are alternatives", NodeNeeds({}, (*IN_A, *NAMED)), body(), ""),
    ("an empty term matches nothing", NodeNeeds({}, (NodeTerm(()),)), body(), "nodes.affinity"),
    ("no term matches nothing", NodeNeeds({}, ()), body(), "nodes.affinity"),
    ("selector comes before affinity", NodeNeeds(ZONE_A, IN_A), body(), "nodes.selector"),
    ("cordoned", NodeNeeds({}), body(unschedulable=True), "nodes.unschedulable"),
    (
        "cordoned, tolerated",
        tolerate("node.kubernetes.io/unschedulable", "Exists", "", "NoSchedule"),
        body(unschedulable=True),
        "",
    ),
    ("cordoned, all tolerated", tolerate("", "Exists", "", ""), body(unschedulable=True), ""),
    (
        "cordoned, other effect tolerated",
        tolerate("node.kubernetes.io/unschedulable", "Exists", "", "NoExecute"),
        body(unschedulable=True),
        "nodes.unschedulable",
    ),
    ("cordoned comes before taint", NodeNeeds({}), body(taints=GPU_TAINT, unschedulable=True), "nodes.unschedulable"),
    ("NoSchedule", NodeNeeds({}), body(taints=GPU_TAINT), "nodes.taint"),
    ("NoExecute", NodeNeeds({}), body(taints=("gpu:NoExecute",)), "nodes.taint"),
    ("PreferNoSchedule keeps nobody away", NodeNeeds({}), body(taints=("gpu:PreferNoSchedule",)), ""),
    ("tolerated by key", tolerating("gpu"), body(taints=GPU_TAINT), ""),
    ("tolerated by value", tolerate("gpu", "Equal", "yes", "NoSchedule"), body(taints=GPU_TAINT), ""),
    ("no operator is Equal", tolerate("gpu", "", "yes", ""), body(taints=GPU_TAINT), ""),
    ("another value", tolerate("gpu", "Equal", "no", ""), body(taints=GPU_TAINT), "nodes.taint"),
    ("another effect", tolerate("gpu", "Exists", "", "NoExecute"), body(taints=GPU_TAINT), "nodes.taint"),
    ("one of two taints", tolerating("gpu"), body(taints=(*GPU_TAINT, "x:NoSchedule")), "nodes.taint"),
    ("both taints", tolerating("gpu", "x"), body(taints=(*GPU_TAINT, "x:NoSchedule")), ""),
]


@pytest.mark.parametrize(("needs", "node", "reason"), [row[1:] for row in RULES], ids=[row[0] for row in RULES])
def test_rule(needs: NodeNeeds, node: NodeBody, reason: str) -> None:
    world = World()
    world.node("n1", node)
    one = claim("c", needs=needs)
    assert world.reason(one, "n1") == reason
    assert world.open_for(one) == world.possible_for(one) == ([] if reason else ["n1"])
    refusal = world.place(one, "n1")
    assert ("" if refusal is None else refusal.reason) == reason


TCP = ("TCP", "", 80)
CLASHES = [
    ("same", TCP, TCP, True),
    ("other port", TCP, ("TCP", "", 81), False),
    ("other protocol", TCP, ("UDP", "", 80), False),
    ("every address against one", ("TCP", "0.0.0.0", 80), ("TCP", "10.0.0.1", 80), True),  # noqa: S104 compared, not bound to
    ("one against every address", ("TCP", "10.0.0.1", 80), TCP, True),
    ("two addresses", ("TCP", "10.0.0.1", 80), ("TCP", "10.0.0.2", 80), False),
    ("one address twice", ("TCP", "10.0.0.1", 80), ("TCP", "10.0.0.1", 80), True),
    ("no protocol is TCP", ("", "", 80), TCP, True),
    ("port zero is no port", ("TCP", "", 0), ("TCP", "", 0), False),
]


@pytest.mark.parametrize(("mine", "other", "clashes"), [row[1:] for row in CLASHES], ids=[row[0] for row in CLASHES])
def test_ports(mine: tuple[str, str, int], other: tuple[str, str, int], clashes: bool) -> None:
    assert clash((mine,), (other,)) == (mine if clashes else None)
    world = World()
    world.node("n1", body())
    world.node("n2", body())
    assert world.place(claim("other", needs=porting(other)), "n1") is None
    one = claim("mine", needs=porting(mine))
    assert world.reason(one, "n1") == ("nodes.port" if clashes else "")
    assert world.open_for(one) == (["n2"] if clashes else ["n1", "n2"])
    assert world.possible_for(one) == ["n1", "n2"]


def test_a_released_port_is_free_again() -> None:
    world = World()
    world.node("n1", body())
    holder = claim("holder", needs=porting(TCP))
    world.place(holder, "n1")
    world.release(holder)
    assert world.open_for(claim("c", needs=porting(TCP))) == ["n1"]


class QuotaNeeds(NeedsSource):
    """What the engine will put here: the node requirements of other policies."""

    def __init__(self, *needs: NodeNeeds) -> None:
        self.all = needs

    def needs(self, claim: Claim) -> tuple[NodeNeeds, ...]:
        return self.all


def test_needs_of_other_policies_must_all_select_the_node() -> None:
    world = World()
    world.node("n1", body(labels={"zone": "a", "tier": "x"}))
    world.node("n2", body(labels=ZONE_A))
    world.node("n3", body())
    world.policy.needs_of = QuotaNeeds(NodeNeeds(ZONE_A), NodeNeeds({"tier": "x"}))
    one = claim("c")
    assert world.open_for(one) == world.possible_for(one) == ["n1"]
    assert [world.reason(one, name) for name in ("n1", "n2", "n3")] == ["", "nodes.affinity", "nodes.affinity"]
    world.node("n1", body())
    assert world.open_for(one) == []


def test_a_changed_node_is_judged_anew() -> None:
    world = World()
    one = claim("c", needs=NodeNeeds(ZONE_A))
    world.node("n1", body())
    assert world.open_for(one) == []
    world.node("n1", body(labels=ZONE_A))
    assert world.open_for(one) == ["n1"]
    world.abort()
    assert world.open_for(one) == []


SENTENCES = [
    (NodeNeeds(ZONE_A), body(), "node n1 is not zone=a, which the claim selects"),
    (NodeNeeds({}, node_name="n2"), body(), "node n1 is not n2, which the claim selects"),
    (NodeNeeds({}, IN_A), body(), "node n1 matches no term of the claim's required node affinity"),
    (NodeNeeds({}), body(unschedulable=True), "node n1 is marked unschedulable"),
    (
        NodeNeeds({}),
        body(taints=GPU_TAINT),
        "node n1 has the taint gpu=yes:NoSchedule, which the claim does not tolerate",
    ),
]


@pytest.mark.parametrize(("needs", "node", "sentence"), SENTENCES)
def test_refusals_say_what_is_wrong(needs: NodeNeeds, node: NodeBody, sentence: str) -> None:
    world = World()
    world.node("n1", node)
    refusal = world.policy.explain_node(claim("c", needs=needs), "n1")
    assert refusal is not None
    assert (refusal.sentence(), refusal.place, refusal.topics) == (sentence, "n1", ("nodes",))
    assert not refusal.permanent


def test_a_taken_port_is_named() -> None:
    world = World()
    world.node("n1", body())
    world.place(claim("a", needs=porting(TCP)), "n1")
    refusal = world.policy.explain_node(claim("b", needs=porting(("TCP", "10.0.0.1", 80))), "n1")
    assert refusal is not None
    assert refusal.sentence() == "host port TCP 10.0.0.1:80 of node n1 is taken"
