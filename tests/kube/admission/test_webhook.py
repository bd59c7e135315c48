"""What the webhook says: to the API server's reviews, and to anybody who sends something else."""

import asyncio
import time
from typing import Any

import pytest

from bursar.kube.admission import webhook as module
from bursar.kube.admission.manifests import MUTATE_QUOTAS, VALIDATE_QUOTAS
from bursar.kube.admission.predicate import GATE, AdmissionOptions
from bursar.kube.admission.review import QuotaReviewer, patch_between
from bursar.kube.admission.webhook import MOST_BYTES
from bursar.kube.http_server import Message
from tests.kube.admission.review_client import Objects, ask, post, review, webhook

Body = dict[str, Any]
POOLS = "quota.scheduling.koordinator.sh/"


def pool_quota(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Body:  # noqa: ANN401 any field
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": "quotas", "labels": labels or {}, "annotations": {}, "uid": "x"},
        "spec": {"max": {"cpu": "40"}, "min": {"cpu": "10"}} | spec,
    }


PARENT = pool_quota("org", {POOLS + "is-parent": "true", POOLS + "tree-id": "t1"})
CHILD = pool_quota("team", {POOLS + "parent": "org"})


def elastic(namespace: str, **spec: Any) -> Body:  # noqa: ANN401
    return {
        "apiVersion": "n8s.nebuly.ai/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "q", "namespace": namespace},
        "spec": {"min": {"cpu": "1"}} | spec,
    }


# Filling in


def test_parent_tree_and_weight_are_filled_in() -> None:
    response = ask(webhook(Objects(PARENT)), MUTATE_QUOTAS, CHILD)
    assert response["allowed"] is True
    values = {operation["path"]: operation["value"] for operation in response["patch"]}
    assert values["/metadata/labels/quota.scheduling.koordinator.sh~1tree-id"] == "t1"
    assert values["/metadata/annotations/quota.scheduling.koordinator.sh~1shared-weight"] == '{"cpu":"40"}'


def test_labels_that_were_missing_are_added_as_a_whole() -> None:
    resources_only = pool_quota("team")
    del resources_only["metadata"]["labels"], resources_only["metadata"]["annotations"]
    paths = [operation["path"] for operation in ask(webhook(), MUTATE_QUOTAS, resources_only)["patch"]]
    assert paths == ["/metadata/annotations", "/metadata/labels"]


def test_a_complete_object_is_not_patched() -> None:
    response = ask(webhook(), MUTATE_QUOTAS, elastic("team-a"))
    assert response == {"uid": "u-1", "allowed": True}


def test_the_filled_object_is_valid() -> None:
    view = Objects(PARENT)
    app = webhook(view)
    patched = pool_quota("team", {POOLS + "parent": "org", POOLS + "tree-id": "t1"})
    patched["metadata"]["annotations"] = {POOLS + "shared-weight": '{"cpu":"40"}'}
    assert ask(app, VALIDATE_QUOTAS, patched)["allowed"] is True
    assert ask(app, MUTATE_QUOTAS, patched) == {"uid": "u-1", "allowed": True}


# Refusing


@pytest.mark.parametrize("path", [MUTATE_QUOTAS, VALIDATE_QUOTAS])
def test_a_refusal_names_object_and_field(path: str) -> None:
    response = ask(webhook(), path, elastic("team-a", min={"cpu": "many"}))
    assert response["allowed"] is False
    assert response["status"]["message"].startswith("ElasticQuota team-a/q: spec.min.cpu: ")
    assert response["status"]["code"] == 422


def test_conflicts_between_objects_are_refused() -> None:
    other = elastic("team-a")
    other["metadata"]["name"] = "first"
    response = ask(webhook(Objects(other)), VALIDATE_QUOTAS, elastic("team-a"))
    assert "namespace team-a is governed by ElasticQuota team-a/first already" in response["status"]["message"]


def test_labels_are_judged() -> None:
    response = ask(webhook(Objects(PARENT)), VALIDATE_QUOTAS, pool_quota("team", {POOLS + "is-root": "true"}))
    assert "is set by Bursar" in response["status"]["message"]


def test_an_unknown_field_is_refused() -> None:
    response = ask(webhook(), VALIDATE_QUOTAS, elastic("team-a", maxx={"cpu": "1"}))
    assert "spec.maxx: is not a known field" in response["status"]["message"]


def test_a_parent_in_use_is_not_deleted() -> None:
    response = ask(webhook(Objects(PARENT, CHILD)), VALIDATE_QUOTAS, None, PARENT, "DELETE")
    assert response["status"]["message"] == "ElasticQuota quotas/org: has children: team"


USER = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "n", "labels": {POOLS + "name": "team"}},
    "status": {"phase": "Running"},
}


