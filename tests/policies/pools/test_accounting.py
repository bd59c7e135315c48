"""Claims in quotas: what is asked for, used and available. Vectors 6.5 and T1 to T5 of 6.9."""

from __future__ import annotations

import pytest

from bursar.ledger.claims import ClaimSpec
from bursar.policies.pools.settings import DEFAULT, QUOTA_OF_POD, ROOT, SYSTEM
from bursar.policies.results import SettingError
from bursar.resources import from_amounts
from tests.policies.pools.tree_builder import cg, cm, shown
from tests.policies.pools.world import BIG, Amounts, World


def chain(total: Amounts | None = None) -> World:
    world = World(total or BIG)
    world.quota("t1", cg(960, 1600), is_parent=True)
    world.quota("t1-a", cg(960, 1600), parent="t1", is_parent=True)
    world.quota("a-123", cg(960, 1600), parent="t1-a")
    return world


def test_a1_used_and_the_part_that_may_not_be_preempted() -> None:
    world = World(BIG)
    world.quota("q", cg(1000, 1000), cg(500, 500))
    first = world.start(cg(25, 180), "q")
    world.start(cg(80, 80), "q")
    firm = world.start(cg(15, 20), "q", firm=True)
    world.start(cg(10, 20), "q", firm=True)
    assert world.used("q") == cg(130, 300)
    assert world._shown(world.branch("q").non_preemptible_used) == cg(25, 40)
    world.engine.release(first.uid)
    world.engine.release(firm.uid)
    assert world.used("q") == world.own("q") == cg(90, 100)
    assert world._shown(world.branch("q").non_preemptible_used) == cg(10, 20)


def test_a3_what_a_middle_quota_uses_counts_there_and_above() -> None:
    world = chain()
    world.start(cg(10, 20), "t1-a")
    assert (world.used("t1-a"), world.used("t1"), world.used("a-123")) == (cg(10, 20), cg(10, 20), {})


def test_a4_the_total_follows_the_nodes() -> None:
    world = World(cg(96, 160))
    world.node("n1", cg(64, 360))
    assert world.total() == cg(64, 360) | {"pods": 2**62 - 1}
    world.node("n2", cg(36, 180))
    assert world.total() == cg(100, 540) | {"pods": 2**62 - 1}


def test_a5_system_and_default_use_lowers_what_is_shared() -> None:
    world = World(cm(100, 100))
    world.quota("q", cm(100, 100))
    world.submit(cm(100, 100), "q")
    world.start(cm(10, 30), SYSTEM)
    assert world.runtime("q") == cm(90, 70)
    world.start(cm(10, 30))
    assert world.runtime("q") == cm(80, 40)
    world.start(cm(10, 30))
    assert world.runtime("q") == cm(70, 10)
    world.start(cm(10, 30))
    assert world.runtime("q") == {"cpu": 60_000}  # never negative
    assert world.total() == cm(100, 100) | {"pods": 2**62 - 1}


def test_a6_the_root_asks_for_what_the_first_level_asks_for() -> None:
    world = World(BIG)
    world.quota("q", cm(100, 100))
    world.submit(cm(10, 10), "q")
    world.start(cm(5, 5), "q")
    world.start(cm(10, 30), SYSTEM)
    assert world.request(ROOT) == cm(15, 15)


def test_a8_the_default_quota_is_held_to_its_max() -> None:
    world = World(BIG)
    world.quota(DEFAULT, cm(100, 1000), namespace="koordinator-system")
    world.start(cm(60, 600))
    refused = world.decide(cm(60, 100))
    assert (refused.reason, refused.refusals[0].limit) == ("pools.max.cpu", "100")


def test_a11_a12_a13_a_pod_counts_once_and_moves_by_its_label() -> None:
    world = World(BIG)
    world.quota("q1", cm(100, 100))
    world.quota("q2", cm(100, 100))
    claim = world.submit(cm(10, 10), "q1")
    assert (world.request("q1"), world.used("q1")) == (cm(10, 10), {})
    world.engine.decide(claim)
    assert (world.request("q1"), world.used("q1")) == (cm(10, 10), cm(10, 10))
    moved = ClaimSpec(claim.spec.requests, labels={QUOTA_OF_POD: "q2"})
    world.engine.adjust(claim.uid, moved)
    assert (world.request("q1"), world.used("q1"), world.request("q2"), world.used("q2")) == (
        {},
        {},
        cm(10, 10),
        cm(10, 10),
    )
    world.engine.release(claim.uid)
    assert (world.request("q2"), world.used("q2")) == ({}, {})


