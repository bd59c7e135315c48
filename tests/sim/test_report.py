"""Tables fit the terminal, and the JUnit report is valid whatever the names are."""

import xml.etree.ElementTree as ET

import pytest

from bursar.control.admission import known_kinds
from bursar.objects.manifests import load_text
from bursar.objects.validation import show_duration
from bursar.policies.plugin import default_registry
from bursar.sim import report
from bursar.sim.runner import Result, run_scenario
from bursar.sim.scenario import read_scenario

KINDS = known_kinds(default_registry())

TEXT = """
name: {name}
steps:
  - apply:
      - {{apiVersion: v1, kind: Node, metadata: {{name: {node}}}, status: {{allocatable: {{nvidia.com/gpu: 1}}}}}}
      - &pod
        apiVersion: v1
        kind: Pod
        metadata: {{namespace: a-namespace-of-some-length, name: low}}
        spec: {{containers: [{{resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]}}
  - apply:
      - <<: *pod
        metadata: {{namespace: a-namespace-of-some-length, name: high}}
        spec: {{priority: 5, containers: [{{resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]}}
  - expect: {{pods: {{a-namespace-of-some-length/low: {{phase: {phase}}}}}}}
"""


def result(name: str = "short", node: str = "n1", phase: str = "Evicted") -> Result:
    text = TEXT.format(name=name, node=node, phase=phase)
    return run_scenario(read_scenario(load_text(text, "x.yaml")[0], KINDS))


@pytest.mark.parametrize("name", ["short", "a name that goes on and on " * 6])
def test_tables_fit_eighty_columns(name: str) -> None:
    found = result(name.strip())
    lines = [*report.summary([found]), *report.story(found)]
    assert max(len(line) for line in lines if name.strip() not in line) <= 80
    assert max(len(line) for line in report.summary([found])) <= 80


def test_the_story_tells_who_did_what_where_and_why() -> None:
    lines = [line.split() for line in report.story(result())]
    assert ["STEP", "TIME", "POD", "OUTCOME", "NODE", "REASON"] in lines
    pods = [
        line for line in lines if "a-namespace-of-some-length/low" in line or "a-namespace-of-some-length/high" in line
    ]
    assert [line[2] for line in pods] == ["started", "held", "evicted", "started"]
    assert lines[-2] == ["3", "expect", "1", "thing:", "all", "as", "expected"]


def test_the_summary_counts() -> None:
    assert report.summary([result(), result()])[-1] == "2 scenarios passed"
    assert report.summary([result(phase="Running"), result()])[-1] == "1 of 2 scenarios failed"


def test_a_failure_is_in_the_junit_report() -> None:
    root = ET.fromstring(report.junit([result(phase="Running"), result("other")], [0.5, 0.25]))  # noqa: S314 our own
    (suite,) = root
    assert suite.attrib == {
        "name": "x.yaml",
        "tests": "2",
        "failures": "1",
        "errors": "0",
        "skipped": "0",
        "time": "0.750",
    }
    failed, passed = suite
    assert failed[0].attrib == {"message": "step 3: expect 1 thing"}
    assert "- phase: Running" in str(failed[0].text)
    assert len(passed) == 0


def test_the_junit_report_survives_odd_names() -> None:
    odd = '"<&>\\u0001 \\u263A"'
    root = ET.fromstring(report.junit([result(odd)], [0.0]))  # noqa: S314 our own
    assert root[0][0].get("name") == "<&>? \u263a"


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0s"), (1, "1ms"), (1000, "1s"), (90_500, "1m30s500ms"), (3_600_000, "1h"), (5_400_000, "1h30m")],
)
def test_durations_are_shown_as_they_are_written(ms: int, text: str) -> None:
    assert show_duration(ms) == text
