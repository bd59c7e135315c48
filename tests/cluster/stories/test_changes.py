"""Quotas and nodes change under pods that wait, run or were let go."""

import json

import pytest

from tests.cluster.controlplane import ApiError
from tests.cluster.stories.controller_process import Running
from tests.cluster.stories.story import Manifest, Story
from tests.cluster.stories.test_elastic import CAPACITY, KIND, quota
from tests.cluster.stories.test_namespace import GPU_IDS, HALF, worker

GPU = "nvidia.com/gpu"


def test_a_quota_that_is_raised_lets_waiting_pods_start(story: Story) -> None:
    team = story.namespace()
    story.nodes(1, {GPU: "8"})
    story.apply(quota(team, {GPU: 1}, {GPU: 1}))
    story.governed(team)
    story.submit(team, story.pod("a", {GPU: "1"}))
    story.running(team, "a")
    story.submit(team, story.pod("b", {GPU: "1"}), story.pod("c", {GPU: "1"}))
    story.waits(team, "b", "elastic.max.nvidia.com/gpu")
    story.waits(team, "c", "elastic.max.nvidia.com/gpu")
    story.apply(quota(team, {GPU: 2}, {GPU: 2}))
    story.wait(lambda: bool(story.node_of(team, "b")) != bool(story.node_of(team, "c")), "one of the two starts")
    story.apply(quota(team, {GPU: 3}, {GPU: 3}))
    story.running(team, "b", "c")


def test_a_quota_that_is_replaced_says_how_it_fares(story: Story) -> None:
    """Deleted and made anew at once: to the controller it may be the same one."""
    team = story.namespace()
    given = quota(team, {GPU: 1}, {GPU: 1})
    story.apply(given)
    for _ in range(3):
        story.status(KIND, "quota", team, {"used": {GPU: "0"}})
        story.plane.kubectl("replace", "--force", "-f", "-", input=json.dumps(given))
    story.status(KIND, "quota", team, {"used": {GPU: "0"}})


def test_a_pod_that_ends_lets_a_waiting_one_start(story: Story) -> None:
    team = story.namespace()
    story.nodes(1, {GPU: "8"})
    story.apply(quota(team, {GPU: 1}, {GPU: 1}))
    story.governed(team)
    story.submit(team, story.pod("short", {GPU: "1"}))
    story.running(team, "short")
    story.submit(team, story.pod("next", {GPU: "1"}))
    story.waits(team, "next", "elastic.max.nvidia.com/gpu")
    story.ends(team, "short", "Succeeded")
    story.running(team, "next")


def test_a_pod_that_shrinks_lets_a_waiting_one_start_and_cannot_grow_again(story: Story) -> None:
    team = story.namespace()
    story.nodes(1)
    story.apply(quota(team, {"cpu": 3}, {"cpu": 3}))
    story.governed(team)
    story.submit(team, story.pod("large", {"cpu": "2"}))
    story.running(team, "large")
    story.submit(team, story.pod("next", {"cpu": "2"}))
    story.waits(team, "next", "elastic.max.cpu", "2 of its max of 3 in use")
    assert resized(story, team, "large", "1") == ""
    story.running(team, "next")
    story.status(KIND, "quota", team, {"used": {"cpu": "3"}})
    assert "cannot grow in place" in resized(story, team, "large", "2")


def resized(story: Story, namespace: str, name: str, cpu: str) -> str:
    """Resize the pod; what the API server has against it. Kubelets that can do it say what a container has."""
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    api = story.plane.api()
    (main,) = api.get(path)["spec"]["containers"]
    (status,) = api.get(path)["status"]["containerStatuses"]
    api.patch(f"{path}/status", {"status": {"containerStatuses": [{**status, "resources": main["resources"]}]}})
    room = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    body = {"spec": {"containers": [{"name": "main", "resources": room}]}}
    try:
        api.request("PATCH", f"{path}/resize", body, "application/strategic-merge-patch+json")
    except ApiError as error:
        return error.message
    return ""


def test_a_quota_that_is_lowered_below_its_usage_evicts_nobody(story: Story) -> None:
    team = story.namespace()
    story.nodes(1, {GPU: "8"})
    story.apply(quota(team, {GPU: 2}, {GPU: 2}))
    story.governed(team)
    story.submit(team, story.pod("a", {GPU: "1"}), story.pod("b", {GPU: "1"}))
    before = story.running(team, "a", "b")
    story.apply(quota(team, {GPU: 1}, {GPU: 1}))
    story.wait(lambda: exceeded(story, team) == ["True"], "its condition says so")
    story.submit(team, story.pod("c", {GPU: "1"}))
    story.waits(team, "c", "elastic.max.nvidia.com/gpu", "2 of its max of 1 in use")
    assert [pod["metadata"]["uid"] for pod in story.running(team, "a", "b")] == [
        pod["metadata"]["uid"] for pod in before
    ]
    story.delete("pod", "a", team)
    story.wait(lambda: exceeded(story, team) == ["False"], "it is not exceeded any more")
    assert story.is_gated(team, "c"), "one of one is in use"


