"""Elastic quotas: a team borrows what another does not use, is labelled for it, and gives it back when it must."""

import json

from tests.cluster.stories.story import Manifest, Story

GPU = "nvidia.com/gpu"
SLICE = "nvidia.com/mig-1g.10gb"
CAPACITY = "n8s.nebuly.ai/capacity"
KIND = "elasticquotas.n8s.nebuly.ai"
REFUSED = "EvictionRefused"
SLOWLY = {"sim.bursar.dev/leaves-after": "5m"}


def quota(namespace: str, least: Manifest, most: Manifest | None = None) -> Manifest:
    return {
        "apiVersion": "n8s.nebuly.ai/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "quota", "namespace": namespace},
        "spec": {"min": least} | ({} if most is None else {"max": most}),
    }


def labelled(story: Story, namespace: str, name: str, label: str) -> None:
    """Wait until the pod has this capacity label."""
    story.wait(
        lambda: story.seen(namespace, name)["metadata"].get("labels", {}).get(CAPACITY) == label, f"{name} is {label}"
    )


def capacities(story: Story, namespace: str) -> list[str]:
    pods = story.plane.api().get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return sorted(pod["metadata"].get("labels", {}).get(CAPACITY, "") for pod in pods)


def test_a_team_borrows_and_the_owner_takes_its_quota_back(story: Story) -> None:
    a, b = story.namespace("a"), story.namespace("b")
    (node,) = story.nodes(1, {GPU: "4"})
    story.apply(quota(a, {GPU: 2}), quota(b, {GPU: 2}, {GPU: 3}))
    story.governed(a, b)
    lent: Manifest = {"annotations": SLOWLY, "schedulerName": "n8s-scheduler"}
    story.submit(b, *(story.pod(f"b{number}", {GPU: "1"}, **lent) for number in range(3)))
    story.running(b, "b0", "b1", "b2")
    story.status(KIND, "quota", b, {"used": {GPU: "3"}, "borrowed": {GPU: "1"}})
    story.wait(lambda: capacities(story, b) == ["in-quota", "in-quota", "over-quota"], "one of them is over quota")
    (over,) = story.plane.kubectl("get", "pods", "-n", b, "-l", f"{CAPACITY}=over-quota", "-o", "name").split()
    borrower = over.removeprefix("pod/")

    story.submit(b, story.pod("greedy", {GPU: "1"}))
    text = story.waits(b, "greedy", "elastic.max.nvidia.com/gpu", "3 of its max of 3 in use")
    assert "PodScheduled   False" in text

    story.submit(a, story.pod("a0", {GPU: "1"}), story.pod("a1", {GPU: "1"}))
    holder = story.wait(lambda: story.holder(a), "one of a's pods waits for its victim")
    held = json.loads(holder["metadata"]["annotations"]["bursar.dev/hold"])
    victim = story.seen(b, borrower)
    assert held["place"] == node
    assert [uid for uid, _ in held["victims"]] == [victim["metadata"]["uid"]]
    story.wait(lambda: story.seen(b, borrower)["metadata"].get("deletionTimestamp"), "the victim is told to leave")
    story.wait(lambda: story.seen(a, holder["metadata"]["name"])["status"].get("nominatedNodeName"), "it is nominated")

    assert story.is_gated(a, holder["metadata"]["name"]), "its place is not free yet"
    story.remove_leaving(b)
    story.running(a, "a0", "a1")
    story.gone(b, borrower)
    started = story.seen(a, holder["metadata"]["name"])
    assert "bursar.dev/hold" not in started["metadata"]["annotations"]
    assert story.record(a, holder["metadata"]["name"])["displaced"][0][0] == victim["metadata"]["uid"]
    assert story.told(b, borrower, "Evicted")
    story.status(KIND, "quota", b, {"used": {GPU: "2"}, "borrowed": {}})
    story.status(KIND, "quota", a, {"used": {GPU: "2"}})