def test_a14_growing_and_shrinking() -> None:
    world = World(cm(100, 100))
    world.quota("q", cm(20, 20))
    claim = world.start(cm(10, 10), "q")
    labels = claim.spec.labels
    assert world.engine.adjust(claim.uid, ClaimSpec(from_amounts(cm(15, 15)), labels=labels)).admitted
    assert (world.request("q"), world.used("q")) == (cm(15, 15), cm(15, 15))
    refused = world.engine.adjust(claim.uid, ClaimSpec(from_amounts(cm(25, 15)), labels=labels))
    assert refused.reason == "pools.max.cpu"
    assert world.used("q") == cm(15, 15)
    world.quota("q", cm(5, 5))
    assert world.engine.adjust(claim.uid, ClaimSpec(from_amounts(cm(12, 12)), labels=labels)).admitted


def test_a19_a20_pods_of_a_quota_that_comes_late_are_counted_at_once() -> None:
    world = World(BIG)
    world.quota("other", cm(1, 1))
    for _ in range(4):
        world.start(cm(10, 10), "test1")
    assert (world.used(DEFAULT), len(world.branch(DEFAULT).members.claims)) == (cm(40, 40), 4)
    world.quota("test1", cm(100, 100))
    assert (world.used(DEFAULT), world.used("test1"), world.request("test1")) == ({}, cm(40, 40), cm(40, 40))
    assert sorted(world.policy.derived.resolver.quotas) == [DEFAULT, SYSTEM, "other", "test1"]
    world.remove("test1")
    assert world.used(DEFAULT) == cm(40, 40)
    world.replayed()


def test_the_first_quota_binds_whoever_is_there() -> None:
    world = World(BIG)
    early = world.start(cm(10, 10), namespace="team")
    waiting = world.submit(cm(5, 5), namespace="team")
    assert early.bindings == (None,)
    world.quota("team", cm(100, 100), namespace="team")
    assert (world.used("team"), world.request("team")) == (cm(10, 10), cm(15, 15))
    assert waiting.bindings != (None,)


class TestResolving:
    """The order of the resolver; B13: the binding follows every change of quotas."""

    def test_label_namespace_annotation_default(self) -> None:
        world = World(BIG)
        world.quota("labelled", cm(100))
        world.quota("listing", cm(100), namespaces=("team-a", "team-b"))
        world.quota("team-a", cm(100), namespace="team-a")
        rows = [("labelled", "team-a"), ("", "team-a"), ("", "team-b"), ("", "team-c"), ("unknown", "team-a")]
        for quota, namespace in rows:
            world.start(cm(1), quota, namespace=namespace)
        assert [world.used(n)["cpu"] for n in ("labelled", "team-a", "listing", DEFAULT)] == [1000, 1000, 1000, 2000]

    def test_a_quota_named_like_the_namespace_must_live_there(self) -> None:
        world = World(BIG)
        world.quota("team-a", cm(100), namespace="elsewhere")
        world.start(cm(1), namespace="team-a")
        assert world.used(DEFAULT) == shown(cm(1))

    def test_b13_changes_of_quotas_move_claims(self) -> None:
        world = World(BIG)
        world.quota("listing", cm(100), namespaces=("team-a",))
        world.start(cm(1), namespace="team-a")
        world.start(cm(2), namespace="team-b")
        assert (world.used("listing"), world.used(DEFAULT)) == (shown(cm(1)), shown(cm(2)))
        world.quota("listing", cm(100), namespaces=("team-b",))
        assert (world.used("listing"), world.used(DEFAULT)) == (shown(cm(2)), shown(cm(1)))
        world.quota("team-b", cm(100), namespace="team-b")
        assert (world.used("listing"), world.used("team-b")) == ({}, shown(cm(2)))
        world.remove("team-b", "team-b")
        assert world.used("listing") == shown(cm(2))
        world.replayed()


