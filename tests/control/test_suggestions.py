"""Fixes: each that is shown lets the claim in when it is followed; and the ones people expect are shown."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bursar.control.suggestions.search import Found, find_fixes
from bursar.control.suggestions.trial import Attempt, Edit, Raise, SearchBudget, Trials, edited, show_path
from bursar.engine.engine import Engine
from bursar.policies.fix_fields import look_up
from bursar.sim.cluster import Cluster, ClusterSource, fixes_for
from tests import builders
from tests.builders import priority_class
from tests.control.suggestion_cluster import TEAMS, apply, fixes, follow, new_cluster, pod


def random_cluster(seed: int) -> Cluster:
    """Some pods of all teams, of which some wait; the same for the same seed."""
    dice = random.Random(seed)
    cluster = new_cluster()
    for number in range(dice.randint(4, 10)):
        team = dice.choice(TEAMS)
        marks: dict[str, str] = {}
        if dice.random() < 0.2:
            marks["priority"] = dice.choice(["mid", "high"])
        if dice.random() < 0.3:
            marks["pool"] = dice.choice("abc")
        if dice.random() < 0.15:
            marks["firm"] = "yes"
        if dice.random() < 0.3:
            marks["runs"] = f"{dice.randint(1, 50)}m"
        amount = dice.randint(1, 9)
        bodies = [pod(team, f"p{number}", amount, **marks)]
        if dice.random() < 0.15:
            marks["group"] = f"g{number}"
            bodies = [pod(team, f"p{number}{member}", amount, **marks) for member in "xy"]
        apply(cluster, *bodies)
        if dice.random() < 0.3:
            cluster.advance(60_000)
    return cluster


@settings(max_examples=6)
@given(seed=st.integers(0, 10_000))
def test_a_fix_that_is_followed_lets_the_claim_in(seed: int) -> None:
    cluster = random_cluster(seed)
    before = cluster.engine.version, cluster.engine.digest
    for key in cluster.pods():
        for fix in fixes(cluster, key).fixes:
            followed = random_cluster(seed)
            follow(followed, fix)
            found = followed.pod(key)
            assert found is not None
            assert found.phase == "Running", f"{key}: {fix.sentence}: {found.message}"
            if fix.node and not fix.waits_for:
                assert found.node == fix.node
    assert (cluster.engine.version, cluster.engine.digest) == before


@settings(max_examples=6)
@given(seed=st.integers(0, 10_000))
def test_one_unit_more_does_not_get_in(seed: int) -> None:
    cluster = random_cluster(seed)
    for key in cluster.pods():
        for fix in fixes(cluster, key).fixes:
            if (
                fix.code != "ask-less"
                or len(fix.edits) != 1
                or fix.edits[0].field.endswith(("vram-request", "gpu-count"))
            ):
                continue
            edit = fix.edits[0]
            more = Edit(edit.kind, edit.key, edit.path, edit.before, _one_more(edit))
            if more.after == edit.before:
                continue
            body = cluster.objects.find("Pod", edit.key)
            assert body is not None
            followed = random_cluster(seed)
            apply(followed, edited(body.applied.body, [more]))
            found = followed.pod(key)
            assert found is not None
            assert found.phase == "Pending"


def _one_more(edit: Edit) -> str:
    amount = str(edit.after)
    return f"{int(amount[:-1]) + 1}m" if amount.endswith("m") else str(int(amount) + 1)


def sentences(found: Found, code: str) -> list[str]:
    return [fix.sentence for fix in found.fixes if fix.code == code]


def test_a_namespace_at_its_max() -> None:
    cluster = new_cluster()
    apply(cluster, pod("elastic-a", "one", 3, runs="10m"))
    apply(cluster, pod("elastic-a", "two", 4))
    found = fixes(cluster, "elastic-a/two")
    assert sentences(found, "ask-less") == ["ask for 2 instead of 4 nvidia.com/gpu"]
    assert sentences(found, "wait") == ["wait for elastic-a/one to end"]
    assert [fix.ends_at for fix in found.fixes if fix.code == "wait"] == [600_000]
    raised = "raise spec.max.nvidia.com/gpu of ElasticQuota elastic-a/quota from 5 to 7"
    also = ", and spec.min.nvidia.com/gpu of ElasticQuota elastic-a/quota from 2 to 3"
    assert sentences(found, "raise-quota") in ([raised], [raised + also])
    assert found.complete


def test_a_higher_priority() -> None:
    cluster = new_cluster()
    apply(cluster, pod("vision", "one", 3))
    apply(cluster, pod("vision", "two", 3))
    (fix,) = (fix for fix in fixes(cluster, "vision/two").fixes if fix.code == "priority")
    assert fix.sentence == "recreate it with the priority class mid (50); it takes the place of vision/one"
    assert (fix.evicts, fix.edits[0].anew) == (("vision/one",), True)


def test_a_pod_that_only_loses_its_hold_is_not_called_displaced() -> None:
    cluster = Cluster()
    slow = {"sim.bursar.dev/leaves-after": "30s"}
    classes = [priority_class("mid", 50), priority_class("high", 1000)]
    apply(cluster, builders.node("n1", {"cpu": 4}), *classes, builders.pod("v", "a", {"cpu": 3}, annotations=slow))
    apply(cluster, builders.pod("h", "a", {"cpu": 4}, priorityClassName="mid"))
    apply(cluster, builders.pod("p", "a", {"cpu": 1}))
    (fix,) = (fix for fix in fixes(cluster, "a/p").fixes if fix.code == "priority")
    assert (fix.sentence, fix.evicts) == ("recreate it with the priority class high (1000)", ())
    follow(cluster, fix)
    assert {key: pod.phase for key, pod in cluster.pod_states.items()} == {
        "a/v": "Terminating",
        "a/h": "Pending",
        "a/p": "Running",
    }


def test_nobody_is_told_to_take_a_priority_class_of_the_system() -> None:
    cluster = new_cluster()
    system = {"metadata": {"name": "system-cluster-critical"}, "value": 2_000_000_000}
    apply(cluster, {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **system})
    apply(cluster, pod("vision", "one", 3, priority="high"))
    apply(cluster, pod("vision", "two", 3, priority="high"))
    assert sentences(fixes(cluster, "vision/two"), "priority") == []


@pytest.mark.parametrize(
    ("team", "held", "asked", "sentence"),
    [
        ("vision", 2, 2, "raise spec.nodes.vision.quota.nvidia.com/gpu of QuotaTree company from 3 to 4"),
        ("web", 6, 4, "raise spec.max.cpu of ElasticQuota web/web from 8 to 10"),
        ("infer", 6, 5, "raise spec.total.requests.tflops of GPUResourceQuota infer/quota from 100 to 110"),
        ("infer", 1, 9, "raise spec.single.maxRequests.tflops of GPUResourceQuota infer/quota from 60 to 90"),
    ],
)
def test_the_field_to_raise_in_each_dialect(team: str, held: int, asked: int, sentence: str) -> None:
    cluster = new_cluster()
    apply(cluster, pod(team, "held", held))
    apply(cluster, pod(team, "asked", asked))
    assert sentences(fixes(cluster, f"{team}/asked"), "raise-quota") == [sentence]


def test_another_pool_of_nodes() -> None:
    cluster = new_cluster()
    apply(cluster, pod("free", "big", 8, pool="a"))
    found = fixes(cluster, "free/big")
    assert sentences(found, "other-nodes") == ["use nodes with pool=b instead of pool=a"]
    assert found.fixes[-1].node == "n2"


def test_a_taint_to_tolerate() -> None:
    cluster = new_cluster()
    apply(cluster, pod("free", "big", 8))
    apply(cluster, pod("free", "second", 8))
    assert "tolerate the taint dedicated=ml:NoSchedule" in sentences(fixes(cluster, "free/second"), "other-nodes")


def test_two_changes_where_none_helps_alone() -> None:
    cluster = new_cluster()
    apply(cluster, pod("free", "full", 4, pool="a"))
    apply(cluster, pod("vision", "v", 5, pool="c"))
    assert sentences(fixes(cluster, "vision/v"), "ask-less") == [
        "use nodes with pool=a instead of pool=c, and ask for 1 instead of 5 nvidia.com/gpu"
    ]


def test_a_pod_that_may_not_be_preempted_must_not_borrow() -> None:
    cluster = new_cluster()
    apply(cluster, pod("elastic-a", "firm", 3, firm="yes"))
    assert sentences(fixes(cluster, "elastic-a/firm"), "preemptible") == [
        "let it be preempted: drop the label bursar.dev/preemptible"
    ]


def test_the_members_of_a_group_ask_for_less_together() -> None:
    cluster = new_cluster()
    apply(cluster, *(pod("vision", name, 2, group="g") for name in ("m1", "m2")))
    (fix,) = (fix for fix in fixes(cluster, "vision/m1").fixes if fix.code == "ask-less")
    assert fix.sentence == "ask for 1 instead of 2 nvidia.com/gpu each"
    assert [edit.key for edit in fix.edits] == ["vision/m1", "vision/m2"]


def test_who_waits_in_front_goes_first() -> None:
    cluster = new_cluster()
    apply(cluster, pod("vision", "holds", 3))
    apply(cluster, pod("vision", "first", 3))
    apply(cluster, pod("vision", "second", 1))
    assert sentences(fixes(cluster, "vision/second"), "wait") == []
    assert sentences(fixes(cluster, "vision/first"), "wait") == ["wait for vision/holds to end"]


def test_several_must_end_and_nobody_is_named_in_vain() -> None:
    cluster = new_cluster()
    for number in range(3):
        apply(cluster, pod("vision", f"v{number}", 1))
    apply(cluster, pod("vision", "two", 2))
    (fix,) = (fix for fix in fixes(cluster, "vision/two").fixes if fix.code == "wait")
    assert len(fix.waits_for) == 2


def test_room_has_to_be_on_one_node() -> None:
    cluster = new_cluster()
    for number in range(12):
        apply(cluster, pod("free", f"p{number}", 1))
    apply(cluster, pod("free", "four", 4))
    (fix,) = (fix for fix in fixes(cluster, "free/four").fixes if fix.code == "wait")
    assert len(fix.waits_for) == 4
    places = [cluster.pod(key) for key in fix.waits_for]
    assert len({place.node for place in places if place is not None}) == 1


@pytest.mark.parametrize("key", ["vision/runs", "vision/member"])
def test_no_fixes_for_whom_nothing_is_to_be_fixed(key: str) -> None:
    cluster = new_cluster()
    apply(cluster, pod("vision", "runs", 1))
    apply(cluster, pod("vision", "member", 1, group="half"))
    assert fixes(cluster, key) == Found()


def test_effort_is_bounded() -> None:
    cluster = new_cluster()
    apply(cluster, pod("vision", "big", 5))
    found = cluster.doing("vision/big")
    assert found is not None
    assert fixes_for(cluster, found.uid, effort=3) == Found([], complete=False)


def test_an_account_of_an_unknown_policy_is_raised_itself() -> None:
    cluster = new_cluster()
    apply(cluster, pod("vision", "big", 4))
    claim = cluster.controller.claim("vision/big")
    assert claim is not None
    trials = Trials(
        cluster.engine,
        cluster.registry,
        ClusterSource(cluster),
        cluster.controller.queue,
        claim,
        [claim],
        SearchBudget(100),
    )
    assert not trials.admits(Attempt(raised=(Raise("trees/company/vision", "nvidia.com/gpu", 3),)))
    assert trials.admits(Attempt(raised=(Raise("trees/company/vision", "nvidia.com/gpu", 4),)))


def test_an_unknown_claim_has_no_fixes() -> None:
    cluster = new_cluster()
    engine: Engine = cluster.engine
    assert find_fixes(engine, cluster.registry, cluster.controller.queue, ClusterSource(cluster), "x").fixes == []


def test_edits_leave_the_manifest_alone() -> None:
    body = {"spec": {"containers": [{"a": 1}], "gone": 2}}
    path = ("spec", "containers", 0, "a")
    changed = edited(body, [Edit("K", "k", path, 1, 5), Edit("K", "k", ("spec", "gone"), 2, None)])
    assert changed == {"spec": {"containers": [{"a": 5}]}}
    assert body == {"spec": {"containers": [{"a": 1}], "gone": 2}}
    assert (look_up(changed, path), look_up(changed, ("spec", "none", "x")), show_path(path)) == (
        5,
        None,
        "spec.containers[0].a",
    )
