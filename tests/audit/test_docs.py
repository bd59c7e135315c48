"""The audit page says what the command prints, and its Python runs."""

import ast
import re
from pathlib import Path

from click.testing import CliRunner

from bursar.audit.auditor import Auditor
from bursar.cli.main import cli
from bursar.ledger.journal_lines import EFFECTS
from tests.audit.test_auditor import record, small_history
from tests.store.world import filled


def page(repository: Path) -> str:
    return (repository / "docs" / "audit.md").read_text()


def test_the_command_prints_what_the_page_shows(repository: Path, tmp_path: Path) -> None:
    shown = page(repository).split("$ bursar audit bursar.db\n")[1].partition("```")[0]
    filled(tmp_path / "bursar.db", small_history()).close()
    printed = CliRunner().invoke(cli, ["audit", str(tmp_path / "bursar.db")]).stdout.replace(f"{tmp_path}/", "")
    head = re.compile(r"7:\w{32}")
    assert head.sub("HEAD", printed) == head.sub("HEAD", shown)


def test_the_command_with_a_head_runs(repository: Path, tmp_path: Path) -> None:
    lines = small_history()
    filled(tmp_path / "bursar.db", lines).close()
    assert "--head 7:" in page(repository)
    arguments = ["audit", str(tmp_path / "bursar.db"), "--head", f"7:{record(lines, 7)[8]}"]
    assert CliRunner().invoke(cli, arguments).exit_code == 0


def test_the_python_of_the_page_runs(repository: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", page(repository), re.DOTALL)
    names: dict[str, object] = {"lines": small_history()}
    exec(code, names)  # noqa: S102 what the page tells people to run
    auditor = names["auditor"]
    assert isinstance(auditor, Auditor)
    assert auditor.seq == 7


def test_the_page_names_every_effect(repository: Path) -> None:
    assert set(re.findall(r'`\["(\w+)", ', page(repository))) == set(EFFECTS)


def test_the_auditor_is_as_small_as_the_page_says(repository: Path) -> None:
    """Lines with code on them: no docstrings, comments or blank lines."""
    assert "fewer than 310 lines of code" in page(repository)
    modules = (repository / "src" / "bursar" / "audit").glob("*.py")
    texts = [ast.unparse(without_docstrings(ast.parse(path.read_text()))) for path in modules]
    assert sum(len([line for line in text.splitlines() if line]) for text in texts) < 310


def without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree
