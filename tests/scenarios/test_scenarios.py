"""Every scenario file of this folder holds, each as a test of its own."""

from pathlib import Path

import pytest

from bursar.control.admission import known_kinds
from bursar.policies.plugin import default_registry
from bursar.sim import report
from bursar.sim.runner import run_scenario
from bursar.sim.scenario import Scenario, load_scenarios

SCENARIOS = load_scenarios([Path(__file__).parent], known_kinds(default_registry()))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[f"{Path(s.source).stem}: {s.name}" for s in SCENARIOS])
def test_scenario(scenario: Scenario) -> None:
    result = run_scenario(scenario)
    assert result.failed is None, "\n".join(report.failure(result))
