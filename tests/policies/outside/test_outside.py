"""Policies of other distributions: the example as an installed package, and those that cannot be used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bursar.cli import exit_codes
from tests.policies.outside.page import PAGE, ROOT, block

EXAMPLE = ROOT / "examples" / "policies" / "hours"
PLUGIN = """
from bursar.policies.elastic.api import COMPOSITE_KIND
from bursar.policies.plugin import Plugin
from bursar.policies.policy import QuotaPolicy
PLUGIN = Plugin({!r}, {!r}, lambda: QuotaPolicy({!r}), {})
"""


def run(site: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A Python with the packages of ``site`` beside those of this one."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *filter(None, sys.path)])}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_the_page_shows_the_example() -> None:
    assert block("python") == (EXAMPLE / "bursar_hours.py").read_text()
    assert block("toml") == (EXAMPLE / "pyproject.toml").read_text()
    assert len(block("python").splitlines()) < 100


def test_an_installed_policy_is_used_everywhere(tmp_path: Path) -> None:
    source, site = shutil.copytree(EXAMPLE, tmp_path / "source"), tmp_path / "site"
    pip = ("-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index", "--target", site, source)
    installed = run(tmp_path, *pip)
    assert installed.returncode == 0, installed.stderr
    inside = Path(__file__).with_name("installed.py")
    done = run(site, "-m", "pytest", "-q", "-p", "no:cacheprovider", inside)
    assert done.returncode == 0, done.stdout + done.stderr


def make_package(site: Path, code: str) -> Path:
    """A distribution ``bad-policy`` with an entry point ``bad``."""
    info = site / "bad_policy-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-policy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[bursar.policies]\nbad = bad_policy:PLUGIN\n")
    (site / "bad_policy.py").write_text(code)
    return site


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import no_such_module", "No module named 'no_such_module'"),
        ("1 / 0", "division by zero"),
        ("", "has no attribute 'PLUGIN'"),
        ("PLUGIN = 1", "it is int, not a Plugin"),
        (PLUGIN.format("elastic", 1, "elastic", ""), "policy elastic is registered already"),
        (PLUGIN.format("control", 1, "control", ""), "the name control is reserved"),
        (PLUGIN.format("bad", "first", "bad", ""), "its order is not a number"),
        (PLUGIN.format("bad", 1, "good", ""), "its policy calls itself good, not bad"),
        (PLUGIN.format("bad", 1, "bad", "(COMPOSITE_KIND,)"), "the kind CompositeElasticQuota.n8s.nebuly.ai is"),
    ],
)
def test_one_that_cannot_be_used_is_named(tmp_path: Path, code: str, problem: str) -> None:
    done = run(make_package(tmp_path / "site", code), "-m", "bursar", "reasons")
    assert (done.returncode, done.stdout) == (exit_codes.BAD_INPUT, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: policy bad (bad_policy:PLUGIN) of bad-policy cannot be used: ")
    assert problem in line


@pytest.mark.parametrize("command", [["test", PAGE], ["serve", "--data", "unused.db"], ["controller"]])
def test_no_command_runs_without_it(tmp_path: Path, command: list[object]) -> None:
    done = run(make_package(tmp_path / "site", "PLUGIN = 1"), "-m", "bursar", *command)
    assert (done.returncode, done.stdout) == (exit_codes.BAD_INPUT, "")
    assert "policy bad (bad_policy:PLUGIN) of bad-policy" in done.stderr
    assert not (ROOT / "unused.db").exists()
