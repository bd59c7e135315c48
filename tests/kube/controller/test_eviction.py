"""Taking places back: budgets that refuse, and pods that find a node after all."""

from __future__ import annotations

import asyncio
import json

import pytest

from bursar.kube.client.api import DISRUPTION_BUDGETS
from bursar.kube.controller import eviction, pod_writer, work_queue
from bursar.kube.controller.leader_term import LeaderTerm, TermOptions
from bursar.kube.controller.patches import ADMISSION, AdmissionRecord, written
from bursar.ledger.claims import RUNNING
from tests.kube.controller.stage import Body, Stage, stage
from tests.kube.controller.test_place_recovery import CONFIGURATION, configure

UNPLACED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


pytestmark = pytest.mark.anyio


def let_go(cluster: Stage, name: str) -> Body:
    """A pod of a ReplicaSet that a predecessor let go and pinned, and that found no node."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
    pod = cluster.pod("a", name, gated=False, ownerReferences=[owner])

    def edit(body: Body) -> None:
        body["metadata"]["annotations"] = {ADMISSION: written(AdmissionRecord(1, 0, "n", pinned=True))}
        body["status"] = {"phase": "Pending", "conditions": [UNPLACED]}

    cluster.change(pod, edit)
    return pod


def evictions(cluster: Stage) -> int:
    return sum(seen.path.endswith("/eviction") for seen in cluster.fake.seen)


async def test_a_pod_without_a_place_is_taken_back_and_that_is_said_once() -> None:
    async with stage() as cluster:
        cluster.node("n", 4)
        cluster.namespace("a")
        pod = let_go(cluster, "p")
        cluster.fake.fail("POST .*/eviction", code=503, retry_after=3, times=3)
        await cluster.lead(TermOptions(pin_patience=1))
        await asyncio.sleep(3.5)
        told = [told for told in cluster.told if told.reason == "control.place-lost"]
        assert len(told) == 1
        await cluster.until(lambda: cluster.find("a", pod["metadata"]["name"]) is None)


@pytest.mark.parametrize(
    ("answer", "counted"),
    [({}, 1), ({"code": 404}, 0), ({"code": 409}, 0)],
    ids=["accepted", "gone", "another pod has its name"],
)
async def test_only_evictions_that_the_server_accepted_are_counted(answer: dict[str, int], counted: int) -> None:
    async with stage() as cluster:
        cluster.node("n", 4)
        cluster.namespace("a")
        let_go(cluster, "p")
        if answer:
            cluster.fake.fail("POST .*/eviction", **answer)
        term = await cluster.lead(TermOptions(pin_patience=1))
        await cluster.until(lambda: evictions(cluster) == 1)
        await asyncio.sleep(0.1)
        assert term.evictor.evicted == counted


async def test_a_pod_that_finds_a_node_after_all_stays() -> None:
    async with stage() as cluster:
        cluster.node("n", 4)
        cluster.namespace("a")
        pod = let_go(cluster, "p")
        cluster.fake.fail("POST .*/eviction", code=503, times=1000)
        await cluster.lead(TermOptions(pin_patience=1))
        await cluster.until(lambda: evictions(cluster) > 0)
        cluster.bind(pod, "n")
        await asyncio.sleep(1.0)
        cluster.fake.faults.clear()
        await asyncio.sleep(1.0)
        assert cluster.find("a", "p") is not None


async def test_who_must_leave_for_its_quotas_sake_too_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its claimants look elsewhere when its budget refuses; it has to go all the same."""
    monkeypatch.setattr(eviction, "_REVOKED_PAUSE", 0.2)
    async with stage() as cluster:
        cluster.node("n", 4)
        for name in ("a", "b"):
            cluster.namespace(name)
            cluster.quota(name, 4, 2)
        for number in range(4):
            cluster.pod("a", f"p{number}", labels={"app": "x"})
        term = await cluster.lead()
        await cluster.until(lambda: all(cluster.started(pod) for pod in cluster.pods()))
        cluster.schedule()
        claims = term.mirror.engine.state.claims
        await cluster.until(lambda: all(claim.state == RUNNING for claim in claims.values()))
        cluster.budget("a", {"app": "x"})
        cluster.fake.fail("PATCH .*/pods/owner", hang=0.5)
        cluster.pod("b", "owner")
        await cluster.until(lambda: cluster.patched("owner"))
        (victim,) = (claim for claim in claims.values() if claim.leaving)
        engine = term.mirror.engine
        engine._begin(0).put("engine", "revoked", victim.uid, "elastic.over")
        engine._commit(("tick",))
        await cluster.until(lambda: evictions(cluster) > 1)
        cluster.fake.state.delete(DISRUPTION_BUDGETS, "a", "b")
        await cluster.until(lambda: cluster.find("a", victim.name) is None)


