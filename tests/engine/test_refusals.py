"""What a refused claim is told: the check that binds, all that fail, and whom it may not displace, and why."""

from __future__ import annotations

from itertools import combinations

import pytest

from bursar.engine import disruption_budgets
from bursar.engine.decision import NEVER, WAITING, Decision
from bursar.engine.disruption_budgets import BudgetBody
from bursar.engine.engine import Engine
from bursar.ledger.claims import RUNNING, Claim
from bursar.objects.manifests import load_text
from bursar.policies.results import Check, Setting
from bursar.selectors import Selector
from bursar.sim.cluster import Cluster
from tests.engine.test_engine import ask, engine_with, host, pot
from tests.engine.toy_policies import Room, spec

BUDGET = BudgetBody("ns", Selector(()), None, 0, percent=False)


def of_two(uid: str, cpu: int, priority: int, team: str = "a", project: str = "p") -> Claim:
    labels = {"teams": team, "projects": project}
    return Claim(uid, spec({"cpu": cpu}, labels, priority), 0, "ns", uid)


def project(path: str, cpu: int) -> Setting:
    return Setting("projects.Pot", path, Room(cpu=cpu))


class TestTheBindingCheck:
    def test_is_the_one_that_victims_do_not_resolve(self) -> None:
        """Team a has a claim of lower priority, project p has none: the project keeps the claim waiting."""
        engine = engine_with(pot("a", cpu=2), pot("b", cpu=9), project("p", 2), project("q", 9), host("h1", cpu=99))
        engine.decide(of_two("low", 2, 1, project="q"))
        engine.decide(of_two("high", 2, 9, team="b", project="p"))
        refused = engine.decide(of_two("new", 1, 5))
        assert [refusal.reason for refusal in refused.refusals] == ["projects.limit.cpu", "teams.limit.cpu"]
        binding = [check for check in leaves(engine.explain("new")) if check.binding]
        assert [check.reason for check in binding] == ["projects.limit.cpu"]

    def test_is_the_first_if_victims_resolve_none(self) -> None:
        engine = engine_with(pot("a", cpu=2), project("p", 2), host("h1", cpu=99))
        engine.decide(of_two("high", 2, 9))
        refused = engine.decide(of_two("new", 1, 5))
        assert [refusal.reason for refusal in refused.refusals] == ["teams.limit.cpu", "projects.limit.cpu"]

    def test_is_what_never_fits(self) -> None:
        engine = engine_with(pot("a", cpu=2), project("p", 1), host("h1", cpu=99))
        engine.decide(of_two("high", 1, 9))
        refused = engine.decide(Claim("new", spec({"cpu": 9}, {"teams": "a"}, 1), 0, "ns", "new"))
        assert refused.outcome in {WAITING, NEVER}
        assert refused.reason == "teams.limit.cpu"

    def test_are_the_nodes_if_victims_would_satisfy_the_quotas(self) -> None:
        """The claim of lower priority in the team runs on a node that is too small for the new one."""
        engine = engine_with(pot("a", cpu=3), pot("b", cpu=9), host("h1", cpu=2), host("h2", cpu=3))
        engine.decide(ask("low", 2, 1))
        engine.decide(Claim("other", spec({"cpu": 3}, {"teams": "b"}, 9), 0, "ns", "other"))
        refused = engine.decide(ask("new", 3, 5))
        assert refused.reason == "nodes.full"
        assert "teams.limit.cpu" in [refusal.reason for refusal in refused.refusals]


def leaves(check: Check) -> list[Check]:
    return [leaf for child in check.children for leaf in leaves(child)] or [check]


class TestAllThatFail:
    def test_is_marked_in_every_dimension(self) -> None:
        engine = engine_with(pot("a", cpu=2, gpu=1, memory=9), host("h1", cpu=99, gpu=99, memory=99))
        claim = Claim("x", spec({"cpu": 3, "gpu": 2, "memory": 1}, {"teams": "a"}), 0, "ns", "x")
        engine.decide(claim)
        failed = [check.reason for check in leaves(engine.explain("x")) if not check.passed]
        assert sorted(failed) == ["teams.limit.cpu", "teams.limit.gpu"]

    def test_one_dimension_needs_no_check_below(self) -> None:
        engine = engine_with(pot("a", cpu=2, gpu=9), host("h1", cpu=99, gpu=99))
        engine.decide(Claim("x", spec({"cpu": 3, "gpu": 2}, {"teams": "a"}), 0, "ns", "x"))
        (failed,) = (check for check in leaves(engine.explain("x")) if not check.passed)
        assert (failed.title, failed.reason) == ("teams/a", "teams.limit.cpu")


