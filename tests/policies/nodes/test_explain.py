"""The explain tree for a placed claim, and the survey over all nodes for one without a place."""

from __future__ import annotations

import pytest

from bursar.ledger.claims import Claim
from bursar.policies.results import Check
from bursar.selectors import NodeNeeds
from tests.policies.nodes.world import World, body, claim, porting


def survey(world: World, one: Claim) -> Check:
    found = world.policy.explain_nodes(one)
    assert found is not None
    return found


def counted(check: Check) -> list[tuple[str, str]]:
    return [(child.reason, child.title) for child in check.children if not child.title.startswith("nodes/")]


def test_no_node_at_all() -> None:
    found = survey(World(), claim("c"))
    assert (found.passed, found.reason, found.note, found.children) == (False, "nodes.none", "there is no node", ())


def test_nodes_are_counted_by_reason_most_first() -> None:
    world = World()
    for name in ("a1", "a2", "a3"):
        world.node(name, body({"cpu": 1, "memory": "1Gi"}))
    world.node("b1", body(taints=("x:NoSchedule",)))
    world.node("b2", body(taints=("x:NoSchedule",)))
    world.node("c1", body({"cpu": 8, "memory": "1Gi"}))
    world.node("d1", body(unschedulable=True))
    world.node("e1", body())
    world.place(claim("port", needs=porting(("TCP", "", 1))), "e1")
    found = survey(world, claim("c", {"cpu": 2, "memory": "2Gi"}, porting(("TCP", "", 1))))
    assert not found.passed
    assert found.reason == "nodes.room.memory"
    assert counted(found) == [
        ("nodes.room.memory", "4 nodes"),
        ("nodes.room.cpu", "3 nodes"),
        ("nodes.taint", "2 nodes"),
        ("nodes.port", "1 node"),
        ("nodes.unschedulable", "1 node"),
    ]
    assert found.note == "0 of 8 nodes fit; the nearest, c1, lacks 1Gi memory"
    assert found.children[-1].title == "nodes/c1"
    assert found.children[-1].reason == "nodes.room.memory"


NEAREST = [
    ("fewest short resources", {"a": {"cpu": 3, "nvidia.com/gpu": 3}, "b": {"nvidia.com/gpu": 4}}, "b", "4 cpu"),
    ("smallest share", {"a": {"cpu": 1}, "b": {"cpu": 4, "nvidia.com/gpu": 3}}, "b", "1 nvidia.com/gpu"),
    (
        "the largest of several shares counts",
        {"a": {"cpu": 3, "nvidia.com/gpu": 1}, "b": {"cpu": 2, "nvidia.com/gpu": 2}},
        "b",
        "2 cpu, 2 nvidia.com/gpu",
    ),
    ("exact, not rounded", {"a": {"cpu": "3998m"}, "b": {"cpu": "3999m"}}, "b", "1m cpu"),
    ("then by name", {"b": {"cpu": 3}, "a": {"cpu": 3}}, "a", "1 cpu"),
]


@pytest.mark.parametrize(("nodes", "name", "lacks"), [row[1:] for row in NEAREST], ids=[row[0] for row in NEAREST])
def test_the_nearest_node(nodes: dict[str, dict[str, object]], name: str, lacks: str) -> None:
    world = World()
    whole: dict[str, object] = {"cpu": 0, "nvidia.com/gpu": 4}
    for node, stock in nodes.items():
        world.node(node, body(whole | stock))
    found = survey(world, claim("c", {"cpu": 4, "nvidia.com/gpu": 4}))
    assert f"the nearest, {name}, lacks {lacks}" in found.note


def test_what_is_used_counts_as_missing() -> None:
    world = World()
    world.node("n1", body({"memory": "4Gi"}))
    world.place(claim("a", {"memory": "3Gi"}), "n1")
    found = survey(world, claim("c", {"memory": "2Gi"}))
    assert found.note == "0 of 1 nodes fit; the nearest, n1, lacks 1Gi memory"


def test_a_node_that_fails_a_rule_is_never_the_nearest() -> None:
    world = World()
    world.node("n1", body(labels={"zone": "b"}))
    found = survey(world, claim("c", {"cpu": 1}, NodeNeeds({"zone": "a"})))
    assert (found.note, counted(found)) == ("0 of 1 nodes fit", [("nodes.selector", "1 node")])


def test_deleted_nodes_are_no_nodes() -> None:
    world = World()
    world.node("n1", body())
    world.place(claim("a"), "n1")
    world.node("n1", None)
    assert survey(world, claim("c")).reason == "nodes.none"


def test_a_claim_that_fits() -> None:
    world = World()
    world.node("n1", body())
    world.node("n2", body(unschedulable=True))
    found = survey(world, claim("c"))
    assert (found.passed, found.note, found.reason) == (True, "1 of 2 nodes fit", "")


def test_a_placed_claim_shows_the_numbers_of_its_node() -> None:
    world = World()
    world.node("n1", body({"cpu": 4}))
    one = claim("a", {"cpu": 3})
    world.place(one, "n1")
    found = world.policy.explain(one, world.held(one))
    assert found.passed
    assert [child.title for child in found.children] == ["nodes/n1"]
    assert found.children[0].note == "cpu 3 wanted, 3 of 4 in use"


def test_a_claim_that_lacks_room_on_a_node() -> None:
    world = World()
    world.node("n1", body({"cpu": 4}))
    world.place(claim("a", {"cpu": 3}), "n1")
    one = claim("b", {"cpu": 2})
    found = world.policy.explain(one, world.bind(one, "n1"))
    assert [(child.title, child.reason) for child in found.children] == [("nodes/n1", "nodes.room.cpu")]
    assert not found.passed


def test_a_claim_that_a_node_does_not_let_in() -> None:
    world = World()
    world.node("n1", body(unschedulable=True))
    one = claim("b")
    found = world.policy.explain(one, world.bind(one, "n1"))
    assert not found.passed
    assert [(child.passed, child.reason) for child in found.children] == [(False, "nodes.unschedulable"), (True, "")]
