"""Requests against what nodes have: filter, score, forced charges, moves and resizes."""

from __future__ import annotations

import random

import pytest

from bursar.ledger.claims import Binding, ClaimSpec
from bursar.policies.nodes.table import FULL_SCORE, SPREAD_DIVISOR, NodeColumns, share_left
from bursar.policies.placement_kit import BindingCache
from bursar.resources import UNLIMITED, Tally, from_amounts, parse_vector
from tests.amounts import parse_limits
from tests.policies.nodes.world import World, body, claim, porting, tolerating

ROOM = [
    ("exactly full", {"cpu": "4"}, {"cpu": "4"}, ""),
    ("a thousandth too much", {"cpu": "4"}, {"cpu": "4001m"}, "nodes.room.cpu"),
    ("cpu is unlimited when not listed", {}, {"cpu": "1000"}, ""),
    ("memory is unlimited when not listed", {}, {"memory": "100Ti"}, ""),
    ("zero is none", {"memory": "0"}, {"memory": "1"}, "nodes.room.memory"),
    ("what is not listed is not there", {"cpu": "4"}, {"nvidia.com/gpu": 1}, "nodes.room.nvidia.com/gpu"),
    ("what nobody ever listed", {}, {"example.com/unheard-of": 1}, "nodes.room.example.com/unheard-of"),
    ("what is not requested does not matter", {"cpu": "4", "nvidia.com/gpu": 0}, {"cpu": "1"}, ""),
    ("no place for a pod", {"pods": 0}, {}, "nodes.room.pods"),
    ("first by name", {"cpu": 0, "memory": 0}, {"memory": 1, "cpu": 1}, "nodes.room.cpu"),
]


@pytest.mark.parametrize(("stock", "requests", "reason"), [row[1:] for row in ROOM], ids=[row[0] for row in ROOM])
def test_room(stock: dict[str, object], requests: dict[str, object], reason: str) -> None:
    world = World()
    world.node("n1", body(stock))
    one = claim("c", requests)
    assert world.reason(one, "n1") == reason
    assert world.open_for(one) == world.possible_for(one) == ([] if reason else ["n1"])
    refusal = world.place(one, "n1")
    assert ("" if refusal is None else refusal.reason) == reason


def test_each_claim_takes_one_place_for_a_pod() -> None:
    world = World()
    world.node("n1", body({"pods": 2}))
    assert world.place(claim("a"), "n1") is None
    assert world.place(claim("b"), "n1") is None
    refusal = world.place(claim("c"), "n1")
    assert refusal is not None
    assert refusal.sentence() == "nodes/n1: needs 1 pod, 2 of 2 in use"


def test_a_full_node_could_still_take_the_claim() -> None:
    world = World()
    world.node("n1", body({"cpu": 4}))
    world.place(claim("a", {"cpu": 4}), "n1")
    one = claim("b", {"cpu": 1})
    assert (world.open_for(one), world.possible_for(one)) == ([], ["n1"])


def test_forced_counts_without_any_check() -> None:
    world = World()
    world.node("n1", body({"cpu": 4}, taints=("x:NoSchedule",)))
    assert world.place(claim("a", {"cpu": 6, "example.com/fpga": 1}), "n1", forced=True) is None
    account = world.ledger.state.accounts["nodes/n1"]
    assert account.used.vector().show() == {"cpu": "6", "example.com/fpga": "1", "pods": "1"}
    world.node("n1", body({"cpu": 8, "example.com/fpga": 2}))
    assert world.open_for(claim("b", {"cpu": 2, "example.com/fpga": 1})) == ["n1"]
    assert world.open_for(claim("c", {"cpu": "2001m"})) == []


def test_no_place_is_not_this_policys_business() -> None:
    assert World().policy.bind(claim("c"), "") is None


def test_an_unknown_node() -> None:
    world = World()
    refusal = world.policy.bind(claim("c"), "n1")
    assert refusal is not None
    assert not isinstance(refusal, Binding)
    assert refusal.reason == "nodes.unknown"
    assert world.reason(claim("c"), "n1") == "nodes.unknown"


def test_a_mask_of_any_length_works() -> None:
    world = World()
    for name in ("n1", "n2"):
        world.node(name, body())
    for length in range(5):
        mask = bytearray(b"\x01" * length)
        world.policy.filter(claim("c"), mask)
        assert mask == bytearray(b"\x01\x01\0\0"[:length]).ljust(length, b"\0")


def test_a_mask_is_only_ever_narrowed() -> None:
    world = World()
    for name in ("n1", "n2"):
        world.node(name, body())
    mask = bytearray(b"\x00\x01")
    world.policy.filter(claim("c"), mask)
    assert mask == bytearray(b"\x00\x01")


# Resizes and moves


