"""Quota trees over node pools: the root quota is made, the tree's affinity merged, over-use taken back."""

import json
from pathlib import Path

from tests.cluster.installation import documents
from tests.cluster.stories.story import Manifest, Story, required_terms

GPU = "nvidia.com/gpu"
PREFIX = "quota.scheduling.koordinator.sh/"
KIND = "elasticquotas.scheduling.sigs.k8s.io"
SYSTEM = "kube-system"
ORIGINALS = Path(__file__).parent.parent / "originals.yaml"
KOORDINATOR = ("quota.koordinator.sh", "scheduling.sigs.k8s.io")


def profile(story: Story, zone: str, ratio: str = "1") -> str:
    """The original's profile, of a zone of the story's own; the name of its root quota."""
    name = f"{story.name}-{zone}"
    story.apply(
        f"""
apiVersion: quota.koordinator.sh/v1alpha1
kind: ElasticQuotaProfile
metadata:
  labels:
    kubernetes.io/arch: amd64
    topology.kubernetes.io/region: cn-hangzhou
    topology.kubernetes.io/zone: {name}
  name: {name}-amd64-standard
  namespace: kube-system
  annotations:
    quota.scheduling.koordinator.sh/resource-keys: '["nvidia.com/gpu"]'
spec:
  nodeSelector:
    matchLabels:
      kubernetes.io/arch: amd64
      topology.kubernetes.io/region: cn-hangzhou
      topology.kubernetes.io/zone: {name}
  quotaLabels:
    kubernetes.io/arch: amd64
    quota.scheduling.koordinator.sh/is-parent: "true"
    topology.kubernetes.io/region: cn-hangzhou
    topology.kubernetes.io/zone: {name}
  quotaName: {name}-root-quota
  resourceRatio: "{ratio}"
"""
    )
    return f"{name}-root-quota"


def zone_labels(story: Story, zone: str) -> dict[str, str]:
    return {
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/region": "cn-hangzhou",
        "topology.kubernetes.io/zone": f"{story.name}-{zone}",
    }


def team_quota(namespace: str, parent: str, least: int, most: int) -> Manifest:
    """Called like its namespace, so that it governs it."""
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": namespace, "namespace": namespace, "labels": {PREFIX + "parent": parent}},
        "spec": {"max": {GPU: most}, "min": {GPU: least}},
    }


def root_of(story: Story, name: str) -> Manifest:
    story.wait(lambda: name in story.plane.kubectl("get", KIND, "-n", SYSTEM, "-o", "name"), f"{name} is made")
    return story.get(KIND, name, SYSTEM)


def test_the_originals_example_gives_the_same_root_quota(story: Story) -> None:
    """Its profile, unchanged, over nodes that have what its root quota says, divided by 0.9."""
    zone = {
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/region": "cn-hangzhou",
        "topology.kubernetes.io/zone": "cn-hangzhou-k",
    }
    room = {"cpu": "153600m", "memory": "1052516907008", "ephemeral-storage": "2921032023324", "pods": "200"}
    story.nodes(2, room, zone)
    given, expected = (one for one in documents(ORIGINALS) if one["apiVersion"].partition("/")[0] in KOORDINATOR)
    story.apply(given, namespace=SYSTEM)
    name = expected["metadata"]["name"]
    total = PREFIX + "total-resource"
    want = json.loads(expected["metadata"]["annotations"][total])
    story.wait(lambda: _total(story, name) == want, "the total is that of the example")
    root = root_of(story, name)
    assert root["spec"] == expected["spec"]
    differs = {PREFIX + "tree-id", PREFIX + "profile"}  # the example's are those of another profile
    labels = root["metadata"]["labels"]
    assert {key: labels[key] for key in labels.keys() - differs} == {
        key: value for key, value in expected["metadata"]["labels"].items() if key not in differs
    }


