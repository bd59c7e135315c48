"""Lists, filters, pages, explanations, what-if and plan."""

from __future__ import annotations

from typing import Any

import pytest

from bursar.server.client import RequestFailedError
from tests.server.live import Live, ManualClock, node, pod, quota, text
from tests.server.test_changes import refused


def test_claims_are_filtered(bed: Live) -> None:
    marked = pod("a", "p2")
    marked["metadata"]["labels"] = {"tier": "gold"}
    bed.give(pod("a", "p1"), marked, pod("b", "p1", 9))
    client = bed.client

    def names(**query: str) -> list[str]:
        return [f"{row.namespace}/{row.name}" for row in client.claims(**query).items]

    assert names() == ["a/p1", "a/p2", "b/p1"]
    assert names(namespace="a") == ["a/p1", "a/p2"]
    assert names(phase="Pending") == ["b/p1"]
    assert names(node="n1") == ["a/p1", "a/p2"]
    assert names(label="tier=gold") == ["a/p2"]
    assert names(label="!tier") == ["a/p1", "b/p1"]
    assert names(quota=client.claim("a", "p1").quotas[0]) == ["a/p1", "a/p2"]


def of_kind(api_version: str, kind: str, name: str, **spec: object) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name} if kind == "QuotaTree" else {"name": name, "namespace": "c"},
        "spec": spec,
    }


GPUS = {"nvidia.com/gpu": 4}
TREE = of_kind("bursar.dev/v1alpha1", "QuotaTree", "org", resourceNames=[*GPUS], nodes={"all": {"quota": GPUS}})
POOL = of_kind("scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota", "pool", min=GPUS, max=GPUS)
LIMITS = of_kind("tensor-fusion.ai/v1", "GPUResourceQuota", "gpus", total={"maxWorkers": 4})


@pytest.mark.parametrize(
    ("given", "name", "labels", "annotations"),
    [
        (TREE, "org:all", {"quota.bursar.dev/org": "all"}, {}),
        (POOL, "c/pool", {"quota.scheduling.koordinator.sh/name": "pool"}, {}),
        (LIMITS, "c/gpus", {}, {"tensor-fusion.ai/tflops-request": "20"}),
    ],
)
def test_claims_of_a_quota_are_found_by_the_name_that_the_table_has(
    bed: Live, given: dict[str, Any], name: str, labels: dict[str, str], annotations: dict[str, str]
) -> None:
    gpus = 0 if annotations else 1  # whole ones count in a GPUResourceQuota, too
    governed = pod("c", "governed", gpus)
    governed["metadata"] |= {"labels": labels, "annotations": annotations}
    bed.give(given, governed, pod("c", "other", gpus))
    rows = bed.client.quotas().items
    assert name in {f"{row.name}:{row.node}" if row.node else f"{row.namespace}/{row.name}" for row in rows}
    assert [row.name for row in bed.client.claims(quota=name).items] == ["governed"]


def test_a_name_of_two_quotas_is_refused_with_their_accounts(bed: Live) -> None:
    bed.give(of_kind("tensor-fusion.ai/v1", "GPUResourceQuota", "quota", total={"maxWorkers": 4}), quota("c", 0))
    problem = refused(bed.client.claims, quota="c/quota")
    assert problem.status == 400
    assert problem.detail == "the quota 'c/quota' may be elastic/ElasticQuota/c/quota or limits/c: say which"


def test_a_page_continues_the_moment_of_the_first(bed: Live) -> None:
    bed.give(*(pod("a", f"p{i}") for i in range(4)))
    first = bed.client.claims(limit=2)
    assert (len(first.items), first.remaining) == (2, 2)
    bed.client.delete(["Pod/a/p3"])
    bed.give(pod("a", "p1a"))
    second = bed.client.claims(limit=2, **{"continue": first.next})
    assert [row.name for row in second.items] == ["p2", "p3"]
    assert second.moment == first.moment
    assert second.next == ""
    objects = bed.client.objects(kind="Pod", limit=3)
    assert [one["metadata"]["name"] for one in objects.items] == ["p0", "p1", "p1a"]
    rest = bed.client.objects(kind="Pod", limit=3, **{"continue": objects.next})
    assert [one["metadata"]["name"] for one in rest.items] == ["p2"]


def test_quotas_of_a_team_that_borrows(bed: Live) -> None:
    bed.give(pod("b", "loan", 3))
    rows = {row.namespace: row.resources["nvidia.com/gpu"] for row in bed.client.quotas(policy="elastic").items}
    assert (rows["a"].used, rows["a"].min, rows["a"].idle, rows["a"].lent) == ("0", "2", "2", "1")
    assert (rows["b"].used, rows["b"].borrowed, rows["b"].lent) == ("3", "1", "0")