def test_a_resize_checks_only_what_grows() -> None:
    world = World()
    world.node("n1", body({"cpu": 4, "memory": "4Gi"}))
    one = claim("a", {"cpu": 4, "memory": "4Gi"})
    world.place(one, "n1")
    world.node("n1", body({"cpu": 2, "memory": "8Gi"}))
    old = world.held(one)
    for requests, reason in (
        ({"cpu": 3, "memory": "4Gi"}, ""),
        ({"cpu": 4, "memory": "8Gi"}, ""),
        ({"cpu": 5, "memory": "1Gi"}, "nodes.room.cpu"),
        ({"cpu": 4, "memory": "9Gi"}, "nodes.room.memory"),
    ):
        mark = world.tx.savepoint()
        world.tx.set_spec(one, ClaimSpec(parse_vector(requests)))
        refusal = world.policy.recharge(world.tx, one, old, world.bind(one, "n1"), False)
        assert ("" if refusal is None else refusal.reason) == reason
        world.tx.rollback_to(mark)


def test_a_move_is_judged_by_the_new_node() -> None:
    world = World()
    world.node("n1", body({"cpu": 4}))
    world.node("n2", body({"cpu": 4}, taints=("x:NoSchedule",)))
    one = claim("a", {"cpu": 4})
    world.place(one, "n1")
    before = world.indexed()
    refusal = world.policy.recharge(world.tx, one, world.held(one), world.bind(one, "n2"), False)
    assert refusal is not None
    assert (refusal.reason, world.indexed()) == ("nodes.taint", before)
    assert world.policy.recharge(world.tx, one, world.held(one), world.bind(one, "n2"), True) is None
    assert world.open_for(claim("b", {"cpu": 4}, tolerating("x"))) == ["n1"]


# Bindings are shared


def test_equal_claims_share_a_binding() -> None:
    world = World()
    world.node("n1", body())
    world.node("n2", body())
    first = world.bind(claim("a", {"cpu": 1}), "n1")
    assert world.bind(claim("b", {"cpu": 1}), "n1") is first
    assert world.bind(claim("b", {"cpu": 1}), "n2") is not first
    assert world.bind(claim("b", {"cpu": 2}), "n1") is not first


def test_a_node_that_came_back_has_new_bindings() -> None:
    world = World()
    world.node("n1", body())
    old = world.bind(claim("a"), "n1")
    world.node("n1", None)
    world.node("n1", body())
    new = world.bind(claim("a"), "n1")
    assert new.accounts[0] is world.ledger.state.accounts["nodes/n1"]
    assert new.accounts[0] is not old.accounts[0]


def test_the_cache_is_bounded() -> None:
    world = World()
    world.node("n1", body())
    account = world.ledger.state.accounts["nodes/n1"]
    cache = BindingCache(10)
    for amount in range(1, 100):
        requests = from_amounts({"cpu": amount})
        binding = world.bind(claim("a", {"cpu": f"{amount}m"}), "n1")
        assert binding.costs[0].pairs() == [("cpu", amount), ("pods", 1)]
        assert cache.find(account, requests) is None
        assert cache.add(account, requests, binding) is binding
        assert cache.find(account, requests) is binding
        assert cache.size == sum(len(found) for found in cache.bindings.values()) <= 10


# Scores

