"""Applying, deleting, finishing and undoing over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bursar.objects.manifests import Document
from bursar.server.background import Ticker
from bursar.server.client import Client, RequestFailedError
from bursar.server.service import Service
from bursar.server.types import Problem
from tests.server.live import Live, ManualClock, node, pod, quota, text, wait_for


def refused(call: Callable[..., object], *args: object, **kwargs: object) -> Problem:
    with pytest.raises(RequestFailedError) as caught:
        call(*args, **kwargs)
    return caught.value.problem


def phases(client: Client) -> dict[str, str]:
    return {f"{row.namespace}/{row.name}": row.phase for row in client.claims().items}


def test_a_change_says_what_became_of_each_object_and_pod(bed: Live) -> None:
    change = bed.give(quota("a", 2), pod("a", "p1"), pod("a", "p2", 9))
    assert [(one.kind, one.key, one.result) for one in change.objects] == [
        ("ElasticQuota.n8s.nebuly.ai", "a/quota", "unchanged"),
        ("Pod", "a/p1", "created"),
        ("Pod", "a/p2", "created"),
    ]
    assert [(news.pod, news.what, news.node) for news in change.pods] == [
        ("a/p1", "started", "n1"),
        ("a/p2", "waits", ""),
    ]
    assert change.moment == bed.client.info().moment


def test_the_same_again_is_no_change(bed: Live) -> None:
    bed.give(pod("a", "p1"))
    before = bed.client.info().moment
    change = bed.give(node("n1"), quota("a", 2), pod("a", "p1"))
    assert change.id == 0
    assert {one.result for one in change.objects} == {"unchanged"}
    assert bed.client.info().moment == before


def test_what_was_read_can_be_applied_again(bed: Live) -> None:
    bed.give(pod("a", "p1"))
    read = bed.client.objects().items
    assert bed.client.apply(text(*read)).id == 0


def test_an_old_version_is_a_conflict(bed: Live) -> None:
    read = bed.client.object("ElasticQuota.n8s.nebuly.ai", "a/quota")
    bed.give(quota("a", 3))
    before = bed.position()
    problem = refused(bed.give, {**read, "spec": {"min": {"nvidia.com/gpu": 1}}})
    assert (problem.status, problem.object, problem.field) == (409, "ElasticQuota a/quota", "metadata.resourceVersion")
    assert (problem.seq, problem.digest) == before == bed.position()


def test_a_dry_run_tells_and_changes_nothing(bed: Live) -> None:
    before = bed.client.info().moment
    change = bed.client.apply(text(pod("a", "p1")), dry_run=True)
    assert change.dry_run
    assert [news.what for news in change.pods] == ["started"]
    assert bed.client.info().moment == before
    assert bed.client.claims().items == []


def test_a_repeated_request_with_a_key_is_answered_not_repeated(bed: Live) -> None:
    body = text(pod("a", "p1"))
    first = bed.client.apply(body, idempotency_key="k1")
    bed.client.delete(["Pod/a/p1"])
    assert bed.client.apply(body, idempotency_key="k1") == first
    assert bed.client.claims().items == []
    assert refused(bed.client.apply, text(pod("a", "p2")), idempotency_key="k1").status == 422


def test_all_or_nothing(bed: Live) -> None:
    before = bed.position()
    bad = quota("c", 2, max={"nvidia.com/gpu": 1})
    problem = refused(bed.client.apply, text(pod("a", "p1"), bad), source="team.yaml")
    assert problem.status == 422
    assert (problem.source, problem.object) == ("team.yaml", "ElasticQuota c/quota")
    assert problem.field == "items[1].spec.max.nvidia.com/gpu"
    assert bed.position() == before
    assert bed.client.claims().items == []


def test_delete_and_finish(bed: Live) -> None:
    bed.give(pod("a", "p1"), pod("a", "p2"))
    assert [one.result for one in bed.client.delete(["Pod/a/p1"]).objects] == ["deleted"]
    assert [news.what for news in bed.client.finish(["a/p2"]).pods] == ["finished"]
    assert phases(bed.client) == {"a/p2": "Succeeded"}
    assert refused(bed.client.delete, ["Pod/a/p1"]).status == 404
    assert refused(bed.client.finish, ["a/p2"]).status == 422
    assert refused(bed.client.delete, ["Nonsense/a"]).status == 400


def test_undo_of_an_apply_restores_what_was_there(bed: Live) -> None:
    before = bed.client.object("ElasticQuota.n8s.nebuly.ai", "a/quota")["spec"]
    change = bed.give(quota("a", 4), quota("c", 1), node("n2"))
    undone = bed.client.undo(change.id)
    assert (undone.verb, undone.undoes) == ("undo", change.id)
    assert sorted((one.key, one.result) for one in undone.objects) == [
        ("a/quota", "changed"),
        ("c/quota", "deleted"),
        ("n2", "deleted"),
    ]
    assert [one.key for one in undone.objects] == ["n2", "c/quota", "a/quota"], "the last one first"
    assert bed.client.object("ElasticQuota.n8s.nebuly.ai", "a/quota")["spec"] == before
    again = bed.client.undo(undone.id)
    assert sorted((one.key, one.result) for one in again.objects) == [
        ("a/quota", "changed"),
        ("c/quota", "created"),
        ("n2", "created"),
    ]


def composite(*namespaces: str) -> dict[str, object]:
    return {
        "apiVersion": "n8s.nebuly.ai/v1alpha1",
        "kind": "CompositeElasticQuota",
        "metadata": {"namespace": "default", "name": "both"},
        "spec": {"namespaces": list(namespaces), "min": {"cpu": 1}},
    }


def test_an_undo_in_two_steps_is_refused_before_the_first(bed: Live) -> None:
    """The node that the change created would be deleted first; what the composite was is no longer allowed."""
    bed.give(composite("d", "e"))
    change = bed.give(composite("e", "f"), node("n2"))
    bed.give(quota("d", 1))
    assert refused(bed.client.undo, change.id).status == 422
    assert bed.client.object("Node", "n2")


def test_undo_says_what_cannot_come_back(bed: Live, clock: ManualClock) -> None:
    bed.give(pod("b", "loan", 4))
    clock.now += 60_000
    change = bed.give(pod("a", "owner", 2))
    assert phases(bed.client) == {"a/owner": "Running", "b/loan": "Evicted"}
    undone = bed.client.undo(change.id)
    assert undone.lost == [
        "Pod a/owner runs on n1, and what it has done is lost",
        "Pod b/loan was evicted and stays so; apply it again to start it from the beginning",
    ]
    assert phases(bed.client) == {"b/loan": "Evicted"}


def test_undo_of_a_deletion_creates_anew(bed: Live) -> None:
    bed.give(pod("a", "p1"))
    change = bed.client.delete(["Pod/a/p1", "ElasticQuota.n8s.nebuly.ai/b/quota"])
    undone = bed.client.undo(change.id)
    assert undone.lost == ["Pod a/p1 ran on n1 and starts from the beginning"]
    assert phases(bed.client) == {"a/p1": "Running"}


def test_undo_is_refused_when_an_object_was_changed_since(bed: Live) -> None:
    change = bed.give(quota("a", 3))
    bed.give(quota("a", 4))
    before = bed.position()
    problem = refused(bed.client.undo, change.id)
    assert (problem.status, problem.detail) == (409, "ElasticQuota a/quota: was changed since: undo that first")
    assert refused(bed.client.undo, 99).status == 404
    bed.give(pod("a", "p1"))
    finished = bed.client.finish(["a/p1"])
    assert refused(bed.client.undo, finished.id).status == 422
    assert before != bed.position()


def test_changes_are_listed_newest_first(bed: Live) -> None:
    bed.give(pod("a", "p1"))
    bed.client.delete(["Pod/a/p1"])
    assert [(change.id, change.verb) for change in bed.client.changes().items] == [
        (3, "delete"),
        (2, "apply"),
        (1, "apply"),
    ]
    assert [change.id for change in bed.client.changes(limit=1).items] == [3]


def test_pods_end_in_real_time(bed: Live, clock: ManualClock) -> None:
    bed.give(pod("a", "p1", runs_for="5s"))
    clock.now += 4_000
    bed.service.tick()
    assert phases(bed.client) == {"a/p1": "Running"}
    clock.now += 2_000
    bed.service.tick()
    assert phases(bed.client) == {"a/p1": "Succeeded"}
    finished = bed.client.history("Pod", "a/p1").items[-1]
    assert finished.time == "2027-01-15T08:00:05Z"


def test_a_pod_that_ends_soon_wakes_who_sleeps(tmp_path: Path) -> None:
    service = Service.open(tmp_path / "b.db")
    ticker = Ticker(service, poll_ms=3_600_000)
    try:
        service.apply([Document("", 1, node("n1"))])
        wait_for("sleep", lambda: service.alarm.at > service.now())
        service.apply([Document("", 2, pod("a", "short", runs_for="50ms"))])
        wait_for("end", lambda: (short := service.cluster.doing("a/short")) is not None and short.phase == "Succeeded")
    finally:
        ticker.stop()
        service.close()
