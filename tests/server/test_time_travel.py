"""Time travel, history, differences, restarts and the live stream."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Thread

import msgspec
import pytest

from bursar.server import client as clients
from bursar.server.client import Client
from bursar.server.service import Service
from bursar.server.types import ServerEvent
from tests.server.live import Live, ManualClock, live, node, pod, quota
from tests.server.test_changes import refused


def test_any_read_at_a_time_a_span_or_a_record(bed: Live, clock: ManualClock) -> None:
    bed.give(pod("b", "loan", 4))
    then = bed.client.info().moment
    clock.now += 60_000
    bed.give(pod("a", "owner", 2))
    for at in (str(then.seq), then.time, "-60s"):
        rows = bed.client.claims(at=at)
        assert [(row.name, row.phase) for row in rows.items] == [("loan", "Running")]
        assert (rows.moment.seq, rows.moment.digest) == (then.seq, then.digest)
        (borrower,) = [row for row in bed.client.quotas(at=at).items if row.namespace == "b"]
        assert borrower.resources["nvidia.com/gpu"].borrowed == "2"
        assert "running" in bed.client.explain("b", "loan", at=at).text
        assert bed.client.object("Pod", "b/loan", at=at)["status"]["phase"] == "Running"
    assert bed.client.claim("b", "loan").phase == "Evicted"
    assert bed.client.nodes(at="0").items == []


@pytest.mark.parametrize("at", ["yesterday", "999999", "-5x", "2026-13-01", ""])
def test_a_moment_that_is_none_is_refused(bed: Live, at: str) -> None:
    if at:
        assert refused(bed.client.claims, at=at).status == 400
    else:
        assert bed.client.claims(at=at).items == []


@pytest.mark.parametrize(("path", "option"), [("claims?at=", "at"), ("diff?from=", "from"), ("diff?from=0&to=", "to")])
def test_a_time_in_the_future_is_refused_with_the_time_of_the_server(bed: Live, path: str, option: str) -> None:
    ahead = "2027-01-15T08:00:00.001Z"
    status, _, body = bed.raw("GET", f"/api/v1/{path}{ahead}")
    assert status == 400
    detail = f"`{option}`: '{ahead}' is in the future: the server's time is 2027-01-15T08:00:00Z"
    assert msgspec.json.decode(body)["detail"] == detail


def test_the_moment_that_a_server_named_is_never_in_the_future(bed: Live, clock: ManualClock) -> None:
    clock.now += 123
    bed.give(pod("b", "loan", 4))
    said = bed.client.info().moment
    clock.now -= 60_000  # the machine's clock was set back
    assert bed.client.claims(at=said.time).moment.seq == said.seq


def test_the_history_of_a_pod(bed: Live, clock: ManualClock) -> None:
    bed.give(pod("b", "loan", 4))
    clock.now += 60_000
    bed.give(pod("a", "owner", 2))
    found = bed.client.history("Pod", "b/loan")
    assert [one.result for one in found.items] == ["created", "changed"]
    fields = {change.path: (change.before, change.after) for change in found.items[1].fields}
    assert fields["status.phase"] == ("Running", "Evicted")
    causes = [(row.cause, row.outcome) for row in found.decisions]
    assert ("decide", "admitted") in causes
    assert causes[0][0] == "evicted"
    assert refused(bed.client.history, "Pod", "a/none").status == 404


def test_pages_about_a_claim_do_not_end_at_others_of_similar_name(bed: Live) -> None:
    bed.give(pod("b", "one", 1))
    for _ in range(3):
        bed.give(pod("ab", "one", 1))
        bed.client.delete(["Pod/ab/one"])
    every = bed.client.decisions(claim="b/one").items
    assert every
    page = bed.client.decisions(claim="b/one", limit=1)
    found = list(page.items)
    while page.next:
        page = bed.client.decisions(claim="b/one", limit=1, before=page.next)
        found += page.items
    assert found == every


def test_decisions_are_listed_newest_first(bed: Live) -> None:
    bed.give(pod("a", "p1"))
    rows = bed.client.decisions(limit=2).items
    assert [row.seq for row in rows] == sorted((row.seq for row in rows), reverse=True)
    assert len(rows) == 2
    (decided,) = [row for row in bed.client.decisions(claim="a/p1").items if row.cause == "decide"]
    assert (decided.claim, decided.outcome, decided.node) == ("a/p1", "admitted", "n1")


def test_the_difference_of_two_moments(bed: Live) -> None:
    start = bed.client.info().moment
    bed.give(pod("a", "p1"), quota("b", 3))
    bed.client.delete(["ElasticQuota.n8s.nebuly.ai/a/quota"])
    found = bed.client.diff(str(start.seq))
    assert (found.start.digest, found.end) == (start.digest, bed.client.info().moment)
    assert {(one.key, one.result) for one in found.objects} == {
        ("a/p1", "created"),
        ("b/quota", "changed"),
        ("a/quota", "deleted"),
    }
    assert found.pods["came"] == 1
    assert refused(bed.client.diff, "-0s", "1").status == 400


def everything(service: Service) -> tuple[object, ...]:
    cluster = service.cluster
    manifests = [stored.manifest() for kind in cluster.objects.kinds() for stored in cluster.objects.all(kind)]
    return (
        cluster.engine.version,
        cluster.engine.digest,
        cluster.engine.state.plain(),
        manifests,
        cluster.objects.uids,
        [(row.key, row.phase, row.node, row.reason) for key in cluster.pods() if (row := cluster.pod(key)) is not None],
        cluster.next_due,
    )


def test_a_restart_is_the_same_service(tmp_path: Path, clock: ManualClock) -> None:
    data = tmp_path / "bursar.db"
    with live(data, clock=clock) as bed:
        bed.give(node("n1"), quota("a", 2), quota("b", 2))
        bed.give(pod("b", "loan", 4, leaves_after="30s", runs_for="10m"))
        clock.now += 5_000
        bed.give(pod("a", "owner", 2), pod("a", "late", 9))
        before = everything(bed.service)
        assert bed.client.claim("a", "owner").state == "held"
    with live(data, clock=clock) as bed:
        assert everything(bed.service) == before
        clock.now += 31_000
        bed.service.tick()
        assert bed.client.claim("a", "owner").phase == "Running"
        assert bed.client.claim("b", "loan").phase == "Evicted"
        after = everything(bed.service)
    clock.now -= 3_600_000  # the machine's clock was set back
    with live(data, clock=clock) as bed:
        assert everything(bed.service) == after
        bed.give(pod("a", "next"))
        times = [row.time for row in bed.client.decisions().items]
        assert times == sorted(times, reverse=True)


def test_timers_that_came_due_while_stopped_fire_at_their_time(tmp_path: Path, clock: ManualClock) -> None:
    data = tmp_path / "bursar.db"
    with live(data, clock=clock) as bed:
        bed.give(node("n1", 1), pod("a", "first", runs_for="10s"), pod("a", "second", runs_for="20s"))
    clock.now += 3_600_000
    with live(data, clock=clock) as bed:
        assert {row.name: row.phase for row in bed.client.claims().items} == {
            "first": "Succeeded",
            "second": "Succeeded",
        }
        ends = [bed.client.history("Pod", f"a/{name}").items[-1].time for name in ("first", "second")]
        assert ends == ["2027-01-15T08:00:10Z", "2027-01-15T08:00:30Z"]
        assert bed.client.claim("a", "second", at="2027-01-15T08:00:15Z").phase == "Running"


def test_an_idempotency_key_survives_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    data = tmp_path / "bursar.db"
    with live(data, clock=clock) as bed:
        first = bed.client.apply(b"{apiVersion: v1, kind: Namespace, metadata: {name: x}}", idempotency_key="once")
    with live(data, clock=clock) as bed:
        assert (
            bed.client.apply(b"{apiVersion: v1, kind: Namespace, metadata: {name: x}}", idempotency_key="once") == first
        )
        assert bed.client.changes().items[0].id == first.id


class Listening:
    """Collects the events of a stream in a thread."""

    def __init__(self, client: Client, last: str = "") -> None:
        self.events: list[ServerEvent] = []
        self._stream = client.events(last)
        Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            for event in self._stream:
                self.events.append(event)
        except clients.RequestFailedError:
            return

    def until(self, count: int, kind: str = "record") -> list[ServerEvent]:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            found = [event for event in self.events if event.type == kind]
            if len(found) >= count:
                return found
            time.sleep(0.01)
        raise AssertionError(f"only {self.events}")


def test_the_stream_resumes_after_the_last_record_seen(bed: Live) -> None:
    listening = Listening(bed.client, "0")
    start = listening.until(1)
    assert start[0].id == "1"
    bed.give(pod("a", "p1"))
    seen = listening.until(bed.position()[0])
    assert [event.data["seq"] for event in seen] == list(range(1, bed.position()[0] + 1))
    assert any(event.data["claim"] == "a/p1" and event.data["outcome"] == "admitted" for event in seen)
    last = seen[-2].id
    bed.give(pod("a", "p2"))
    resumed = Listening(bed.client, last).until(bed.position()[0] - int(last))
    assert [event.data["seq"] for event in resumed] == list(range(int(last) + 1, bed.position()[0] + 1))
    names = {one["key"] for event in listening.until(1, "objects") for one in event.data}
    assert "a/p1" in names


def test_a_stream_cannot_resume_after_what_is_not_there(bed: Live) -> None:
    assert bed.raw("GET", "/api/v1/events", Last_Event_ID="9999")[0] == 400
    assert bed.raw("GET", "/api/v1/events", Last_Event_ID="x")[0] == 400