def test_nodes_and_the_queue(bed: Live) -> None:
    bed.give(pod("a", "p1"), pod("a", "p2", 9))
    (row,) = bed.client.nodes().items
    assert (row.name, row.allocatable, row.used, row.pods) == (
        "n1",
        {"nvidia.com/gpu": "4"},
        {"nvidia.com/gpu": "1", "pods": "1"},
        1,
    )
    (waits,) = bed.client.queue().items
    assert (waits.position, waits.name, waits.reason) == (1, "p2", "elastic.total.nvidia.com/gpu")
    assert waits.message


def test_explain_is_a_tree_and_a_text(bed: Live) -> None:
    bed.give(pod("a", "p1", 9))
    found = bed.client.explain("a", "p1")
    assert not found.tree.passed
    assert "FAIL <- first" in found.text
    assert found.claim.phase == "Pending"
    assert refused(bed.client.explain, "a", "nobody").status == 404


def test_explain_gives_fixes_that_work(bed: Live) -> None:
    bed.give(pod("a", "p1", 9))
    assert bed.client.explain("a", "p1").fixes == []
    found = bed.client.explain("a", "p1", fixes=True)
    (less,) = [fix for fix in found.fixes if fix.code == "ask-less"]
    assert found.fixes_complete
    assert [(edit.kind, edit.key, str(edit.after)) for edit in less.edits] == [("Pod", "a/p1", "4")]
    bed.give(pod("a", "p1", 4))
    assert bed.client.claim("a", "p1").phase == "Running"


def test_what_if_answers_now_queued_never_and_victims(bed: Live, clock: ManualClock) -> None:
    bed.give(pod("b", "loan", 4))
    clock.now += 60_000
    before = bed.position()
    found = bed.client.what_if(text(pod("a", "p1", 2), pod("a", "p2", 50)))
    rows = {row.pod: row for row in found.pods}
    assert (rows["a/p1"].verdict, rows["a/p1"].victims, rows["a/p1"].node) == ("after-evictions", ["b/loan"], "n1")
    assert rows["a/p2"].verdict in {"queued", "never"}
    assert found.evicted == ["b/loan"]
    assert bed.position() == before


def test_what_if_of_a_job(bed: Live) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"namespace": "a", "name": "sweep"},
        "spec": {"parallelism": 5, "template": {"spec": pod("a", "x")["spec"]}},
    }
    found = bed.client.what_if(text(job))
    assert [(row.pod, row.verdict) for row in found.pods] == [
        ("a/sweep-0", "now"),
        ("a/sweep-1", "now"),
        ("a/sweep-2", "now"),
        ("a/sweep-3", "now"),
        ("a/sweep-4", "queued"),
    ]


def test_a_plan_says_who_starts_who_leaves_and_who_loses_borrowing(bed: Live, clock: ManualClock) -> None:
    bed.give(quota("a", 0), quota("b", 4), pod("b", "loan", 4))
    clock.now += 60_000
    bed.give(pod("a", "waits", 2))
    before = bed.position()
    assert {row.name: row.phase for row in bed.client.claims().items} == {"loan": "Running", "waits": "Pending"}
    plan = bed.client.plan(text(quota("a", 2), quota("b", 2)))
    assert plan.starts == ["a/waits"]
    assert [news.pod for news in plan.evicted] == ["b/loan"]
    more = bed.client.plan(text(node("n2"), quota("a", 4)))
    assert (more.starts, more.evicted) == (["a/waits"], [])
    stranded = bed.client.plan(b"", delete=["Node/n1"])
    assert [(news.pod, news.node) for news in stranded.stranded] == [("b/loan", "n1")]
    assert not stranded.evicted
    assert not stranded.harmless
    gone = bed.client.plan(b"", delete=["Pod/b/loan"])
    assert (gone.gone, gone.starts) == (["b/loan"], ["a/waits"])
    assert bed.position() == before


def test_objects_by_kind_and_one_object(bed: Live) -> None:
    assert [one["kind"] for one in bed.client.objects(kind="nodes").items] == ["Node"]
    assert bed.client.object("no", "n1")["metadata"]["name"] == "n1"
    with pytest.raises(RequestFailedError) as caught:
        bed.client.object("Node", "n9")
    assert caught.value.status == 404
    assert {kind.name for kind in bed.client.kinds().items} >= {"Pod", "QuotaTree.bursar.dev"}
