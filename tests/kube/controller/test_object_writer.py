"""What is written on objects: that a change is not in force, since when conditions are as they are, and all of it once
more on an object that takes the place of another.
"""

from __future__ import annotations

import asyncio
import copy
from typing import Any, cast

import msgspec
import pytest

from bursar.control.admission import known_kinds
from bursar.kube.client.api import Api, Resource
from bursar.kube.controller.object_cache import ObjectCache, _transitions
from bursar.kube.controller.object_writer import ObjectWriter
from bursar.kube.controller.work_queue import ObjectKey
from bursar.policies.namespace.api import QUOTA_KIND
from bursar.policies.plugin import default_registry
from bursar.policies.pools.api import PROFILE as PROFILE_KIND
from bursar.policies.pools.api import QUOTA as POOL_KIND
from bursar.policies.pools.parse import tree_id
from bursar.policies.pools.settings import PREFIX
from bursar.policies.results import Output
from tests.kube.controller.stage import Stage, stage
from tests.kube.controller.test_invalid_objects import branch
from tests.kube.waiting import eventually

Body = dict[str, Any]

GPU_QUOTA = Resource.of(QUOTA_KIND)
ONE_WORKER: dict[str, object] = {"metadata": {"name": "quota"}, "spec": {"total": {"maxWorkers": 1}}}
POOL_QUOTA = Resource.of(POOL_KIND)
PROFILE = Resource.of(PROFILE_KIND)
ROOT = (POOL_QUOTA, "kube-system", "root")
DEFAULT = (POOL_QUOTA, "koordinator-system", "koordinator-default-quota")
RUNTIME = "quota.scheduling.koordinator.sh/runtime"
LONG_AGO = "2001-02-03T04:05:06Z"
pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("QuotaTree.bursar.dev", True),
        ("ElasticQuota.n8s.nebuly.ai", True),
        ("Node", False),
        ("PodDisruptionBudget", False),
        ("GPUPool.tensor-fusion.ai", False),
    ],
)
async def test_conditions_that_are_not_bursars_to_write_are_left_alone(kind: str, told: bool) -> None:
    cache = ObjectCache(known_kinds(default_registry()))
    writer = ObjectWriter(cast("Api", None), cache, lambda *_: None)
    writer.invalid((kind, "a/one"), "is wrong")
    assert bool(len(writer.queue)) == told
    await writer.queue.close()


def since(cluster: Stage, resource: Resource = GPU_QUOTA) -> dict[str, tuple[str, str]]:
    """The conditions of the quota, and since when they are so."""
    status = cluster.fake.state.objects[resource, "a", "quota"].get("status", {})
    rows = [one for one in status.get("conditions") or () if isinstance(one, dict)]
    return {one["type"]: (one["status"], one.get("lastTransitionTime", "")) for one in rows}


def writes(cluster: Stage) -> int:
    """How often a status was written."""
    return sum(seen.method == "PATCH" and seen.path.endswith("/quota/status") for seen in cluster.fake.seen)


def quota(cluster: Stage, resource: Resource, body: dict[str, object], **status: object) -> None:
    cluster.fake.serve(resource)
    cluster.namespace("a")
    cluster.fake.state.create(resource, "a", {**body, "status": status})


async def test_a_new_leader_leaves_conditions_the_times_since_when_they_are_so() -> None:
    async with stage() as cluster:
        quota(cluster, GPU_QUOTA, ONE_WORKER)
        await cluster.lead()
        await cluster.until(lambda: since(cluster))
        written = since(cluster)
        await cluster.depose()
        await asyncio.sleep(1.1)  # times are whole seconds
        await cluster.lead()
        await cluster.until(lambda: writes(cluster) > 1)
        await asyncio.sleep(0.1)  # it came in, and is carried out
        assert since(cluster) == written


