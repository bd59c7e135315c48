"""Roles: what each may change, whose name a change carries, and the request log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from bursar.server.client import Client
from bursar.server.types import Problem
from tests.server.live import Live, live, node, pod, quota, text
from tests.server.test_changes import refused

TOKENS = """
admin        admin-0123456789abc  platform
quota-editor editor-0123456789ab  finance
submitter    vision-0123456789ab  vision-ci  vision,vision-dev
submitter    lab-0123456789abcde  lab-ci     lab
viewer       viewer-0123456789ab  screens
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Live]:
    path = tmp_path / "tokens"
    path.write_text(TOKENS)
    path.chmod(0o600)
    with live(tmp_path / "b.db", tokens=path, token="admin-0123456789abc") as bed:  # noqa: S106 a test
        bed.give(node("n1"), quota("vision", 2), quota("lab", 2))
        yield bed


def of(bed: Live, token: str) -> Client:
    return Client(bed.address, token=token)


def denied(problem: Problem, words: str) -> None:
    assert problem.status == 403
    assert words in problem.detail


def test_a_submitter_changes_what_is_in_its_namespaces(guarded: Live) -> None:
    ci = of(guarded, "vision-0123456789ab")
    change = ci.apply(text(pod("vision", "one"), pod("vision-dev", "two")))
    assert change.actor == "vision-ci"
    assert [news.what for news in change.pods].count("started") == 2
    before = guarded.position()
    denied(refused(ci.apply, text(pod("lab", "p"))), "vision-ci may change objects of vision, vision-dev only")
    denied(refused(ci.apply, text(pod("vision", "three"), pod("lab", "p"))), "Pod lab/p")
    denied(refused(ci.apply, text(pod("lab", "p")), dry_run=True), "Pod lab/p")
    denied(refused(ci.apply, text(quota("vision", 9))), "which may change what is in namespaces, except quotas")
    denied(refused(ci.apply, text(node("n2"))), "Node n2")
    denied(refused(ci.delete, ["ElasticQuota.n8s.nebuly.ai/vision/quota"]), "ElasticQuota vision/quota")
    assert guarded.position() == before
    assert ci.finish(["vision/one"]).actor == "vision-ci"
    assert ci.delete(["Pod/vision/one"]).actor == "vision-ci"


def test_a_submitter_does_not_choose_nodes(guarded: Live) -> None:
    """A pod that names its node runs there whatever its quota says."""
    ci = of(guarded, "vision-0123456789ab")
    placed = pod("vision", "big", 4)
    placed["spec"]["nodeName"] = "n1"
    denied(refused(ci.apply, text(placed)), "Pod vision/big: spec.nodeName: only an admin may choose the node of a pod")
    ci.apply(text(pod("vision", "small")))
    read = ci.object("Pod", "vision/small")
    assert read["spec"]["nodeName"] == "n1"
    assert ci.apply(msgspec.json.encode(read)).objects[0].result == "unchanged"


def test_teams_do_not_touch_each_other(guarded: Live) -> None:
    vision, lab = of(guarded, "vision-0123456789ab"), of(guarded, "lab-0123456789abcde")
    number = vision.apply(text(pod("vision", "one"))).id
    denied(refused(lab.delete, ["Pod/vision/one"]), "Pod vision/one")
    denied(refused(lab.finish, ["vision/one"]), "Pod vision/one")
    denied(refused(lab.undo, str(number)), "Pod vision/one")
    assert vision.undo(str(number)).undoes == number


def test_a_quota_editor_changes_quotas_and_nothing_else(guarded: Live) -> None:
    finance = of(guarded, "editor-0123456789ab")
    assert finance.apply(text(quota("vision", 3))).objects[0].result == "changed"
    denied(refused(finance.apply, text(pod("vision", "p"))), "the role quota-editor, which may change quotas")
    denied(refused(finance.apply, text(node("n2"))), "Node n2")
    config = {"apiVersion": "bursar.dev/v1alpha1", "kind": "Configuration", "metadata": {"name": "default"}, "spec": {}}
    denied(refused(finance.apply, text(config)), "Configuration default")
    denied(refused(lambda: list(finance.backup())), "finance has the role quota-editor; this needs the role admin")


def test_a_viewer_changes_nothing(guarded: Live) -> None:
    screens = of(guarded, "viewer-0123456789ab")
    assert screens.what_if(text(pod("vision", "p"))).pods[0].verdict == "now"
    denied(refused(screens.apply, text(pod("vision", "p"))), "this needs the role submitter or quota-editor or admin")


def test_changes_and_history_name_who_did_it(guarded: Live) -> None:
    of(guarded, "editor-0123456789ab").apply(text(quota("vision", 3)))
    of(guarded, "vision-0123456789ab").apply(text(pod("vision", "one"), pod("vision", "two", 2)))
    guarded.give(quota("vision", 1))
    client = guarded.client
    assert [one.actor for one in client.changes().items] == ["platform", "vision-ci", "finance", "platform"]
    history = client.history("ElasticQuota.n8s.nebuly.ai", "vision/quota").items
    asked = [(one.actor, one.change) for one in history if any(f.path.startswith("spec") for f in one.fields)]
    assert asked == [("finance", 2), ("platform", 4)]
    assert history[0].actor == "platform"
    assert any(one.actor == "" and one.change == 0 for one in history)  # Bursar wrote the status
    assert client.history("Pod", "vision/two").items[0].actor == "vision-ci"


def test_a_key_of_one_caller_is_not_answered_to_another(guarded: Live) -> None:
    vision, lab = of(guarded, "vision-0123456789ab"), of(guarded, "lab-0123456789abcde")
    vision.apply(text(pod("vision", "one")), idempotency_key="k")
    assert refused(lab.apply, text(pod("lab", "one")), idempotency_key="k").status == 422
    assert refused(guarded.client.apply, text(pod("vision", "one")), idempotency_key="k").status == 422


def test_requests_are_logged_with_their_id_and_actor(guarded: Live, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bursar.server")
    bearer = "Bearer vision-0123456789ab"
    body = text(pod("vision", "one"))
    status, headers, _ = guarded.raw(
        "POST", "/api/v1/apply", body, Content_Type="application/json", X_Request_Id="r-7", Authorization=bearer
    )
    assert (status, headers["x-request-id"]) == (200, "r-7")
    assert len(guarded.raw("GET", "/api/v1/nodes", Authorization=bearer)[1]["x-request-id"]) == 16
    assert guarded.raw("GET", "/api/v1/nodes")[0] == 401
    lines = [record.__dict__["bursar_fields"] for record in caplog.records if record.message == "answered"]
    told = [(one["operation"], one["status"]) for one in lines]
    assert told == [("apply", 200), ("nodes", 401)]  # a read that succeeds is logged at level debug
