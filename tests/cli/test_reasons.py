"""`bursar reasons`: one code, the beginning of some, all, and none."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from bursar.cli import exit_codes
from bursar.cli.main import cli


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["reasons", *arguments], prog_name="bursar", env={"COLUMNS": "60"})


def test_a_code_as_people_meet_it() -> None:
    result = run("elastic.max.nvidia.com/gpu")
    assert result.exit_code == exit_codes.OK
    assert result.output.splitlines() == [
        "elastic.max.<resource>",
        "  The quota of the pod's namespace would exceed its `max`.",
        "  What to do: Wait for pods of the team to end, ask for",
        "  less, or raise `max`.",
    ]


@pytest.mark.parametrize(
    ("start", "some"), [("pools", "pools.revoked"), ("nodes.r", "nodes.removed"), ("", "gpus.full")]
)
def test_the_beginning_of_some(start: str, some: str) -> None:
    lines = run(start).output.splitlines()
    assert some in lines
    assert all(line.startswith(start) for line in lines if line and not line.startswith(" "))


def test_all() -> None:
    assert run().output.count("What to do: ") > 50


def test_none() -> None:
    result = run("elastic.maximum")
    assert result.exit_code == exit_codes.FAILED
    assert result.stderr == "error: no reason is called 'elastic.maximum'; `bursar reasons` lists all\n"
