"""Victims by trial, what is spared of them, ties between nodes, and dry runs of gangs, by example."""

from __future__ import annotations

from bursar.engine.charging import Core
from bursar.engine.decision import ADMITTED, RELEASED, Decision, _mark_first
from bursar.engine.disruption_budgets import KIND as BUDGET
from bursar.engine.disruption_budgets import BudgetBody
from bursar.engine.engine import Engine
from bursar.engine.placement import best_first, is_possible
from bursar.engine.preemption_trial import Trial
from bursar.engine.what_if import Assumption, Outlook, Submit
from bursar.ledger.claims import RUNNING, TERMINATING, Claim
from bursar.policies.elastic.rights import MIN
from bursar.policies.nodes.policy import KIND as NODE
from bursar.policies.nodes.policy import NodesPolicy
from bursar.policies.nodes.rules import NodeBody
from bursar.policies.results import Check, Setting
from bursar.resources import Limits
from bursar.selectors import Requirement, Selector
from tests.engine.test_engine import ask, engine_with, host, pot
from tests.engine.toy_policies import Hosts, spec
from tests.policies.elastic.world import World, claim_of


def running(engine: Engine, *claims: Claim) -> None:
    for claim in claims:
        assert engine.decide(claim).admitted
        engine.observe(claim.uid, RUNNING)


def test_one_in_the_middle_is_spared() -> None:
    """Chosen in order are b, c and d; without c there is still room."""
    engine = engine_with(pot("a", cpu=9), host("h", cpu=5))
    running(engine, ask("b", 2, 0), ask("c", 1, 1), ask("d", 2, 2))
    assert sorted(engine.decide(ask("x", 4, 9)).victims) == ["b", "d"]


def test_a_victim_that_another_ones_stay_makes_needless_is_spared() -> None:
    """If the held claim went, its own larger victim would count again: then both others had to leave."""
    engine = engine_with(pot("a", cpu=4), host("h", cpu=4))
    running(engine, ask("w", 2, 0), ask("v2", 1, 2, 2), ask("v1", 1, 2, 3))
    assert engine.decide(ask("h", 1, 1)).victims == ("w",)
    assert engine.decide(ask("x", 2, 5)).victims == ("v1",)


def two_nodes(*names: str) -> Engine:
    engine = Engine([NodesPolicy()])
    engine.configure([Setting(NODE, name, NodeBody(Limits({"cpu": 2}))) for name in names])
    return engine


def placed(engine: Engine, uid: str, node: str, created: int, priority: int = 0) -> None:
    claim = Claim(uid, spec({"cpu": 1}, priority=priority), created, "ns", uid)
    engine.submit(claim)
    engine.place(uid, node, forced=True)
    engine.observe(uid, RUNNING)


def test_of_two_nodes_the_one_whose_oldest_victim_is_newer() -> None:
    engine = two_nodes("a", "b")
    for uid, node, created in (("a1", "a", 1), ("a2", "a", 10), ("b1", "b", 4), ("b2", "b", 5)):
        placed(engine, uid, node, created)
    assert engine.decide(Claim("x", spec({"cpu": 2}, priority=1), 20, "ns", "x")).place == "b"


def test_only_the_most_important_victims_tell_the_age() -> None:
    engine = two_nodes("a", "b")
    for uid, node, created, priority in (("a1", "a", 9, 0), ("a2", "a", 3, 1), ("b1", "b", 1, 0), ("b2", "b", 4, 1)):
        placed(engine, uid, node, created, priority)
    assert engine.decide(Claim("x", spec({"cpu": 2}, priority=2), 20, "ns", "x")).place == "b"


def test_of_two_nodes_alike_the_first_by_name_whatever_came_first() -> None:
    engine = two_nodes("b", "a")
    for uid, node in (("b1", "b"), ("b2", "b"), ("a1", "a"), ("a2", "a")):
        placed(engine, uid, node, 7)
    assert engine.decide(Claim("x", spec({"cpu": 1}, priority=1), 20, "ns", "x")).place == "a"


def test_a_dry_run_of_a_gang_tries_all_members() -> None:
    engine = engine_with(pot("a", cpu=3), host("h", cpu=9))
    members = [ask(f"m{i}", 2, group="g") for i in range(2)]
    outlook = engine.what_if([Submit(*members)])
    assert [decision.admitted for decision in outlook.decisions] == [False, False]


def test_decisions_of_a_list_are_made_at_the_beginning_of_time_if_no_time_is_given() -> None:
    engine = engine_with(pot("a", cpu=3), host("h", cpu=9))
    assert [decision.at for decision in engine.decide_many([ask("x", 1), ask("y", 1)])] == [0, 0]


def budget(name: str, label: str, least: int) -> Setting:
    selector = Selector((Requirement("app", "In", (label,)),))
    return Setting(BUDGET, f"ns/{name}", BudgetBody("ns", selector, least, None, False))


