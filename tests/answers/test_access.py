"""Who is believed to be whom, what they may see, and for how long that holds."""

from __future__ import annotations

from typing import Any

import pytest

from bursar.answers.access import KEPT, NotTrustedError, ProxyTrust, Reviews, User
from bursar.answers.redaction import HIDDEN, Redaction, named_namespaces
from bursar.kube.client.errors import Unanswered

pytestmark = pytest.mark.anyio
DATA = {
    "requestheader-client-ca-file": "PEM",
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    "requestheader-uid-headers": '["X-Remote-Uid"]',
}
HEADERS = {
    "x-remote-user": ["alice"],
    "x-remote-group": ["team", "system:authenticated"],
    "x-remote-uid": ["7"],
    "x-remote-extra-scopes.example%2fall": ["a", "b"],
}


def test_the_caller_is_named_by_the_headers_that_the_cluster_says() -> None:
    found = ProxyTrust.read(DATA).user("front-proxy-client", HEADERS)
    assert found == User("alice", ("team", "system:authenticated"), "7", (("scopes.example/all", ("a", "b")),))


@pytest.mark.parametrize(("name", "headers"), [("another", HEADERS), ("", HEADERS), ("front-proxy-client", {})])
def test_nobody_else_is_believed(name: str, headers: dict[str, list[str]]) -> None:
    with pytest.raises(NotTrustedError):
        ProxyTrust.read(DATA).user(name, headers)


def test_without_allowed_names_any_certificate_of_the_authority_will_do() -> None:
    assert ProxyTrust.read(DATA | {"requestheader-allowed-names": "[]"}).user("another", HEADERS).name == "alice"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"requestheader-client-ca-file": ""}, "requestheader-client-ca-file is missing"),
        ({"requestheader-allowed-names": "{"}, "requestheader-allowed-names"),
    ],
)
def test_a_config_map_that_cannot_be_used_names_the_field(change: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ProxyTrust.read(DATA | change)


class Answer:
    def __init__(self, allowed: bool) -> None:
        self._allowed = allowed

    def plain(self) -> dict[str, Any]:
        return {"status": {"allowed": self._allowed}}


class Reviewing:
    """An API server that allows some namespaces."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = set(allowed)
        self.asked: list[str] = []
        self.down = False

    async def create(self, _resource: object, body: dict[str, Any]) -> Answer:
        if self.down:
            raise Unanswered("no answer", sent=True)
        namespace = body["spec"]["resourceAttributes"]["namespace"]
        self.asked.append(namespace)
        return Answer(namespace in self.allowed)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def reviewing(*allowed: str) -> tuple[Reviewing, Reviews, Clock]:
    server, clock = Reviewing(*allowed), Clock()
    return server, Reviews(server, clock), clock  # type: ignore[arg-type] # as it is called


async def test_who_may_get_pods_everywhere_is_asked_for_once() -> None:
    server, reviews, _ = reviewing("")
    assert await reviews.hidden(User("a"), ["x", "y"]) == set()
    assert server.asked == [""]


async def test_namespaces_are_asked_for_one_by_one_and_kept_for_ten_seconds() -> None:
    server, reviews, clock = reviewing("x")
    assert await reviews.hidden(User("a"), ["x", "y"]) == {"y"}
    assert await reviews.hidden(User("a"), ["x", "y"]) == {"y"}
    assert sorted(server.asked) == ["", "x", "y"]
    server.allowed.add("y")
    clock.now = KEPT - 0.1
    assert await reviews.hidden(User("a"), ["y"]) == {"y"}
    clock.now = KEPT
    assert await reviews.hidden(User("a"), ["y"]) == set()


async def test_users_of_one_name_with_other_groups_are_others() -> None:
    server, reviews, _ = reviewing("x")
    await reviews.hidden(User("a", ("g",)), ["x"])
    await reviews.hidden(User("a", ("h",)), ["x"])
    assert sorted(server.asked) == ["", "", "x", "x"]


async def test_a_review_that_fails_hides_and_is_asked_again() -> None:
    server, reviews, _ = reviewing("x")
    server.down = True
    assert await reviews.hidden(User("a"), ["x"]) == {"x"}
    server.down = False
    assert await reviews.hidden(User("a"), ["x"]) == set()


def redacted(operation: str, answer: dict[str, Any], *hidden: str) -> dict[str, Any]:
    return Redaction(hidden, {"b/quota"}.__contains__).apply(operation, answer)


def test_sentences_lose_names_of_hidden_pods_and_keep_those_of_quotas() -> None:
    text = "quota b/quota is full: b/p1, b/p-2.x and a/p3 (b/job) use limits/b and elastic/b/quota"
    found = redacted("explain", {"text": text}, "b")
    said = f"quota b/quota is full: {HIDDEN}, {HIDDEN} and a/p3 ({HIDDEN}) use limits/b and elastic/b/quota"
    assert found == {"text": said}


def test_lists_count_what_they_do_not_name() -> None:
    answer = {"evicted": [{"pod": "b/p", "reason": "by b/q"}], "starts": ["a/x", "b/p", "b/q"], "n": {"b/p": 1}}
    found = redacted("plan", answer, "b")
    assert found["evicted"] == [{"pod": HIDDEN, "reason": f"by {HIDDEN}"}]
    assert found["starts"] == ["a/x", "2 pods of other namespaces"]
    assert found["n"] == {HIDDEN: 1}


def test_the_namespaces_of_an_answer_are_those_it_names() -> None:
    answer = {"items": [{"namespace": "a", "text": "see b/p and limits/c"}], "by": {"d/x": 1}}
    assert named_namespaces(answer, {"a", "b", "c", "d", "e"}) == {"a", "b", "d"}
