"""Every example of docs/elastic.md runs, and its numbers are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bursar.control.admission import known_kinds
from bursar.objects.manifests import load_text
from bursar.policies.elastic.plugin import PLUGIN
from bursar.policies.nodes.plugin import PLUGIN as NODES
from bursar.policies.plugin import Registry
from bursar.sim import report
from bursar.sim.cluster import Cluster
from bursar.sim.runner import run_scenario
from bursar.sim.scenario import Scenario, load_scenarios

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "elastic.md").read_text()
REGISTRY = Registry([PLUGIN, NODES])
SCENARIOS = load_scenarios([ROOT / "examples" / "elastic"], known_kinds(REGISTRY))


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_manifests_are_accepted_together() -> None:
    Cluster(REGISTRY).apply(load_text("\n---\n".join(blocks("yaml"))))


def test_the_library_example_runs() -> None:
    (text,) = blocks("python")
    exec(text, {})  # noqa: S102 it is our own page


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario.name for scenario in SCENARIOS])
def test_the_examples_hold(scenario: Scenario) -> None:
    result = run_scenario(scenario)
    assert result.failed is None, "\n".join(report.failure(result))
