"""What the pages about Kubernetes name is there: values of the chart, options, metrics, objects, tests.

Commands that need a cluster are played by ``tests/cluster/test_chart_uninstall.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bursar.answers import process
from bursar.cli.controller import controller
from bursar.cli.query import get
from bursar.cli.trial import plan
from bursar.control.admission import known_kinds
from bursar.kube.controller import metrics
from bursar.objects.manifests import load_text
from bursar.policies.plugin import default_registry

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "kubernetes"
PAGES = sorted(FOLDER.glob("*.md"))
VALUES: dict[str, Any] = yaml.safe_load((ROOT / "charts" / "bursar" / "values.yaml").read_text())
NAMESPACED = {"install", "upgrade", "uninstall", "rollback", "test"}
OTHERS = {"--create-namespace", "--event-ttl", "--help", "--label", "--set", "--take-ownership"}  # of other programs


def name_of(page: Path) -> str:
    return page.name


def helm_commands(text: str) -> list[str]:
    """Whole commands, wherever they stand."""
    joined = text.replace("\\\n", " ")
    return re.findall(r"(?:^|`)\s*(helm \w+ bursar[^`\n]*)", joined, re.MULTILINE)


def set_paths(command: str) -> Iterator[str]:
    for given in re.findall(r"--set (?:'([^']*)'|(\S+))", command):
        bare = re.sub(r"\{[^}]*\}", "", "".join(given))
        yield from (one.partition("=")[0] for one in bare.split(","))


def is_a_value(path: str) -> bool:
    found: Any = VALUES
    for step in path.split("."):
        if not isinstance(found, dict) or step not in found:
            return False
        found = found[step]
    return True


def spans(text: str) -> list[str]:
    """What stands between single backticks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_helm_is_told_release_chart_namespace_and_values_that_there_are(page: Path) -> None:
    for command in helm_commands(page.read_text()):
        verb, rest = command.split()[1], command.split()[3:]
        assert verb in NAMESPACED, command
        assert "-n bursar-system" in command, command
        if verb in {"install", "upgrade"}:
            assert rest[0] == "charts/bursar", command
        wrong = [path for path in set_paths(command) if not is_a_value(path)]
        assert not wrong, command


def test_there_are_such_commands() -> None:
    commands = [command for page in PAGES for command in helm_commands(page.read_text())]
    assert len(commands) > 20
    assert len({path for command in commands for path in set_paths(command)}) > 5


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_values_that_are_named_are_those_of_the_chart(page: Path) -> None:
    sections = "|".join(key for key, value in VALUES.items() if isinstance(value, dict) and value)
    named = [one for one in spans(page.read_text()) if re.fullmatch(rf"({sections})\.\w+(\.\w+)*(=.*)?", one)]
    assert [one for one in named if not is_a_value(one.partition("=")[0])] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_options_that_are_named_are_those_of_the_commands(page: Path) -> None:
    named = {one.split()[0].partition("=")[0] for one in spans(page.read_text()) if one.startswith("--")}
    known = {option for command in (controller, get, plan) for one in command.params for option in one.opts}
    assert named - OTHERS <= known


def test_metrics_that_are_named_are_told() -> None:
    source = "".join(Path(str(module.__file__)).with_suffix(".py").read_text() for module in (metrics, process))
    made = {
        f"{name}_total" if kind == "counter" else name
        for kind, name in re.findall(r'\b(gauge|counter)\("(\w+)"', source)
    }
    named = {name for page in PAGES for name in re.findall(r"\bbursar_\w+", page.read_text())}
    assert named
    assert named <= made


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_objects_that_are_applied_are_understood(page: Path) -> None:
    kinds = known_kinds(default_registry())
    for text in re.findall(r"<<EOF\n(.*?)\n *EOF\n", page.read_text(), re.DOTALL):
        kinds.read_all(load_text("\n".join(line.removeprefix("   ") for line in text.splitlines())))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tests_and_files_that_are_named_are_there(page: Path) -> None:
    for one in spans(page.read_text()):
        name, _, chosen = one.partition(" -k ")
        if re.fullmatch(r"test_\w+\.py", name):
            texts = [file.read_text() for file in (ROOT / "tests").rglob(name)]
            assert [text for text in texts if re.search(rf"def test_\w*{chosen}", text)], one
        elif re.match(r"(tests|deploy|charts)/", name):
            assert (ROOT / name).exists(), one


def test_waiting_pods_are_let_go_only_where_nothing_decides_after() -> None:
    """Who migrates back hands them over: at the gate they lost the name of the original's scheduler."""
    for page in FOLDER.glob("migrate-*.md"):
        last = page.read_text().partition("**Back**")[2].partition("\n\n")[0]
        assert "helm uninstall bursar -n bursar-system" in last, page.name
        handed = "uninstall.md#hand-pending-pods-to-an-upstream-project" in last
        assert handed != (page.name == "migrate-quota-manager.md"), "which has no scheduler"
