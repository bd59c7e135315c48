"""Whom the engine asks: no policy that a spec does not concern, and no charge where a check will do."""

from __future__ import annotations

from pathlib import Path

import pytest

from bursar.control.admission import known_kinds
from bursar.engine.engine import Engine
from bursar.engine.what_if import Configure
from bursar.ledger.claims import PENDING, Claim, ClaimSpec
from bursar.ledger.transaction import Transaction
from bursar.policies.elastic.policy import ElasticPolicy
from bursar.policies.plugin import default_registry
from bursar.policies.policy import Policy, QuotaPolicy
from bursar.policies.results import Refusal, Setting
from bursar.resources import from_amounts
from bursar.sim import runner
from bursar.sim.cluster import Cluster
from bursar.sim.scenario import Scenario, load_scenarios
from tests.engine.toy_policies import Hosts, Pots, Room, spec

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = load_scenarios([ROOT / "examples", ROOT / "tests" / "scenarios"], known_kinds(default_registry()))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_scenario(scenario: Scenario) -> None:
    cluster = Cluster()
    for step in scenario.steps:
        list(runner._run(cluster, step))
        for claim in cluster.engine.state.claims.values():
            check_asked(cluster.engine, claim)
            if claim.state == PENDING:
                check_refusals(cluster.engine, claim)


def check_asked(engine: Engine, claim: Claim) -> None:
    """Whoever would bind the claim anywhere is asked."""
    core = engine._core
    asked = core.concerned(claim).policies
    places = ["", *core.nodes.names]
    binding = [p for p in engine.policies if any(p.bind(claim, place) is not None for place in places)]
    assert [p for p in binding if p not in asked] == []
    assert asked == [p for p in engine.policies if p.concerns(claim)]


def check_refusals(engine: Engine, claim: Claim) -> None:
    """A check says what a charge says, and leaves no trace."""
    core = engine._core
    before = engine.state.plain()
    tx = core.ledger.begin(0)
    checked = core.quota_refusals(claim)
    assert tx.log == []
    charged = core.attempt(claim, "", False)
    core.ledger.abort()
    assert [refusal.record() for refusal in checked] == [refusal.record() for refusal in charged]
    assert engine.state.plain() == before


class Counting(Pots):
    """Counts how often it is charged."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.charges = 0

    def check(self, claim: Claim, binding: object) -> Refusal | None:
        return super().check(claim, binding)  # type: ignore[arg-type]

    def charge(self, tx: Transaction, claim: Claim, binding: object, forced: bool) -> Refusal | None:
        self.charges += 1
        return super().charge(tx, claim, binding, forced)  # type: ignore[arg-type]


class WithoutCheck(Pots):
    """Only a charge tells."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.charges = 0

    def charge(self, tx: Transaction, claim: Claim, binding: object, forced: bool) -> Refusal | None:
        self.charges += 1
        return super().charge(tx, claim, binding, forced)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "charges"), [(Counting, 1), (WithoutCheck, 2)])
def test_an_admitted_claim_is_charged_once_where_the_policy_has_a_check(kind: type[Counting], charges: int) -> None:
    policy = kind("teams")
    engine = Engine([policy, Hosts()])
    engine.configure([Setting("teams.Pot", "a", Room(cpu=5)), Setting("hosts.Host", "h", Room(cpu=9))])
    assert engine.decide(Claim("x", spec({"cpu": 1}, {"teams": "a"}))).admitted
    assert policy.charges == charges


def test_a_sum_out_of_range_is_refused_before_nodes_are_looked_at() -> None:
    engine = Engine([Pots("teams"), Hosts()])
    engine.configure([Setting("teams.Pot", "a", Room()), Setting("hosts.Host", "h", Room(cpu=2**62 - 1))])
    assert engine.decide(Claim("x", spec({"cpu": 2**62 - 1}, {"teams": "a"}))).admitted
    assert engine.decide(Claim("y", spec({"cpu": 2**62 - 1}, {"teams": "a"}, 0))).reason == "engine.out-of-range"


class Selective(QuotaPolicy):
    """Concerns the namespaces in its cells, and counts how often it is asked to bind."""

    def __init__(self) -> None:
        super().__init__("selective", ("selective.Namespace",))
        self.binds = 0

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        tx.put(self.name, "selective", setting.key, True if setting.body is not None else None)
        return []

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        self.concerns_changed()

    def concerns(self, claim: Claim) -> bool:
        return self.state.cell("selective", claim.namespace) is not None

    def bind(self, claim: Claim, place: str) -> None:
        self.binds += 1


def names(policies: list[Policy]) -> list[str]:
    return [policy.name for policy in policies]


def test_a_policy_that_a_claim_does_not_concern_is_not_asked_until_settings_change() -> None:
    policy = Selective()
    engine = Engine([policy, Pots("teams")])
    shared = ClaimSpec(from_amounts({"cpu": 1}))
    engine.decide(Claim("a", shared, 0, "red", "a"))
    assert policy.binds == 0
    engine.configure([Setting("selective.Namespace", "red", Room())])
    engine.decide(Claim("b", shared, 0, "red", "b"))
    assert policy.binds == 1
    engine.decide(Claim("c", shared, 0, "blue", "c"))
    assert policy.binds == 1
    engine.configure([Setting("selective.Namespace", "red", None)])
    engine.decide(Claim("d", shared, 0, "red", "d"))
    assert policy.binds == 1


def test_a_trial_leaves_no_answer_behind() -> None:
    engine = Engine([ElasticPolicy(), Selective()])
    claim = Claim("a", ClaimSpec(from_amounts({"cpu": 1})), 0, "red", "a")
    engine.submit(claim)
    assert names(engine._core.concerned(claim).policies) == []
    engine.what_if([Configure([Setting("selective.Namespace", "red", Room())])], pending=True)
    assert names(engine._core.concerned(claim).policies) == []


def test_a_replay_drops_what_was_known() -> None:
    first, second = Engine([Selective()]), Engine([Selective()])
    claim = Claim("a", ClaimSpec(from_amounts({"cpu": 1})), 0, "red", "a")
    assert names(second._core.concerned(claim).policies) == []
    first.configure([Setting("selective.Namespace", "red", Room())])
    second.replay(first.journal.take())
    assert names(second._core.concerned(claim).policies) == ["selective"]
