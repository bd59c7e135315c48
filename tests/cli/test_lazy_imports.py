"""What the command line imports before it does anything: starting fast is a matter of importing little."""

import subprocess
import sys

import pytest

from bursar.cli.main import COMMANDS

HEAVY = (
    "yaml",
    "msgspec",
    "asyncio",
    "bursar.engine",
    "bursar.ledger",
    "bursar.objects",
    "bursar.sim",
    "bursar.resources",
)

REPORT_IMPORTS = """
import sys
from bursar.cli.main import cli
cli.main(sys.argv[1:], prog_name="bursar", standalone_mode=False)
print("imported:", *sys.modules)
"""


def modules_imported_by(*arguments: str) -> set[str]:
    command = [sys.executable, "-c", REPORT_IMPORTS, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.rsplit("imported:", 1)[1].split())


@pytest.mark.parametrize("arguments", [["version"], ["--help"], ["completion", "zsh"]], ids=" ".join)
def test_imports_nothing_heavy(arguments: list[str]) -> None:
    assert modules_imported_by(*arguments).isdisjoint(HEAVY)


def test_a_command_imports_no_other_command() -> None:
    own = COMMANDS["version"].partition(":")[0]
    others = {address.partition(":")[0] for address in COMMANDS.values()} - {own}
    imported = modules_imported_by("version")
    assert own in imported
    assert imported.isdisjoint(others)
