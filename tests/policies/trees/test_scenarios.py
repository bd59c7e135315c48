"""The scenario files of quota trees, and the examples, as ``bursar test`` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bursar.control.admission import known_kinds
from bursar.policies.nodes.plugin import PLUGIN as NODES
from bursar.policies.plugin import Registry
from bursar.policies.trees.plugin import PLUGIN as TREES
from bursar.sim.runner import run_scenario
from bursar.sim.scenario import Scenario, load_scenarios

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = (ROOT / "examples" / "trees", ROOT / "tests" / "scenarios" / "trees")
REGISTRY = Registry([TREES, NODES])
SCENARIOS = load_scenarios(FOLDERS, known_kinds(REGISTRY))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario.name for scenario in SCENARIOS])
def test_scenario(scenario: Scenario) -> None:
    failed = run_scenario(scenario, REGISTRY).failed
    assert failed is None, failed.failure
