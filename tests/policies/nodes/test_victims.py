"""Whom the policy names when a claim does not fit on a node."""

from __future__ import annotations

from bursar.ledger.claims import Claim, ClaimSpec
from bursar.policies.results import Refusal
from bursar.resources import parse_vector
from bursar.selectors import NodeNeeds
from tests.policies.nodes.world import World, body, claim, porting

PORT = porting(("TCP", "", 80))


def named(world: World, one: Claim, node: str = "n1", leave: bool = True) -> list[str]:
    """The victims in order; each leaves before the next is asked for, as in the engine."""
    refusal = world.policy.explain_node(one, node)
    assert refusal is not None
    found: list[str] = []
    for victim in world.policy.victims(world.tx, one, world.bind(one, node), refusal):
        found.append(victim.uid)
        if leave:
            world.leave(victim)
    return found


def full(*claims: Claim, cpu: int = 4, gpu: int = 4) -> World:
    world = World()
    world.node("n1", body({"cpu": cpu, "nvidia.com/gpu": gpu}))
    for one in claims:
        assert world.place(one, "n1", forced=True) is None
    return world


def test_lower_priority_first_then_newest_then_by_name() -> None:
    one: dict[str, object] = {"cpu": 1}
    world = full(
        claim("old", one, priority=1, created=5),
        claim("new", one, priority=1, created=9),
        claim("least", one, priority=0, created=1),
        claim("b2", one, priority=1, created=9, namespace="b"),
        claim("a9", one, priority=1, created=9, namespace="a"),
        claim("a8", one, priority=1, created=9, namespace="a"),
        cpu=6,
    )
    assert named(world, claim("c", {"cpu": 6}, priority=2)) == ["least", "new", "a8", "a9", "b2", "old"]


def test_only_as_many_as_needed() -> None:
    world = full(claim("a", {"cpu": 2}, created=1), claim("b", {"cpu": 2}, created=2))
    assert named(world, claim("c", {"cpu": 1}, priority=1)) == ["b"]


def test_equal_priority_is_never_taken() -> None:
    world = full(claim("low", {"cpu": 1}), claim("same", {"cpu": 3}, priority=1))
    assert named(world, claim("c", {"cpu": 3}, priority=1)) == ["low"]


def test_only_who_uses_a_short_dimension() -> None:
    world = full(
        claim("cpu only", {"cpu": 1}, created=9),
        claim("gpu", {"nvidia.com/gpu": 4}, created=1),
    )
    assert named(world, claim("c", {"cpu": 1, "nvidia.com/gpu": 1}, priority=1)) == ["gpu"]


def test_short_dimensions_are_looked_at_anew_each_time() -> None:
    world = full(
        claim("both", {"cpu": 4, "nvidia.com/gpu": 1}, created=9),
        claim("gpu", {"nvidia.com/gpu": 3}, created=1),
        claim("cpu", {"cpu": 1}, created=2),
        cpu=5,
    )
    assert named(world, claim("c", {"cpu": 4, "nvidia.com/gpu": 3}, priority=1)) == ["both", "gpu"]


def test_a_refused_candidate_is_passed_over() -> None:
    world = full(claim("a", {"cpu": 2}, created=2), claim("b", {"cpu": 2}, created=1))
    assert named(world, claim("c", {"cpu": 1}, priority=1), leave=False) == ["a", "b"]


def test_pods_per_node_count_too() -> None:
    world = World()
    world.node("n1", body({"pods": 1}))
    world.place(claim("a"), "n1")
    assert named(world, claim("c", priority=1)) == ["a"]


def test_who_holds_the_port() -> None:
    world = full(claim("other", {"cpu": 1}), claim("holder", needs=PORT))
    assert named(world, claim("c", {"cpu": 1}, PORT, priority=1)) == ["holder"]


def test_port_and_room_together() -> None:
    world = full(claim("other", {"cpu": 4}), claim("holder", needs=PORT, created=1))
    assert named(world, claim("c", {"cpu": 1}, PORT, priority=1)) == ["holder", "other"]


def test_nobody_when_an_important_one_holds_the_port() -> None:
    world = full(claim("other", {"cpu": 4}), claim("holder", needs=PORT, priority=1))
    assert named(world, claim("c", {"cpu": 1}, PORT, priority=1)) == []


def test_nobody_when_the_node_is_too_small() -> None:
    world = full(claim("other", {"cpu": 4}))
    assert named(world, claim("c", {"cpu": 5}, priority=1)) == []


def test_nobody_for_rules_that_leaving_does_not_change() -> None:
    world = full(claim("other", {"cpu": 4}))
    assert named(world, claim("c", {"cpu": 4}, NodeNeeds({"zone": "a"}), priority=1)) == []
    foreign = Refusal("gpus", "gpus.room")
    one = claim("c", {"cpu": 4}, priority=1)
    assert list(world.policy.victims(world.tx, one, world.bind(one, "n1"), foreign)) == []


def test_who_was_told_to_leave_is_not_named_again() -> None:
    first = claim("a", {"cpu": 2}, created=2)
    world = full(first, claim("b", {"cpu": 2}, created=1))
    world.leave(first)
    assert named(world, claim("c", {"cpu": 4}, priority=1)) == ["b"]


def test_who_left_meanwhile_is_not_named() -> None:
    first, second = claim("a", {"cpu": 2}, created=2), claim("b", {"cpu": 1}, created=1)
    world = full(first, second, claim("c", {"cpu": 1}))
    one = claim("x", {"cpu": 4}, priority=1)
    refusal = world.policy.explain_node(one, "n1")
    assert refusal is not None
    victims = world.policy.victims(world.tx, one, world.bind(one, "n1"), refusal)
    assert next(victims) is first
    world.release(first)
    world.release(second)
    assert [victim.uid for victim in victims] == ["c"]


def test_the_order_follows_charges_once_it_was_asked_for() -> None:
    first, second = claim("a", {"cpu": 1}, created=1), claim("b", {"cpu": 1}, created=2)
    world = full(first, claim("keep", {"cpu": 3}, priority=5))
    one = claim("c", {"cpu": 1}, priority=1)
    assert named(world, one) == ["a"]
    world.place(second, "n1")
    assert named(world, one) == ["b"]
    world.abort()


def test_the_order_survives_a_change_of_priority() -> None:
    first, second = claim("a", {"cpu": 2}, created=1), claim("b", {"cpu": 2}, created=2)
    world = full(first, second)
    one = claim("c", {"cpu": 4}, priority=9)
    mark = world.tx.savepoint()
    assert named(world, one) == ["b", "a"]
    world.tx.rollback_to(mark)
    world.tx.set_spec(second, ClaimSpec(parse_vector({"cpu": 2}), priority=5))
    old = world.held(second)
    assert world.policy.recharge(world.tx, second, old, world.bind(second, "n1"), False) is None
    assert named(world, one) == ["a", "b"]