def exceeded(story: Story, namespace: str) -> list[str]:
    conditions = story.get(KIND, "quota", namespace).get("status", {}).get("conditions", [])
    return [one["status"] for one in conditions if one["type"] == "Exceeded"]


def test_a_quota_is_deleted_and_made_again(story: Story) -> None:
    """Without it nothing of it limits or governs; with it everything that runs counts, whoever let it run."""
    team = story.namespace()
    story.nodes(1, {GPU: "8"})
    story.apply(quota(team, {GPU: 1}, {GPU: 1}))
    story.governed(team)
    story.submit(team, story.pod("a", {GPU: "1"}))
    story.running(team, "a")
    story.submit(team, story.pod("b", {GPU: "1"}))
    story.waits(team, "b", "elastic.max.nvidia.com/gpu")
    story.delete(KIND, "quota", team)
    story.running(team, "b")
    story.wait(lambda: not story.governs(team), "the namespace is free")
    story.wait(lambda: CAPACITY not in story.seen(team, "a")["metadata"].get("labels", {}), "the label is taken away")
    story.submit(team, story.pod("c", {GPU: "1"}))
    story.running(team, "c")
    story.apply(quota(team, {GPU: 1}, {GPU: 1}))
    story.governed(team)
    story.status(KIND, "quota", team, {"used": {GPU: "3"}})
    story.submit(team, story.pod("d", {GPU: "1"}))
    story.waits(team, "d", "elastic.max.nvidia.com/gpu", "3 of its max of 1 in use")
    story.running(team, "a", "b", "c")


def test_a_quota_that_is_made_again_at_once_is_in_force(story: Story) -> None:
    team = story.namespace()
    story.nodes(1, {GPU: "8"})
    story.apply(quota(team, {GPU: 2}, {GPU: 2}))
    story.governed(team)
    story.submit(team, story.pod("a", {GPU: "1"}))
    story.running(team, "a")
    story.delete(KIND, "quota", team)
    story.apply(quota(team, {GPU: 1}, {GPU: 1}))
    story.status(KIND, "quota", team, {"used": {GPU: "1"}})
    story.governed(team)
    story.submit(team, story.pod("b", {GPU: "1"}))
    story.waits(team, "b", "elastic.max.nvidia.com/gpu")


def test_who_was_let_go_keeps_its_place_until_it_is_bound(story: Story, bursar: Running) -> None:
    """The scheduler is away. Nobody else is let go to a place that is promised, by the next leader neither."""
    team = story.namespace()
    story.nodes(1, {GPU: "2"})
    story.apply(quota(team, {GPU: 4}))
    story.governed(team)
    with story.without_scheduler():
        story.submit(team, story.pod("first", {GPU: "2"}))
        story.wait(lambda: story.admitted(team, "first"), "it is let go")
        story.submit(team, story.pod("second", {GPU: "1"}))
        story.waits(team, "second", "nodes.full")
        bursar.stop()
        bursar.start()
        story.submit(team, story.pod("third", {GPU: "1"}))
        story.waits(team, "third", "nodes.full")
        assert story.is_gated(team, "second")
        assert not story.node_of(team, "first")
    story.running(team, "first")
    assert story.is_gated(team, "second")
    assert story.is_gated(team, "third")
    story.delete("pod", "first", team)
    story.running(team, "second", "third")


@pytest.mark.parametrize("fate", ["cordoned", "gone"])
def test_a_pin_that_cannot_be_honoured_is_repaired(story: Story, fate: str) -> None:
    """The chosen node is cordoned or gone before the scheduler looks; the owner's next pod is given another one."""
    team = story.namespace()
    nodes = story.nodes(2)
    for node in nodes:
        story.gpus(node, 1)
    with story.without_scheduler():
        story.apply(replica_set(story), namespace=team)
        first = story.wait(lambda: story.owned(team), "the pod is made")
        record = story.wait(lambda: story.admitted(team, first), "it is let go")
        if fate == "gone":
            story.lose_node(record["place"])
        else:
            story.plane.kubectl("cordon", record["place"])
    story.gone(team, first)
    assert "the scheduler cannot place it" in story.told(team, first, "control.place-lost")[0]
    second = story.wait(lambda: story.owned(team), "another pod is made")
    (pod,) = story.running(team, second)
    assert pod["spec"]["nodeName"] in set(nodes) - {record["place"]}
    assert pod["metadata"]["annotations"][GPU_IDS].startswith(pod["spec"]["nodeName"])


def replica_set(story: Story) -> Manifest:
    one = worker(story, "", HALF | {"gpu-count": "1"}, labels={"app": "w"})
    template = {"metadata": {key: one["metadata"][key] for key in ("labels", "annotations")}, "spec": one["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "w"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "w"}}, "template": template},
    }
