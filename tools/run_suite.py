"""Run the test suite against the sources and against build/compiled, and count the tests of each run.

The tests on a real control plane (tests/cluster) and those in a browser (tests/dashboard) are runs of their own,
compiled. Each of their processes has a control plane or a browser for itself, and tests of one file stay together. All
runs happen even if one fails. It fails when a test failed,
was skipped, or when no test ran at all; the counts come from pytest's own JUnit report, and a run without a report is a
failure. Arguments go to pytest.

Tests wait for servers, clocks and each other more than they compute, so there are more processes than the two cores
that this is made for.
"""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "build" / "test"
PACKAGES = {"interpreted": ROOT / "src", "compiled": ROOT / "build" / "compiled"}
CLUSTER = "tests/cluster"
DASHBOARD = "tests/dashboard"


class Run(NamedTuple):
    """One run of pytest: its name, the package it tests, its own arguments."""

    name: str
    mode: str
    arguments: tuple[str, ...]


_PROCESSES = ("-n", "3")
_ELSEWHERE = (f"--ignore={CLUSTER}", f"--ignore={DASHBOARD}")
RUNS = (
    Run("interpreted", "interpreted", (*_PROCESSES, *_ELSEWHERE)),
    Run("compiled", "compiled", (*_PROCESSES, *_ELSEWHERE)),
    Run("dashboard", "compiled", ("-n", "2", "--dist", "loadfile", DASHBOARD)),
    Run("cluster", "compiled", (*_PROCESSES, "--dist", "loadfile", CLUSTER)),
)


class Outcome(NamedTuple):
    status: int
    passed: int
    failed: int
    skipped: int

    @property
    def good(self) -> bool:
        return self.status == 0 and self.passed > 0 and self.failed == 0 and self.skipped == 0

    def line(self, name: str) -> str:
        skipped = f", {self.skipped} skipped (none may be)" if self.skipped else ""
        aborted = f", pytest exit {self.status}" if self.status and not self.failed else ""
        return f"{name}: {self.passed} passed, {self.failed} failed{skipped}{aborted}"


def read_report(report: Path, status: int) -> Outcome:
    if not report.exists():
        return Outcome(status or 1, 0, 0, 0)
    suites = list(ET.parse(report).getroot().iter("testsuite"))  # noqa: S314 written by our own pytest a moment ago
    tests, failures, errors, skipped = (
        sum(int(suite.get(name, "0")) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
    )
    return Outcome(status, tests - failures - errors - skipped, failures + errors, skipped)


def run(what: Run, arguments: list[str]) -> Outcome:
    report = REPORTS / f"{what.name}.xml"
    report.unlink(missing_ok=True)
    package = PACKAGES[what.mode]
    environment = {**os.environ, "PYTHONPATH": str(package), "BURSAR_EXPECT": what.mode}
    print(f"== {what.name}: {package.relative_to(ROOT)}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *what.arguments, *arguments]
    return read_report(report, subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode)


def main(arguments: list[str]) -> int:
    REPORTS.mkdir(parents=True, exist_ok=True)
    outcomes = {what.name: run(what, arguments) for what in RUNS}
    print()
    for name, outcome in outcomes.items():
        print(outcome.line(name))
    return 0 if all(outcome.good for outcome in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
