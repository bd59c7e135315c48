"""Nodes as settings: they come, change, go and come back, with and without claims on them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bursar.ledger.claims import Claim
from bursar.policies.nodes.policy import KIND
from bursar.policies.results import Body, Setting, SettingError
from tests.policies.nodes.world import World, body, claim, porting


def test_a_node_is_an_account_and_a_cell() -> None:
    world = World()
    world.node("n1", body({"cpu": 4}, {"b": "2", "a": "1"}, ("x=y:NoSchedule",)))
    account = world.ledger.state.accounts["nodes/n1"]
    assert (account.topic, account.physical) == ("nodes", True)
    assert account.limits.show() == {"cpu": "4", "memory": "unlimited", "pods": "unlimited"}
    cell = world.ledger.state.cell("nodes", "n1")
    assert isinstance(cell, tuple)
    assert cell[:3] == ((("a", "1"), ("b", "2")), (("x", "y", "NoSchedule"),), False)


def test_an_empty_node_is_deleted_at_once() -> None:
    world = World()
    empty = world.ledger.state.plain()
    world.node("n1", body({"cpu": 4}))
    world.node("n1", None)
    assert world.ledger.state.plain() == empty
    assert world.reason(claim("c"), "n1") == "nodes.unknown"
    assert world.open_for(claim("c")) == world.possible_for(claim("c")) == []


def test_deleting_an_unknown_node_is_nothing() -> None:
    world = World()
    assert world.policy.configure(world.tx, Setting(KIND, "n1", None)) == []
    assert world.tx.log == []


def test_another_body_is_refused() -> None:
    world = World()
    with pytest.raises(SettingError, match="Node n1: is no node"):
        world.policy.configure(world.tx, Setting(KIND, "n1", Body()))


def test_a_deleted_node_keeps_its_account_while_claims_are_on_it() -> None:
    world = World()
    world.node("n1", body({"cpu": 4}))
    one = claim("a", {"cpu": 1})
    world.place(one, "n1")
    world.node("n1", None)
    world.commit()
    other = claim("b", {"cpu": 1})
    assert world.reason(other, "n1") == "nodes.removed"
    refusal = world.place(other, "n1")
    assert refusal is not None
    assert refusal.sentence() == "node n1 was deleted; only claims that run there still hold it"
    assert world.open_for(claim("c")) == world.possible_for(claim("c")) == []
    world.release(one)
    world.commit()
    assert world.ledger.state.plain()["accounts"] == []
    assert world.reason(other, "n1") == "nodes.unknown"


def test_a_deleted_node_waits_for_who_was_told_to_leave() -> None:
    world = World()
    world.node("n1", body())
    one = claim("a", needs=porting(("TCP", "", 1)))
    world.place(one, "n1")
    world.leave(one)
    world.node("n1", None)
    world.commit()
    assert "nodes/n1" in world.ledger.state.accounts
    world.left(one)
    world.commit()
    assert "nodes/n1" not in world.ledger.state.accounts
    assert world.ledger.state.plain()["tables"] == {}


def test_a_node_that_comes_back_takes_its_account_over() -> None:
    world = World()
    world.node("n1", body({"cpu": 4}))
    one = claim("a", {"cpu": 3})
    world.place(one, "n1")
    account = world.ledger.state.accounts["nodes/n1"]
    world.node("n1", None)
    world.commit()
    world.node("n1", body({"cpu": 8}))
    world.commit()
    assert world.ledger.state.accounts["nodes/n1"] is account
    assert world.open_for(claim("b", {"cpu": 5})) == ["n1"]
    assert world.open_for(claim("b", {"cpu": "5001m"})) == []


def test_a_claim_on_a_deleted_node_may_shrink_but_not_grow() -> None:
    world = World()
    world.node("n1", body({"cpu": 4}))
    one = claim("a", {"cpu": 3})
    world.place(one, "n1")
    world.node("n1", None)
    smaller, larger = (world.bind(claim("x", {"cpu": cpu}), "n1") for cpu in (2, 4))
    refusal = world.policy.recharge(world.tx, one, world.held(one), larger, False)
    assert refusal is not None
    assert refusal.reason == "nodes.removed"
    assert world.policy.recharge(world.tx, one, world.held(one), smaller, False) is None


def test_shrinking_a_node_evicts_nobody() -> None:
    world = World()
    world.node("n1", body({"cpu": 4}))
    one = claim("a", {"cpu": 4})
    world.place(one, "n1")
    assert world.policy.configure(world.tx, Setting(KIND, "n1", body({"cpu": 1}))) == []
    assert world.open_for(claim("b", {"cpu": 1})) == []
    assert world.open_for(claim("c")) == ["n1"]
    assert world.policy.explain_node(claim("b", {"cpu": 1}), "n1") is not None


def leave_for_good(world: World, one: Claim) -> None:
    world.leave(one)
    world.left(one)
    world.node("n1", None)


def leave_and_stay(world: World, one: Claim) -> None:
    world.leave(one)
    world.stay(one)


def close_and_open_again(world: World, one: Claim) -> None:
    world.node("n1", None)
    world.release(one)
    world.policy.settle(world.tx)
    world.node("n1", body())


Change = Callable[[World, Claim], object]
CHANGES: list[tuple[str, Change]] = [
    ("add", lambda w, _: w.node("n2", body({"example.com/new": 3}))),
    ("change", lambda w, _: w.node("n1", body({"cpu": 9}, {"x": "y"}, ("z:PreferNoSchedule",), unschedulable=True))),
    ("remove", lambda w, _: w.node("n1", None)),
    ("release", lambda w, a: w.release(a)),
    ("leave", lambda w, a: w.leave(a)),
    ("left", leave_for_good),
    ("stay", leave_and_stay),
    ("come back", close_and_open_again),
    ("force", lambda w, _: w.place(claim("b", {"cpu": 1, "example.com/odd": 1}), "n1", forced=True)),
]


@pytest.mark.parametrize("change", [row[1] for row in CHANGES], ids=[row[0] for row in CHANGES])
def test_undo_restores_everything(change: Change) -> None:
    world = World()
    world.node("n1", body({"cpu": 4}))
    one = claim("a", {"cpu": 1}, porting(("TCP", "", 80)))
    world.place(one, "n1")
    world.commit()
    before = (world.ledger.state.plain(), world.indexed(), world.ledger.digest)
    change(world, one)
    world.abort()
    assert (world.ledger.state.plain(), world.indexed(), world.ledger.digest) == before
    assert world.open_for(claim("c", {"cpu": 3})) == ["n1"]
    assert world.open_for(claim("c", {"cpu": "3001m"})) == []
