"""The documentation and the examples are true: every YAML block is run or read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bursar.control.admission import known_kinds
from bursar.objects.manifests import load_text
from bursar.policies.plugin import default_registry
from bursar.policies.pools.runtime import distribute
from bursar.sim import report
from bursar.sim.runner import run_scenario
from bursar.sim.scenario import load_scenarios, read_scenario

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "pools.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
KINDS = known_kinds(default_registry())


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_block_of_the_page(number: int) -> None:
    (document,) = load_text(BLOCKS[number], "docs/pools.md")
    if "steps" not in document.body:
        KINDS.read(document)
        return
    result = run_scenario(read_scenario(document, KINDS))
    assert result.failed is None, "\n".join(report.failure(result))


def test_the_worked_example() -> None:
    assert "Result: 5, 20, 35, 40." in PAGE
    assert distribute(100, [5, 20, 40, 70], [10, 15, 20, 15], [40, 60, 50, 80], [True] * 4) == [5, 20, 35, 40]


@pytest.mark.parametrize("name", ["node-pools.yaml", "zones.yaml"])
def test_the_examples(name: str) -> None:
    for scenario in load_scenarios([ROOT / "examples" / "pools" / name], KINDS):
        result = run_scenario(scenario)
        assert result.failed is None, "\n".join(report.failure(result))
