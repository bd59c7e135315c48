"""The latest event of each object: by version and not by clock, of all pages, of this controller only."""

from typing import Any

import pytest

from bursar.kube.client import api as verbs
from bursar.kube.client.api import EVENTS, PODS, Api
from bursar.kube.client.errors import Forbidden, Malformed
from bursar.kube.client.events import EventText, Recorder, Regarding, event_text, latest_events
from tests.kube.fakeapi import FakeApi

pytestmark = pytest.mark.anyio

CONTROLLER = "bursar.dev/controller"


def event(fake: FakeApi, uid: str, note: str, name: str = "", **more: Any) -> None:  # noqa: ANN401 fields of an event
    body = {
        "metadata": {"name": name or f"{uid}.{note}"},
        "regarding": {"kind": "Pod", "uid": uid},
        "reason": "Waits",
        "note": note,
        "reportingController": CONTROLLER,
        **more,
    }
    fake.state.create(EVENTS, "ns", body)


def anybody(_kind: str, _uid: str) -> bool:
    return True


async def test_the_newest_counts_whatever_its_clock_and_name_say(fake: FakeApi, api: Api) -> None:
    event(fake, "one", "older", name="b", eventTime="2099-01-01T00:00:00.000000Z")
    event(fake, "one", "newer", name="a", eventTime="1999-01-01T00:00:00.000000Z")
    event(fake, "two", "only")
    assert await latest_events(api, CONTROLLER, anybody) == {
        "one": EventText("Waits", "newer"),
        "two": EventText("Waits", "only"),
    }


async def test_events_of_others_and_about_strangers_do_not_count(fake: FakeApi, api: Api) -> None:
    event(fake, "one", "ours")
    event(fake, "one", "theirs", reportingController="kubelet")
    event(fake, "gone", "ours")
    assert await latest_events(api, CONTROLLER, lambda _kind, uid: uid == "one") == {"one": EventText("Waits", "ours")}


async def test_all_pages_are_read(fake: FakeApi, api: Api) -> None:
    for number in range(2 * verbs.PAGE + 1):
        event(fake, f"u{number}", "x")
    assert len(await latest_events(api, CONTROLLER, anybody)) == 2 * verbs.PAGE + 1
    assert len(fake.seen) == 3


@pytest.mark.parametrize("wrong", [{"reason": 7}, {"regarding": []}])
async def test_an_event_that_cannot_be_read_is_an_error(fake: FakeApi, api: Api, wrong: dict[str, Any]) -> None:
    event(fake, "one", "x", **wrong)
    with pytest.raises(Malformed, match="event: "):
        await latest_events(api, CONTROLLER, anybody)


async def test_who_may_not_list_is_told_so(fake: FakeApi, api: Api) -> None:
    fake.fail("GET .*/events", code=403)
    with pytest.raises(Forbidden):
        await latest_events(api, CONTROLLER, anybody)


async def test_what_was_recorded_is_written_before_it_is_asked_for(fake: FakeApi, api: Api) -> None:
    events = Recorder(api, CONTROLLER, "i")
    events.record(Regarding(PODS, "p", "ns", "one"), "Normal", "R" * 200, "ü" * 2000)
    await events.flush()
    assert await events.latest_events(anybody) == {"one": event_text("R" * 200, "ü" * 2000)}
    assert len(fake.state.objects) == 1
