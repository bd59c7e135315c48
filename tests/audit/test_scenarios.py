"""Whatever the policies do in the scenarios, their journals audit clean and can be summed up at any record."""

from pathlib import Path

import pytest

from bursar.audit.auditor import Auditor
from bursar.control.admission import known_kinds
from bursar.engine.engine import Engine
from bursar.engine.session import Recall
from bursar.ledger.compaction import Summary
from bursar.ledger.transaction import read_snapshot
from bursar.objects.decode import ManifestError
from bursar.policies.plugin import default_registry
from bursar.sim import runner
from bursar.sim.cluster import Cluster
from bursar.sim.scenario import Scenario, Step, load_scenarios
from tests.kube.controller.plain_kubernetes import PlainKubernetes

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = load_scenarios([ROOT / "examples", ROOT / "tests" / "scenarios"], known_kinds(default_registry()))
PIECES = 3


def played(scenario: Scenario) -> Engine:
    cluster = Cluster()
    for step in scenario.steps:
        list(runner._run(cluster, step))
    return cluster.engine


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_scenario(scenario: Scenario) -> None:
    engine = played(scenario)
    lines = engine.journal.take()
    auditor = Auditor()
    for line in lines:
        auditor.feed(line)
    assert auditor.digest == f"{engine.digest:016x}"
    for piece in range(1, PIECES + 1):
        cut = len(lines) * piece // PIECES
        copy = summed_up(lines[:cut])
        copy.replay(lines[cut:])
        assert copy.state.plain() == engine.state.plain()
        assert copy.digest == engine.digest


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_scenario_on_kubernetes(scenario: Scenario) -> None:
    kubernetes, embedded = PlainKubernetes(), Cluster()
    for step in scenario.steps:
        if step.action != "expect" and accepted(embedded, step):
            runner.act(kubernetes, step)
    auditor = Auditor()
    for line in kubernetes.mirror.engine.journal.take():
        auditor.feed(line)
    assert auditor.digest == f"{kubernetes.mirror.engine.digest:016x}"


def accepted(cluster: Cluster, step: Step) -> bool:
    try:
        runner.act(cluster, step)
    except ManifestError:
        return False
    return True


def summed_up(lines: list[bytes]) -> Engine:
    """An engine that knows the records only by a snapshot."""
    summary = Summary()
    recall = Recall(summary.ledger.state)
    for line in summary.follow(lines):
        recall.replayed(line)
    recall.settle()
    text = summary.snapshot(recall.rows()).text()
    auditor = Auditor()
    auditor.begin(text)
    assert auditor.digest == f"{summary.ledger.digest:016x}"
    engine = Engine(default_registry().policies())
    engine.restore(read_snapshot(text))
    return engine
