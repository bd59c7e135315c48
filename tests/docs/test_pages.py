"""Every example of the pages for users runs, and prints what the page shows; every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import WIDTH, matches, parts, play
from tests.server.live import ManualClock, live, node, pod, quota

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PLAYED = [DOCS / "quickstart.md", DOCS / "choosing.md", *sorted((DOCS / "tasks").glob("*.md"))]
LINKED = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PLAYED, ids=name_of)
def test_the_examples_print_what_the_page_shows(page: Path) -> None:
    for _, answers in play(page):
        for command, found in answers:
            shown = "\n".join([f"$ {command.line}", *found])
            assert matches(command.expected, found), f"python -m tests.docs.pages {name_of(page)}\n{shown}"


@pytest.mark.parametrize("page", PLAYED, ids=name_of)
def test_a_page_is_short_and_its_examples_fit(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= 150
    for part in parts(page):
        if part["language"] == "console":
            assert max(map(len, part["text"].splitlines())) <= WIDTH


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{name_of(page)} -> {target}"


def headings(page: Path) -> set[str]:
    """As links name them: small letters, without signs, with dashes."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_links_lead_to_headings_that_there_are(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target, heading in re.findall(r"\]\(([^)#\s]*\.md|)#([^)\s]+)\)", text):
        if "://" not in target:
            assert heading in headings(page.parent / target if target else page), (
                f"{name_of(page)} -> {target}#{heading}"
            )


def test_the_map_names_modules_that_there_are() -> None:
    there = {path.name for part in ("src", "tests", "tools") for path in (ROOT / part).rglob("*.py")}
    named = set(re.findall(r"`(?:\w+/)*(\w+\.py)`", (DOCS / "architecture.md").read_text()))
    assert len(named) > 30
    assert named <= there


def test_the_map_names_every_folder() -> None:
    text = (DOCS / "architecture.md").read_text()
    package = ROOT / "src" / "bursar"
    there = {path.parent.relative_to(package).as_posix() for path in package.rglob("__init__.py")} - {"."}
    assert not {folder for folder in there if f"`{folder}" not in text and f"`{Path(folder).name}" not in text}


def test_every_page_is_listed() -> None:
    index = (DOCS / "index.md").read_text()
    for page in DOCS.rglob("*.md"):
        if page.name != "index.md" and not {"decisions", "development", "kubernetes"} & {*page.parts}:
            assert f"({page.relative_to(DOCS)})" in index, f"docs/index.md does not list {name_of(page)}"


def test_the_metrics_to_ask_for_are_told(tmp_path: Path) -> None:
    asked = set(re.findall(r"\bbursar_\w+", (DOCS / "tasks" / "monitor.md").read_text()))
    with live(tmp_path / "bursar.db", clock=ManualClock()) as bed:
        bed.give(node("n1"), quota("a", 2), quota("b", 2), pod("b", "loan", 4), pod("a", "p", 9))
        bed.give(pod("a", "owner", 1))
        told = bed.raw("GET", "/metrics")[2].decode()
    assert len(asked) > 5
    assert asked <= set(re.findall(r"^(\w+)[{ ]", told, re.MULTILINE))


@pytest.mark.parametrize(
    ("expected", "found", "fits"),
    [
        (["a", "b"], ["a", "b"], True),
        (["a"], ["a", "b"], False),
        (["a", "...", "c"], ["a", "b", "b", "c"], True),
        (["...", "c"], ["c"], True),
        (["a", "..."], ["b"], False),
        ([f"a {'1' * 32}"], [f"a {'2' * 32}"], True),
    ],
)
def test_dots_stand_for_any_lines(expected: list[str], found: list[str], fits: bool) -> None:
    assert matches(expected, found) == fits


@pytest.mark.parametrize("page", sorted((DOCS / "decisions").glob("*.md")), ids=name_of)
def test_a_decision_has_a_status(page: Path) -> None:
    assert re.match(r"# \d+\. [^\n]+\n\nStatus: (accepted|superseded by)", page.read_text())