async def test_a_pod_that_the_server_does_not_let_go_and_that_is_still_there_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not every conflict means that another pod has its name."""
    monkeypatch.setattr(eviction, "_UNSEEN_PAUSE", 0.1)
    async with stage() as cluster:
        cluster.node("n", 4)
        cluster.namespace("a")
        let_go(cluster, "p")
        cluster.fake.fail("POST .*/eviction", code=409)
        await cluster.lead(TermOptions(pin_patience=1))
        await cluster.until(lambda: cluster.find("a", "p") is None)


async def lending(cluster: Stage) -> LeaderTerm:
    """Pods of a that run on what b lent."""
    cluster.node("n", 4)
    for name in ("a", "b"):
        cluster.namespace(name)
        cluster.quota(name, 4, 2)
    lent = [cluster.pod("a", f"p{number}") for number in range(4)]
    term = await cluster.lead()
    await cluster.until(lambda: all(cluster.started(pod) for pod in lent))
    cluster.schedule()
    claims = term.mirror.engine.state.claims
    await cluster.until(lambda: all(claim.state == RUNNING for claim in claims.values()))
    return term


@pytest.mark.parametrize(
    ("what", "code"),
    [("POST .*/eviction", 403), ("POST .*/eviction", 429), ("POST .*/eviction", 400), ("PATCH .*/pods/owner", 403)],
)
async def test_who_is_not_let_go_for_long_by_anybody_is_nobodys_victim(
    monkeypatch: pytest.MonkeyPatch, what: str, code: int
) -> None:
    """Webhooks of others refuse what they like, and for as long; whoever waits for it must not wait for ever."""
    monkeypatch.setattr(pod_writer, "REFUSAL_PATIENCE", 500)
    monkeypatch.setattr(work_queue, "_REFUSED_PAUSE", 0.1)
    async with stage() as cluster:
        term = await lending(cluster)
        cluster.fake.fail(what, code=code, times=10_000)
        owner = cluster.pod("b", "owner")
        claims = term.mirror.engine.state.claims
        await cluster.until(lambda: any(claim.leaving for claim in claims.values()))
        (victim,) = (claim for claim in claims.values() if claim.leaving)
        await cluster.until(lambda: not victim.leaving)
        assert term.mirror.engine.state.cell("spared", victim.uid) is not None
        cluster.fake.faults.clear()
        await cluster.until(lambda: cluster.started(owner))
        assert cluster.find("a", victim.name) is not None, "another one left"


async def test_nobody_leaves_for_a_pod_that_is_gone() -> None:
    async with stage() as cluster:
        term = await lending(cluster)
        cluster.fake.fail("PATCH .*/pods/owner", hang=0.5)
        owner = cluster.pod("b", "owner")
        await cluster.until(lambda: cluster.patched("owner"))
        cluster.fake.mute_watches()
        cluster.delete(owner)
        await asyncio.sleep(1.0)
        assert evictions(cluster) == 0
        cluster.fake.cut_watches()
        claims = term.mirror.engine.state.claims
        await cluster.until(lambda: len(claims) == 4)
        await cluster.until(lambda: not len(term.evictor.queue))
        assert evictions(cluster) == 0
        assert not any(claim.leaving for claim in claims.values())


def asked(cluster: Stage) -> list[tuple[str, object]]:
    """How the server was asked to end pods: the method, and the grace period."""
    found: list[tuple[str, object]] = []
    for seen in cluster.fake.seen:
        if seen.path.endswith("/eviction"):
            found.append((seen.method, json.loads(seen.body)["deleteOptions"].get("gracePeriodSeconds")))
        elif seen.method == "DELETE" and "/pods/" in seen.path:
            options = json.loads(seen.body)
            assert options["preconditions"]["uid"]
            found.append((seen.method, options.get("gracePeriodSeconds")))
    return found


def protect(cluster: Stage) -> None:
    """A budget that lets no pod of namespace a go."""
    spec = {"selector": {}, "maxUnavailable": 0}
    body = {"metadata": {"name": "b"}, "spec": spec, "status": {"disruptionsAllowed": 0}}
    cluster.fake.state.create(DISRUPTION_BUDGETS, "a", body)


@pytest.mark.parametrize(("wanted", "sent"), [(None, None), (10, None), (60, None), (61, 60), (10**9, 60)])
async def test_the_grace_period_of_evicted_pods_is_bounded(wanted: int | None, sent: int | None) -> None:
    async with stage(more=(CONFIGURATION,)) as cluster:
        cluster.node("n", 4)
        cluster.namespace("a")
        configure(cluster, maxGracePeriod="1m")
        pod = let_go(cluster, "p")
        cluster.change(pod, lambda body: body["spec"].update(terminationGracePeriodSeconds=wanted))
        await cluster.lead(TermOptions(pin_patience=1))
        await cluster.until(lambda: asked(cluster))
        assert asked(cluster) == [("POST", sent)]


async def test_borrowers_are_deleted_where_budgets_are_ignored_for_them() -> None:
    """Those within min are evicted, as their budget allows."""
    async with stage(more=(CONFIGURATION,)) as cluster:
        configure(cluster, budgets="ignore-for-over-quota", maxGracePeriod="7s")
        await lending(cluster)
        protect(cluster)
        owner = cluster.pod("b", "owner", 2)
        await cluster.until(lambda: len(asked(cluster)) == 2)
        assert asked(cluster) == [("DELETE", 7), ("DELETE", 7)]
        await cluster.until(lambda: cluster.started(owner))


async def test_a_budget_is_named_where_it_keeps_a_pod_waiting() -> None:
    async with stage() as cluster:
        term = await lending(cluster)
        protect(cluster)
        owner = cluster.pod("b", "owner", 2)
        await cluster.until(lambda: any("disruption budget a/b" in told.message for told in cluster.told))
        claim = term.mirror.engine.state.claims[owner["metadata"]["uid"]]
        assert "disruption budget a/b" in "\n".join(term.mirror.engine.explain(claim.uid).lines())
