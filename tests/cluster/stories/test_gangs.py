"""Groups: all of their pods are let go at once, or none."""

from bursar.kube.controller.patches import ADMISSION, GATE, TERM, AdmissionRecord, written
from tests.cluster.controlplane.api import STRATEGIC_PATCH
from tests.cluster.controlplane.identities import BURSAR
from tests.cluster.installation import announced
from tests.cluster.stories.controller_process import Running
from tests.cluster.stories.story import Manifest, Story
from tests.cluster.stories.test_elastic import quota

GPU = "nvidia.com/gpu"


def member(story: Story, name: str, size: int) -> Manifest:
    labels = {"bursar.dev/group": "train", "bursar.dev/group-size": str(size)}
    return story.pod(name, {GPU: "1"}, labels=labels)


def test_a_group_is_admitted_whole(story: Story) -> None:
    team = story.namespace()
    story.nodes(1, {GPU: "2"})
    story.apply(quota(team, {GPU: 3}))
    story.governed(team)
    story.submit(team, member(story, "w0", 3), member(story, "w1", 3))
    story.waits(team, "w0", "control.group-incomplete", "of 3 members")
    story.submit(team, member(story, "w2", 3))
    story.waits(team, "w2", "nodes.full")
    assert all(story.is_gated(team, name) for name in ("w0", "w1", "w2")), "two would fit, but not all"
    story.nodes(1, {GPU: "1"})
    story.running(team, "w0", "w1", "w2")


def test_a_group_that_exceeds_its_quota_takes_nothing(story: Story) -> None:
    team = story.namespace()
    story.nodes(1, {GPU: "8"})
    story.apply(quota(team, {GPU: 2}, {GPU: 2}))
    story.governed(team)
    story.submit(team, *(member(story, f"w{number}", 3) for number in range(3)))
    story.waits(team, "w0", "engine.group", "2 of its max of 2 in use")
    story.submit(team, story.pod("alone", {GPU: "2"}))
    story.running(team, "alone")
    assert all(story.is_gated(team, f"w{number}") for number in range(3))


def test_who_comes_first_takes_no_place_of_a_group_that_is_half_way_in(story: Story, bursar: Running) -> None:
    """The leader ended when it had let one of two go; by then somebody more urgent waits, too."""
    team = story.namespace()
    (node,) = story.nodes(1, {GPU: "2"})
    story.apply(quota(team, {GPU: 2}))
    story.governed(team)
    urgent = story.priority(1_000, preemptionPolicy="Never")
    bursar.stop()
    story.submit(team, member(story, "w0", 2), member(story, "w1", 2))
    let_go(story, team, "w0", node)
    story.running(team, "w0")
    story.submit(team, story.pod("urgent", {GPU: "1"}, priorityClassName=urgent))
    bursar.start()
    story.running(team, "w1")
    story.waits(team, "urgent", "2 of the 2 that all elastic quotas guarantee are in use")
    assert story.is_gated(team, "urgent")


def let_go(story: Story, namespace: str, name: str, node: str) -> None:
    """As the leader did that ended right after."""
    pod = story.seen(namespace, name)
    term = int(announced(story.plane))
    marks = {ADMISSION: written(AdmissionRecord(1, term, node)), TERM: str(term)}
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    spec = {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}
    body = {"metadata": {"uid": pod["metadata"]["uid"], "annotations": marks}, "spec": spec}
    story.plane.api(BURSAR).patch(path, body, STRATEGIC_PATCH)


def test_the_last_pod_of_a_job_is_let_go_again_when_all_others_have_succeeded(story: Story) -> None:
    """They need no place any more, and their group was let go."""
    team = story.namespace()
    story.nodes(1, {GPU: "2"})
    story.apply(quota(team, {GPU: 2}))
    story.governed(team)
    pod = member(story, "", 2)
    template = {
        "metadata": {"labels": pod["metadata"]["labels"]},
        "spec": pod["spec"] | {"restartPolicy": "Never"},
    }
    spec = {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimit": 4, "template": template}
    metadata = {"namespace": team, "name": "train"}
    story.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    first, last = story.wait(lambda: workers(story, team, 2), "both of them run")
    story.ends(team, first["metadata"]["name"], "Succeeded")
    story.ends(team, last["metadata"]["name"], "Failed")
    (again,) = story.wait(lambda: workers(story, team, 1), "the last one runs again", seconds=90)
    assert again["metadata"]["name"] not in {first["metadata"]["name"], last["metadata"]["name"]}


def workers(story: Story, namespace: str, count: int) -> list[Manifest]:
    """The pods there that run, if they are so many."""
    found = story.plane.api().get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    running = [pod for pod in found if pod["status"]["phase"] == "Running"]
    return running if len(running) == count else []
