"""What is a fact counts whoever would refuse it, and a claim that waits may change its mind."""

import pytest

from bursar.engine import disruption_budgets
from bursar.engine.decision import ADMITTED, EVICTED
from bursar.engine.disruption_budgets import BudgetBody
from bursar.engine.engine import Engine
from bursar.engine.session import EngineError
from bursar.ledger.claims import PENDING, RESERVED, RUNNING, Claim, ClaimSpec
from bursar.policies.nodes.policy import KIND, NodesPolicy
from bursar.policies.nodes.rules import NodeBody
from bursar.policies.results import Setting
from bursar.resources import Limits, from_amounts
from bursar.selectors import Requirement, Selector


def engine_with_node(gpus: int) -> Engine:
    engine = Engine([NodesPolicy()])
    engine.configure([Setting(KIND, "n1", NodeBody(Limits({"nvidia.com/gpu": gpus}, True), {}, (), False))])
    return engine


def asking(gpus: int, labels: dict[str, str] | None = None) -> ClaimSpec:
    return ClaimSpec(from_amounts({"nvidia.com/gpu": gpus}), labels=labels)


def test_a_fact_counts_although_nothing_is_left() -> None:
    engine = engine_with_node(1)
    engine.submit(Claim("a", asking(3)))
    decision = engine.place("a", "n1", 5, forced=True)
    assert (decision.outcome, decision.place, engine.claim("a").state) == (ADMITTED, "n1", RESERVED)
    assert engine.state.account("nodes/n1").used.amount("nvidia.com/gpu") == 3


def test_a_fact_on_an_unknown_node_counts_elsewhere() -> None:
    engine = engine_with_node(1)
    engine.submit(Claim("a", asking(1)))
    assert engine.place("a", "n9", forced=True).outcome == ADMITTED
    engine.release("a")
    assert not engine.state.claims


def test_who_is_found_where_somebody_has_not_left_yet_waits_for_nobody() -> None:
    engine = engine_with_node(1)
    engine.submit(Claim("old", asking(1)))
    engine.place("old", "n1", forced=True)
    engine.observe("old", RUNNING)
    urgent = Claim("urgent", ClaimSpec(from_amounts({"nvidia.com/gpu": 1}), priority=1))
    assert engine.decide(urgent).victims == ("old",)
    engine.configure([Setting(KIND, "n2", NodeBody(Limits({"nvidia.com/gpu": 1}, True), {}, (), False))])
    assert engine.decide(Claim("moved", asking(1))).place == "n2"
    assert engine.place("moved", "n1", forced=True).outcome == ADMITTED
    assert (engine.claim("moved").state, engine.claim("moved").waits_for) == (RESERVED, ())
    assert engine.place("urgent", "n2", forced=True).outcome == ADMITTED
    assert (engine.claim("urgent").state, engine.claim("urgent").waits_for) == (RESERVED, ())
    assert not engine.claim("old").leaving


def test_who_was_told_to_leave_and_is_found_elsewhere_was_still_told_to_leave() -> None:
    engine = engine_with_node(1)
    engine.decide(Claim("old", asking(1)), 1)
    urgent = Claim("urgent", ClaimSpec(from_amounts({"nvidia.com/gpu": 1}), priority=1))
    assert engine.decide(urgent, 2).victims == ("old",)
    engine.configure([Setting(KIND, "n2", NodeBody(Limits({"nvidia.com/gpu": 1}, True), {}, (), False))])
    engine.place("old", "n2", 3, forced=True)
    decision = engine.release("old", 4)
    assert (decision.outcome, decision.at) == (EVICTED, 2)


def test_placing_what_waits_without_force_is_refused() -> None:
    engine = engine_with_node(1)
    engine.submit(Claim("a", asking(1)))
    with pytest.raises(EngineError, match="not admitted yet"):
        engine.place("a", "n1")


def test_budgets_follow_a_claim_that_changes_its_labels() -> None:
    engine = engine_with_node(4)
    selector = Selector((Requirement("app", "In", ("x",)),))
    engine.configure([Setting(disruption_budgets.KIND, "ns/b", BudgetBody("ns", selector, 1, None, False))])
    engine.decide(Claim("a", asking(1, {"app": "x"}), 0, "ns", "a"))
    engine.observe("a", RUNNING)
    engine.adjust("a", asking(1, {"app": "y"}))
    account = engine.state.account("budgets/ns/b")
    assert (account.used.amount("expected"), account.used.amount("healthy")) == (0, 0)
    engine.adjust("a", asking(1, {"app": "x"}))
    assert (account.used.amount("expected"), account.used.amount("healthy")) == (1, 1)
    engine.release("a")
    assert account.used.amount("expected") == 0


def test_a_waiting_claim_may_ask_for_more() -> None:
    engine = engine_with_node(1)
    engine.decide(Claim("a", asking(2)))
    assert engine.adjust("a", asking(1)).name == "waiting"
    assert engine.claim("a").state == PENDING
    assert engine.decide(engine.claim("a")).admitted
