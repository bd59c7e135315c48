"""The walk of one pod through the code, as tools/walk.py traces it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def walk(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the tool on the sources, also when the suite runs on the compiled package."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "tools/walk.py", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def output() -> str:
    done = walk("embedded", "--list")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_count_of_the_embedded_walk_is_positive(output: str) -> None:
    counts = {line[:28].strip(): int(line[28:].replace(",", "")) for line in output.splitlines()[1:7]}
    assert len(counts) == 6
    assert all(count > 0 for count in counts.values()), counts
    assert counts["modules"] < counts["functions"] < counts["calls"]


def test_embedded_walk_enters_the_decision_of_the_engine(output: str) -> None:
    assert "Engine.decide" in output.replace(",", "").replace(":", "").split()


def test_unknown_walk_is_refused() -> None:
    done = walk("nowhere")
    assert done.returncode == 2
    assert "no walk nowhere: choose from embedded, kubernetes" in done.stderr
