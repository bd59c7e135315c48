"""Pods that quota alone admits: the scheduler chooses their nodes, and an autoscaler makes them."""

from __future__ import annotations

import asyncio

import pytest

from bursar.kube.controller.patches import admission_of
from bursar.ledger.claims import RESERVED
from tests.kube.controller.stage import GPU, Body, Stage, stage
from tests.kube.controller.test_place_recovery import CONFIGURATION, configure, told

pytestmark = pytest.mark.anyio
PLACE = {"bursar.dev/place": "scheduler"}
UNPLACED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/0 nodes"}


def scaled(cluster: Stage, most: int = 4) -> None:
    """A namespace whose pods quota alone admits; there is no node yet."""
    cluster.namespace("a")
    cluster.change_namespace("a", PLACE)
    cluster.quota("a", most)


async def test_a_pod_is_admitted_for_a_node_that_is_not_there_yet() -> None:
    async with stage() as cluster:
        scaled(cluster)
        term = await cluster.lead()
        pods = [cluster.pod("a", f"p{number}", 2, preemptionPolicy="Never") for number in range(3)]
        await cluster.until(lambda: sum(map(cluster.started, pods)) == 2)
        assert sum(map(cluster.gated, pods)) == 1, "quota still decides"
        started = next(pod for pod in pods if cluster.started(pod))
        seen = cluster.find("a", started["metadata"]["name"])
        assert seen is not None
        assert "affinity" not in seen["spec"]
        record = admission_of(seen["metadata"]["annotations"])
        assert record is not None
        assert (record.scheduled, record.place, record.pinned) == (True, "", False)
        cluster.node("n", 8)
        cluster.schedule()
        claims = term.mirror.engine.state.claims
        await cluster.until(lambda: claims[started["metadata"]["uid"]].place == "n")
        assert term.mirror.engine.state.accounts["nodes/n"].used.amount(GPU) == 4


async def test_the_quota_is_kept_over_a_failover() -> None:
    async with stage() as cluster:
        scaled(cluster)
        await cluster.lead()
        first = cluster.pod("a", "first", 4)
        await cluster.until(lambda: cluster.started(first))
        await cluster.depose()
        term = await cluster.lead()
        assert term.mirror.engine.state.claims[first["metadata"]["uid"]].state == RESERVED
        second = cluster.pod("a", "second", 1)
        await asyncio.sleep(0.5)
        assert cluster.gated(second)


@pytest.mark.parametrize(
    "more",
    [
        {"priority": 5},
        {"annotations": {"tensor-fusion.ai/tflops-request": "1", "tensor-fusion.ai/vram-request": "1Gi"}},
    ],
    ids=["may preempt", "a fraction of a GPU"],
)
async def test_other_pods_wait_for_a_node(more: Body) -> None:
    async with stage() as cluster:
        scaled(cluster)
        await cluster.lead()
        annotations = more.pop("annotations", {})
        pod = cluster.pod("a", "p", **more)
        cluster.change(pod, lambda body: body["metadata"].update(annotations=annotations))
        await asyncio.sleep(0.5)
        assert cluster.gated(pod)


async def test_a_pod_that_no_node_came_for_is_named_after_its_deadline() -> None:
    async with stage(more=(CONFIGURATION,)) as cluster:
        scaled(cluster)
        configure(cluster, placeDeadline="1s")
        await cluster.lead()
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
        bare = cluster.pod("a", "bare", 1)
        owned = cluster.pod("a", "owned", 1, ownerReferences=[owner])
        for pod in (bare, owned):
            await cluster.until(lambda pod=pod: cluster.started(pod))  # type: ignore[misc]
            cluster.change(pod, lambda body: body.update(status={"phase": "Pending", "conditions": [UNPLACED]}))
        await cluster.until(lambda: cluster.find("a", "owned") is None, 20)
        assert cluster.find("a", "bare") is not None
        await cluster.until(lambda: told(cluster, "control.unscheduled"))
