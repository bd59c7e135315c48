"""`bursar test`: a wrong scenario fails and says why, a wrong file runs nothing, and CI gets its report."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bursar.cli import exit_codes
from bursar.cli.main import cli
from tests.cli.test_lazy_imports import modules_imported_by

GOOD = """
name: it fits
objects:
  - {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {nvidia.com/gpu: 1}}}
steps:
  - apply:
      - apiVersion: v1
        kind: Pod
        metadata: {namespace: a, name: first}
        spec: {containers: [{resources: {limits: {nvidia.com/gpu: 1}}}]}
  - expect: {pods: {a/first: {phase: Running, node: n1}}}
"""
WRONG = """
name: two into one
objects:
  - {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {nvidia.com/gpu: 1}}}
steps:
  - apply:
      - &pod
        apiVersion: v1
        kind: Pod
        metadata: {namespace: a, name: first}
        spec: {containers: [{resources: {limits: {nvidia.com/gpu: 1}}}]}
      - {<<: *pod, metadata: {namespace: a, name: second}}
  - expect:
      pods:
        a/first: {phase: Running}
        a/second: {phase: Running, node: n1}
        a/frist: {phase: Pending}
      objects:
        Node/n1: {status: {allocatable: {nvidia.com/gpu: 2}}}
        Node/n2: {metadata: {name: n2}}
  - advance: 1s
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["test", *map(str, arguments)], prog_name="bursar")


@pytest.fixture
def good(tmp_path: Path) -> Path:
    file = tmp_path / "good.yaml"
    file.write_text(GOOD)
    return file


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    file = tmp_path / "wrong.yaml"
    file.write_text(WRONG)
    return file


def test_a_scenario_that_holds_passes(good: Path) -> None:
    result = run(good)
    assert result.exit_code == exit_codes.OK
    assert result.output == "SCENARIO  STEPS  RESULT\nit fits   2      passed\n\n1 scenario passed\n"


def test_a_wrong_scenario_fails_with_a_diff_and_the_explain_tree(wrong: Path) -> None:
    result = run(wrong)
    assert result.exit_code == exit_codes.FAILED
    lines = result.output.splitlines()
    assert lines[:9] == [
        f"FAILED {wrong}: document 1: two into one",
        "  step 2: expect 5 things",
        "    Pod a/second (- expected, + found)",
        "      - phase: Running",
        "      + phase: Pending",
        "      - node: n1",
        "      + node: nothing",
        "      every node that could take it is full",
        "      explained:",
    ]
    end = lines.index("    Pod a/frist matches nothing: there is no such pod; did you mean a/first?")
    tree = lines[9:end]
    assert tree[0] == "        FAIL a/second is pending: every node that could take it is full"
    assert "the nearest, n1, lacks 1 nvidia.com/gpu" in tree[1]
    assert sum("FAIL <- first" in line for line in tree) == 1
    assert any("nvidia.com/gpu 1 wanted, 1 of 1 in use" in line for line in tree)
    assert lines[end + 1 :] == [
        "    Node/n1 (- expected, + found)",
        "      - status.allocatable.nvidia.com/gpu: 2",
        "      + status.allocatable.nvidia.com/gpu: 1",
        "    Node/n2 matches nothing: there is no such object",
        "",
        "SCENARIO      STEPS   RESULT",
        "two into one  2 of 3  FAILED",
        "",
        "1 of 1 scenario failed",
    ]


def test_one_failure_among_many_fails_all(good: Path, wrong: Path) -> None:
    result = run(wrong, good)
    assert result.exit_code == exit_codes.FAILED
    assert "1 of 2 scenarios failed" in result.output
    assert "it fits       2       passed" in result.output


def test_verbose_tells_what_happened(good: Path) -> None:
    result = run("-v", good)
    assert result.exit_code == exit_codes.OK
    assert result.output.splitlines()[:7] == [
        "it fits",
        "",
        "STEP  TIME  POD      OUTCOME  NODE  REASON",
        "-     apply Node n1",
        "1     apply Pod first",
        "      0s    a/first  started  n1",
        "2     expect 1 thing: all as expected",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (GOOD.replace("steps:", "stpes:"), "document 1: stpes: is not a known field; did you mean steps?"),
        (
            GOOD.replace("phase: Running", "phase: Runs"),
            "document 1: steps[1].expect.pods.a/first.phase: 'Runs' is none",
        ),
        (
            GOOD.replace("gpu: 1}}}", "gpu: x}}}", 1),
            "document 1: Node n1: objects[0].status.allocatable.nvidia.com/gpu:",
        ),
        (GOOD.replace("kind: Node", "kind: Nod"), "document 1: Nod n1: objects[0].kind: v1 Nod is not handled"),
        (GOOD + "---\nname: next\n", "document 2: steps: is required"),
        ("name: [", "document 1: line 2: not YAML: "),
        ("", "no scenarios found"),
    ],
)
def test_a_bad_file_is_one_line_and_runs_nothing(good: Path, tmp_path: Path, text: str, line: str) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(text)
    result = run("-v", good, bad)
    assert result.exit_code == exit_codes.BAD_INPUT
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: {bad}: {line}")
    assert result.stderr.count("\n") == 1


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    result = run(tmp_path / "none.yaml")
    assert result.exit_code == exit_codes.BAD_INPUT
    assert result.stderr == f"error: {tmp_path / 'none.yaml'}: cannot be read: No such file or directory\n"


def test_a_folder_without_scenarios_is_an_error(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert (result.exit_code, result.stderr) == (exit_codes.BAD_INPUT, f"error: {tmp_path}: no scenarios found\n")


def test_no_argument_is_wrong_usage() -> None:
    assert run().exit_code == exit_codes.BAD_INPUT


def test_a_manifest_that_is_refused_when_it_is_applied_fails_the_scenario(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(GOOD.replace("spec: {containers", "spec: {nodeName: nowhere, containers"))
    result = run(file)
    assert result.exit_code == exit_codes.FAILED
    assert "refused: Pod a/first: spec.nodeName: there is no node 'nowhere'" in result.output


def test_junit_goes_to_a_file(good: Path, wrong: Path, tmp_path: Path) -> None:
    report = tmp_path / "junit.xml"
    assert run("--junit", report, good, wrong).exit_code == exit_codes.FAILED
    suites = list(ET.parse(report).getroot())  # noqa: S314 written by the command a moment ago
    assert [(s.get("name"), s.get("tests"), s.get("failures")) for s in suites] == [
        (str(good), "1", "0"),
        (str(wrong), "1", "1"),
    ]


def test_junit_that_cannot_be_written_is_an_error(good: Path, tmp_path: Path) -> None:
    result = run("--junit", tmp_path / "no" / "such" / "folder.xml", good)
    assert result.exit_code == exit_codes.BAD_INPUT
    assert "cannot be written: No such file or directory" in result.stderr


def test_help_imports_nothing_heavy() -> None:
    assert modules_imported_by("test", "--help").isdisjoint({"yaml", "msgspec", "bursar.engine", "bursar.sim"})


def test_the_examples_pass(repository: Path) -> None:
    result = run(repository / "examples")
    assert result.exit_code == exit_codes.OK, result.output
