"""Quota trees: named by label, borrowed from along the branch, taken back from whoever borrows."""

from tests.cluster.stories.story import Manifest, Story

GPU = "nvidia.com/gpu"


def tree(story: Story, short: str, nodes: Manifest, *resources: str) -> str:
    """A tree of the story's own name; the label that names it."""
    name = f"{story.name}-{short}"
    spec = {"resourceNames": list(resources or (GPU,)), "nodes": nodes}
    story.apply({"apiVersion": "bursar.dev/v1alpha1", "kind": "QuotaTree", "metadata": {"name": name}, "spec": spec})
    story.wait(lambda: story.get("quotatree", name).get("status"), "the tree is in force")
    return f"quota.bursar.dev/{name}"


def company(story: Story) -> str:
    return tree(
        story,
        "company",
        {
            "company": {"parent": "nil", "hard": "true", "quota": {GPU: "8"}},
            "research": {"parent": "company", "quota": {GPU: "4"}},
            "vision": {"parent": "research", "quota": {GPU: "2"}},
            "speech": {"parent": "research", "quota": {GPU: "2"}},
            "product": {"parent": "company", "quota": {GPU: "4"}},
            "search": {"parent": "product", "quota": {GPU: "4"}},
        },
    )


def test_a_branch_borrows_and_the_owner_takes_its_quota_back(story: Story) -> None:
    """In a namespace that no quota names: the label alone governs."""
    label = company(story)
    lab = story.namespace("lab")
    story.nodes(1, {GPU: "16"})
    story.submit(lab, story.pod("v1", {GPU: "2"}, labels={label: "vision"}))
    story.submit(lab, story.pod("s1", {GPU: "2"}, labels={label: "speech"}))
    story.running(lab, "v1", "s1")
    story.submit(lab, story.pod("v2", {GPU: "2"}, labels={label: "vision"}))
    story.running(lab, "v2")
    name = label.removeprefix("quota.bursar.dev/")
    nodes = {"company": {"used": {GPU: "6"}}, "research": {"used": {GPU: "4"}}}
    story.status("quotatree", name, "", {"nodes": nodes})

    story.submit(lab, story.pod("q1", {GPU: "4"}, labels={label: "search"}))
    story.running(lab, "q1")
    assert story.told(lab, "v2", "Evicted")
    story.gone(lab, "v2")
    story.running(lab, "v1", "s1")
    story.status("quotatree", name, "", {"nodes": {"company": {"used": {GPU: "8"}}, "search": {"used": {GPU: "4"}}}})

    story.submit(lab, story.pod("v3", {GPU: "1"}, labels={label: "vision"}))
    story.waits(lab, "v3", "trees.quota.nvidia.com/gpu")
    story.delete("pod", "q1", lab)
    story.running(lab, "v3")


def test_a_pod_counts_in_every_tree_that_it_names_or_in_none(story: Story) -> None:
    licence = "example.com/licence"
    gpus = {
        "all": {"quota": {GPU: 8}},
        "a": {"parent": "all", "quota": {GPU: 4}},
        "b": {"parent": "all", "quota": {GPU: 4}},
    }
    org = tree(story, "org", gpus)
    pool = {"pool": {"quota": {licence: 2}}, "solver": {"parent": "pool", "hard": True, "quota": {licence: 2}}}
    licences = tree(story, "licences", pool, licence)
    lab = story.namespace("lab")
    story.nodes(1, {GPU: "16", licence: "16"})
    story.submit(lab, story.pod("first", {GPU: "1", licence: "2"}, labels={org: "a", licences: "solver"}))
    story.running(lab, "first")
    story.submit(lab, story.pod("second", {GPU: "1", licence: "1"}, labels={org: "b", licences: "solver"}))
    story.waits(lab, "second", "trees.quota.example.com/licence")
    name = org.removeprefix("quota.bursar.dev/")
    story.status("quotatree", name, "", {"nodes": {"all": {"used": {GPU: "1"}}}})
    story.delete("pod", "first", lab)
    story.running(lab, "second")


def test_a_tree_that_is_not_there_is_said(story: Story) -> None:
    lab = story.namespace("lab")
    story.nodes(1, {GPU: "1"})
    label = f"quota.bursar.dev/{story.name}-later"
    story.submit(lab, story.pod("early", {GPU: "1"}, labels={label: "team"}))
    story.waits(lab, "early", "trees.")
    tree(story, "later", {"all": {"quota": {GPU: 2}}, "team": {"parent": "all", "quota": {GPU: 2}}})
    story.running(lab, "early")
