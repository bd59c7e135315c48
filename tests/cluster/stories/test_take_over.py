"""Bursar arrives, leaves and comes back: what runs is taken as it is, and nobody is started twice or forgotten."""

from tests.cluster.stories.controller_process import Running
from tests.cluster.stories.story import Story
from tests.cluster.stories.test_elastic import KIND, quota
from tests.cluster.stories.test_namespace import GPU_IDS, worker
from tests.cluster.stories.test_pools import KIND as POOLS
from tests.cluster.stories.test_pools import PREFIX, SYSTEM, team_quota
from tests.cluster.stories.test_trees import tree

GPU = "nvidia.com/gpu"


def test_running_pods_are_taken_over_as_they_are(story: Story, bursar: Running) -> None:
    """They ran before there was a quota; while Bursar is away new ones wait, and nothing else stops."""
    team = story.namespace()
    story.nodes(1, {GPU: "8"})
    story.submit(team, story.pod("old-1", {GPU: "1"}), story.pod("old-2", {GPU: "1"}))
    before = story.running(team, "old-1", "old-2")
    story.apply(quota(team, {GPU: 3}, {GPU: 3}))
    story.governed(team)
    story.status(KIND, "quota", team, {"used": {GPU: "2"}})
    story.submit(team, story.pod("third", {GPU: "1"}))
    before += story.running(team, "third")

    bursar.stop()
    story.submit(team, story.pod("fourth", {GPU: "1"}))
    assert story.is_gated(team, "fourth")
    free = story.namespace("free")
    story.submit(free, story.pod("elsewhere", {GPU: "1"}))
    story.running(free, "elsewhere")
    story.delete("pod", "old-1", team)
    story.gone(team, "old-1")
    bursar.start()

    story.running(team, "fourth")
    story.submit(team, story.pod("fifth", {GPU: "1"}))
    story.waits(team, "fifth", "elastic.max.nvidia.com/gpu", "3 of its max of 3 in use")
    for pod in before[1:]:
        now = story.seen(team, pod["metadata"]["name"])
        assert now["metadata"]["uid"] == pod["metadata"]["uid"]
        assert now["spec"]["nodeName"] == pod["spec"]["nodeName"]


def test_a_hold_is_taken_over(story: Story, bursar: Running) -> None:
    """Bursar comes back while a victim is leaving: its place is still the claimant's, and nobody else must go."""
    a, b = story.namespace("a"), story.namespace("b")
    story.nodes(1, {GPU: "4"})
    story.apply(quota(a, {GPU: 2}), quota(b, {GPU: 2}))
    story.governed(a, b)
    slowly = {"sim.bursar.dev/leaves-after": "5m"}
    names = ("b0", "b1", "b2", "b3")
    story.submit(b, *(story.pod(name, {GPU: "1"}, annotations=slowly) for name in names))
    story.running(b, *names)
    story.submit(a, story.pod("own", {GPU: "1"}))
    story.wait(lambda: story.leaving(b), "a victim is told to leave")
    victims = story.leaving(b)
    bursar.component.kill()
    story.submit(a, story.pod("late", {GPU: "1"}))
    bursar.start()
    story.wait(lambda: len(story.leaving(b)) == 2, "the second is told to leave for the second claimant")
    assert set(victims) < set(story.leaving(b))
    assert story.is_gated(a, "own"), "not before its victim is gone"
    story.remove_leaving(b)
    story.running(a, "own", "late")
    assert len([name for name in names if story.seen(b, name)]) == 2
    assert story.record(a, "own")["displaced"][0][0] == victims[0]