SCORES = [
    ("half of both left", {"cpu": 4, "memory": "4Gi"}, {"cpu": 2, "memory": "2Gi"}, 50_000),
    ("mean of both", {"cpu": 4, "memory": "4Gi"}, {"cpu": 4}, 50_000),
    ("floored", {"cpu": 3, "memory": "3Gi"}, {"cpu": 1, "memory": "2Gi"}, 49_999),
    ("unlimited memory is skipped", {"cpu": 4}, {"cpu": 1, "memory": "1Gi"}, 75_000),
    ("unlimited cpu is skipped", {"memory": "4Gi"}, {"cpu": 1, "memory": "1Gi"}, 75_000),
    ("nothing to go by", {}, {"cpu": 1}, 0),
    ("none is skipped", {"cpu": 4, "memory": 0}, {"cpu": 1}, 75_000),
    ("untouched", {"cpu": 4, "memory": "4Gi"}, {}, FULL_SCORE // SPREAD_DIVISOR),
]


@pytest.mark.parametrize(("stock", "requests", "score"), [row[1:] for row in SCORES], ids=[row[0] for row in SCORES])
def test_score(stock: dict[str, object], requests: dict[str, object], score: int) -> None:
    world = World()
    world.node("n1", body(stock))
    assert world.scores_for(claim("c", requests)) == {"n1": score}


def test_score_counts_what_is_used() -> None:
    world = World()
    world.node("n1", body({"cpu": 4}))
    world.node("n2", body({"cpu": 4}))
    world.place(claim("a", {"cpu": 1}), "n1")
    assert world.scores_for(claim("b", {"cpu": 1})) == {"n1": 50_000, "n2": 75_000}


@pytest.mark.parametrize("seed", range(20))
def test_points_that_are_kept_are_those_worked_out_anew(seed: int) -> None:
    rolled = random.Random(seed)
    columns = NodeColumns()
    asked = [parse_vector({"cpu": 1}), parse_vector({"memory": "1Gi"}), parse_vector({"cpu": "1500m", "memory": 7})]
    for _ in range(60):
        slot = rolled.randrange(8)
        if slot >= columns.size or rolled.random() < 0.2:
            columns.reach(max(columns.size, slot + 1))
            room = {"cpu": rolled.randrange(64), "memory": f"{rolled.randrange(256)}Gi"}
            columns.set_slot(slot, parse_limits(room), Tally())
        else:
            columns.shift(slot, rolled.choice(asked), rolled.choice((1, -1)))
        if rolled.random() < 0.5:
            cost = rolled.choice(asked)
            kept = list(columns.least_allocated(cost))
            columns.shares.clear()
            assert kept == list(columns.least_allocated(cost))


def test_so_many_changes_that_they_are_not_remembered() -> None:
    columns = NodeColumns()
    columns.reach(1)
    columns.set_slot(0, parse_limits({"cpu": 4}), Tally())
    cost = parse_vector({"cpu": 1})
    assert list(columns.least_allocated(cost)) == [75_000]
    for _ in range(65_537):
        columns.shift(0, cost, 1)
        columns.shift(0, cost, -1)
    columns.shift(0, cost, 1)
    assert list(columns.least_allocated(cost)) == [50_000]


def test_prefer_no_schedule_comes_after_all_others() -> None:
    world = World()
    soft = ("x:PreferNoSchedule", "y:PreferNoSchedule")
    world.node("n1", body({"cpu": 4}, taints=soft))
    world.node("n2", body({"cpu": 4}))
    world.place(claim("a", {"cpu": 3}), "n2")
    assert world.scores_for(claim("b", {"cpu": 1})) == {"n1": 75_000 - 2 * FULL_SCORE, "n2": 0}
    assert world.scores_for(claim("b", {"cpu": 1}, tolerating("x", "y"))) == {"n1": 75_000, "n2": 0}


@pytest.mark.parametrize("cap", [1, 3, 7, 1000, 2**40 + 1, UNLIMITED // 10_000 - 1, UNLIMITED // 10_000, 2**62 - 1])
@pytest.mark.parametrize("part", [1, 2, 3, 7, 1000])
def test_shares_are_exact(cap: int, part: int) -> None:
    for left in (cap // part, cap - cap // part, 1, cap - 1):
        assert share_left(left, 0, cap) == max(0, FULL_SCORE * left // cap)


def test_an_overfull_node_scores_nothing() -> None:
    assert share_left(-5, 0, 10) == 0
    assert share_left(0, 0, UNLIMITED) == share_left(0, 0, 0) == -1


# Whether a place is physically free


def test_ready_waits_for_who_was_told_to_leave() -> None:
    world = World()
    world.node("n1", body({"cpu": 4}))
    victim, holder = claim("victim", {"cpu": 4}), claim("holder", {"cpu": 2})
    world.place(victim, "n1")
    world.leave(victim)
    assert world.place(holder, "n1") is None
    assert not world.policy.ready(holder, world.held(holder))
    world.left(victim)
    assert world.policy.ready(holder, world.held(holder))


def test_ready_does_not_wait_where_there_is_room_for_both() -> None:
    world = World()
    world.node("n1", body({"cpu": 4}))
    victim, holder = claim("victim", {"cpu": 2}), claim("holder", {"cpu": 2})
    world.place(victim, "n1")
    world.leave(victim)
    world.place(holder, "n1")
    assert world.policy.ready(holder, world.held(holder))


@pytest.mark.parametrize("end", ["left", "stay", "abort"])
def test_ready_waits_for_the_port_of_who_was_told_to_leave(end: str) -> None:
    world = World()
    world.node("n1", body())
    port = porting(("TCP", "", 80))
    victim, holder, other = claim("victim", needs=port), claim("holder", needs=port), claim("other")
    world.place(victim, "n1")
    world.commit()
    world.leave(victim)
    assert world.place(holder, "n1") is None
    world.place(other, "n1")
    assert not world.policy.ready(holder, world.held(holder))
    assert world.policy.ready(other, world.held(other))
    if end == "abort":
        world.abort()
        world.release(victim)
        world.place(holder, "n1")
    else:
        getattr(world, end)(victim)
    assert world.policy.ready(holder, world.held(holder))