def test_a_profile_makes_the_root_quota_from_its_nodes(story: Story) -> None:
    story.nodes(2, {GPU: "4"}, zone_labels(story, "k"))
    root = root_of(story, profile(story, "k", "0.9"))
    labels = root["metadata"]["labels"]
    assert labels[PREFIX + "is-root"] == "true"
    assert labels[PREFIX + "is-parent"] == "true"
    assert labels[PREFIX + "profile"] == f"{story.name}-k-amd64-standard"
    assert labels["topology.kubernetes.io/zone"] == f"{story.name}-k"
    tree = labels[PREFIX + "tree-id"]
    name = root["metadata"]["name"]
    story.wait(lambda: _total(story, name)[GPU] == "7", "the total is that of the nodes, times 0.9, rounded down")
    story.wait(lambda: _tree_of_profile(story) == tree, "the profile says which tree it is")

    team = story.namespace()
    story.apply(team_quota(team, name, 2, 8))
    made = story.get(KIND, team, team)
    assert made["metadata"]["labels"][PREFIX + "tree-id"] == tree, "filled in by the webhook"
    orphan = team_quota(story.namespace("orphan"), "nobody", 1, 1)
    assert "nobody" in story.refused(orphan)
    story.nodes(1, {GPU: "4"}, zone_labels(story, "k"))
    story.wait(lambda: _total(story, name)[GPU] == "10", "a new node is counted")


def test_a_root_quota_is_made_anew_and_put_right_whatever_people_do_to_it(story: Story) -> None:
    """No webhook looks at kube-system, where profiles usually are."""
    story.nodes(1, {GPU: "4"}, zone_labels(story, "k"))
    first = root_of(story, profile(story, "k"))["metadata"]
    name = first["name"]
    story.delete(KIND, name, SYSTEM)
    story.wait(lambda: root_of(story, name)["metadata"]["uid"] != first["uid"], "it is made anew")
    story.wait(lambda: "conditions" in root_of(story, name).get("status", {}), "it says how it fares")
    more = json.dumps({"spec": {"min": {GPU: "1000"}}})
    story.plane.kubectl("patch", KIND, name, "-n", SYSTEM, "--type=merge", "-p", more)
    story.wait(lambda: root_of(story, name)["spec"]["min"] == {GPU: "4"}, "it says again what the nodes have")


def _tree_of_profile(story: Story) -> str:
    labels = story.get("elasticquotaprofile", f"{story.name}-k-amd64-standard", SYSTEM)["metadata"]["labels"]
    return str(labels.get(PREFIX + "tree-id"))


def _total(story: Story, name: str) -> dict[str, str]:
    annotations = root_of(story, name)["metadata"].get("annotations", {})
    total: dict[str, str] = json.loads(annotations.get(PREFIX + "total-resource", "{}"))
    return total


def test_pods_run_on_the_nodes_of_their_tree(story: Story) -> None:
    """The tree's selector goes into every alternative of what the pod asks for itself."""
    inside = story.nodes(1, {GPU: "4"}, zone_labels(story, "k"))
    story.nodes(1, {GPU: "8"}, zone_labels(story, "b"))
    root = root_of(story, profile(story, "k"))["metadata"]["name"]
    team = story.namespace()
    story.apply(team_quota(team, root, 4, 8))
    story.governed(team)
    mine = [
        {"matchExpressions": [{"key": "stories.test/pool", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": mine}}
    story.submit(team, story.pod("plain", {GPU: "2"}, schedulerName="koord-scheduler"))
    story.submit(team, story.pod("picky", {GPU: "2"}, affinity={"nodeAffinity": required}))
    plain, picky = story.running(team, "plain", "picky")
    assert plain["spec"]["schedulerName"] == "default-scheduler"
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [f"{story.name}-k"]}
    for pod, alternatives in ((plain, 1), (picky, 2)):
        assert pod["spec"]["nodeName"] == inside[0]
        terms = required_terms(pod)
        assert len(terms) == alternatives
        assert all(zone in term["matchExpressions"] for term in terms)
    story.submit(team, story.pod("third", {GPU: "1"}))
    story.waits(team, "third", "pools.")
    story.nodes(1, {GPU: "4"}, zone_labels(story, "k"))
    story.running(team, "third")


def test_other_pods_are_kept_off_a_pool_unless_its_profile_shares_it(story: Story) -> None:
    inside = story.nodes(1, {GPU: "4"}, zone_labels(story, "k"))
    outside = story.nodes(1, {GPU: "4"}, zone_labels(story, "b"))
    root_of(story, profile(story, "k"))
    other = story.namespace("other")
    story.apply(team_quota(other, "koordinator-root-quota", 4, 8))
    story.governed(other)
    story.submit(other, story.pod("first", {GPU: "4"}))
    (first,) = story.running(other, "first")
    assert first["spec"]["nodeName"] == outside[0]
    zone = {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": [f"{story.name}-k"]}
    assert {"matchExpressions": [zone]} in required_terms(first)
    mine = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [f"{story.name}-k"]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [mine]}]}}
    story.submit(other, story.pod("second", affinity={"nodeAffinity": required}))
    story.waits(other, "second", "nodes.none")
    share = ("annotate", "elasticquotaprofile", f"{story.name}-k-amd64-standard", "-n", SYSTEM)
    story.plane.kubectl(*share, "quota.bursar.dev/exclusive=false")
    (second,) = story.running(other, "second")
    assert second["spec"]["nodeName"] == inside[0]