def labelled(uid: str, app: str, priority: int = 0) -> Claim:
    return Claim(uid, spec({"cpu": 1}, {"teams": "a", "app": app}, priority), 0, "ns", uid)


def test_a_claim_that_terminates_is_healthy_no_more() -> None:
    engine = engine_with(pot("a", cpu=9), host("h", cpu=9))
    engine.configure([budget("one", "web", 1)])
    running(engine, labelled("w1", "web"), labelled("w2", "web"))
    engine.observe("w1", TERMINATING)
    assert engine.state.accounts["budgets/ns/one"].used.amount("healthy") == 1


def test_each_victim_is_protected_by_its_own_budget() -> None:
    """Whichever was asked about before."""
    engine = engine_with(pot("a", cpu=2), host("h", cpu=2))
    engine.configure([budget("one", "web", 1), budget("two", "db", 1)])
    running(engine, labelled("w", "web"), labelled("d", "db"))
    rules = engine._core.eviction_rules
    for _ in range(2):
        assert rules.protection(engine.claim("w")) == "is protected by the disruption budget ns/one"
        assert rules.protection(engine.claim("d")) == "is protected by the disruption budget ns/two"
    assert len(rules.words) == 1, "one text is kept, for claims in a row"


def revoke(engine: Engine, uid: str) -> None:
    engine._begin(0).put("engine", "revoked", uid, "its quota's sake")
    engine._commit(("tick",))


def test_a_revoked_claim_that_is_gone_was_evicted() -> None:
    engine = engine_with(pot("a", cpu=9), host("h", cpu=9))
    running(engine, ask("x", 1), ask("y", 1))
    revoke(engine, "x")
    assert [engine.release(uid).outcome == RELEASED for uid in ("x", "y")] == [False, True]


def test_a_revoked_victim_leaves_although_the_one_that_waited_for_it_gave_up() -> None:
    engine = engine_with(pot("a", cpu=2), host("h", cpu=2))
    running(engine, ask("v", 1), ask("w", 1))
    assert sorted(engine.decide(ask("x", 2, 1)).victims) == ["v", "w"]
    revoke(engine, "v")
    engine.give_up("x")
    assert [engine.claim(uid).leaving for uid in ("v", "w")] == [True, False]


def test_only_the_leaf_that_fails_first_is_marked() -> None:
    first, second = Check("first", False), Check("second", False)
    outer = Check("outer", False, "", (Check("passed", True), first, second))
    assert _mark_first([outer])
    assert [check.binding for check in (outer, first, second)] == [False, True, False]


class Ranked(Hosts):
    """The first host by name comes last."""

    def rank(self, claim: Claim, mask: bytearray, ranks: list[int]) -> bool:
        ranks[0] += 1
        return True


def test_a_rank_comes_before_score_and_name() -> None:
    engine = Engine([Ranked()])
    engine.configure([host("h1", cpu=4), host("h2", cpu=4), host("h3", cpu=4)])
    assert best_first(engine._core, Claim("x", spec({"cpu": 1})), bytearray(b"\1\1\1")) == ["h2", "h3", "h1"]


def test_a_restored_decision_keeps_the_place_that_it_names() -> None:
    engine = engine_with(pot("a", cpu=9), host("h", cpu=9))
    running(engine, ask("x", 1))
    engine.claim("x").decision = Decision("x", ADMITTED, 5, "elsewhere")
    engine._recall.restore(engine._recall.rows())
    restored = engine.claim("x").decision
    assert isinstance(restored, Decision)
    assert restored.place == "elsewhere"


def test_a_node_that_is_gone_is_not_possible_and_none_is_no_obstacle() -> None:
    engine = engine_with(pot("a", cpu=9), host("h", cpu=9))
    assert [is_possible(engine._core, ask("x", 1), node) for node in ("h", "gone", "")] == [True, False, True]
    assert engine._core.nodes.names == ["h"]


class RunTrial(Assumption):
    """A trial with the rights of an elastic quota's claim, for quota alone, where all its victims must serve min."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.victims: list[str] = []

    def run(self, core: Core, at: int, outlook: Outlook) -> None:
        (policy,) = core.searching
        rights = policy.search_begins(self.claim)
        assert rights is not None
        found = Trial(core, self.claim, rights, policy.name, MIN, "", []).run()
        policy.search_ends()
        self.victims = sorted(victim.uid for victim in found or [])


def test_victims_of_a_trial_free_all_that_their_quota_must_end_with() -> None:
    """10 of min: 2 stay, and 8 are asked for. The newer one alone leaves one byte too few."""
    world = World()
    world.quota("a", {"memory": 10})
    world.quota("b", {"memory": 10})
    world.fact("stays", "a", {"memory": 2}, priority=9)
    world.fact("older", "a", {"memory": 1})
    world.fact("newer", "a", {"memory": 3})
    claim = claim_of("asks", "a", {"memory": 8}, priority=5, created=9)
    world.engine.submit(claim)
    trial = RunTrial(claim)
    world.engine.what_if([trial], 9)
    assert trial.victims == ["newer", "older"]
