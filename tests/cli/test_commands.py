import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner, Result

from bursar._version import __version__
from bursar.cli import exit_codes
from bursar.cli.main import COMMANDS, LazyGroup, cli, load_command, program_name


def run(*arguments: str, program: str = "bursar") -> Result:
    return CliRunner().invoke(cli, arguments, prog_name=program)


def test_version_names_version_and_kind_of_core() -> None:
    result = run("version")
    assert result.exit_code == exit_codes.OK
    assert re.fullmatch(
        rf"bursar {re.escape(__version__)} \((compiled|interpreted) core, Python 3\.\d+\.\d+\S*\)\n",
        result.output,
    )


def test_version_tells_the_kind_of_core_it_runs() -> None:
    import bursar.resources

    core = "interpreted" if str(bursar.resources.__file__).endswith(".py") else "compiled"
    assert f"({core} core" in run("version").output


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_every_command(flag: str) -> None:
    result = run(flag)
    assert result.exit_code == exit_codes.OK
    for name in COMMANDS:
        assert re.search(rf"^  {name}  +\S", result.output, re.MULTILINE), name


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_loads_and_helps(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == exit_codes.OK
    assert f"Usage: bursar {name}" in result.output


@pytest.mark.parametrize(("typed", "meant"), [("versoin", "version"), ("complete", "completion")])
def test_unknown_command_suggests_the_nearest(typed: str, meant: str) -> None:
    result = run(typed)
    assert result.exit_code == exit_codes.BAD_INPUT
    assert f"No such command '{typed}'" in result.output
    assert meant in result.output


def test_unknown_command_far_from_all_suggests_nothing() -> None:
    result = run("zzzzzz")
    assert result.exit_code == exit_codes.BAD_INPUT
    assert "Did you mean" not in result.output


@pytest.mark.parametrize(
    "arguments",
    [["--nonsense"], ["version", "--nonsense"], ["version", "surplus"], ["completion", "tcsh"]],
    ids=" ".join,
)
def test_wrong_usage_exits_with_bad_input(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == exit_codes.BAD_INPUT


def test_no_command_prints_help_and_exits_with_bad_input() -> None:
    result = run()
    assert result.exit_code == exit_codes.BAD_INPUT
    assert "Usage: bursar" in result.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("program", "variable"), [("bursar", "_BURSAR_COMPLETE"), ("kubectl-bursar", "_KUBECTL_BURSAR_COMPLETE")]
)
def test_completion_script_asks_the_program_by_its_variable(shell: str, program: str, variable: str) -> None:
    result = run("completion", shell, program=program)
    assert result.exit_code == exit_codes.OK
    assert f"{variable}={shell}_complete" in result.output


def test_completion_script_completes_commands() -> None:
    environment = {"COMP_WORDS": "bursar ver", "COMP_CWORD": "1", "_BURSAR_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-m", "bursar"],
        env=environment | python_path(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "plain,version\n"


def python_path() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(sys.path)}


@pytest.mark.parametrize(
    ("invoked_as", "name"),
    [
        ("/usr/bin/bursar", "bursar"),
        ("/home/x/.krew/bin/kubectl-bursar", "kubectl-bursar"),
        ("C:/bin/bursar.exe", "bursar"),
        ("/src/bursar/__main__.py", "bursar"),
    ],
)
def test_program_name(invoked_as: str, name: str) -> None:
    assert program_name(invoked_as) == name


def test_exit_codes_are_stable() -> None:
    assert (exit_codes.OK, exit_codes.FAILED, exit_codes.BAD_INPUT) == (0, 1, 2)


def test_table_row_that_is_no_command_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"exit_codes:OK is int, not a click command"):
        load_command("bursar.cli.exit_codes:OK")


def test_lazy_group_imports_nothing_for_an_unknown_name() -> None:
    group = LazyGroup("g", {"broken": "bursar.cli.there_is_no_such_module:x"}, help="")
    result = CliRunner().invoke(group, ["other"])
    assert result.exit_code == exit_codes.BAD_INPUT
    assert "No such command 'other'" in result.output


def test_lazy_group_finds_a_command_of_its_table() -> None:
    group = LazyGroup("g", {"v": "bursar.cli.info:version"}, help="")
    context = click.Context(group)
    assert group.list_commands(context) == ["v"]
    command = group.get_command(context, "v")
    assert command is not None
    assert command.name == "version"
