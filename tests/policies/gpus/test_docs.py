"""Every manifest of the documentation page is accepted, and does what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from bursar.objects.manifests import Document
from bursar.policies.namespace.settings import CHECKS
from bursar.sim.cluster import Cluster
from tests.builders import node


def page(repository: Path) -> str:
    return (repository / "docs" / "namespace-gpu-quota.md").read_text()


def blocks(repository: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page(repository), re.DOTALL)


def applied(repository: Path) -> Cluster:
    """A cluster with all manifests of the page."""
    cluster = Cluster()
    cluster.apply([Document("", 0, node("node-1"))])
    for block in blocks(repository, "yaml"):
        cluster.apply([Document("docs/namespace-gpu-quota.md", 1, yaml.safe_load(block))])
    return cluster


def test_the_list_of_the_page_is_printed(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = blocks(repository, "python")
    exec(example, {"engine": applied(repository).engine})  # noqa: S102 the page's own text
    assert capsys.readouterr().out == "team-a/team-quota 1\nteam-a/infer 100\n"


def test_the_manifests_of_the_page_work_together(repository: Path) -> None:
    cluster = applied(repository)
    found = cluster.pod("team-a/infer")
    assert found is not None
    assert (found.phase, found.node) == ("Running", "node-2")
    assert found.annotations["tensor-fusion.ai/gpu-ids"] == "node-2:0,node-2:1"


def test_the_page_lists_every_code_of_a_quota(repository: Path) -> None:
    text = page(repository)
    assert [code for _, code, _ in CHECKS if f"`{code}`" not in text] == []