class Fetcher:
    """Fetches from a list, and counts."""

    def __init__(self, *bodies: Body) -> None:
        self.bodies = bodies
        self.asked: list[str] = []

    async def __call__(self, kind: str) -> list[Body]:
        self.asked.append(kind)
        return [body for body in self.bodies if body["kind"] == kind]


def test_a_quota_in_use_is_not_deleted() -> None:
    response = ask(webhook(Objects(CHILD, USER)), VALIDATE_QUOTAS, None, CHILD, "DELETE")
    assert response["status"]["message"] == "ElasticQuota quotas/team: is in use by 1 pod: n/p"


def test_pods_are_fetched_once_by_the_requests_that_ask_for_them() -> None:
    fetcher = Fetcher(USER)
    app = webhook(Objects(CHILD), fetch=fetcher)
    assert ask(app, VALIDATE_QUOTAS, elastic("team-a"))["allowed"] is True
    assert fetcher.asked == []
    response = ask(app, VALIDATE_QUOTAS, None, CHILD, "DELETE")
    assert response["status"]["message"] == "ElasticQuota quotas/team: is in use by 1 pod: n/p"
    assert fetcher.asked == ["Pod"]


def test_a_deletion_may_take_the_time_that_it_takes_to_look_at_all_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Fetcher):
        async def __call__(self, kind: str) -> list[Body]:
            await asyncio.sleep(0.3)
            return await super().__call__(kind)

    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.1)
    app = webhook(Objects(CHILD), fetch=Slow())
    assert ask(app, VALIDATE_QUOTAS, None, CHILD, "DELETE")["allowed"] is True


def test_others_may_be_deleted() -> None:
    assert ask(webhook(Objects(PARENT, CHILD)), VALIDATE_QUOTAS, None, CHILD, "DELETE")["allowed"] is True


def test_a_kind_that_is_not_ours_is_refused_by_name() -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}}
    assert "is not handled" in ask(webhook(), VALIDATE_QUOTAS, body)["status"]["message"]


# News that have not arrived


def test_a_refusal_is_reconsidered_once_the_view_has_caught_up() -> None:
    view = Objects(late=[PARENT])
    assert ask(webhook(view), MUTATE_QUOTAS, CHILD)["allowed"] is True
    assert view.caught_up == 1


def test_a_refusal_that_stands_is_given_after_one_look() -> None:
    view = Objects()
    assert ask(webhook(view), MUTATE_QUOTAS, CHILD)["allowed"] is False
    assert view.caught_up == 1


def test_what_passes_asks_for_no_second_look() -> None:
    view = Objects(PARENT)
    ask(webhook(view), VALIDATE_QUOTAS, elastic("team-a"))
    assert view.caught_up == 0


def test_nothing_is_judged_before_everything_was_seen() -> None:
    status, answer = post(webhook(Objects(ready=False)), VALIDATE_QUOTAS, review(CHILD))
    assert (status, answer) == (503, b"Bursar has not seen all objects of the cluster yet: try again")


# Changes without a meaning


def test_an_object_that_would_not_be_admitted_today_can_lose_its_finalizer() -> None:
    bad = elastic("team-a", min={"cpu": "many"})
    old = {**bad, "metadata": {**bad["metadata"], "finalizers": ["example.com/x"]}}
    assert ask(webhook(), VALIDATE_QUOTAS, bad, old, "UPDATE")["allowed"] is True


def test_and_so_can_one_that_is_being_deleted() -> None:
    bad = elastic("team-a", min={"cpu": "many"})
    bad["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert ask(webhook(), VALIDATE_QUOTAS, bad, elastic("team-a"), "UPDATE")["allowed"] is True


def test_an_update_is_judged_like_a_creation() -> None:
    bad = elastic("team-a", min={"cpu": "many"})
    assert ask(webhook(), VALIDATE_QUOTAS, bad, elastic("team-a"), "UPDATE")["allowed"] is False


# The gate


def pod(**spec: Any) -> Body:  # noqa: ANN401
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "patch"),
    [
        ({}, [{"op": "add", "path": "/spec/schedulingGates", "value": [{"name": GATE}]}]),
        (
            {"schedulingGates": [{"name": "example.com/a"}]},
            [{"op": "add", "path": "/spec/schedulingGates/-", "value": {"name": GATE}}],
        ),
        ({"schedulingGates": [{"name": GATE}]}, None),
        (
            {"schedulingGates": [{"name": GATE}], "schedulerName": "volcano"},
            [{"op": "replace", "path": "/spec/schedulerName", "value": "default-scheduler"}],
        ),
        ({"nodeName": "a"}, None),
    ],
)
def test_the_gate_is_added_to_what_is_there(spec: Body, patch: list[Body] | None) -> None:
    assert ask(webhook(), "/gate-pods/enforced", pod(**spec)).get("patch") == patch