class TestTrees:
    def test_t1_each_quota_in_its_own_tree(self) -> None:
        world = World(BIG)
        world.quota("three", cm(10), tree="tree-a")
        world.quota("four", cm(10), tree="tree-b")
        forest = world.policy.derived.forest
        assert [q.name for q in forest.tree("tree-a").root.children] == ["three"]
        assert [q.name for q in forest.tree("tree-b").root.children] == ["four"]

    def test_t2_moves_inside_a_tree_leave_the_other_alone(self) -> None:
        world = World(BIG)
        world.quota("test1", cm(400, 1000), tree="a", is_parent=True)
        for middle in ("test1-a", "test1-b"):
            world.quota(middle, cm(400, 1000), parent="test1", tree="a", is_parent=True)
        world.node("of-a", BIG, {"pool": "a"})
        world.profile("pa", {"pool": "a"}, tree="a")
        world.node("of-b", BIG, {"pool": "b"})
        world.profile("pb", {"pool": "b"}, tree="b")
        world.quota("a-123", cm(400, 1000), parent="test1-a", tree="a")
        world.quota("b-123", cm(400, 1000), parent="test1-b", tree="a")
        world.quota("test2-a", cm(400, 1000), tree="b")
        for name in ("a-123", "b-123"):
            world.start(cm(40, 100), name)
        world.start(cm(20, 40), "test2-a")
        world.quota("b-123", cm(400, 1000), parent="test1-a", tree="a")
        assert [world.used(n, "a") for n in ("test1-a", "test1-b", "test1")] == [cm(80, 200), {}, cm(80, 200)]
        world.remove("b-123")
        assert [world.used(n, "a") for n in ("test1-a", "test1")] == [cm(40, 100), cm(40, 100)]
        assert world.used("test2-a", "b") == cm(20, 40)
        world.replayed()

    def test_t3_the_root_quota_has_what_its_nodes_have(self) -> None:
        world = World(placing=True)
        world.node("n1", cm(100, 200), {"pool": "a"})
        world.profile("a", {"pool": "a"})
        for name in ("x", "y"):
            world.quota(name, cm(100, 200), parent="a-root", tree="tree-a")
        world.start(cm(40, 100), "x")
        world.start(cm(50, 90), "y")
        for found in (world.request, world.used, world.runtime):
            assert found("a-root", "tree-a") == cm(90, 190)
        world.node("n2", cm(100, 200), {"pool": "a"})
        assert world.total("tree-a") == cm(200, 400) | {"pods": 2**62 - 1}
        assert list(world.branch("a-root", "tree-a").minima)[:2] == [200_000, 400]

    def test_t4_ruled_the_default_tree_has_the_nodes_that_no_profile_selects(self) -> None:
        world = World()
        for name, pool in (("n1", "a"), ("n2", "a"), ("n3", "")):
            world.node(name, {"cpu": 100, "memory": 1000, "pods": 10}, {"pool": pool})
        assert world.total() == {"cpu": 300, "memory": 3000, "pods": 30}
        world.profile("a", {"pool": "a"}, numerator=9, denominator=10)
        assert world.total() == {"cpu": 100, "memory": 1000, "pods": 10}  # B20: the withheld tenth is not its
        assert world.total("tree-a") == {"cpu": 180, "memory": 1800, "pods": 18}
        world.set("pools.Profile", "ns/a", None)
        assert world.total() == {"cpu": 300, "memory": 3000, "pods": 30}
        assert world.total("tree-a") == {}

    def test_t5_node_events(self) -> None:
        world = World()
        listed = {"pods": 1}
        for _ in range(2):
            world.node("n1", {"cpu": 100, "memory": 1000} | listed)
        assert world.total() == {"cpu": 100, "memory": 1000, "pods": 1}
        world.node("n2", {"cpu": 100, "memory": 1000} | listed)
        world.node("n1", {"cpu": 200, "memory": 2000} | listed)
        assert world.total() == {"cpu": 300, "memory": 3000, "pods": 2}
        for name in ("n1", "n2", "n1"):
            world.remove_node(name)
        assert world.total() == {}

    def test_what_a_node_need_not_list_has_no_limit(self) -> None:
        world = World({"nvidia.com/gpu": 8})
        world.quota("q", {"cpu": 10**9, "nvidia.com/gpu": 8})
        world.start({"cpu": 10**8, "nvidia.com/gpu": 8}, "q")
        assert world.decide({"cpu": 1, "nvidia.com/gpu": 1}, "q").reason == "pools.max.nvidia.com/gpu"

    def test_resources_are_shared_inside_a_tree_and_never_between(self) -> None:
        world = World()
        for pool in "ab":
            world.node(f"n-{pool}", cm(10, 10), {"pool": pool})
            world.profile(pool, {"pool": pool})
            for team in "12":
                world.quota(f"{pool}{team}", cm(10, 10), cm(5, 5), f"{pool}-root", tree=f"tree-{pool}")
        for _ in range(10):
            world.start(cm(1, 1), "a1")
        assert world.decide(cm(1, 1), "a1").reason == "pools.max.cpu"
        waits = world.decide(cm(1, 1), "a2")  # until over-use of the other is taken back
        assert (waits.reason, waits.refusals[0].account) == ("pools.runtime.cpu", "pools/tree-a/a-root")
        assert (world.runtime("a1", "tree-a"), world.runtime("a2", "tree-a")) == (cm(9, 9), cm(1, 1))
        assert world.runtime("b1", "tree-b") == {}

    def test_several_profiles_of_a_tree_add_up(self) -> None:
        world = World()
        world.node("n1", cm(10, 10), {"zone": "1"})
        world.node("n2", cm(5, 5), {"zone": "2"})
        world.profile("one", {"zone": "1"}, tree="t", root="root")
        world.profile("two", {"zone": "2"}, tree="t", root="root")
        assert world.total("t") == cm(15, 15) | {"pods": 2**62 - 1}
        assert list(world.branch("root", "t").minima)[:2] == [15_000, 15]
        claim = world.claim(cm(1, 1), "root")
        world.engine.submit(claim)
        needs = world.policy.node_needs(claim)
        assert needs is not None
        assert [needs.selects("n", {"zone": zone}) for zone in "123"] == [True, True, False]

    def test_a_root_quota_stays_while_it_is_used(self) -> None:
        world = World(BIG)
        world.node("n1", cm(10, 10), {"pool": "a"})
        world.profile("a", {"pool": "a"})
        world.quota("x", cm(10, 10), parent="a-root", tree="tree-a")
        claim = world.start(cm(1, 1), "x")
        world.outputs()
        world.set("pools.Profile", "ns/a", None)
        assert "a-root" in world.policy.derived.resolver.quotas
        events = [output.value for output in world.outputs() if output.part == "event"]
        assert "quota x" in str(events)
        world.remove("x")
        assert "a-root" not in world.policy.derived.resolver.quotas
        gone = [(o.key, o.value) for o in world.outputs() if o.part == "object"]
        assert gone == [("ns/a-root", None)]
        assert world.used(DEFAULT) == cm(1, 1)
        world.engine.release(claim.uid)
        assert sorted(name for name in world.engine.state.accounts if "tree-a" in name) == []
        world.replayed()