def test_a_quota_that_the_next_leader_cannot_read_lets_nobody_pass(story: Story, bursar: Running) -> None:
    """No webhook looks at kube-system. Whoever led before knew the quota's last good form; who leads next does not."""
    team, name, weight = story.namespace(), f"{story.name}-quota", PREFIX + "shared-weight"
    story.nodes(1, {GPU: "4"})
    body = team_quota(SYSTEM, "", 1, 1)
    body["metadata"] = {"name": name, "namespace": SYSTEM, "labels": {PREFIX + "is-parent": "false"}}
    story.apply(body)
    chosen = {PREFIX + "name": name}
    story.submit(team, *(story.pod(pod, {GPU: "1"}, labels=chosen) for pod in ("first", "second")))
    story.wait(lambda: bool(story.node_of(team, "first")) != bool(story.node_of(team, "second")), "one of two runs")
    runs, waits = sorted(("first", "second"), key=lambda pod: not story.node_of(team, pod))
    story.plane.kubectl("annotate", POOLS, name, "-n", SYSTEM, "--overwrite", f"{weight}=much")
    bursar.stop()
    bursar.start()
    story.waits(team, waits, f"{SYSTEM}/{name} is not in force", "shared-weight")
    story.delete("pod", runs, team)
    story.gone(team, runs)
    story.submit(team, story.pod("third", {GPU: "1"}, labels=chosen))
    story.waits(team, "third", "is not in force")
    assert story.is_gated(team, waits)
    story.plane.kubectl("annotate", POOLS, name, "-n", SYSTEM, "--overwrite", f'{weight}={{"{GPU}": "1"}}')
    story.wait(lambda: bool(story.node_of(team, waits)) != bool(story.node_of(team, "third")), "one of them runs")


def test_gpus_and_trees_are_rebuilt_from_records(story: Story, bursar: Running) -> None:
    team = story.namespace()
    (node,) = story.nodes(1)
    story.nodes(1, {GPU: "4"})
    first, second = story.gpus(node, 2)
    most = {"tflops-request": "300", "vram-request": "8Gi", "gpu-count": "1"}
    label = tree(story, "t", {"all": {"quota": {GPU: 2}}, "a": {"parent": "all", "hard": True, "quota": {GPU: 2}}})
    story.submit(team, worker(story, "w1", most), story.pod("t1", {GPU: "1"}, labels={label: "a"}))
    (one, _) = story.running(team, "w1", "t1")
    bursar.stop()
    bursar.start()
    story.submit(team, worker(story, "w2", most), worker(story, "w3", most))
    story.wait(lambda: bool(story.node_of(team, "w2")) != bool(story.node_of(team, "w3")), "one of two gets a GPU")
    chosen = [story.seen(team, name)["metadata"]["annotations"].get(GPU_IDS) for name in ("w1", "w2", "w3")]
    assert sorted(filter(None, chosen)) == [first, second]
    assert chosen[0] == one["metadata"]["annotations"][GPU_IDS]
    story.submit(team, story.pod("t2", {GPU: "2"}, labels={label: "a"}))
    story.waits(team, "t2", "trees.quota.nvidia.com/gpu")


def test_pods_that_nobody_governs_count_on_their_nodes(story: Story) -> None:
    """They are never taken away for others, whatever the priority of those."""
    team, free = story.namespace("team"), story.namespace("free")
    important = story.priority(1000)
    story.nodes(1, {GPU: "4"})
    story.apply(quota(team, {GPU: 4}))
    story.governed(team)
    story.submit(free, story.pod("guest", {GPU: "3"}))
    story.running(free, "guest")
    story.submit(team, story.pod("two", {GPU: "2"}, priorityClassName=important))
    story.waits(team, "two", "nodes.full")
    story.submit(team, story.pod("one", {GPU: "1"}))
    story.running(team, "one")
    story.delete("pod", "guest", free)
    story.running(team, "two")


def test_a_preemption_by_the_scheduler_is_told_as_one_by_others(story: Story) -> None:
    """Pods that no quota governs may have a higher priority: the scheduler takes the place of one that is governed."""
    team, free = story.namespace(), story.namespace("free")
    story.nodes(1, {GPU: "2"})
    story.apply(quota(team, {GPU: 2}))
    story.governed(team)
    story.submit(team, story.pod("ours", {GPU: "2"}))
    story.running(team, "ours")
    urgent = story.priority(1_000)
    story.submit(free, story.pod("theirs", {GPU: "2"}, priorityClassName=urgent))
    story.running(free, "theirs")
    told = story.told(team, "ours", "control.preempted-by-others")
    assert told == ["the scheduler preempts it for a pod of higher priority"]
