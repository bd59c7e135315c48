"""What explain says first, and the fixes of labels that name no quota."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.cli.conftest import Shell
from tests.server.live import pod


def labelled(name: str, trees: dict[str, str], gpus: int = 1) -> dict[str, Any]:
    body = pod("z", name, gpus)
    labels = {f"quota.bursar.dev/{tree}": group for tree, group in trees.items()}
    return {**body, "metadata": {**body["metadata"], "labels": labels}}


@pytest.mark.parametrize(
    ("trees", "answer", "fix"),
    [
        ({"org": "yy"}, "the quota tree org has no group yy; it has x, y", "name x in its label quota.bursar.dev/org"),
        ({"org": "all"}, "all is not a leaf of the quota tree org: a group is one, such as x, y",
         "name x in its label quota.bursar.dev/org"),
        ({"orgg": "x"}, "there is no quota tree orgg; did you mean org?",
         "label it quota.bursar.dev/org=x instead of quota.bursar.dev/orgg"),
        ({"orgg": "nobody"}, "there is no quota tree orgg; did you mean org?", ""),
    ],
)  # fmt: skip
def test_labels_that_name_nothing(shell: Shell, trees: dict[str, str], answer: str, fix: str) -> None:
    shell.bed.give(labelled("lost", trees))
    lines = shell.lines("explain", "z/lost")
    assert answer in lines[0]
    assert lines[0].startswith("z/lost is pending: ")
    fixes = [line for line in lines if line.endswith("[other-quota]")]
    assert [re.sub(r" +\d\. (.*?)(; it takes.*)?  \[.*", r"\1", line) for line in fixes] == ([fix] if fix else [])


def test_the_nearest_group_is_tried_first(shell: Shell) -> None:
    tree = {
        "apiVersion": "bursar.dev/v1alpha1", "kind": "QuotaTree", "metadata": {"name": "lab"},
        "spec": {"resourceNames": ["nvidia.com/gpu"], "nodes": {
            "lab": {"quota": {"nvidia.com/gpu": 2}}, "agents": {"parent": "lab", "quota": {"nvidia.com/gpu": 1}},
            "theory": {"parent": "lab", "quota": {"nvidia.com/gpu": 1}}}},
    }  # fmt: skip
    shell.bed.give(tree, labelled("lost", {"lab": "theorie"}))
    lines = shell.lines("explain", "z/lost")
    assert "the quota tree lab has no group theorie; did you mean theory?" in lines[0]
    assert "  1. name theory in its label quota.bursar.dev/lab  [other-quota]" in lines


def test_more_than_any_node_has(shell: Shell) -> None:
    shell.bed.give(labelled("huge", {}, 9))
    assert any("lacks 8 nvidia.com/gpu; the largest node has 4 nvidia.com/gpu" in line
               for line in shell.lines("explain", "z/huge"))  # fmt: skip


def test_pods_that_have_ended(shell: Shell) -> None:
    shell.bed.give(pod("a", "owner", 2))
    lines = shell.lines("explain", "b/one")
    assert lines[0].startswith("b/one is evicted")
    assert "a/owner" in lines[0]
    assert lines[0].endswith("[engine.preempted]")