def test_what_is_lent_is_shared_out_fairly(story: Story) -> None:
    """The worked example of the original: A 40, B 10, C 30, ten a pod."""
    a, b, c = (story.namespace(name) for name in "abc")
    story.nodes(1, {SLICE: "8"})
    memory = "n8s.nebuly.ai/gpu-memory"
    story.apply(quota(a, {memory: 40}), quota(b, {memory: 10}), quota(c, {memory: 30}))
    story.governed(a, b, c)
    story.submit(a, *(story.pod(f"a{number}", {SLICE: "1"}) for number in range(1, 5)))
    story.submit(b, *(story.pod(f"b{number}", {SLICE: "1"}) for number in range(1, 5)))
    story.running(a, "a1", "a2", "a3", "a4")
    story.running(b, "b1", "b2", "b3", "b4")
    story.status(KIND, "quota", b, {"used": {memory: "40"}, "borrowed": {memory: "30"}})
    story.submit(a, story.pod("a5", {SLICE: "1"}))
    story.running(a, "a5")
    labelled(story, a, "a5", "over-quota")
    story.status(KIND, "quota", a, {"used": {memory: "50"}})
    story.status(KIND, "quota", b, {"used": {memory: "30"}})
    story.submit(a, story.pod("a6", {SLICE: "1"}))
    story.waits(a, "a6", "elastic.total.n8s.nebuly.ai/gpu-memory")


def test_a_composite_quota_takes_over_and_counts_its_namespaces_together(story: Story) -> None:
    one, two, platform = story.namespace("one"), story.namespace("two"), story.namespace("platform")
    story.nodes(1, {GPU: "4"})
    story.apply(quota(one, {GPU: 1}))
    story.governed(one)
    story.submit(one, story.pod("p", {GPU: "1"}))
    story.running(one, "p")
    composite: Manifest = {
        "apiVersion": "n8s.nebuly.ai/v1alpha1",
        "kind": "CompositeElasticQuota",
        "metadata": {"name": "both", "namespace": platform},
        "spec": {"namespaces": [one, two], "min": {GPU: 2}, "max": {GPU: 2}},
    }
    refused = story.refused(composite)
    assert "takeover: true would replace it" in refused
    composite["spec"]["takeover"] = True
    story.apply(composite)
    story.governed(one, two)
    story.wait(lambda: not story.plane.kubectl("get", KIND, "-n", one, "-o", "name"), "the quota of one is gone")
    story.submit(two, story.pod("q", {GPU: "1"}))
    story.running(two, "q")
    story.submit(two, story.pod("r", {GPU: "1"}))
    story.waits(two, "r", "elastic.max.nvidia.com/gpu")
    story.status("compositeelasticquotas", "both", platform, {"used": {GPU: "2"}})


def test_a_capacity_label_that_somebody_changes_is_put_right(story: Story) -> None:
    team = story.namespace()
    story.nodes(1, {GPU: "2"})
    story.apply(quota(team, {GPU: 2}))
    story.governed(team)
    story.submit(team, story.pod("p", {GPU: "1"}))
    story.running(team, "p")
    labelled(story, team, "p", "in-quota")
    for change in ("over-quota", None):
        mark = f"{CAPACITY}={change}" if change else f"{CAPACITY}-"
        story.plane.kubectl("label", "pod", "p", "-n", team, "--overwrite", mark)
        labelled(story, team, "p", "in-quota")


def test_a_hold_that_its_victims_budgets_refuse_is_given_up(story: Story) -> None:
    """Two budgets for one pod: each would let it go, but the server evicts no pod that has two."""
    a, b = story.namespace("a"), story.namespace("b")
    story.nodes(1, {GPU: "2"})
    story.apply(quota(a, {GPU: 1}), quota(b, {GPU: 1}))
    story.governed(a, b)
    story.submit(b, *(story.pod(f"b{number}", {GPU: "1"}, labels={"app": "b"}) for number in range(2)))
    story.running(b, "b0", "b1")
    for name in ("one", "two"):
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "b"}}}
        metadata = {"name": name, "namespace": b}
        story.apply({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec})
        story.status("poddisruptionbudget", name, b, {"disruptionsAllowed": 1})
    story.submit(a, story.pod("own", {GPU: "1"}))
    refusals = story.wait(lambda: [*story.events(b, "b0", REFUSED), *story.events(b, "b1", REFUSED)], "it is told")
    assert "more than one PodDisruptionBudget" in refusals[0]
    story.wait(lambda: not story.holder(a), "the hold is taken away")
    story.waits(a, "own", "elastic.")
    story.wait(lambda: not story.seen(a, "own")["status"].get("nominatedNodeName"), "it is not nominated any more")
    story.delete("pod", "b0", b)
    story.running(a, "own")
    assert "displaced" not in story.record(a, "own"), "nobody was displaced after all"
