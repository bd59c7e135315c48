"""Every manifest of the documentation page is accepted, and does what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from bursar.objects.manifests import Document
from bursar.policies.limits.quotas import CHECKS, COUNT_CODE, WORKERS_CODE
from bursar.sim.cluster import Cluster
from tests.builders import node


def page(repository: Path) -> str:
    return (repository / "docs" / "namespace-gpu-quota.md").read_text()


def test_the_manifests_of_the_page_work_together(repository: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", page(repository), re.DOTALL)
    cluster = Cluster()
    cluster.apply([Document("", 0, node("node-1"))])
    for block in blocks:
        cluster.apply([Document("docs/namespace-gpu-quota.md", 1, yaml.safe_load(block))])
    found = cluster.pod("team-a/infer")
    assert found is not None
    assert (found.phase, found.node) == ("Running", "node-2")
    assert found.annotations["tensor-fusion.ai/gpu-ids"] == "node-2:0,node-2:1"


def test_the_page_lists_every_code_of_a_quota(repository: Path) -> None:
    text = page(repository)
    codes = [code for _, single, total in CHECKS for code in (single, total)]
    assert [code for code in (*codes, COUNT_CODE, WORKERS_CODE) if f"`{code}`" not in text] == []