def displaced_before(engine: Engine) -> None:
    engine.decide(ask("before", 2, 1, owner="job"))
    engine.decide(ask("old", 2, 2))
    engine.release("before")


def not_preemptible(engine: Engine) -> None:
    engine.decide(ask("old", 2, 2, preemptible=False))


def in_a_budget(engine: Engine) -> None:
    engine.configure([Setting(disruption_budgets.KIND, "ns/keep", BUDGET)])
    engine.decide(ask("old", 2, 2))
    engine.observe("old", RUNNING)


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (displaced_before, "ns/old displaced it before"),
        (not_preemptible, "ns/old is not preemptible"),
        (in_a_budget, "ns/old is protected by the disruption budget ns/keep"),
    ],
)
@pytest.mark.parametrize("by", ["quota", "node"])
def test_claims_that_may_not_be_displaced_are_named_with_the_reason(prepare: object, why: str, by: str) -> None:
    assert callable(prepare)
    engine = engine_with(pot("a", cpu=2 if by == "quota" else 99), host("h1", cpu=99 if by == "quota" else 2))
    prepare(engine)
    claim = ask("again", 2, 9, owner="job")
    refused = engine.decide(claim)
    assert refused.outcome == WAITING
    assert refused.refusals[-1].reason == "engine.protected"
    assert why in refused.refusals[-1].note
    assert refused.sentence().endswith(refused.refusals[-1].note)
    assert refused.reason != "engine.protected", "the reason stays the quota's or the node's"
    assert "engine.protected" in [check.reason for check in leaves(engine.explain("again"))]
    assert isinstance(claim.decision, Decision)


@pytest.mark.parametrize("by", ["quota", "node"])
def test_a_budget_that_lets_only_some_go_is_named(by: str) -> None:
    engine = engine_with(pot("a", cpu=2 if by == "quota" else 99), host("h1", cpu=99 if by == "quota" else 2))
    one = BudgetBody("ns", Selector(()), 1, None, percent=False)
    engine.configure([Setting(disruption_budgets.KIND, "ns/keep", one)])
    for uid in ("x", "y"):
        engine.decide(ask(uid, 1, 2))
        engine.observe(uid, RUNNING)
    refused = engine.decide(ask("new", 2, 9))
    assert refused.refusals[-1].reason == "engine.protected"
    assert "of which the disruption budget ns/keep lets 1 go" in refused.sentence()
    assert len(engine.decide(ask("small", 1, 9)).victims) == 1


def test_protected_claims_are_not_named_where_they_do_not_help() -> None:
    """Both are in the way, but only the one of higher priority would have to leave in any case."""
    engine = engine_with(pot("a", cpu=2), host("h1", cpu=99))
    engine.decide(ask("old", 2, 10, preemptible=False))
    assert [refusal.reason for refusal in engine.decide(ask("new", 2, 5)).refusals] == ["teams.limit.cpu"]


def test_a_search_that_judged_too_many_sets_says_so() -> None:
    """Each of 78 pods is in two of 13 budgets, as edges of a graph: no seven of them may leave together."""
    names = range(13)
    pairs = list(combinations(names, 2))
    cluster = Cluster()
    cluster.apply(load_text(NODE % len(pairs)))
    cluster.apply(load_text("---".join(PDB % (name, name) for name in names)))
    cluster.apply(load_text("---".join(POD % (f"p{one}-{other}", one, other, 0, 1) for one, other in pairs)))
    cluster.apply(load_text(POD % ("big", 98, 99, 9, 7)))
    claim = cluster.controller.claim("a/big")
    assert claim is not None
    assert isinstance(claim.decision, Decision)
    reasons = [refusal.reason for refusal in claim.decision.refusals]
    assert reasons == ["nodes.full", "engine.search-limit", "engine.protected"]
    assert "not all of them were judged" in claim.decision.sentence()


NODE = """
{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: %d}}}
"""
PDB = """
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {namespace: a, name: b%d},
 spec: {maxUnavailable: 1, selector: {matchLabels: {v%d: "y"}}}}
"""
POD = """
{apiVersion: v1, kind: Pod, metadata: {namespace: a, name: %s, labels: {v%s: "y", v%s: "y"}},
 spec: {priority: %d, containers: [{resources: {requests: {cpu: %d}}}]}}
"""
