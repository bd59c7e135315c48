"""Pods that were started and that the scheduler does not bind where Bursar had a place for them, or nowhere at all."""

from functools import partial

from tests.cluster.controlplane.api import STRATEGIC_PATCH
from tests.cluster.stories.controller_process import Running
from tests.cluster.stories.story import Manifest, Story
from tests.cluster.stories.test_changes import GPU, replica_set
from tests.cluster.stories.test_elastic import KIND, quota
from tests.cluster.stories.test_namespace import HALF, worker


def repelling(story: Story, node: str, namespaces: Manifest) -> Manifest:
    """A pod without any GPU on the node, which wants no other pod of these namespaces beside it."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": namespaces}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return story.pod("hostile", nodeName=node, affinity=affinity, labels={"app": "hostile"})


def test_a_pod_is_not_pinned_beside_one_that_repels_it(story: Story) -> None:
    team, others = story.namespace(), story.namespace("others")
    first, second = story.nodes(2, {GPU: "8"})
    story.apply(quota(team, {GPU: 32}, {GPU: 32}))
    story.governed(team)
    for node in (first, second):
        story.gpus(node, 2)
    story.submit(others, repelling(story, first, {}))
    story.running(others, "hostile")
    names = [f"w{number}" for number in range(3)]
    story.submit(team, *[worker(story, name, HALF) for name in names])
    assert {pod["spec"]["nodeName"] for pod in story.running(team, *names)} == {second}
    story.submit(team, story.pod("picky", {GPU: "1"}, nodeSelector={"kubernetes.io/hostname": first}))
    assert "hostile keeps such pods off node" in story.waits(team, "picky", "nodes.anti-affinity")


def test_a_node_that_the_scheduler_refused_is_left_out_for_the_pod_that_comes_next(story: Story) -> None:
    """Namespaces by label are not judged, so the first pod is refused; its owner's next one goes elsewhere."""
    team, others = story.namespace("team", {"kind": "victim"}), story.namespace("others")
    first, second = story.nodes(2)
    story.gpus(first, 1)
    story.submit(others, repelling(story, first, {"matchLabels": {"kind": "victim"}}))
    story.running(others, "hostile")
    story.apply(replica_set(story), namespace=team)
    refused = story.wait(lambda: story.owned(team), "the pod is made")
    story.wait(lambda: story.admitted(team, refused), "it is started")
    story.gpus(second, 1)
    (told,) = story.told(team, refused, "control.place-lost")
    assert "anti-affinity" in told, "in the scheduler's words"
    story.gone(team, refused)
    another = story.wait(lambda: story.owned(team), "another one is made")
    (pod,) = story.running(team, another)
    assert pod["spec"]["nodeName"] == second


def test_a_job_whose_failures_count_is_not_failed_by_it(story: Story) -> None:
    team, others = story.namespace("team", {"kind": "victim"}), story.namespace("others")
    (node,) = story.nodes(1)
    story.gpus(node, 1)
    story.submit(others, repelling(story, node, {"matchLabels": {"kind": "victim"}}))
    story.running(others, "hostile")
    story.apply(job(story, "plain"), namespace=team)
    name = story.wait(lambda: story.owned(team), "the pod is made")
    (told,) = story.told(team, name, "control.unscheduled")
    assert "anti-affinity" in told
    assert "keeps its quota and its place" in told
    story.submit(team, worker(story, "next", HALF | {"gpu-count": "1", "tflops-request": "300", "tflops-limit": "300"}))
    story.waits(team, "next", "gpus.")
    assert story.owned(team) == name
    assert "failed" not in story.get("job", "plain", team)["status"]


def test_a_job_that_ignores_disruptions_is_decided_again(story: Story) -> None:
    team, others = story.namespace("team", {"kind": "victim"}), story.namespace("others")
    first, second = story.nodes(2)
    story.gpus(first, 1)
    story.submit(others, repelling(story, first, {"matchLabels": {"kind": "victim"}}))
    story.running(others, "hostile")
    rules = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    story.apply(job(story, "ignores", podFailurePolicy={"rules": rules}), namespace=team)
    name = story.wait(lambda: story.owned(team), "the pod is made")
    story.gpus(second, 1)
    story.told(team, name, "control.place-lost")
    # The Job makes another one when the evicted pod is collected, which takes its time without a kubelet.
    story.wait(partial(another_runs, story, team, name, second), "another one runs elsewhere", 120)
    assert "failed" not in story.get("job", "ignores", team)["status"]


def another_runs(story: Story, namespace: str, name: str, node: str) -> bool:
    found = story.owned(namespace)
    return bool(found) and found != name and story.node_of(namespace, found) == node


def job(story: Story, name: str, **more: object) -> Manifest:
    one = worker(story, "", HALF | {"gpu-count": "1"}, restartPolicy="Never")
    template = {"metadata": {key: one["metadata"][key] for key in ("labels", "annotations")}, "spec": one["spec"]}
    spec = {"backoffLimit": 0, "template": template, **more}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def test_a_pod_whose_volume_is_missing_keeps_no_node(story: Story, bursar: Running) -> None:
    """The scheduler says so, and others get the node, also after a failover. The quota stays charged."""
    team = story.namespace()
    (node,) = story.nodes(1, {GPU: "8"})
    story.apply(quota(team, {GPU: 32}, {GPU: 32}))
    story.governed(team)
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}
    story.submit(team, story.pod("stuck", {GPU: "8"}, volumes=[claim]))
    story.wait(lambda: story.admitted(team, "stuck"), "it is started")
    (told,) = story.told(team, "stuck", "control.unscheduled")
    assert 'persistentvolumeclaim "missing" not found' in told
    assert f"others may have the node {node}" in told
    story.submit(team, story.pod("next", {GPU: "4"}))
    story.running(team, "next")
    story.wait(lambda: not story.record(team, "stuck").get("place"), "the next leader can see that")
    bursar.stop()
    bursar.start()
    story.submit(team, story.pod("last", {GPU: "4"}))
    story.running(team, "last")
    story.status(KIND, "quota", team, {"used": {GPU: "8"}, "reserved": {GPU: "16"}})


def test_a_pod_of_an_unknown_scheduler_keeps_no_node(story: Story) -> None:
    team = story.namespace()
    story.nodes(1, {GPU: "8"})
    story.apply(quota(team, {GPU: 16}, {GPU: 16}))
    story.governed(team)
    story.submit(team, story.pod("stranger", {GPU: "8"}, schedulerName="of-nobody"))
    assert "'of-nobody'" in story.told(team, "stranger", "control.unscheduled")[0]
    story.submit(team, story.pod("next", {GPU: "8"}))
    story.running(team, "next")


def test_a_pod_that_others_gate_is_decided_when_they_let_it_go(story: Story) -> None:
    team = story.namespace()
    story.nodes(1, {GPU: "8"})
    story.apply(quota(team, {GPU: 8}, {GPU: 8}))
    story.governed(team)
    gates = [{"name": "example.org/wait"}]
    story.submit(team, story.pod("waits", {GPU: "8"}, schedulingGates=gates))
    assert "example.org/wait" in story.told(team, "waits", "control.other-gates")[0]
    story.submit(team, story.pod("first", {GPU: "8"}))
    story.running(team, "first")
    story.ends(team, "first", "Succeeded")
    path = f"/api/v1/namespaces/{team}/pods/waits"
    gone = [{"name": "example.org/wait", "$patch": "delete"}]
    story.plane.api().patch(path, {"spec": {"schedulingGates": gone}}, STRATEGIC_PATCH)
    story.running(team, "waits")
