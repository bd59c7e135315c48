"""The reference is that of the commands as they are, every command starts lazily, and kinds are completed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bursar.cli.main import COMMANDS
from tests.cli.test_lazy_imports import HEAVY, modules_imported_by
from tests.reference import reference_page


def test_the_reference_is_up_to_date(repository: Path) -> None:
    assert (repository / "docs" / "cli.md").read_text() == reference_page("cli.md"), "run: make reference"


@pytest.mark.parametrize("name", ["apply", "delete", "describe", "explain", "get", "history", "plan", "top", "what-if"])
def test_help_imports_nothing_heavy(name: str) -> None:
    assert name in COMMANDS
    assert modules_imported_by(name, "--help").isdisjoint({*HEAVY, "bursar.server", "bursar.control"})


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("bursar get qu", {"queue", "quotas", "QuotaTree.bursar.dev"}),
        ("bursar delete gpur", {"GPUResourceQuota.tensor-fusion.ai/"}),
    ],
)
def test_kinds_are_completed(words: str, expected: set[str]) -> None:
    environment = {"COMP_WORDS": words, "COMP_CWORD": "2", "_BURSAR_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-m", "bursar"],
        env=environment | {"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == expected
