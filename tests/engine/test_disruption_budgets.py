"""Disruption budgets: how many of a set may be taken away, kept by the engine for every policy."""

from __future__ import annotations

import pytest

from bursar.engine.decision import WAITING
from bursar.engine.disruption_budgets import KIND, BudgetBody
from bursar.engine.engine import Engine
from bursar.ledger.claims import RUNNING, Claim
from bursar.policies.results import Revocation, Setting
from bursar.selectors import Requirement, Selector
from tests.engine.toy_policies import Hosts, Pots, Room, spec

WEB = Selector((Requirement("app", "In", ("web",)),))


def budget(minimum: int | None = None, maximum: int | None = None, *, percent: bool = False) -> Setting:
    return Setting(KIND, "ns/web", BudgetBody("ns", WEB, minimum, maximum, percent))


def running(count: int, *settings: Setting) -> Engine:
    """An engine whose only host is full of ``count`` running web claims."""
    engine = Engine([Pots("teams"), Hosts()])
    engine.configure([Setting("hosts.Host", "h1", Room(cpu=count)), *settings])
    for i in range(count):
        engine.decide(Claim(f"w{i}", spec({"cpu": 1}, {"app": "web"}), i, "ns", f"w{i}"))
        engine.observe(f"w{i}", RUNNING)
    return engine


def claim(cpu: int) -> Claim:
    return Claim("x", spec({"cpu": cpu}, priority=9), 99, "ns", "x")


@pytest.mark.parametrize(
    ("bound", "allowed"),
    [
        (budget(minimum=4), 0),
        (budget(minimum=2), 2),
        (budget(maximum=1), 1),
        (budget(maximum=0), 0),
        (budget(minimum=50, percent=True), 2),
        (budget(minimum=51, percent=True), 1),
        (budget(maximum=26, percent=True), 2),
        (budget(minimum=9), 0),
    ],
)
def test_no_more_victims_than_allowed(bound: Setting, allowed: int) -> None:
    engine = running(4, bound)
    decision = engine.decide(claim(allowed + 1))
    assert decision.outcome == WAITING
    assert engine.what_if([]).decisions == []
    engine.release("x")
    if allowed:
        assert len(engine.decide(Claim("y", spec({"cpu": allowed}, priority=9), 99, "ns")).victims) == allowed


def test_a_budget_that_comes_late_counts_what_runs() -> None:
    engine = running(2)
    engine.configure([budget(minimum=2)])
    assert engine.decide(claim(1)).outcome == WAITING


def test_a_budget_that_goes_protects_nobody() -> None:
    engine = running(2, budget(minimum=2))
    engine.configure([Setting(KIND, "ns/web", None)])
    assert engine.decide(claim(1)).admitted


def test_claims_of_other_namespaces_are_not_its_business() -> None:
    engine = running(2, Setting(KIND, "other/web", BudgetBody("other", WEB, 2, None, False)))
    assert engine.decide(claim(1)).admitted


def test_counts_follow_undo_and_replay() -> None:
    engine = running(3, budget(minimum=1))
    engine.decide(claim(2))
    engine.release("w2")
    copy = Engine([Pots("teams"), Hosts()])
    copy.replay(engine.journal.take())
    assert copy.state.plain() == engine.state.plain()
    account = copy.state.accounts["budgets/ns/web"]
    assert (account.used.amount("expected"), account.used.amount("healthy")) == (2, 1)


def test_one_that_is_not_running_yet_is_not_protected() -> None:
    engine = Engine([Pots("teams"), Hosts()])
    engine.configure([Setting("hosts.Host", "h1", Room(cpu=1)), budget(minimum=1)])
    engine.decide(Claim("w", spec({"cpu": 1}, {"app": "web"}), 0, "ns", "w"))
    assert engine.decide(claim(1)).victims == ("w",)


class TakesAll(Pots):
    """A policy that wants every claim back, all at once."""

    def revocations(self, now: int) -> list[Revocation]:
        return [Revocation(uid, "teams.over", "the team uses too much") for uid in sorted(self.state.claims)]


def test_claims_that_are_taken_back_count_against_the_budget_at_once() -> None:
    engine = Engine([TakesAll("teams"), Hosts()])
    engine.configure([Setting("hosts.Host", "h1", Room(cpu=3)), budget(maximum=1)])
    for i in range(3):
        engine.decide(Claim(f"w{i}", spec({"cpu": 1}, {"app": "web"}), i, "ns", f"w{i}"))
        engine.observe(f"w{i}", RUNNING)
    taken = engine.tick(5)
    assert [(d.uid, d.reason, d.sentence()) for d in taken] == [("w0", "teams.over", "the team uses too much")]
    assert engine.tick(6) == []
    engine.release("w0")
    assert [d.uid for d in engine.tick(7)] == ["w1"]
