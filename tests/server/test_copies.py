"""Questions that need a copy are answered beside the server: one at a time, and nobody else waits for them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bursar.server import copies as module
from bursar.server.copies import CopyProcesses
from bursar.server.operations import Operations
from bursar.server.problems import RefusedError, Reply
from bursar.server.request_query import RequestQuery
from bursar.server.service import Service, StoppedError
from tests.server.live import Live, live, node, pod, quota, text, wait_for
from tests.server.test_followed_copies import documents


def explained(name: str = "p1") -> RequestQuery:
    return RequestQuery(Operations.explain, {"namespace": "a", "name": name, "fixes": True}, b"", "")


def content(reply: Reply) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(reply.body)
    return found


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    found = Service.open(tmp_path / "bursar.db")
    found.apply(documents(node("n1"), quota("a", 2), pod("a", "p1", 9)))
    yield found
    found.close()


Opener = Callable[..., CopyProcesses]


@pytest.fixture
def opened(service: Service) -> Iterator[Opener]:
    found: list[CopyProcesses] = []

    def start(**options: Any) -> CopyProcesses:  # noqa: ANN401
        found.append(CopyProcesses(service, **{"seconds": 120, **options}))
        return found[-1]

    yield start
    for one in found:
        one.close()


def test_an_answer_shows_all_that_was_acknowledged_before_the_question(service: Service, opened: Opener) -> None:
    copies = opened()
    for number in range(2, 5):
        service.apply(documents(pod("a", f"p{number}", 9)))
        found = content(copies.ask(explained(f"p{number}")).result())
        assert found["claim"]["phase"] == "Pending"
        assert found["moment"]["seq"] == service.cluster.engine.version
        assert [fix["code"] for fix in found["fixes"]] == ["ask-less"]
    assert len(copies.pids) == 1


def test_nobody_waits_while_a_question_is_answered(tmp_path: Path) -> None:
    with live(tmp_path / "bursar.db") as bed, ThreadPoolExecutor() as pool:
        bed.give(node("n1"), quota("a", 2), pod("a", "p1", 9))
        bed.client.explain("a", "p1", fixes=True)
        (child,) = bed.copies.pids
        os.kill(child, signal.SIGSTOP)  # it takes as long as it likes
        try:
            slow = pool.submit(bed.client.explain, "a", "p1", fixes=True)
            wait_for("the question", lambda: bed.copies.busy)
            assert bed.give(pod("a", "p2")).pods
            assert [row.name for row in bed.client.claims().items] == ["p1", "p2"]
            assert bed.client.explain("a", "p2").claim.phase == "Running"
            assert not slow.done()
        finally:
            os.kill(child, signal.SIGCONT)
        assert slow.result().fixes


def test_one_question_at_a_time_and_a_refusal_when_too_many_wait(opened: Opener) -> None:
    copies = opened(most_waiting=2)
    copies.ask(explained()).result()
    os.kill(copies.pids[0], signal.SIGSTOP)
    first = copies.ask(explained())
    wait_for("the question", lambda: copies.busy)
    others = [copies.ask(explained()) for _ in range(2)]
    with pytest.raises(RefusedError, match="2 questions that need a copy of the cluster wait already") as caught:
        copies.ask(explained())
    assert caught.value.status == 429
    assert int(caught.value.headers["Retry-After"]) >= 1
    assert not any(one.running() for one in others)
    os.kill(copies.pids[0], signal.SIGCONT)
    assert [one.result().status for one in (first, *others)] == [200, 200, 200]


def test_a_question_that_was_given_up_is_not_asked(opened: Opener) -> None:
    copies = opened()
    copies.ask(explained()).result()
    os.kill(copies.pids[0], signal.SIGSTOP)
    first = copies.ask(explained())
    wait_for("the question", lambda: copies.busy)
    given_up, last = copies.ask(explained("none")), copies.ask(explained())
    assert given_up.cancel()
    os.kill(copies.pids[0], signal.SIGCONT)
    assert (first.result().status, last.result().status) == (200, 200)


def test_an_idle_process_ends(opened: Opener) -> None:
    copies = opened(idle=0.0)
    copies.ask(explained()).result()
    wait_for("its end", lambda: not copies.pids)
    assert copies.ask(explained()).result().status == 200


def test_a_process_that_was_killed_is_replaced(opened: Opener) -> None:
    copies = opened()
    copies.ask(explained()).result()
    (before,) = copies.pids
    os.kill(before, signal.SIGKILL)
    assert copies.ask(explained()).result().status == 200
    assert copies.pids != [before]


def test_an_answer_that_takes_too_long_ends_its_process(opened: Opener) -> None:
    copies = opened()
    copies.ask(explained()).result()
    (before,) = copies.pids
    os.kill(before, signal.SIGSTOP)
    copies._seconds = 0.2
    with pytest.raises(RefusedError, match=r"not answered within 0.2 seconds") as caught:
        copies.ask(explained()).result()
    assert caught.value.status == 503
    copies._seconds = 120
    assert copies.ask(explained()).result().status == 200


def test_a_server_that_ends_does_not_wait_for_answers(service: Service) -> None:
    copies = CopyProcesses(service, seconds=120)
    copies.ask(explained()).result()
    os.kill(copies.pids[0], signal.SIGSTOP)
    running, waiting = copies.ask(explained()), copies.ask(explained())
    wait_for("the question", lambda: copies.busy)
    copies.close()
    for one in (running, waiting):
        with pytest.raises(StoppedError):
            one.result(timeout=60)
    with pytest.raises(StoppedError):
        copies.ask(explained())


def test_a_copy_that_is_idle_follows_before_it_is_asked(
    service: Service, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BEHIND", 3)
    monkeypatch.setattr(module, "_LOOK_EVERY", 0.01)
    copies = opened()
    copies.ask(explained()).result()
    process = copies._present
    assert process is not None
    service.apply(documents(*(pod("a", f"n{number}") for number in range(4))))
    wait_for("it to follow", lambda: process.seq == service.cluster.engine.version)


def test_trials_leave_the_copy_as_it_was(bed: Live) -> None:
    bed.give(pod("b", "loan", 4))
    taking, smaller = text(pod("a", "owner", 2)), text(quota("a", 1))
    first = (bed.client.what_if(taking), bed.client.plan(smaller), bed.client.apply(taking, dry_run=True))
    assert (bed.client.what_if(taking), bed.client.plan(smaller), bed.client.apply(taking, dry_run=True)) == first
    assert first[0].evicted == [news.pod for news in first[2].pods if news.what == "evicted"] == ["b/loan"]
    assert len(bed.copies.pids) == 1


def test_a_plan_looks_ahead_at_both_courses(bed: Live) -> None:
    bed.give(pod("c", "p1", 4, runs_for="10s"), pod("c", "p2", 1))
    plan = bed.client.plan(text(node("n2", 1)), horizon="1m")
    assert (plan.starts, plan.evicted) == ([], [])  # it starts in any case, once the short one has ended
    assert bed.client.plan(text(node("n2", 1))).starts == ["c/p2"]
    assert bed.client.plan(text(node("n2", 1)), horizon="1m") == plan


def test_moments_that_are_near_have_one_process(bed: Live) -> None:
    for number in range(4):
        bed.give(pod("a", f"p{number}"))
    last = bed.position()[0]
    seen = [bed.client.claims(at=str(seq)).moment.seq for seq in (last - 2, last, last - 5)]
    assert seen == [last - 2, last, last - 5]
    assert len(bed.copies.pids) == 1


def test_objects_of_the_past_need_no_process(bed: Live) -> None:
    bed.give(pod("a", "p1"))
    then = str(bed.position()[0])
    bed.give(pod("a", "p2"), node("n9"))
    bed.client.delete(["Pod/a/p1"])
    page = bed.client.objects(kind="Pod", at=then)
    assert [one["metadata"]["name"] for one in page.items] == ["p1"]
    assert page.moment == bed.client.diff(then).start
    assert bed.client.object("Pod", "a/p1", at=then)["status"]["phase"] == "Running"
    every = bed.client.objects(at=then)
    paged, following = [], ""
    while True:
        part = bed.client.objects(at=then if not following else "", limit=2, **({"continue": following}))
        paged += part.items
        following = part.next
        if not following:
            break
    assert paged == every.items
    assert {one["metadata"]["name"] for one in every.items} >= {"n1", "p1", "quota"}
    assert [one["kind"] for one in bed.client.objects(namespace="a", at=then).items] == ["ElasticQuota", "Pod"]
    assert bed.copies.pids == []
    labelled = bed.client.objects(kind="Pod", label="app!=x", at=then)
    assert labelled.items == page.items
    assert labelled.moment == page.moment
