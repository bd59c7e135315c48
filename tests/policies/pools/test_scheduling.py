"""Deciding: admission, preemption, topics, statuses. Vectors 6.9 (revocation has a file of its own)."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bursar.engine.disruption_budgets import KIND as BUDGET
from bursar.engine.disruption_budgets import BudgetBody
from bursar.ledger.claims import PENDING, ClaimSpec
from bursar.policies.pools.settings import DEFAULT, PREFIX, QUOTA_OBJECT, QUOTA_OF_POD
from bursar.policies.results import Output
from bursar.selectors import Requirement, Selector
from tests.policies.pools.world import BIG, Amounts, World


def units(cpu: int, memory: int, gpu: int = 0) -> Amounts:
    return {"cpu": cpu, "memory": memory} | ({"nvidia.com/gpu": gpu} if gpu else {})


def tight(total: Amounts, maximum: Amounts, minimum: Amounts | None = None) -> World:
    world = World(total)
    world.quota("test1", maximum, minimum)
    return world


class TestAdmission:
    def test_p1_an_unlisted_resource_is_not_looked_at(self) -> None:
        world = World(BIG)
        world.quota(DEFAULT, units(0, 20), namespace="koordinator-system")
        assert [r.reason for r in world.decide(units(1, 2, 1)).refusals] == ["pools.max.cpu"]

    def test_p2_it_fits(self) -> None:
        world = tight(units(10, 20), units(10, 20))
        assert world.decide(units(1, 2), "test1").admitted

    def test_p3_and_p4_runtime_and_the_option_to_ignore_it(self) -> None:
        world = tight(units(1, 2), units(10, 20))
        world.node("n2", {"cpu": 1, "memory": 10})
        world.quota("min-holder", units(10, 20), {"cpu": 0, "memory": 10}, lends=False)
        refused = world.decide(units(1, 3), "test1")
        assert (refused.reason, refused.refusals[0].limit) == ("pools.runtime.memory", "2")
        world.options(runtime=False)
        assert world.engine.decide(world.engine.claim(refused.uid)).admitted

    def test_p5_a_parent_refuses(self) -> None:
        world = World(units(100, 2, 100))
        world.node("n2", units(100, 3, 100))
        world.quota("test", units(100, 100, 100), is_parent=True)
        world.quota("hoard", units(100, 100, 100), {"memory": 3}, lends=False)
        world.quota("test-child", units(100, 100, 100), parent="test")
        refused = world.decide(units(1, 3, 1), "test-child")
        assert refused.reason == "pools.runtime.memory"
        world.quota("test", {"cpu": 100, "memory": 2, "nvidia.com/gpu": 100}, is_parent=True)
        refused = world.engine.decide(world.engine.claim(refused.uid))
        assert (refused.reason, refused.refusals[0].account) == ("pools.max.memory", "pools//test")
        assert refused.refusals[0].permanent

    def test_p6_a_pod_that_may_not_be_preempted_fits_min(self) -> None:
        world = tight(units(10, 10), units(10, 10), units(5, 5))
        world.start(units(4, 3), "test1")
        assert world.decide(units(2, 2), "test1", firm=True).admitted

    def test_p7_it_must_not_borrow(self) -> None:
        world = tight(units(8, 5), units(10, 8), units(5, 5))
        world.start(units(4, 2), "test1", firm=True)
        refused = world.decide(units(2, 2), "test1", firm=True)
        assert (refused.reason, refused.refusals[0].limit, refused.refusals[0].used) == ("pools.min.cpu", "5m", "4m")

    def test_p8_the_runtime_comes_first(self) -> None:
        world = tight(units(7, 5), units(10, 8), units(5, 5))
        world.start(units(6, 4), "test1")
        refused = world.decide(units(2, 1), "test1", firm=True)
        assert (refused.reason, refused.refusals[0].limit) == ("pools.runtime.cpu", "7m")

    def test_p9_reserving_and_giving_back(self) -> None:
        world = tight(BIG, units(100, 200))
        world.start(units(10, 20), "test1")
        claim = world.start(units(1, 2), "test1")
        assert world.used("test1") == units(11, 22)
        world.engine.release(claim.uid)
        assert world.used("test1") == units(10, 20)

    def test_b12_only_what_the_pod_asks_for_is_checked(self) -> None:
        world = tight(units(10, 10), units(10, 10))
        world.start(units(1, 10), "test1")
        world.node("n1", units(10, 5))
        assert world.decide({"cpu": 1}, "test1").admitted

    def test_a_request_that_no_node_could_take_says_so(self) -> None:
        refused = tight(units(10, 10), units(20, 20)).decide(units(11, 1), "test1")
        assert refused.reason == "pools.unplaceable"

    def test_a_request_above_max_never_fits(self) -> None:
        refused = tight(BIG, units(10, 10)).decide(units(11, 1), "test1")
        assert refused.refusals[0].permanent

    def test_own_pods_of_a_parent_share_with_its_children(self) -> None:
        world = World(units(60, 60))
        world.quota("p", units(60, 60), units(60, 60), is_parent=True)
        world.quota("c", units(60, 60), units(20, 20), "p")
        world.submit(units(60, 60), "c")
        world.start(units(20, 20), "p")
        refused = world.decide(units(20, 20), "p")
        assert (refused.reason, refused.refusals[0].account) == ("pools.runtime.cpu", "pools//p/own")


class TestPreemption:
    def test_e1_who_may_be_a_victim(self) -> None:
        world = World(units(4, 4))
        world.quota("q", units(2, 2))
        world.quota("other", units(2, 2))
        world.start(units(2, 2), "other")
        low = world.start(units(1, 1), "q")
        firm_min = world.start(units(1, 1), "q", priority=5)
        assert not world.decide(units(1, 1), "q").victims  # equal priority
        found = world.decide(units(1, 1), "q", priority=3)
        assert found.victims == (low.uid,)
        assert not world.decide(units(1, 1), "q", priority=4).victims or firm_min.state != PENDING

    def test_e1_never_one_that_may_not_be_preempted(self) -> None:
        world = World(units(4, 4))
        world.quota("q", units(1, 1), units(1, 1))
        world.start(units(1, 1), "q", firm=True)
        assert not world.decide(units(1, 1), "q", priority=9).admitted

    def test_e1_the_default_quota_is_spared_unless_told_otherwise(self) -> None:
        world = World(units(4, 4))
        world.quota(DEFAULT, units(1, 1), namespace="koordinator-system")
        low = world.start(units(1, 1))
        refused = world.decide(units(1, 1), priority=9)
        assert not refused.admitted
        world.options(default_preemption=True)
        assert world.engine.decide(world.engine.claim(refused.uid)).victims == (low.uid,)

    def test_e2_a_pod_that_never_preempts(self) -> None:
        world = World(units(4, 4))
        world.quota("q", units(1, 1))
        world.start(units(1, 1), "q")
        claim = world.claim(units(1, 1), "q", priority=9)
        claim.spec = ClaimSpec(claim.spec.requests, labels=claim.spec.labels, priority=9, preempts=False)
        assert not world.engine.decide(claim).admitted

    def test_e3_disruption_budgets_are_honoured(self) -> None:
        world = World(units(4, 4))
        world.quota("q", units(2, 2))
        first = world.start(units(1, 1), "q")
        second = world.start(units(1, 1), "q", namespace="elsewhere")
        selector = Selector((Requirement(QUOTA_OF_POD, "Exists"),))
        world.set(BUDGET, "elsewhere/all", BudgetBody("elsewhere", selector, 1, None, False))
        assert world.decide(units(1, 1), "q", priority=9).victims == (first.uid,)
        assert not world.decide(units(1, 1), "q", priority=8).admitted
        assert not second.leaving

    def test_e4_as_few_as_are_needed_least_important_first(self) -> None:
        world = World(units(9, 9))
        world.quota("q", units(4, 4))
        world.start(units(1, 1), "q", priority=5)
        old = world.start(units(1, 1), "q", priority=1)
        new = world.start(units(1, 1), "q", priority=1)
        small = world.start({"memory": 1}, "q", priority=0)
        found = world.decide(units(2, 1), "q", priority=6)
        assert set(found.victims) == {new.uid}
        assert (old.leaving, small.leaving) == (False, False)

    def test_victims_of_another_quota_are_never_taken(self) -> None:
        world = World(units(2, 2))
        world.quota("q", units(2, 2))
        world.quota("other", units(2, 2))
        world.start(units(2, 2), "other")
        world.submit(units(2, 2), "other")
        assert not world.decide(units(2, 2), "q", priority=9).victims


class TestWaking:
    """H1 and H2: whom a change may help. What a refusal listens to, and what a change touches."""

    def test_h1_settings_wake_everybody_and_h2_releases_only_whom_they_may_help(self) -> None:
        world = World(units(10, 10))
        world.quota("a", units(10, 10))
        world.quota("b", units(10, 10))
        running = world.start(units(10, 10), "a")
        refused = world.decide(units(1, 1), "a")
        assert refused.refusals[0].topics == ("pools//a",)  # max: only room in the quota itself helps
        waits = world.decide(units(1, 1), "b")
        assert waits.admitted
        world.node("n1", units(5, 5))
        runtime = world.decide(units(5, 5), "b")
        assert runtime.refusals[0].topics == ("pools//b", "pools//")
        world.engine.journal.take()
        world.engine.release(running.uid)
        touched = {account.topic for account in world.engine.journal.records[-1].touched()}
        assert {"pools//a", "pools//"} <= touched
        assert "pools//b" not in touched

    def test_an_admission_wakes_nobody_who_waits_for_a_share_of_the_tree(self) -> None:
        world = World(units(10, 10))
        world.quota("a", units(10, 10))
        claim = world.submit(units(1, 1), "a")
        world.engine.journal.take()
        assert world.engine.decide(claim).admitted
        assert "pools//" not in {account.topic for account in world.engine.journal.records[-1].touched()}


class TestStatus:
    def test_m1_only_what_changed_is_written(self) -> None:
        world = World(units(10, 10))
        world.quota("q", units(10, 10), units(5, 5))
        world.start(units(2, 3), "q", firm=True)
        world.submit(units(4, 4), "q")
        outputs = world.outputs()
        amounts = world.written(outputs, QUOTA_OBJECT, "quotas/q", "annotations")
        assert amounts == {
            PREFIX + "request": '{"cpu":"6m","memory":"7"}',
            PREFIX + "child-request": '{"cpu":"6m","memory":"7"}',
            PREFIX + "guaranteed": '{"cpu":"0","memory":"0"}',
            PREFIX + "allocated": '{"cpu":"0","memory":"0"}',
            PREFIX + "non-preemptible-request": '{"cpu":"2m","memory":"3"}',
            PREFIX + "non-preemptible-used": '{"cpu":"2m","memory":"3"}',
            PREFIX + "runtime": '{"cpu":"6m","memory":"7"}',
        }
        status = world.written(outputs, QUOTA_OBJECT, "quotas/q", "status")
        assert status is not None
        assert status["used"] == {"cpu": "2m", "memory": "3"}
        assert world.outputs() == []
        world.quota("idle", units(10, 10), units(1, 1))
        assert [output.key for output in world.outputs() if output.part == "annotations"] == ["quotas/idle"]

    def test_a_quota_of_a_tree_without_profile_says_so_until_there_is_one(self) -> None:
        world = World(BIG)
        world.quota("q", units(1, 1), tree="typo")
        message = f"no profile has tree 'typo': correct the label {PREFIX}tree-id, or apply that profile"
        condition = {"type": "Ready", "status": "False", "reason": "NoProfile", "message": message}
        assert self.conditions(world) == [condition]
        world.profile("p", {"pool": "none"}, tree="typo")
        assert self.conditions(world) == [{"type": "Ready", "status": "True", "reason": "WithinRuntime", "message": ""}]
        world.set("pools.Profile", "ns/p", None)
        assert self.conditions(world) == [condition]

    def conditions(self, world: World) -> object:
        status = world.written(world.outputs(), QUOTA_OBJECT, "quotas/q", "status")
        assert status is not None
        return status["conditions"]

    def test_a_quota_in_another_tree_than_its_parent_is_moved_there(self) -> None:
        """With all below it, whatever comes first, and their labels are corrected."""
        world = World(BIG)
        world.quota("leaf", units(1, 1), parent="mid")
        world.quota("mid", units(1, 1), parent="top", is_parent=True)
        world.quota("top", units(1, 1), tree="t", is_parent=True)
        outputs = world.outputs()
        for name in ("leaf", "mid"):
            assert world.written(outputs, QUOTA_OBJECT, f"quotas/{name}", "labels") == {PREFIX + "tree-id": "t"}
        assert world.written(outputs, QUOTA_OBJECT, "quotas/top", "labels") is None
        world.quota("mid", units(1, 1), is_parent=True)
        outputs = world.outputs()
        for name, tree in (("leaf", ""), ("mid", None)):  # the user has named the tree of mid, the default one
            assert world.written(outputs, QUOTA_OBJECT, f"quotas/{name}", "labels") == {PREFIX + "tree-id": tree}

    @pytest.mark.parametrize(
        ("parent", "message"),
        [
            ("missing", "there is no quota missing"),
            ("q", "q may have no children: its label is-parent is not 'true'"),
            ("leaf", "leaf may have no children: its label is-parent is not 'true'"),
        ],
    )
    def test_a_loose_quota_says_why(self, parent: str, message: str) -> None:
        world = World(BIG)
        world.quota("leaf", units(1, 1))
        world.quota("q", units(1, 1), parent=parent)
        status = world.written(world.outputs(), QUOTA_OBJECT, "quotas/q", "status")
        assert status is not None
        condition = {"type": "Ready", "status": "False", "reason": "Loose", "message": message}
        assert status["conditions"] == [condition]

    def test_exceeded_is_said(self) -> None:
        world = World(units(10, 10))
        world.quota("q", units(10, 10))
        world.start(units(8, 1), "q")
        world.quota("q", units(5, 10))
        status = world.written(world.outputs(), QUOTA_OBJECT, "quotas/q", "status")
        assert status is not None
        message = "uses more than its runtime of cpu"
        assert status["conditions"] == [{"type": "Ready", "status": "True", "reason": "Exceeded", "message": message}]

    def test_without_runtime_quotas_only_max_is_exceeded(self) -> None:
        world = World(units(10, 10))
        world.quota("q", units(20, 10))
        world.start(units(8, 1), "q")
        world.node("n1", units(5, 10))
        assert self.said(world) == ("Exceeded", "uses more than its runtime of cpu")
        world.options(runtime=False)
        outputs = world.outputs()
        assert world.written(outputs, QUOTA_OBJECT, "quotas/q", "annotations")[PREFIX + "runtime"] is None  # type: ignore[index]
        assert self.said(world, outputs) == ("WithinRuntime", "")
        world.quota("q", units(7, 10))
        assert self.said(world) == ("Exceeded", "uses more than its max of cpu")

    def said(self, world: World, outputs: list[Output] | None = None) -> tuple[str, str]:
        written = world.outputs() if outputs is None else outputs
        status = cast("dict[str, Any]", world.written(written, QUOTA_OBJECT, "quotas/q", "status"))
        (found,) = status["conditions"]
        return found["reason"], found.get("message", "")


class TestExplaining:
    def test_a_team_sees_why_it_has_what_it_has(self) -> None:
        world = World({"memory": 100})
        world.quota("a", {"memory": 100}, {"memory": 10}, weight={"memory": 40})
        world.quota("b", {"memory": 100}, {"memory": 15}, weight={"memory": 60})
        world.quota("c", {"memory": 100}, {"memory": 20}, weight={"memory": 50})
        world.quota("d", {"memory": 90}, {"memory": 15}, weight={"memory": 80})
        for name, amount in (("a", 5), ("b", 20), ("c", 40)):
            world.submit({"memory": amount}, name)
        for _ in range(2):
            world.submit({"memory": 35}, "d")
        lines = "\n".join(world.engine.explain("c4").lines())
        for step in (
            "request: 70 is what its pods ask for",
            "need: 15 is its request, up to its min of 15",
            "parent: the nodes of the default tree have 100, the needs are 55: each is met, and 45 is left",
            "round 1: 19 of 45 by weight 80 of 190",
            "round 2: 6 of 9 by weight 80 of 130",
            "runtime: 40",
        ):
            assert step in lines

    def test_needs_that_do_not_fit(self) -> None:
        world = World({"memory": 10})
        for name in "ab":
            world.quota(name, {"memory": 100}, {"memory": 10})
            world.submit({"memory": 9}, name)
            world.submit({"memory": 9}, name)
        lines = "\n".join(world.engine.explain("c1").lines())
        scaled = "the nodes of the default tree have 10 for needs of 20: each need is scaled down in proportion"
        assert f"parent: {scaled}" in lines
        assert "runtime: 5" in lines
        assert "FAIL <- first" in lines


def test_a_decision_that_is_refused_changes_nothing_but_demand() -> None:
    world = tight(units(10, 10), units(10, 10))
    world.start(units(8, 8), "test1")
    claim = world.submit(units(5, 5), "test1")
    before = (world.engine.state.plain(), world.derived())
    assert not world.engine.decide(claim).admitted
    assert (world.engine.state.plain(), world.derived()) == before
    assert world.request("test1") == units(13, 13)


def test_a_claim_that_no_node_takes_gets_no_more_than_the_max_when_quota_alone_is_asked() -> None:
    world = World(units(10, 10), placing=True)
    world.quota("test1", units(10, 10))
    world.start(units(8, 8), "test1")
    world.node("n1", units(10, 10), schedulable=False)
    decision = world.engine.admit(world.claim(units(5, 5), "test1"), world.now)
    assert decision.reason == "pools.max.cpu"
