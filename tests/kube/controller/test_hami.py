"""Pods with slices of HAMi on the fake API server: admitted without a pin, left to HAMi's scheduler, and followed."""

from __future__ import annotations

import json

import pytest

from bursar.kube.client.api import NODES
from tests.kube.controller.stage import GPU, Body, Stage, stage

pytestmark = pytest.mark.anyio
MEMORY = "vram"


def hami_node(cluster: Stage, name: str, gpus: int) -> None:
    card = {"count": 10, "devmem": 40_960, "devcore": 100, "type": "NVIDIA-NVIDIA A100-SXM4-40GB", "health": True}
    register = json.dumps([{"id": f"GPU-{number}", **card} for number in range(gpus)])
    metadata = {"name": name, "annotations": {"hami.io/node-nvidia-register": register}}
    status = {"allocatable": {GPU: str(gpus * 10), "cpu": "64", "pods": "200"}}
    cluster.fake.state.create(NODES, "", {"metadata": metadata, "status": status})


def slices(cluster: Stage, name: str, memory: int) -> Body:
    amounts = {GPU: "1", f"{GPU}mem": str(memory), f"{GPU}cores": "10"}
    container = {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
    return cluster.pod("a", name, containers=[container], schedulerName="hami-scheduler")


async def test_hami_chooses_node_and_gpu_of_what_is_admitted() -> None:
    async with stage() as cluster:
        cluster.namespace("a")
        cluster.quota("a", 100)
        cluster.node("plain", 8)
        hami_node(cluster, "sliced-1", 1)
        term = await cluster.lead()
        pods = [slices(cluster, f"p{number}", 30_720) for number in range(2)]
        await cluster.until(lambda: cluster.started(pods[0]))
        accounts = term.mirror.engine.state.accounts
        first = cluster.find("a", "p0")
        assert first is not None
        assert first["spec"]["schedulerName"] == "hami-scheduler"
        assert not first["spec"].get("affinity"), "HAMi chooses the node"
        assert cluster.gated(pods[1]), "two slices of 30 GiB are more than the GPU has"
        hami_node(cluster, "sliced-2", 1)
        await cluster.until(lambda: cluster.started(pods[1]))
        for pod in pods:
            cluster.bind(pod, "sliced-2")  # HAMi puts the two where nobody expected them
        await cluster.until(lambda: accounts["gpus/plugin/sliced-2"].used.amount(MEMORY) == 60 << 30)
        assert accounts["gpus/plugin/sliced-1"].used.amount(MEMORY) == 0
