"""Faults are found and planted as listed, and the outcome of each is what its narrow tests say."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("faults")


@pytest.fixture
def mutants(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("mutants")


def package(root: Path, body: str) -> Path:
    folder = root / "pkg"
    folder.mkdir(exist_ok=True)
    (folder / "part.py").write_text("def f(a, b=1):\n" + "".join(f"    {line}\n" for line in body.splitlines()))
    return folder


LINES = {
    "return a < b": ["return a <= b"],
    "return a >= b": ["return a > b"],
    "return a == b": ["return a != b"],
    "return a is b": ["return a is not b"],
    "return a not in b": ["return a in b"],
    "return a and b": ["return a or b"],
    "return not a": ["return a"],
    "return a + b": ["return a - b"],
    "return min(a, b)": ["return max(a, b)"],
    "return a[0]": ["return a[1]"],
    "return a.get(key=True)": ["return a.get(key=False)"],
    "a.clear()": ["pass"],
    "a += b": ["pass"],
    'return f"{a + 1} < 2"': [],
    "raise ValueError(a + b)": [],
    "x: dict[int, 1] = a": [],
}


@pytest.mark.parametrize("line", LINES)
def test_faults_of_a_line(line: str, faults: ModuleType, tmp_path: Path) -> None:
    found = faults.faults_of(package(tmp_path, line), "part.py")
    assert [one.becomes for one in found if one.line == line] == LINES[line]


def test_lost_return_and_loop_exits_are_faults(faults: ModuleType, tmp_path: Path) -> None:
    body = "for x in a:\n    if x:\n        return b\n    if b:\n        continue\n    break"
    found = {(one.line, one.becomes) for one in faults.faults_of(package(tmp_path, body), "part.py")}
    assert {("return b", "pass"), ("continue", "break"), ("break", "continue")} <= found


def test_default_of_a_parameter_is_a_fault(faults: ModuleType, tmp_path: Path) -> None:
    found = [one.becomes for one in faults.faults_of(package(tmp_path, "return a"), "part.py")]
    assert found == ["def f(a, b=2):"]


def test_fault_is_planted_where_its_line_has_moved_to(faults: ModuleType, tmp_path: Path) -> None:
    fault = faults.Fault("part.py", "f", "return a < b", "return a <= b")
    text = faults.planted(package(tmp_path, "# above\n\nreturn a < b"), fault)
    assert text.splitlines()[3:] == ["    return a <= b"]


@pytest.mark.parametrize("body", ["return a > b", "if a:\n    return a < b\nreturn a < b"])
def test_line_that_is_gone_or_not_the_only_one_is_an_error(body: str, faults: ModuleType, tmp_path: Path) -> None:
    fault = faults.Fault("part.py", "f", "return a < b", "return a <= b")
    with pytest.raises(LookupError, match=r"part\.py:f: return a < b"):
        faults.planted(package(tmp_path, body), fault)


def test_sample_depends_on_seed_and_text_alone(faults: ModuleType, tmp_path: Path) -> None:
    body = [f"a = a + {number}" for number in range(70)]
    folder = package(tmp_path, "\n".join(body))
    found = faults.sample(folder, 1, 5)
    package(tmp_path, "\n".join(["", *body, "# below"]))
    assert faults.sample(folder, 1, 5) == found
    assert faults.sample(folder, 2, 5) != found
    assert len(set(found)) == 5


def test_list_can_be_planted_and_names_tests_that_exist(faults: ModuleType, mutants: ModuleType) -> None:
    plan = mutants.read_plan()
    assert not [test for tests in plan.tests.values() for test in tests if not (ROOT / test).exists()]
    for fault in [*plan.faults, *plan.harmless]:
        assert plan.tests_for(fault.path)
        assert faults.planted(mutants.PACKAGE, fault)
    sampled = faults.sample(mutants.PACKAGE, 1, 1)
    assert len({*sampled, *plan.faults, *plan.harmless}) >= 200
    for fault in sampled:
        assert plan.tests_for(fault.path)


RUN = """
import sys
from pathlib import Path
import faults, mutants
root = Path(sys.argv[1])
runner = mutants.Runner(root, root / "pkg")
tests = (str(root / "tests" / "test_part.py"),)
for line in ("return a + b", "return b", "return a < b"):
    print("outcome", runner.outcome(faults.Fault("part.py", "f", "return a - b", line), tests))
print("outcome", runner.outcome(faults.Fault("part.py", "f", "return 7", "pass"), tests))
"""


def test_outcomes(tmp_path: Path) -> None:
    package(tmp_path, "return a - b")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_part.py").write_text(
        "from pkg.part import f\n\n\ndef test():\n    assert f(4, 2) == 2\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    outcomes = [line.removeprefix("outcome ") for line in done.stdout.splitlines() if line.startswith("outcome")]
    assert outcomes == ["killed", "SURVIVED", "killed", "NO SUCH LINE"]
    assert (tmp_path / "pkg" / "part.py").read_text().endswith("return a - b\n")


OUTCOMES = {
    "killed": (True, False),  # well, if it is not listed as harmless, and if it is
    "hung": (True, False),
    "harmless": (None, True),
    "SURVIVED": (False, None),
    "NO SUCH LINE": (False, False),
}


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("listed", [False, True])
def test_report_fails_for_what_needs_a_hand(
    outcome: str, listed: bool, faults: ModuleType, mutants: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = faults.Fault("engine/part.py", "f", "return 1", "pass")
    wanted = OUTCOMES[outcome][listed]
    if wanted is not None:
        plan = mutants.Plan([], {fault: "nobody reads it"} if listed else {}, {})
        assert mutants.report([fault], plan, {str(fault): outcome}) is wanted
        assert "engine" in capsys.readouterr().out
