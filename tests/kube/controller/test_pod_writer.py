"""What is written on one pod is written by one task at a time, also what a predecessor began."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from bursar.kube.client.api import Api
from bursar.kube.controller.patches import HOLD, HoldRecord
from bursar.kube.controller.pod_writer import LabelKeeper, PodWriter
from bursar.ledger.claims import HELD
from tests.kube.controller.test_mirror import apply, cluster_with, namespace, node, pod, quota

Body = dict[str, Any]
pytestmark = pytest.mark.anyio


async def test_a_hold_is_not_written_while_the_one_of_a_predecessor_is_taken_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = cluster_with(node("n", 1), namespace("a", **{"bursar.dev/quota": "enforced"}), quota("a", 1, 1))
    apply(cluster, pod("a", "waits", 2))
    mirror = cluster.mirror
    api, now = cast("Api", None), mirror.notes.now
    writer = PodWriter(api, mirror.engine, mirror.pods, mirror.placement, 0, mirror.report, now)
    tracked, claim = mirror.pods.by_key["a/waits"], mirror.controller.claim("a/waits")
    assert claim is not None
    tracked.hold = HoldRecord("elsewhere")
    sent: list[object] = []
    answered = asyncio.Event()

    async def send(_sight: object, patch: Body, subresource: str = "") -> object:
        sent.append(subresource or patch["metadata"]["annotations"][HOLD])
        await answered.wait()
        return patch

    monkeypatch.setattr(writer, "_send", send)
    writer.resume(tracked)
    writer.tidy()
    await asyncio.sleep(0.01)
    assert sent == [None]
    claim.state = HELD
    holding = asyncio.create_task(writer.hold(claim))
    await asyncio.sleep(0.01)
    assert sent == [None], "the hold waits until the other one is gone"
    answered.set()
    await holding
    await writer.queue.idle()
    assert sent == [None, "status", '{"place":""}', "status"]
    assert tracked.hold == HoldRecord("")


# Labels


OVER = {"capacity": "over"}


def test_a_label_is_written_once() -> None:
    keeper = LabelKeeper()
    assert keeper.want("u", {"capacity": "in"}, {}) == {"capacity": "in"}
    assert keeper.seen("u", {}) == {}, "the write has not arrived yet"
    assert keeper.seen("u", {"capacity": "in"}) == {}


def test_a_label_that_somebody_changes_is_written_again_once() -> None:
    keeper = LabelKeeper()
    keeper.want("u", {"capacity": "in"}, {})
    keeper.seen("u", {"capacity": "in"})
    assert keeper.seen("u", OVER) == {"capacity": "in"}
    assert keeper.seen("u", OVER | {"other": "x"}) == {}, "it is on its way"
    assert keeper.seen("u", {"capacity": "in"}) == {}
    assert keeper.seen("u", {}) == {"capacity": "in"}


def test_what_a_predecessor_wrote_is_not_written_again() -> None:
    keeper = LabelKeeper()
    assert keeper.want("u", dict(OVER), OVER) == {}
    assert keeper.seen("u", {}) == OVER


def test_a_label_that_is_not_wanted_any_more_is_taken_away_and_stays_away() -> None:
    keeper = LabelKeeper()
    keeper.want("u", dict(OVER), {})
    keeper.seen("u", OVER)
    assert keeper.want("u", {"capacity": None}, OVER) == {"capacity": None}
    assert keeper.seen("u", OVER) == {}, "an event from before the write"
    assert keeper.seen("u", {}) == {}
    assert keeper.seen("u", OVER) == {"capacity": None}


def test_what_is_newly_wanted_is_written_whatever_is_seen_meanwhile() -> None:
    """The pod still shows the label of before: it may be an old sight, while another value is on its way."""
    keeper = LabelKeeper()
    keeper.want("u", {"capacity": "in"}, {})
    assert keeper.want("u", dict(OVER), OVER) == OVER


def test_pods_that_are_forgotten_have_no_labels_of_ours() -> None:
    keeper = LabelKeeper()
    keeper.want("u", dict(OVER), OVER)
    keeper.forget("u")
    assert keeper.seen("u", {}) == {}
    assert keeper.want("v", {}, {}) == {}