async def test_a_condition_that_is_not_as_the_predecessor_left_it_changes_now() -> None:
    old = [
        {"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO},
        {"type": "Exceeded", "status": "True", "lastTransitionTime": LONG_AGO},
        {"type": "Invalid", "status": "False"},
    ]
    async with stage() as cluster:
        quota(cluster, GPU_QUOTA, ONE_WORKER, conditions=old)
        await cluster.lead()
        await cluster.until(lambda: "AlertThresholdReached" in since(cluster))
        found = since(cluster)
        assert found["Ready"] == ("True", LONG_AGO)
        assert found["Exceeded"][0] == "False"
        assert min(found[name][1] for name in ("Exceeded", "AlertThresholdReached", "Invalid")) > LONG_AGO


@pytest.mark.parametrize("before", [{}, {"conditions": None}, {"conditions": ["strange"]}])
async def test_that_a_change_is_not_in_force_is_told_with_the_time_since_when(before: dict[str, object]) -> None:
    async with stage() as cluster:
        quota(cluster, POOL_QUOTA, branch("quota", "nobody"), **before)
        await cluster.lead()
        await cluster.until(lambda: since(cluster, POOL_QUOTA))
        written = since(cluster, POOL_QUOTA)
        assert written["Invalid"] > ("True", LONG_AGO)
        await cluster.depose()
        await asyncio.sleep(1.1)
        await cluster.lead()
        await cluster.until(lambda: writes(cluster) > 1)
        await asyncio.sleep(0.1)  # it came in, and is carried out
        assert since(cluster, POOL_QUOTA) == written


@pytest.mark.parametrize(
    "row", [{"type": ["a"], "status": "True"}, {"type": "A", "status": {}}, {"type": "A"}, "A", None]
)
def test_a_condition_of_another_form_has_no_time(row: object) -> None:
    timed = {**row, "lastTransitionTime": LONG_AGO} if isinstance(row, dict) else row
    good = {"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO}
    assert _transitions({"conditions": [timed, good]}) == {("Ready", "True"): LONG_AGO}


# What is written comes back

QUOTA = (POOL_KIND.name, "a/quota")


def annotated(**marks: str) -> dict[ObjectKey, dict[str, Output]]:
    return {QUOTA: {"annotations": Output(*QUOTA, "annotations", dict(marks))}}


def world_with(cluster: Stage) -> ObjectCache:
    """Of one quota."""
    cluster.fake.serve(POOL_QUOTA)
    body = cluster.fake.state.create(POOL_QUOTA, "a", branch("quota"))
    cache = ObjectCache(known_kinds(default_registry()))
    cache.keep(*cache.read(POOL_KIND, msgspec.json.encode(body)))
    return cache


def now_in(cluster: Stage) -> Body:
    return cluster.fake.state.objects[POOL_QUOTA, "a", "quota"]


async def test_what_was_sent_is_no_wish_of_anybody_although_something_else_is_wanted_by_now() -> None:
    """Numbers change with every pod, and are written once a second."""
    async with stage() as cluster:
        cache = world_with(cluster)
        before = cache.find(*QUOTA)
        assert before is not None
        writer = ObjectWriter(cluster.api, cache, lambda *_: None)
        writer.write(annotated(runtime="1"))
        await writer.queue.idle()
        writer.write(annotated(runtime="2"))
        assert now_in(cluster)["metadata"]["annotations"] == {"runtime": "1"}
        seen, _ = cache.read(POOL_KIND, msgspec.json.encode(now_in(cluster)))
        assert seen.typed == before.given.typed
        await writer.queue.close()


async def test_marks_that_could_not_be_written_are_written_with_those_that_came_meanwhile() -> None:
    async with stage() as cluster:
        writer = ObjectWriter(cluster.api, world_with(cluster), lambda *_: None)
        cluster.fake.fail("PATCH .*/quota", code=409, hang=0.2)
        writer.write(annotated(first="1", both="1"))
        await eventually(lambda: any(seen.method == "PATCH" for seen in cluster.fake.seen))
        writer.write(annotated(second="2", both="2"))
        await writer.queue.idle()
        assert now_in(cluster)["metadata"]["annotations"] == {"first": "1", "second": "2", "both": "2"}


# Objects come and go


def status_of(cluster: Stage, resource: Resource, namespace: str, name: str) -> Body | None:
    found = cluster.fake.state.objects.get((resource, namespace, name))
    return None if found is None else found.get("status")


async def test_a_quota_that_is_replaced_between_two_looks_gets_its_status() -> None:
    async with stage() as cluster:
        quota(cluster, GPU_QUOTA, ONE_WORKER)
        await cluster.lead()
        await cluster.until(lambda: status_of(cluster, GPU_QUOTA, "a", "quota"))
        cluster.fake.state.delete(GPU_QUOTA, "a", "quota")
        cluster.fake.state.create(GPU_QUOTA, "a", ONE_WORKER)
        await cluster.until(lambda: status_of(cluster, GPU_QUOTA, "a", "quota"))


async def test_of_a_quota_that_is_gone_nothing_is_remembered() -> None:
    async with stage() as cluster:
        quota(cluster, GPU_QUOTA, ONE_WORKER)
        writer = (await cluster.lead()).statuses
        await cluster.until(lambda: status_of(cluster, GPU_QUOTA, "a", "quota"))
        cluster.fake.state.delete(GPU_QUOTA, "a", "quota")
        await cluster.until(lambda: not (writer._last or writer._wanted or writer._missing))


def profile(cluster: Stage, **labels: str) -> None:
    """A pool of one node, which it shares; its root quota is where the webhook does not look."""
    for resource in (POOL_QUOTA, PROFILE):
        cluster.fake.serve(resource)
    cluster.node("n", 8)
    cluster.namespace("kube-system")
    spec: Body = {"quotaName": "root", "nodeSelector": {}, "quotaLabels": labels}
    metadata = {"name": "all", "annotations": {"quota.bursar.dev/exclusive": "false"}}
    cluster.fake.state.create(PROFILE, "kube-system", {"metadata": metadata, "spec": spec})


async def test_a_root_quota_that_somebody_deletes_is_made_anew() -> None:
    async with stage() as cluster:
        profile(cluster)
        await cluster.lead()
        await cluster.until(lambda: status_of(cluster, *ROOT))
        cluster.fake.state.delete(*ROOT)
        await cluster.until(lambda: status_of(cluster, *ROOT))
        made = cluster.fake.state.objects[ROOT]
        assert made["spec"]["min"]["cpu"] == "64"
        assert RUNTIME in made["metadata"]["annotations"]


async def test_a_root_quota_that_somebody_changes_is_put_right() -> None:
    """Else a child could be promised more than the nodes have: that is held against what the root says."""
    async with stage() as cluster:
        profile(cluster)
        await cluster.lead()
        await cluster.until(lambda: status_of(cluster, *ROOT))
        body = copy.deepcopy(cluster.fake.state.objects[ROOT])
        body["spec"]["min"]["cpu"] = "1000"
        cluster.fake.state.replace(*ROOT, body, status=False)
        await cluster.until(lambda: cluster.fake.state.objects[ROOT]["spec"]["min"]["cpu"] == "64")
        await cluster.until(lambda: repairs(cluster))
        assert repairs(cluster) == ["put right: Bursar writes spec.min.cpu"]
        writes = cluster.fake.state.version
        await asyncio.sleep(1.5)
        assert cluster.fake.state.version == writes, "nobody writes on and on"


def repairs(cluster: Stage) -> list[str]:
    return [notice.message for notice in cluster.told if notice.reason == "Repaired"]


async def test_a_root_quota_that_follows_its_nodes_is_no_repair() -> None:
    async with stage() as cluster:
        profile(cluster)
        await cluster.lead()
        await cluster.until(lambda: status_of(cluster, *ROOT))
        for number in range(2, 6):
            cluster.node(f"n{number}", 8)
            await asyncio.sleep(0.6)
        await cluster.until(lambda: cluster.fake.state.objects[ROOT]["spec"]["min"]["cpu"] == "320")
        await cluster.depose()
        cluster.node("n6", 8)
        await cluster.lead()
        await cluster.until(lambda: cluster.fake.state.objects[ROOT]["spec"]["min"]["cpu"] == "384")
        assert repairs(cluster) == []


async def test_quotas_below_a_quota_that_becomes_a_root_get_its_tree() -> None:
    async with stage() as cluster:
        cluster.fake.serve(POOL_QUOTA)
        for name, parent in (("root", ""), ("mid", "root"), ("leaf", "mid")):
            labels = {PREFIX + "is-parent": "true", **({PREFIX + "parent": parent} if parent else {})}
            body = {"metadata": {"name": name, "labels": labels}, "spec": {"max": {"cpu": "8", "memory": "8"}}}
            cluster.fake.state.create(POOL_QUOTA, "kube-system", body)
        await cluster.lead()
        profile(cluster, **{PREFIX + "is-parent": "true"})
        tree = tree_id("kube-system", "all")
        await cluster.until(lambda: [tree_of(cluster, name) for name in ("root", "mid", "leaf")] == [tree] * 3)
        await cluster.until(lambda: ready(cluster, "leaf") == ready(cluster, "root") == "WithinRuntime")
        await asyncio.sleep(1.5)
        writes = cluster.fake.state.version
        await asyncio.sleep(1.5)
        assert cluster.fake.state.version == writes
        assert repairs(cluster) == []


def tree_of(cluster: Stage, name: str) -> str | None:
    labels = cluster.fake.state.objects[POOL_QUOTA, "kube-system", name]["metadata"]["labels"]
    found: str | None = labels.get(PREFIX + "tree-id")
    return found


def ready(cluster: Stage, name: str) -> str:
    status = cluster.fake.state.objects[POOL_QUOTA, "kube-system", name].get("status") or {}
    return " ".join(one["reason"] for one in status.get("conditions") or () if one["type"] == "Ready")


async def test_a_root_quota_goes_with_its_profile_and_stays_away() -> None:
    async with stage() as cluster:
        profile(cluster)
        await cluster.lead()
        await cluster.until(lambda: status_of(cluster, *ROOT))
        cluster.fake.state.delete(PROFILE, "kube-system", "all")
        await cluster.until(lambda: ROOT not in cluster.fake.state.objects)
        await asyncio.sleep(1.2)
        assert ROOT not in cluster.fake.state.objects


async def test_on_a_built_in_quota_without_an_object_nothing_is_written_until_there_is_one() -> None:
    async with stage() as cluster:
        profile(cluster)
        cluster.namespace("a", {"bursar.dev/quota": "enforced"})
        await cluster.lead()
        pod = cluster.pod("a", "p")
        await cluster.until(lambda: cluster.started(pod))
        await cluster.until(lambda: status_of(cluster, *ROOT))
        await asyncio.sleep(1.2)
        assert [seen.path for seen in cluster.fake.seen if DEFAULT[2] in seen.path] == []
        cluster.fake.state.create(DEFAULT[0], DEFAULT[1], {"metadata": {"name": DEFAULT[2]}, "spec": {}})
        await cluster.until(lambda: status_of(cluster, *DEFAULT))
