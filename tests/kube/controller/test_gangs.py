"""Groups: the next leader lets the others go first of which only some were let go when one ended; and nobody is let go
of a group for which a victim does not leave.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bursar.kube.admission.predicate import ENFORCED, GATE, NAMESPACE_LABEL
from bursar.kube.client.api import DISRUPTION_BUDGETS
from bursar.kube.controller import eviction
from bursar.kube.controller.leader_term import LeaderTerm
from bursar.ledger.claims import PENDING, RESERVED, RUNNING
from tests.kube.controller.plain_kubernetes import PlainKubernetes
from tests.kube.controller.stage import Body, Stage, stage
from tests.kube.controller.test_ledger_rebuild import _rebuilt
from tests.kube.controller.test_mirror import apply, cluster_with, namespace, node, pod

MEMBERS = ("w0", "w1", "w2")


def member(name: str) -> dict[str, Any]:
    body = pod("a", name)
    body["metadata"]["labels"] = {"bursar.dev/group": "train", "bursar.dev/group-size": str(len(MEMBERS))}
    return body


def as_it_was(cluster: PlainKubernetes, key: str) -> None:
    """Take back what was written on a pod: its leader ended before."""
    body = cluster.pods[key]
    metadata = {name: value for name, value in body["metadata"].items() if name != "annotations"}
    spec = {name: body["spec"][name] for name in ("containers", "priority")}
    spec["schedulingGates"] = [{"name": GATE}]
    cluster.pods[key] = {**body, "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


@pytest.mark.parametrize("gated", [("w2",), ("w0", "w1"), ("w0", "w2")])
def test_who_waits_takes_no_place_of_a_group_that_is_half_way_in(gated: tuple[str, ...]) -> None:
    cluster = cluster_with(
        node("n", len(MEMBERS)), namespace("a", **{NAMESPACE_LABEL: ENFORCED}), *(member(name) for name in MEMBERS)
    )
    assert {cluster.phases[f"a/{name}"] for name in MEMBERS} == {"Running"}
    apply(cluster, pod("a", "urgent", priority=1000, preemptionPolicy="Never"))
    assert cluster.phases["a/urgent"] == "Pending"
    for name in gated:
        as_it_was(cluster, f"a/{name}")
    controller = _rebuilt(cluster).controller
    controller.settle()
    urgent, *members = (controller.claim(f"a/{name}") for name in ("urgent", *MEMBERS))
    assert urgent is not None
    assert urgent.state == PENDING
    assert all(one is not None and one.state >= RESERVED for one in members)


async def lending(cluster: Stage) -> LeaderTerm:
    """Pods of a that run on what is lent to them, but for one GPU that is free; their budget lets none go."""
    cluster.node("n", 4)
    for name in ("a", "b"):
        cluster.namespace(name)
        cluster.quota(name, 4, 2)
    lent = [cluster.pod("a", f"p{number}", labels={"app": "x"}) for number in range(3)]
    term = await cluster.lead()
    await cluster.until(lambda: all(cluster.started(pod) for pod in lent))
    cluster.schedule()
    claims = term.mirror.engine.state.claims
    await cluster.until(lambda: all(claim.state == RUNNING for claim in claims.values()))
    cluster.budget("a", {"app": "x"})
    return term


def two(cluster: Stage) -> list[Body]:
    labels = {"bursar.dev/group": "g", "bursar.dev/group-size": "2"}
    return [cluster.pod("b", f"m{number}", labels=labels) for number in range(2)]


def evictions(cluster: Stage) -> int:
    return sum(seen.path.endswith("/eviction") for seen in cluster.fake.seen)


@pytest.mark.anyio
async def test_nobody_of_a_group_is_let_go_when_the_budget_of_a_victim_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eviction, "BLOCKED_FOR", 1_000)
    async with stage() as cluster:
        term = await lending(cluster)
        members = two(cluster)
        await cluster.until(lambda: evictions(cluster) > 0)
        await asyncio.sleep(0.5)
        assert all(cluster.gated(pod) for pod in members), "one of them would have room"
        cluster.fake.state.delete(DISRUPTION_BUDGETS, "a", "b")
        await cluster.until(lambda: all(cluster.started(pod) for pod in members))
        cluster.check_running()
        assert term.differences == 0


@pytest.mark.anyio
async def test_the_next_leader_lets_nobody_of_a_group_go_either_while_a_victim_has_not_left() -> None:
    async with stage() as cluster:
        await lending(cluster)
        cluster.fake.state.delete(DISRUPTION_BUDGETS, "a", "b")
        for pod in cluster.pods():
            cluster.change(pod, lambda body: body["metadata"].update(finalizers=["test.dev/slow"]))
        members = two(cluster)
        await cluster.until(lambda: any(pod["metadata"].get("deletionTimestamp") for pod in cluster.pods()))
        await cluster.depose()
        await cluster.lead()
        await asyncio.sleep(0.5)
        assert all(cluster.gated(pod) for pod in members)
        (victim,) = (pod for pod in cluster.pods() if pod["metadata"].get("deletionTimestamp"))
        cluster.change(victim, lambda body: body["metadata"].update(finalizers=[]))
        cluster.delete(victim)
        await cluster.until(lambda: all(cluster.started(pod) for pod in members))


def indexed(cluster: Stage, name: str, run: str = "1") -> Body:
    """A pod of an Indexed Job."""
    labels = {"bursar.dev/group": "g", "bursar.dev/group-size": "3"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": f"job-{run}", "controller": True}
    return cluster.pod("a", name, labels=labels, ownerReferences=[owner])


async def run_of_a_job(cluster: Stage) -> list[Body]:
    """Its pods, all of them on a node."""
    cluster.node("n", 4)
    cluster.namespace("a", {NAMESPACE_LABEL: ENFORCED})
    pods = [indexed(cluster, f"w{number}") for number in range(3)]
    await cluster.lead()
    await cluster.until(lambda: all(cluster.started(pod) for pod in pods))
    cluster.schedule()
    return pods


def end(cluster: Stage, pod: Body, phase: str) -> None:
    cluster.change(pod, lambda body: body["status"].update(phase=phase))


@pytest.mark.anyio
@pytest.mark.parametrize("takes_over", [False, True])
async def test_the_last_one_of_a_job_is_let_go_again_when_all_others_have_succeeded(takes_over: bool) -> None:
    async with stage() as cluster:
        pods = await run_of_a_job(cluster)
        for pod, phase in zip(pods, ("Succeeded", "Succeeded", "Failed"), strict=True):
            end(cluster, pod, phase)
        if takes_over:
            await cluster.depose()
        again = indexed(cluster, "w2-again")
        if takes_over:
            await cluster.lead()
        await cluster.until(lambda: cluster.started(again))


@pytest.mark.anyio
async def test_the_next_run_of_a_group_is_let_go_as_a_whole() -> None:
    """Pods of the last one that have succeeded are still there."""
    async with stage() as cluster:
        pods = await run_of_a_job(cluster)
        for pod in pods:
            end(cluster, pod, "Succeeded")
        nexts = [indexed(cluster, f"next{number}", run="2") for number in range(2)]
        await asyncio.sleep(0.5)
        assert all(cluster.gated(pod) for pod in nexts)
        nexts.append(indexed(cluster, "next2", run="2"))
        await cluster.until(lambda: all(cluster.started(pod) for pod in nexts))
