"""Events: written once, counted when repeated, dropped with a number when there are too many; never in the way."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bursar.kube.client.api import EVENTS, NODES, PODS, Api
from bursar.kube.client.errors import Fenced
from bursar.kube.client.events import NAME_LENGTH, EventLimits, Recorder, Regarding, micro_time, whole_seconds
from tests.kube.fakeapi import FakeApi
from tests.kube.waiting import eventually

pytestmark = pytest.mark.anyio

POD = Regarding(PODS, "p", "ns", "uid-1")
QUICK = EventLimits(series_period=0.05)


@contextlib.asynccontextmanager
async def running(recorder: Recorder) -> AsyncIterator[Recorder]:
    task = asyncio.create_task(recorder.run())
    yield recorder
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def recorder(api: Api, limits: EventLimits = QUICK) -> Recorder:
    return Recorder(api, "bursar.dev/controller", "bursar-0", limits)


def written(fake: FakeApi) -> list[dict[str, Any]]:
    return list(fake.state.of(EVENTS))


async def test_an_event_says_who_what_and_why(fake: FakeApi, api: Api) -> None:
    async with running(recorder(api)) as events:
        events.record(POD, "Normal", "Admitted", "quota has room", "Admit")
        await eventually(lambda: written(fake))
    found = written(fake)[0]
    assert found["metadata"]["namespace"] == "ns"
    assert found["regarding"] == {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "ns", "uid": "uid-1"}
    wanted = ("Normal", "Admitted", "Admit", "quota has room", "bursar.dev/controller", "bursar-0")
    fields = ("type", "reason", "action", "note", "reportingController", "reportingInstance")
    assert tuple(found[field] for field in fields) == wanted
    assert found["eventTime"].endswith("Z")
    assert "series" not in found


async def test_events_about_the_whole_cluster_live_in_default(fake: FakeApi, api: Api) -> None:
    async with running(recorder(api)) as events:
        events.record(Regarding(NODES, "n"), "Warning", "Gone", "the node is gone")
        await eventually(lambda: written(fake))
    assert written(fake)[0]["metadata"]["namespace"] == "default"
    assert written(fake)[0]["action"] == "Gone"


async def test_repetitions_become_a_series(fake: FakeApi, api: Api) -> None:
    async with running(recorder(api)) as events:
        for _ in range(5):
            events.record(POD, "Normal", "Waits", "3 GPUs short")
        await eventually(lambda: written(fake) and written(fake)[0].get("series", {}).get("count") == 5)
        events.record(POD, "Normal", "Waits", "3 GPUs short")
        await eventually(lambda: written(fake)[0]["series"]["count"] == 6)
    assert len(written(fake)) == 1


async def test_another_text_is_another_event(fake: FakeApi, api: Api) -> None:
    events = recorder(api)
    events.record(POD, "Normal", "Waits", "3 GPUs short")
    events.record(POD, "Normal", "Waits", "2 GPUs short")
    await events.flush()
    assert len(written(fake)) == 2
    assert events.written == 2


async def test_flushing_waits_for_those_who_are_writing(fake: FakeApi, api: Api) -> None:
    fake.fail("POST .*events", hang=0.2, times=2)
    async with running(recorder(api)) as events:
        for number in range(2):
            events.record(POD, "Normal", "Says", f"{number}")
        await eventually(events._queue.empty)
        await events.flush()
        assert events.written == 2


async def test_a_series_that_the_server_forgot_begins_anew(fake: FakeApi, api: Api) -> None:
    events = recorder(api)
    events.record(POD, "Normal", "Waits", "x")
    await events.flush()
    name = written(fake)[0]["metadata"]["name"]
    fake.state.delete(EVENTS, "ns", name)
    events.record(POD, "Normal", "Waits", "x")
    await events.flush()
    events.record(POD, "Normal", "Waits", "x")
    await events.flush()
    assert len(written(fake)) == 1
    assert written(fake)[0]["metadata"]["name"] != name


async def test_an_object_falls_silent_and_speaks_again(fake: FakeApi, api: Api) -> None:
    now = 0.0
    events = Recorder(api, "bursar.dev/controller", "i", EventLimits(burst=3, refill=10.0), clock=lambda: now)
    for number in range(5):
        events.record(POD, "Normal", "Says", f"{number}")
    events.record(Regarding(PODS, "q", "ns"), "Normal", "Says", "others may speak")
    now = 25.0
    for number in range(5, 9):
        events.record(POD, "Normal", "Says", f"{number}")
    await events.flush()
    assert [
        each["note"] for each in sorted(written(fake), key=lambda each: int(each["metadata"]["resourceVersion"]))
    ] == [
        "0",
        "1",
        "2",
        "others may speak",
        "5",
        "6",
    ]
    assert events.dropped == {"limited": 4}


async def test_a_full_queue_drops_and_counts(api: Api) -> None:
    events = recorder(api, EventLimits(queue=2))
    for number in range(5):
        events.record(POD, "Normal", "Says", f"{number}")
    assert events.dropped == {"full": 3}


async def test_a_server_in_trouble_costs_the_event_only(fake: FakeApi, api: Api) -> None:
    fake.fail("POST .*events", code=500)
    events = recorder(api)
    events.record(POD, "Normal", "Says", "lost")
    events.record(POD, "Normal", "Says", "kept")
    await events.flush()
    assert [each["note"] for each in written(fake)] == ["kept"]
    assert events.dropped == {"failed": 1}
    events.record(POD, "Normal", "Says", "lost")  # may be said again
    await events.flush()
    assert len(written(fake)) == 2


async def test_a_defect_costs_the_event_only(
    fake: FakeApi, api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(recorder(api)) as events:
        with monkeypatch.context() as broken:
            broken.setattr(events, "_event", None)
            for number in range(8):
                events.record(POD, "Normal", f"R{number}", "text")
            await eventually(lambda: events.dropped["failed"] == 8)
        events.record(POD, "Normal", "Last", "text")
        await eventually(lambda: [event["reason"] for event in written(fake)] == ["Last"])
    assert "event R0 about p not written" in caplog.text


async def test_who_may_not_write_writes_no_events(fake: FakeApi, api: Api) -> None:
    def closed() -> float:
        raise Fenced("no")

    api.http.gate = closed
    events = recorder(api)
    events.record(POD, "Normal", "Says", "x")
    await events.flush()
    assert events.dropped == {"fenced": 1}
    assert fake.seen == []


async def test_long_texts_are_cut_to_what_the_api_takes(fake: FakeApi, api: Api) -> None:
    events = recorder(api)
    events.record(Regarding(PODS, "p" * 253, "ns"), "Normal", "R" * 200, "ü" * 2000)
    await events.flush()
    found = written(fake)[0]
    assert len(found["note"].encode()) <= 1024
    assert found["note"].endswith("…")
    assert len(found["reason"]) == len(found["action"]) == 128
    assert len(found["metadata"]["name"]) <= 253


async def test_memory_is_bounded(api: Api) -> None:
    events = recorder(api, EventLimits(queue=1000, remembered=10))
    for number in range(100):
        events.record(Regarding(PODS, f"p{number}", "ns"), "Normal", "Says", "x")
        events.record(Regarding(PODS, f"p{number}", "ns"), "Normal", "Says", "x")
    assert len(events._series) == len(events._buckets) == 10
    await events.flush()
    assert not events._repeated


async def test_what_is_left_to_say_can_be_said_beside_what_is_being_said(fake: FakeApi, api: Api) -> None:
    events = recorder(api, EventLimits(series_period=3600.0))
    objects = [Regarding(PODS, f"p{number}", "ns", f"uid-{number}") for number in range(5)]
    async with running(events):
        for about in objects * 2:
            events.record(about, "Normal", "Waits", "quota")
        await events._queue.join()
        fake.fail("PATCH", hang=0.2)
        repeating = asyncio.create_task(events._write_series())
        await eventually(lambda: any(seen.method == "PATCH" for seen in fake.seen))
        await events.flush()
        await repeating
    assert [event["series"]["count"] for event in written(fake)] == [2] * 5
    assert len([seen for seen in fake.seen if seen.method == "PATCH"]) == 5, "each is said once"


@pytest.mark.parametrize("end", ["", "-", ".", "a-.-"])
async def test_a_long_name_is_cut_where_a_name_may_end(fake: FakeApi, api: Api, end: str) -> None:
    name = ("x" * (NAME_LENGTH - len(end))) + end + "and-more"
    async with running(recorder(api)) as events:
        events.record(Regarding(PODS, name, "ns", "uid-1"), "Normal", "Waits", "quota")
        await eventually(lambda: written(fake))
    assert re.fullmatch(r"x+a?\.[0-9a-f]{16}", written(fake)[0]["metadata"]["name"])


# Times


def test_times_have_the_form_of_their_type() -> None:
    day_and_time = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d"
    assert re.fullmatch(rf"{day_and_time}Z", whole_seconds())
    assert re.fullmatch(rf"{day_and_time}\.\d{{6}}Z", micro_time())
