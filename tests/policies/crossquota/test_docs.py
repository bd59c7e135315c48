"""Every example of docs/crossquota.md and of the pages of its stories runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bursar.control.admission import known_kinds
from bursar.objects.manifests import load_text
from bursar.policies.crossquota.arguments import KEYS, PREFIXES, QUOTA_REASON, RESERVE_REASON
from bursar.policies.plugin import default_registry
from bursar.sim import report
from bursar.sim.cluster import Cluster
from bursar.sim.runner import run_scenario
from bursar.sim.scenario import Scenario, load_scenarios

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "crossquota.md").read_text()
EXAMPLES = ROOT / "examples" / "crossquota"
STORIES = ("batch-jobs", "services", "cpu-and-memory", "node-specific")
SCENARIOS = load_scenarios([EXAMPLES], known_kinds(default_registry()))


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_manifests_are_accepted() -> None:
    for block in blocks(PAGE, "yaml"):
        Cluster().apply(load_text(block))


def test_the_library_examples_run() -> None:
    for block in blocks(PAGE, "python"):
        exec(block, {})  # noqa: S102 it is our own page


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario.name for scenario in SCENARIOS])
def test_the_examples_hold(scenario: Scenario) -> None:
    result = run_scenario(scenario)
    assert result.failed is None, "\n".join(report.failure(result))


@pytest.mark.parametrize("story", STORIES)
def test_the_page_of_a_story_shows_its_example_as_it_is(story: str) -> None:
    page = (ROOT / "docs" / "crossquota" / f"{story}.md").read_text()
    (shown,) = blocks(page, "yaml")
    example = (EXAMPLES / f"{story}.yaml").read_text()
    assert shown == example[example.index("name: ") :]
    assert f"crossquota/{story}.md" in PAGE


def test_every_argument_and_reason_is_on_the_page() -> None:
    for word in (*KEYS, *PREFIXES, QUOTA_REASON, RESERVE_REASON, "crossquota.annotation", "crossquota.exceeded"):
        assert word in PAGE, word
