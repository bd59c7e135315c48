"""Keyed work: one at a time for each key, always the newest, tried again where that may help."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from bursar.kube.client.errors import error_for
from bursar.kube.client.models import ApiStatus
from bursar.kube.controller.work_queue import KeyedWorkQueue, RetryLater, sent


def test_what_is_wanted_meanwhile_is_done_once_more() -> None:
    done: list[str] = []

    async def main() -> None:
        go = asyncio.Event()

        async def perform(key: str) -> None:
            await go.wait()
            done.append(key)

        queue: KeyedWorkQueue[str] = KeyedWorkQueue(perform, 2)
        queue.want("a")
        await asyncio.sleep(0)
        for _ in range(5):
            queue.want("a")
        go.set()
        await queue.idle()

    asyncio.run(main())
    assert done == ["a", "a"]


def test_no_more_than_so_many_at_once() -> None:
    most = 0

    async def main() -> None:
        nonlocal most
        running = 0

        async def perform(_key: int) -> None:
            nonlocal most, running
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1

        queue: KeyedWorkQueue[int] = KeyedWorkQueue(perform, 3)
        for key in range(20):
            queue.want(key)
        await queue.idle()

    asyncio.run(main())
    assert most == 3


def test_work_that_cannot_be_done_now_is_tried_again() -> None:
    tries = 0

    async def main() -> None:
        async def perform(_key: str) -> None:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise RetryLater("not yet", 0.0)

        queue: KeyedWorkQueue[str] = KeyedWorkQueue(perform, 1)
        queue.want("a")
        await queue.idle()

    asyncio.run(main())
    assert tries == 3


def test_an_unexpected_error_is_told() -> None:
    told: list[tuple[str, str]] = []

    async def main() -> None:
        async def perform(_key: str) -> None:
            raise ValueError("broken")

        queue: KeyedWorkQueue[str] = KeyedWorkQueue(perform, 1)
        queue.broken = lambda key, error: told.append((key, str(error)))
        queue.want("a")
        await queue.idle()

    asyncio.run(main())
    assert told == [("a", "broken")]


def test_closing_ends_all_work() -> None:
    async def main() -> None:
        async def perform(_key: str) -> None:
            await asyncio.sleep(60)

        queue: KeyedWorkQueue[str] = KeyedWorkQueue(perform, 1)
        queue.want("a")
        await asyncio.sleep(0)
        await asyncio.wait_for(queue.close(), 5)
        assert len(queue) == 0

    asyncio.run(main())


@pytest.mark.parametrize("after", [None, 0.0])
def test_pauses(after: float | None) -> None:
    assert RetryLater("why", after).after == after


def test_what_comes_together_is_done_together_each_time() -> None:
    done: list[float] = []

    async def main() -> None:
        now = asyncio.get_running_loop().time

        async def perform(_key: str) -> None:
            done.append(now())

        queue: KeyedWorkQueue[str] = KeyedWorkQueue(perform, 1, settle_for=0.05)
        until = now() + 0.2
        while now() < until:
            queue.want("a")
            await asyncio.sleep(0.001)
        await queue.idle()

    asyncio.run(main())
    assert 2 <= len(done) <= 5
    assert all(later - earlier >= 0.049 for earlier, later in pairwise(done))


def test_what_is_forgotten_while_more_is_waited_for_is_not_done() -> None:
    done: list[str] = []

    async def main() -> None:
        async def perform(key: str) -> None:
            done.append(key)

        queue: KeyedWorkQueue[str] = KeyedWorkQueue(perform, 1, settle_for=0.01)
        queue.want("a")
        await asyncio.sleep(0)
        queue.forget("a")
        await queue.idle()

    asyncio.run(main())
    assert done == []


# Outcomes of failed writes


pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("wanted", "after"), [(None, None), (0.0, None), (3.0, 3.0), (3600.0, 60.0)])
async def test_a_server_in_trouble_is_given_a_pause_also_when_it_asks_for_none_and_none_without_end(
    wanted: float | None, after: float | None
) -> None:
    async def write() -> None:
        raise error_for("patch /pods/p", 503, ApiStatus(code=503), wanted)

    with pytest.raises(RetryLater) as again:
        await sent(write(), refused=lambda _: None)
    assert again.value.after == after
