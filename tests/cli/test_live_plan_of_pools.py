"""``kubectl bursar plan`` says, on a copy of the cluster, whom the loss of a pool's node costs its place."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from bursar.cli.main import cli
from bursar.control.admission import known_kinds
from bursar.kube.client.api import NODES, Resource
from bursar.policies.plugin import default_registry
from bursar.policies.pools.api import PROFILE as PROFILE_KIND
from bursar.policies.pools.api import QUOTA as QUOTA_KIND
from bursar.policies.pools.settings import PREFIX
from tests.cli.test_live_cluster import kubeconfig
from tests.kube.controller.stage import GPU, Stage, stage

Body = dict[str, Any]
QUOTA, PROFILE = Resource.of(QUOTA_KIND), Resource.of(PROFILE_KIND)
CONFIGURATION = Resource.of(known_kinds(default_registry()).find("Configuration.bursar.dev"))


def node(name: str, pool: str) -> Body:
    metadata = {"name": name, "labels": {"pool": pool, "disk": name}}
    return {"metadata": metadata, "status": {"allocatable": {GPU: "4", "cpu": "64", "pods": "200"}}}


def give(cluster: Stage, *, revokes: bool) -> None:
    """Team x runs on both nodes of its pool; a pod of team y waits for one of them."""
    for resource in (QUOTA, PROFILE, CONFIGURATION):
        cluster.fake.serve(resource)
    state = cluster.fake.state
    state.create(CONFIGURATION, "", {"metadata": {"name": "default"}, "spec": {"pools": {"revokeOveruse": revokes}}})
    for name in ("n1", "n2"):
        state.create(NODES, "", node(name, "a"))
    spec = {
        "quotaName": "root-a",
        "quotaLabels": {PREFIX + "is-parent": "true"},
        "nodeSelector": {"matchLabels": {"pool": "a"}},
    }
    cluster.namespace("kube-system")
    annotations = {PREFIX + "resource-keys": f'["{GPU}"]'}
    metadata = {"name": "a", "annotations": annotations, "labels": {PREFIX + "tree-id": "t"}}
    state.create(PROFILE, "kube-system", {"metadata": metadata, "spec": spec})
    for name in "xy":
        cluster.namespace(name, {"bursar.dev/quota": "enforced"})
        labels = {PREFIX + "parent": "root-a", PREFIX + "tree-id": "t"}
        state.create(
            QUOTA, name, {"metadata": {"name": name, "labels": labels}, "spec": {"max": {GPU: 8}, "min": {GPU: 2}}}
        )
    for at, place in enumerate(("n1", "n2", "n2")):
        cluster.bind(cluster.pod("x", f"x{at}", 2), place)
    cluster.pod("y", "waiting", 2, nodeSelector={"disk": "n2"})


@pytest.mark.anyio
@pytest.mark.parametrize("revokes", [True, False])
async def test_a_plan_without_options_looks_ahead_to_the_end_of_the_delay(tmp_path: Path, *, revokes: bool) -> None:
    async with stage() as cluster:
        give(cluster, revokes=revokes)
        change = tmp_path / "node.yaml"
        change.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Node", **node("n1", "")}))
        config = kubeconfig(tmp_path, cluster.fake.url)
        arguments = ["plan", "-f", str(change), "-o", "json", "--kubeconfig", config]
        result = await asyncio.to_thread(CliRunner().invoke, cli, arguments)
        found = json.loads(result.stdout)
        expected = [("x/x1", "pools.revoked"), ("x/x2", "pools.revoked")] if revokes else []
        assert [(one["pod"], one["reason"]) for one in found["evicted"]] == expected
