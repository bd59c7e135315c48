"""Events are written on edges only, also when another ledger takes over: a new leader does not repeat them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bursar.kube.client.api import EVENTS, LEASES, PODS
from bursar.kube.client.events import Regarding
from bursar.kube.client.lease import Elector
from bursar.kube.controller import events as telling
from bursar.kube.controller import replica as process
from bursar.kube.controller.leader_term import TermOptions
from bursar.kube.controller.mirror import MirrorOptions
from bursar.kube.controller.replica import ProcessOptions, Replica
from bursar.policies.plugin import default_registry
from bursar.resources import from_amounts
from tests.kube.controller.stage import ELASTIC, GPU, Body, Stage, replica, stage
from tests.kube.waiting import eventually

MAX = f"elastic.max.{GPU}"
OPTIONS = TermOptions(compared_every=0.1)


pytestmark = pytest.mark.anyio


@asynccontextmanager
async def leading(cluster: Stage, options: TermOptions = OPTIONS) -> AsyncIterator[Replica]:
    """A process that leads, and has said all that it found at first; at its end it gives the lease back."""
    async with replica(cluster, options) as made:
        await eventually(lambda: rested(made))
        yield made


def rested(made: Replica) -> bool:
    return made.term is not None and made.term.ready and made.term._events._last is None


def events(cluster: Stage) -> list[tuple[str, str]]:
    """(pod, reason), in the order in which the events were written, each once."""
    found = sorted(cluster.fake.state.of(EVENTS), key=lambda event: int(event["metadata"]["resourceVersion"]))
    assert not [event for event in found if "series" in event]
    return [(event["regarding"]["name"], event["reason"]) for event in found]


def waiting(cluster: Stage, count: int = 3) -> list[Body]:
    """A full quota, and pods that wait for it."""
    cluster.node("n", 8)
    cluster.namespace("a")
    cluster.quota("a", 2)
    cluster.bind(cluster.pod("a", "runs", 2, gated=False), "n")
    return [cluster.pod("a", f"p{number}", 1) for number in range(count)]


def change_quota(cluster: Stage, most: int) -> None:
    quota = cluster.fake.state.get(ELASTIC, "a", "quota")
    cluster.fake.state.replace(ELASTIC, "a", "quota", {**quota, "spec": {"max": {GPU: most}}}, status=False)


async def test_a_successor_says_nothing_that_was_said() -> None:
    async with stage() as cluster:
        waiting(cluster)
        async with leading(cluster) as first:
            await eventually(lambda: len(events(cluster)) == 3)
        async with leading(cluster) as second:
            await asyncio.sleep(0.3)
        assert first.options.identity != second.options.identity
        assert events(cluster) == [("p0", MAX), ("p1", MAX), ("p2", MAX)]
        assert second.recorder.written == 0


async def test_only_pods_with_another_reason_get_an_event_again() -> None:
    async with stage() as cluster:
        waiting(cluster, 2)
        cluster.pod("a", "large", 9)
        async with leading(cluster):
            await eventually(lambda: len(events(cluster)) == 3)
        before = events(cluster)
        assert {reason for _, reason in before} == {MAX}
        change_quota(cluster, 11)
        cluster.bind(cluster.pod("a", "more", 9, gated=False), "n")
        async with leading(cluster):
            await asyncio.sleep(0.3)
        assert events(cluster) == before, "the amounts are others, the reason is the same"
        change_quota(cluster, 100)
        async with leading(cluster):
            await eventually(lambda: len(events(cluster)) > 3)
            await asyncio.sleep(0.3)
        (event,) = [one for one in events(cluster)[3:] if one[0] == "large"]
        assert event[1] != MAX


async def test_an_event_that_the_server_dropped_is_written_again() -> None:
    async with stage() as cluster:
        waiting(cluster)
        async with leading(cluster):
            await eventually(lambda: len(events(cluster)) == 3)
        (name,) = [
            event["metadata"]["name"] for event in cluster.fake.state.of(EVENTS) if event["regarding"]["name"] == "p1"
        ]
        cluster.fake.state.delete(EVENTS, "a", name)
        async with leading(cluster):
            await eventually(lambda: len(events(cluster)) == 3)
            await asyncio.sleep(0.3)
        assert events(cluster) == [("p0", MAX), ("p2", MAX), ("p1", MAX)]


async def test_after_its_first_rest_everything_is_news() -> None:
    """What a predecessor said counts only against what is found; later, the loop itself knows what is new."""
    async with stage() as cluster:
        waiting(cluster, 1)
        async with leading(cluster):
            await eventually(lambda: len(events(cluster)) == 1)
        async with leading(cluster):
            cluster.pod("a", "new")
            await eventually(lambda: len(events(cluster)) == 2)
        assert events(cluster) == [("p0", MAX), ("new", MAX)]


async def test_a_ledger_built_anew_in_the_same_process_says_nothing_that_was_said() -> None:
    async with stage(patience=60.0) as cluster:
        waiting(cluster)
        cluster.fake.fail("POST .*/events", hang=2.5, times=1)  # it is not written yet when the next ledger asks
        async with leading(cluster) as made:
            await eventually(lambda: len(events(cluster)) == 2)
            assert made.term is not None
            made.term.mirror.engine.state.account("nodes/n").busy.add(from_amounts({GPU: 1}))
            await eventually(lambda: made.ended["rebuilt"] == 1 and rested(made))
        assert sorted(events(cluster)) == [("p0", MAX), ("p1", MAX), ("p2", MAX)]


@pytest.mark.parametrize(
    "fault", [{"code": 403}, {"code": 500, "times": 100}, {"code": 410}, {"hang": 1.0, "times": 9}]
)
async def test_a_list_that_fails_costs_events_and_not_the_term(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: dict[str, Any]
) -> None:
    monkeypatch.setattr(telling, "PATIENCE", 0.5)
    async with stage() as cluster:
        waiting(cluster)
        async with leading(cluster):
            await eventually(lambda: len(events(cluster)) == 3)
        cluster.fake.fail("GET .*/events", **fault)
        async with leading(cluster) as second:
            await eventually(lambda: len(events(cluster)) == 6)
            assert not second.ended
        assert "events are repeated" in caplog.text


async def test_nothing_but_telling_waits_for_the_list() -> None:
    async with stage() as cluster:
        waits = waiting(cluster, 1)
        change_quota(cluster, 3)
        cluster.fake.fail("GET .*/events", hang=1.5)
        running = asyncio.create_task(_lead_until(cluster, lambda: len(events(cluster)) == 1))
        await eventually(lambda: cluster.started(waits[0]))
        late = cluster.pod("a", "late")
        await asyncio.sleep(0.5)
        assert events(cluster) == []
        await running
        assert events(cluster) == [("late", MAX)]
        assert cluster.gated(late)


async def _lead_until(cluster: Stage, true: Callable[[], object]) -> None:
    async with leading(cluster):
        await eventually(true)


async def test_a_group_that_is_complete_is_not_called_incomplete_while_the_ledger_is_built() -> None:
    group = {"bursar.dev/group": "train", "bursar.dev/group-size": "3"}
    async with stage() as cluster:
        waiting(cluster, 0)
        for number in range(3):
            cluster.pod("a", f"g{number}", labels=group)
        async with leading(cluster):
            await eventually(lambda: len(events(cluster)) == 3)
        first = events(cluster)
        assert first == [("g0", MAX), ("g1", "engine.group"), ("g2", "engine.group")]
        async with leading(cluster):
            await asyncio.sleep(0.3)
        assert events(cluster) == first


async def test_a_group_that_is_incomplete_is_called_so_once() -> None:
    group = {"bursar.dev/group": "train", "bursar.dev/group-size": "3"}
    incomplete = [("g0", "control.group-incomplete"), ("g1", "control.group-incomplete")]
    async with stage() as cluster:
        waiting(cluster, 0)
        for number in range(2):
            cluster.pod("a", f"g{number}", labels=group)
        for _ in range(2):
            async with leading(cluster):
                await eventually(lambda: len(events(cluster)) == 2)
                await asyncio.sleep(0.2)
        assert events(cluster) == incomplete


@pytest.mark.parametrize(
    "options", [TermOptions(MirrorOptions(shadow=True)), TermOptions(dry_run=True)], ids=["shadow", "dry run"]
)
async def test_who_tells_nothing_asks_for_nothing(options: TermOptions) -> None:
    async with stage() as cluster:
        waiting(cluster)
        made = Replica(cluster.api, default_registry(), ProcessOptions(options, settle=0.0))
        running = asyncio.create_task(made.run())
        await eventually(lambda: made.term is not None and made.term.ready)
        await asyncio.sleep(0.3)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert not [seen for seen in cluster.fake.seen if "events.k8s.io" in seen.path]


def holder(cluster: Stage) -> str:
    (lease,) = cluster.fake.state.of(LEASES)
    found: str = lease["spec"]["holderIdentity"]
    return found


async def test_what_waits_to_be_written_at_the_end_is_written_before_the_lease_is_given_back() -> None:
    async with stage() as cluster:
        waiting(cluster, 6)
        cluster.fake.fail("POST .*/events", hang=0.5, times=6)
        async with leading(cluster) as made:
            assert made.recorder.written == 0
        assert sorted(events(cluster)) == [(f"p{number}", MAX) for number in range(6)]
        assert not made.recorder.dropped
        assert not holder(cluster)


async def test_a_server_that_does_not_answer_delays_shutdown_only_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_FLUSH_LIMIT", 0.3)
    async with stage(patience=60.0) as cluster:
        waiting(cluster, 6)
        cluster.fake.fail("POST .*/events", hang=60, times=6)
        async with leading(cluster) as made:
            stopped_at = time.monotonic()
        assert time.monotonic() - stopped_at < 3
        assert made.recorder.written == 0
        assert not holder(cluster), "nothing of it is under way any more"


async def test_who_lost_the_lease_has_no_last_word() -> None:
    async with stage() as cluster:
        waiting(cluster, 2)
        async with leading(cluster) as made:
            await eventually(lambda: made.recorder.written == 2)
            assert isinstance(made.election, Elector)
            made.election._until = 0.0
            made.recorder.record(Regarding(PODS, "p0", "a"), "Normal", "Late", "too late")
        assert made.recorder.written == 2
