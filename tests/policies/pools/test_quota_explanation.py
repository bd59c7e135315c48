"""How the runtime of a quota comes about, step by step, for each form of quota."""

from __future__ import annotations

from bursar.policies.pools.explanation import explain_quota
from bursar.policies.pools.plugin import rows_outside
from bursar.policies.pools.settings import DEFAULT, SYSTEM
from bursar.policies.results import Check
from tests.policies.pools.world import World


def explained(world: World, name: str, tree: str = "") -> Check:
    derived = world.policy.derived
    found = explain_quota(derived, derived.forest.branch(tree, name))
    assert found is not None
    return found


def steps(world: World, name: str, resource: str = "memory") -> list[str]:
    (check,) = [one for one in explained(world, name).children if one.title == resource]
    return [f"{one.title}: {one.note}" for one in check.children]


def teams() -> World:
    """The worked example of docs/pools.md."""
    world = World({"memory": 100})
    for name, weight, least, asked in (("a", 40, 10, 5), ("b", 60, 15, 20), ("c", 50, 20, 40), ("d", 80, 15, 70)):
        world.quota(name, {"memory": 100}, {"memory": least}, weight={"memory": weight})
        world.submit({"memory": asked}, name)
    return world


def test_rounds_with_what_goes_on() -> None:
    world = teams()
    assert steps(world, "b")[:6] == [
        "request: 20 is what its pods ask for",
        "need: 15 is its request, up to its min of 15",
        "parent: the nodes of the default tree have 100, the needs are 55: each is met, and 45 is left",
        "round 1: 14 of 45 by weight 60 of 190, of which it needs 5; the rest goes to the next round",
        "runtime: 20",
        "sibling quotas/d: request 70, min 15, weight 80, runtime 40, in use 0",
    ]
    assert "round 2: 6 of 9 by weight 80 of 130" in steps(world, "d")
    assert "need: 5 is its request, up to its min of 10" in steps(world, "a")


def test_siblings_that_borrow_come_first() -> None:
    world = World({"memory": 100})
    for name in ("a", "b", "c", "idle"):
        world.quota(name, {"memory": 100}, {"memory": 10})
    world.start({"memory": 5}, "a")
    world.start({"memory": 30}, "c")
    world.submit({"memory": 20}, "b")
    siblings = [step for step in steps(world, "b") if step.startswith("sibling")]
    assert siblings == [
        "sibling quotas/c: request 30, min 10, weight 100, runtime 30, in use 30, borrows 20",
        "sibling quotas/a: request 5, min 10, weight 100, runtime 5, in use 5",
    ]
    assert "borrows: 20 above its min of 10" in steps(world, "c")


def test_only_some_of_many_siblings_are_named() -> None:
    world = World({"memory": 1000})
    for number in range(15):
        world.quota(f"q{number:02}", {"memory": 100}, {"memory": 10})
        world.submit({"memory": 5}, f"q{number:02}")
    found = [step for step in steps(world, "q00") if step.startswith("sibling")]
    assert len(found) == 11
    assert found[-1] == "siblings: 4 more take part"


def test_a_quota_that_does_not_lend_keeps_its_min() -> None:
    world = World({"memory": 100})
    world.quota("q", {"memory": 50}, {"memory": 20}, lends=False)
    world.submit({"memory": 5}, "q")
    assert explained(world, "q").note == "does not lend what it leaves idle"
    assert "need: 20 is its whole min, because it does not lend" in steps(world, "q")


def test_a_request_is_capped_by_max() -> None:
    world = World({"memory": 100})
    world.quota("q", {"memory": 8}, {"memory": 2})
    for _ in range(3):
        world.submit({"memory": 4}, "q")
    assert steps(world, "q")[0] == "request: 12 is what its pods ask for, capped to 8 by its max"


def test_needs_that_do_not_fit_fail_where_more_is_used() -> None:
    world = World({"memory": 100})
    for name in "ab":
        world.quota(name, {"memory": 100}, {"memory": 40})
        world.start({"memory": 40}, name)
    world.node("n1", {"memory": 50})
    check = explained(world, "a")
    assert not check.passed
    assert check.children[0].note == "40 of its runtime of 25 in use; min 40, max 100"
    has = "the nodes of the default tree have 50 for needs of 80"
    assert f"parent: {has}: each need is scaled down in proportion" in steps(world, "a")


def test_guaranteed_amounts() -> None:
    world = World({"memory": 100})
    world.options(guarantee=True)
    world.quota("q", {"memory": 100}, {"memory": 10})
    world.start({"memory": 30}, "q")
    assert "need: 30 is its whole guaranteed amount, because it does not lend" in steps(world, "q")


def test_without_runtime_quotas_only_max_limits() -> None:
    world = World({"memory": 10})
    world.options(runtime=False)
    world.quota("q", {"memory": 100})
    world.start({"memory": 30}, "q")
    check = explained(world, "q")
    assert check.passed
    assert check.children[0].note == "30 in use; max 100; only max limits it (runtimeQuota: false)"


def test_own_pods_of_a_parent_are_a_sibling_of_its_children() -> None:
    world = World({"memory": 100})
    world.quota("top", {"memory": 100}, {"memory": 50}, is_parent=True)
    world.quota("leaf", {"memory": 100}, {"memory": 20}, parent="top")
    world.submit({"memory": 10}, "top")
    world.submit({"memory": 10}, "leaf")
    assert explained(world, "top").note == "parent of 1 quota"
    assert "sibling (own pods of top): request 10, min 0, weight 100, runtime 10, in use 0" in steps(world, "leaf")
    assert steps(world, "top")[0] == "request: 20 is what its children and its own pods ask for"


def test_a_loose_quota_says_why() -> None:
    world = World({"memory": 100})
    world.quota("q", {"memory": 100}, parent="missing")
    check = explained(world, "q")
    assert (check.passed, check.reason) == (False, "pools.loose")
    assert check.note == "hangs on no tree: there is no quota missing"


def test_what_runs_outside_of_quotas_is_listed_by_tree() -> None:
    world = World({"memory": 100})
    world.profile("p", {"pool": "p"}, tree="t")
    world.node("n2", {"memory": 50}, {"pool": "p"})
    for node in ("n1", "n2"):
        claim = world.submit({"memory": 4})
        world.engine.place(claim.uid, node, world.now, forced=True)
    check = explained(world, DEFAULT)
    assert [(child.title, child.note) for child in check.children] == [
        ("nodes of the default tree", "memory 4 in use by ns/p1"),
        ("nodes of profile ns/p", "memory 4 in use by ns/p2"),
    ]
    world.quota("q", {"memory": 100})
    world.submit({"memory": 1}, "q")
    has = "the nodes of the default tree have 96 (100 less 4 in use outside of quotas)"
    assert steps(world, "q")[2] == f"parent: {has}, the needs are 0: each is met, and 96 is left"


def test_the_system_quota_has_rows_of_its_own() -> None:
    world = World({"memory": 100})
    world.quota("q", {"memory": 100})
    for name in (SYSTEM, "", SYSTEM):
        claim = world.submit({"memory": 4}, name)
        world.engine.place(claim.uid, "n1", world.now, forced=True)
    found = [(row.label, row.resources["memory"].used) for row in rows_outside(world.policy)]
    assert found == [(DEFAULT, 4), (SYSTEM, 8)]
    assert explained(world, SYSTEM).children[0].note == "memory 8 in use by ns/p1, ns/p3"
