"""Elastic quotas: a team borrows what another does not use, is labelled for it, and gives it back when that is needed."""

from tests.cluster.stories.story import Manifest, Story

GPU = "nvidia.com/gpu"
CAPACITY = "n8s.nebuly.ai/capacity"


def quota(namespace: str, least: int, most: int | None = None) -> Manifest:
    spec = {"min": {GPU: least}} | ({} if most is None else {"max": {GPU: most}})
    return {
        "apiVersion": "n8s.nebuly.ai/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "quota", "namespace": namespace},
        "spec": spec,
    }


def test_a_team_borrows_and_the_owner_takes_its_quota_back(story: Story) -> None:
    a, b = story.namespace("a"), story.namespace("b")
    story.nodes(1, {GPU: "4"})
    story.apply(quota(a, 2), quota(b, 2, 3))
    story.governed(a, b)
    pods = [story.pod(f"b{number}", {GPU: "1"}) for number in range(4)]
    story.submit(b, *pods)
    story.running(b, "b0", "b1", "b2")
    text = story.waits(b, "b3", "elastic.max.nvidia.com/gpu")
    assert "SchedulingGated" in text
