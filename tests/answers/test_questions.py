"""Questions about a followed cluster: the answers are those of the leader, and what is hidden stays hidden."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bursar.answers.redaction import HIDDEN
from bursar.kube.client.api import PODS
from bursar.server.operations import Operations
from bursar.server.problems import RefusedError
from tests.answers.scene import MEMBER, Body, Scene, scene
from tests.kube.controller.stage import GPU, Stage

pytestmark = pytest.mark.anyio


def manifest(namespace: str, name: str, gpus: int, **spec: Any) -> Body:  # noqa: ANN401
    resources = {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
    containers = [{"name": "c", "image": "i", "resources": resources}]
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}


def _scheduled(stage: Stage) -> bool:
    stage.schedule()
    return True


async def _lent(on: Scene, *finalizers: str) -> Stage:
    """Team b runs three pods, two of them on what team a lends; one pod of each team waits."""
    stage = on.stage
    stage.node("n", 4)
    for team, least in (("a", 3), ("b", 1)):
        stage.namespace(team)
        stage.quota(team, 4, least)
    for name in ("b1", "b2", "b3"):
        stage.pod("b", name, finalizers=list(finalizers))
    await stage.lead()
    await stage.until(lambda: _scheduled(stage) and not any(map(stage.gated, stage.pods())))
    stage.pod("b", "b4", 2)
    await stage.until(lambda: any(told.key == "b/b4" for told in stage.told))
    await on.same()
    return stage


async def test_a_member_is_told_why_the_own_pod_waits_and_nothing_about_pods_of_others() -> None:
    async with scene("b") as on:
        await _lent(on)
        found = await on.ask(Operations.explain, user=MEMBER, namespace="b", name="b4")
        assert found["claim"]["state"] == "pending"
        assert found["claim"]["reason"].startswith("elastic.")
        assert GPU in found["text"]
        with pytest.raises(RefusedError, match="may not get pods in the namespace a") as caught:
            await on.ask(Operations.explain, user=MEMBER, namespace="a", name="a1")
        assert caught.value.status == 403


async def test_whether_a_pod_exists_in_a_hidden_namespace_is_not_told() -> None:
    async with scene("b") as on:
        await _lent(on)
        said = set()
        for name in ("b1", "none"):
            on.questions._reviews.seen = ()  # type: ignore[attr-defined]
            with pytest.raises(RefusedError) as caught:
                await on.ask(Operations.explain, user=MEMBER, namespace="b", name=name)
            said.add(str(caught.value))
        assert len(said) == 1


async def test_what_if_names_the_victims_only_to_those_who_may_see_them() -> None:
    async with scene("a") as on:
        await _lent(on)
        pod = manifest("a", "new", 3)
        everything = await on.ask(Operations.what_if, pod)
        (row,) = everything["pods"]
        assert row["verdict"] == "after-evictions"
        assert row["victims"]
        assert all(victim.startswith("b/") for victim in row["victims"])
        mine = await on.ask(Operations.what_if, pod, user=MEMBER)
        assert mine["pods"][0]["verdict"] == "after-evictions"
        assert mine["pods"][0]["victims"] == [f"{len(row['victims'])} pods of other namespaces"]
        assert "b/b" not in json.dumps(mine)


async def test_what_if_about_pods_in_a_hidden_namespace_is_refused() -> None:
    async with scene("b") as on:
        await _lent(on)
        with pytest.raises(RefusedError, match="may not get pods in the namespace a"):
            await on.ask(Operations.what_if, manifest("a", "new", 1), user=MEMBER)


@pytest.mark.parametrize("deleted", ["Pod/a/b1", "ElasticQuota/a/quota"])
async def test_a_plan_to_delete_what_is_hidden_is_refused_whether_it_is_there_or_not(deleted: str) -> None:
    async with scene("b") as on:
        await _lent(on)
        with pytest.raises(RefusedError, match="may not get pods in the namespace a"):
            await on.ask(Operations.plan, user=MEMBER, delete=[deleted])


async def test_manifests_without_a_namespace_are_of_the_one_named_default() -> None:
    async with scene("b") as on:
        await _lent(on)
        pod = manifest("b", "new", 1)
        del pod["metadata"]["namespace"]
        with pytest.raises(RefusedError, match="may not get pods in the namespace default"):
            await on.ask(Operations.what_if, pod, user=MEMBER)
        assert (await on.ask(Operations.plan, user=MEMBER, delete=["Node/n"]))["stranded"]


async def test_lists_leave_out_pods_of_others_and_show_their_quotas_as_numbers() -> None:
    async with scene("a") as on:
        await _lent(on)
        assert [row["name"] for row in (await on.ask(Operations.queue))["items"]] == ["b4"]
        assert (await on.ask(Operations.queue, user=MEMBER))["items"] == []
        assert len((await on.ask(Operations.claims))["items"]) == 4
        assert (await on.ask(Operations.claims, user=MEMBER))["items"] == []
        rows = {row["namespace"]: row for row in (await on.ask(Operations.quotas, user=MEMBER))["items"]}
        assert rows["b"]["resources"][GPU]["used"] == "3"
        assert rows["b"]["resources"][GPU]["borrowed"] == "2"


async def test_a_quota_of_others_is_explained_without_the_names_of_their_pods() -> None:
    async with scene("a") as on:
        await _lent(on)
        (item,) = (await on.ask(Operations.explain_quota, kind="quota", key="b/quota"))["items"]
        assert item["waiting"] == ["b/b4"]
        (item,) = (await on.ask(Operations.explain_quota, user=MEMBER, kind="quota", key="b/quota"))["items"]
        assert item["counts"] == 3
        assert item["waiting"] == [HIDDEN]
        assert "b/b4" not in json.dumps(item)
        assert "b/quota" in item["text"]


async def test_a_plan_says_whom_a_smaller_quota_evicts_and_leaves_the_ledger_as_it_was() -> None:
    async with scene("b") as on:
        stage = await _lent(on)
        before = on.follower.mirror.engine.digest, on.follower.mirror.engine.version
        spec = {"min": {GPU: "1"}, "max": {GPU: "6"}}
        kind = {"apiVersion": "n8s.nebuly.ai/v1alpha1", "kind": "ElasticQuota"}
        raised = {**kind, "metadata": {"name": "quota", "namespace": "b"}, "spec": spec}
        found = await on.ask(Operations.plan, raised)
        assert found["evicted"] == []
        gone = await on.ask(Operations.plan, delete=["Node/n"])
        assert {row["pod"] for row in gone["stranded"]} == {"b/b1", "b/b2", "b/b3"}
        stage.check_running()
        assert (on.follower.mirror.engine.digest, on.follower.mirror.engine.version) == before


async def test_fixes_are_searched_and_name_what_would_help() -> None:
    async with scene("b") as on:
        await _lent(on)
        found = await on.ask(Operations.explain, namespace="b", name="b4", fixes=True)
        assert found["fixes"], found["text"]


async def test_a_hold_of_the_leader_is_a_hold_here_and_a_started_pod_is_started() -> None:
    async with scene("a", "b") as on:
        stage = await _lent(on, "example.com/stays")
        wants = stage.pod("a", "a1", 3)
        await stage.until(lambda: any(pod["metadata"].get("deletionTimestamp") for pod in stage.pods()))
        await on.same()
        found = await on.ask(Operations.explain, namespace="a", name="a1")
        assert found["claim"]["state"] == "held"
        assert found["claim"]["waitsFor"]
        for pod in stage.pods():
            if pod["metadata"].get("deletionTimestamp"):
                stage.fake.state._drop((PODS, "b", pod["metadata"]["name"]), pod)
        await stage.until(lambda: _scheduled(stage) and stage.started(wants))
        await on.same()
        found = await on.ask(Operations.claim, namespace="a", name="a1")
        assert found["node"] == "n"