def test_a_quota_moves_into_a_tree_with_its_running_pods(story: Story) -> None:
    inside = story.nodes(1, {GPU: "4"}, zone_labels(story, "k"))
    team = story.namespace()
    before = team_quota(team, "koordinator-root-quota", 2, 4)
    before["metadata"]["labels"][PREFIX + "is-parent"] = "true"
    below = team_quota(story.namespace("below"), team, 2, 4)
    story.apply(before)
    story.apply(below)
    namespace = below["metadata"]["namespace"]
    story.governed(namespace)
    story.submit(namespace, story.pod("old", {GPU: "2"}))
    story.running(namespace, "old")
    root = root_of(story, profile(story, "k"))
    tree = root["metadata"]["labels"][PREFIX + "tree-id"]
    more = team_quota(team, root["metadata"]["name"], 5, 5)
    more["metadata"]["labels"][PREFIX + "is-parent"] = "true"
    assert "is more than the 4 of their parent" in story.refused(more)
    moved = team_quota(team, root["metadata"]["name"], 2, 4)
    moved["metadata"]["labels"][PREFIX + "is-parent"] = "true"
    story.apply(moved)
    assert _tree_of_quota(story, team) == tree, "filled in by the webhook"
    story.wait(lambda: _tree_of_quota(story, namespace) == tree, "the quota below is taken along")
    story.submit(namespace, story.pod("new", {GPU: "2"}))
    (new,) = story.running(namespace, "new")
    assert (new["spec"]["nodeName"], story.node_of(namespace, "old")) == (inside[0], inside[0])
    story.status(KIND, namespace, namespace, {"used": {GPU: "4"}})
    story.apply(below)  # objects go in the opposite order, children first


def _tree_of_quota(story: Story, name: str) -> str:
    return str(story.get(KIND, name, name)["metadata"]["labels"].get(PREFIX + "tree-id"))


def test_over_use_is_taken_back_when_its_owner_wants_it(story: Story) -> None:
    configuration = {"pools": {"delayEvictTime": "2s", "revokeOveruse": True}}
    metadata = {"name": "default"}
    story.apply(
        {"apiVersion": "bursar.dev/v1alpha1", "kind": "Configuration", "metadata": metadata, "spec": configuration}
    )
    story.nodes(1, {GPU: "4"}, zone_labels(story, "k"))
    root = root_of(story, profile(story, "k"))["metadata"]["name"]
    a, b = story.namespace("a"), story.namespace("b")
    story.apply(team_quota(a, root, 2, 4), team_quota(b, root, 2, 4))
    story.governed(a, b)
    story.submit(b, *(story.pod(f"b{number}", {GPU: "1"}) for number in range(4)))
    story.running(b, "b0", "b1", "b2", "b3")
    story.submit(a, story.pod("a0", {GPU: "2"}))
    story.running(a, "a0")
    left = [name for name in ("b0", "b1", "b2", "b3") if story.seen(b, name)]
    assert len(left) == 2, "what b lent itself is taken back, no more"
    gone = next(name for name in ("b0", "b1", "b2", "b3") if name not in left)
    assert story.told(b, gone, "Evicted")
    story.status(KIND, b, b, {"used": {GPU: "2"}})
