"""Every example of docs/trees.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bursar.control.admission import known_kinds
from bursar.objects.manifests import load_text
from bursar.policies.nodes.plugin import PLUGIN as NODES
from bursar.policies.plugin import Registry
from bursar.policies.trees.plugin import PLUGIN as TREES
from tests.policies.trees.test_vectors_tree import STEPS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "trees.md").read_text()
KINDS = known_kinds(Registry([TREES, NODES]))


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("text", blocks("yaml"))
def test_manifests_are_valid(text: str) -> None:
    assert KINDS.read_all(load_text(text))


def test_the_library_examples_run_in_order() -> None:
    names: dict[str, object] = {"really_fits": lambda _response: False}
    for text in blocks("python"):
        exec(text, names)  # noqa: S102 it is our own page


def test_the_table_says_what_the_vectors_say() -> None:
    rows = [line.split("|")[-2].strip() for line in PAGE.splitlines() if line.startswith(("| `", "| `a`,"))]
    states = [expected for _, _, expected, _ in STEPS][1:]
    assert len(rows) == len(states)
    for shown, full in zip(rows, states, strict=True):
        assert set(shown.split(" ")) <= set(full.split(" "))