@pytest.mark.parametrize(
    ("operations", "forget", "forgotten"),
    [
        (["Update"], True, True),
        (["Update"], False, False),
        (["Apply"], True, False),
        (["Update", "Apply"], True, False),
        ([], True, False),
    ],
)
def test_what_was_not_applied_loses_its_managers(operations: list[str], forget: bool, forgotten: bool) -> None:
    made = pod()
    made["metadata"]["managedFields"] = [{"manager": "m", "operation": one} for one in operations]
    patch = ask(webhook(options=AdmissionOptions(forget_managed_fields=forget)), "/gate-pods/enforced", made)["patch"]
    assert ({"op": "remove", "path": "/metadata/managedFields"} in patch) == forgotten


def test_a_pod_that_is_left_alone_keeps_its_managers() -> None:
    made = pod(schedulingGates=[{"name": GATE}])
    made["metadata"]["managedFields"] = [{"manager": "m", "operation": "Update"}]
    assert "patch" not in ask(webhook(), "/gate-pods/enforced", made)


def test_only_marked_pods_are_gated_elsewhere() -> None:
    marked = pod()
    marked["metadata"]["labels"] = {"quota.bursar.dev/lab": "x"}
    assert "patch" not in ask(webhook(), "/gate-pods/marked", pod())
    assert "patch" in ask(webhook(), "/gate-pods/marked", marked)


def test_the_gate_needs_no_view() -> None:
    assert "patch" in ask(webhook(Objects(ready=False)), "/gate-pods/enforced", pod())


def test_arms_are_those_of_the_options() -> None:
    assert "patch" in ask(webhook(options=AdmissionOptions(everywhere=True)), "/gate-pods/everywhere", pod())
    assert post(webhook(), "/gate-pods/everywhere", review(pod()))[0] == 404


# Anybody else


@pytest.mark.parametrize(
    ("path", "body", "options", "status"),
    [
        ("/", review(CHILD), {}, 404),
        ("/gate-pods/", review(pod()), {}, 404),
        (VALIDATE_QUOTAS, review(CHILD), {"method": "GET"}, 405),
        (VALIDATE_QUOTAS, review(CHILD), {"content_type": "text/plain"}, 415),
        (VALIDATE_QUOTAS, b"", {}, 400),
        (VALIDATE_QUOTAS, b"[]", {}, 400),
        (VALIDATE_QUOTAS, b'{"apiVersion": "v1", "kind": "Pod"}', {}, 400),
        (VALIDATE_QUOTAS, review(CHILD).replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1"), {}, 400),
        (VALIDATE_QUOTAS, b"[" * 100_000, {}, 400),
        (VALIDATE_QUOTAS, b" " * (MOST_BYTES + 1), {"chunk": 2**20}, 413),
    ],
)
def test_what_is_no_review_gets_a_status(path: str, body: bytes, options: Body, status: int) -> None:
    assert post(webhook(), path, body, **options)[0] == status


def test_a_review_in_pieces_is_read() -> None:
    assert post(webhook(), VALIDATE_QUOTAS, review(elastic("team-a")), chunk=10)[0] == 200


def test_nobody_waits_longer_than_the_api_server_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as for a replica that cannot hear of news: those who were given up would pile up."""

    class Deaf(Objects):
        async def catch_up(self) -> None:
            await asyncio.sleep(30)

    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.1)
    began = time.monotonic()
    status, answer = post(webhook(Deaf()), VALIDATE_QUOTAS, review(CHILD))
    assert (status, answer) == (503, b"Bursar cannot learn in time what there is: try again")
    assert time.monotonic() - began < 5


def test_a_body_that_does_not_arrive_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.1)
    sent: list[Message] = []

    async def receive() -> Message:
        await asyncio.sleep(3600)
        raise AssertionError("it was waited for")

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope: Message = {"type": "http", "path": VALIDATE_QUOTAS, "method": "POST", "headers": headers}
    asyncio.run(webhook()(scope, receive, send))
    assert (sent[0]["status"], sent[1]["body"]) == (408, b"the body did not arrive in time")


def test_a_defect_is_an_answer_and_no_approval(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_self: QuotaReviewer, _request: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(QuotaReviewer, "check", fail)
    assert post(webhook(), VALIDATE_QUOTAS, review(CHILD)) == (500, b"cannot judge it: KeyError")


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({}, {}, []),
        ({"a": 1}, {"a": 1, "b/c~d": 2}, [{"op": "add", "path": "/b~1c~0d", "value": 2}]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, [
            {"op": "replace", "path": "/a/b", "value": 3}, {"op": "remove", "path": "/a/c"},
        ]),
        ({"a": [1]}, {"a": [1, 2]}, [{"op": "replace", "path": "/a", "value": [1, 2]}]),
        ({"a": {}}, {"a": 1}, [{"op": "replace", "path": "/a", "value": 1}]),
    ],
)  # fmt: skip
def test_patches(before: Body, after: Body, patch: list[Body]) -> None:
    assert patch_between(before, after) == patch
