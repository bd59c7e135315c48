"""Groups: all of their pods are let go at once, or none."""

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
    story.waits(team, "w0", "engine.group", "2 of 2 are in use")
    story.submit(team, story.pod("alone", {GPU: "2"}))
    story.running(team, "alone")
    assert all(story.is_gated(team, f"w{number}") for number in range(3))