def test_uncountable_demand_is_none() -> None:
    """Ruled: demand above its max, or that no node could ever take, is not counted."""
    world = World(cm(100, 100))
    world.quota("q", cm(80, 80))
    world.submit(cm(90, 1), "q")
    assert world.request("q") == {}
    world.node("n1", cm(50, 100))
    world.node("n2", cm(50, 100))
    waiting = world.submit(cm(60, 1), "q")
    assert world.request("q") == {}
    world.node("n2", cm(70, 100))
    assert world.request("q") == cm(60, 1)
    world.remove_node("n2")
    assert world.request("q") == {}
    world.engine.release(waiting.uid)
    world.replayed()


def test_two_quotas_of_one_name_are_refused() -> None:
    world = World(BIG)
    world.quota("q", cm(1))
    with pytest.raises(SettingError, match="names are unique"):
        world.quota("q", cm(2), namespace="elsewhere")


def test_a_loose_quota_holds_its_claims_until_it_hangs_somewhere() -> None:
    world = World(BIG)
    world.quota("child", cm(10), parent="missing")
    refused = world.decide(cm(1), "child")
    assert (refused.reason, refused.sentence()) == (
        "pools.loose",
        "ElasticQuota quotas/child hangs on no tree: there is no quota missing",
    )
    world.quota("missing", cm(10), is_parent=True)
    assert world.runtime("missing") == shown(cm(1))
    assert world.engine.decide(world.engine.claim("c1")).admitted
    assert world.used("missing") == shown(cm(1))
    world.replayed()
