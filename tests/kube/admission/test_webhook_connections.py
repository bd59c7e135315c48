"""Connections to the webhook: those on which nobody asks anything are closed, all others are answered."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from bursar.kube.admission import webhook as serving
from bursar.kube.admission.certs import make
from bursar.kube.admission.manifests import VALIDATE_QUOTAS
from bursar.kube.admission.webhook import TlsContext, WebhookServer
from tests.kube.admission.review_client import Objects, review, webhook

MADE = make(["127.0.0.1"], datetime.now(UTC))
PATIENCE = 1  # seconds
QUOTA = {
    "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
    "kind": "ElasticQuota",
    "metadata": {"name": "team", "namespace": "quotas", "labels": {"quota.scheduling.koordinator.sh/parent": "org"}},
    "spec": {"max": {"cpu": "40"}, "min": {"cpu": "10"}},
}


class Caller(NamedTuple):
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self) -> int:
        """The status of the answer to a whole request."""
        body = review(QUOTA)
        head = f"POST {VALIDATE_QUOTAS} HTTP/1.1\r\nHost: bursar\r\nContent-Type: application/json\r\n"
        self.writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        await self.reader.readexactly(int(answer.partition("content-length: ")[2].split()[0]))
        return int(answer.split()[1])

    async def trickle(self) -> None:
        """A request that never ends, until the other side closes the connection."""
        self.writer.write(b"POST / HTTP/1.1\r\n")
        while not self.reader.at_eof():
            self.writer.write(b"x-more: 1\r\n")
            await asyncio.sleep(PATIENCE / 10)

    async def until_closed(self) -> None:
        assert await self.reader.read() == b""


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Caller]:
    context = ssl.create_default_context(cadata=MADE.authorities.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        yield Caller(reader, writer)
    finally:
        writer.close()
        with suppress(OSError):  # the other side was first
            await writer.wait_closed()


@asynccontextmanager
async def served(view: Objects | None = None) -> AsyncIterator[int]:
    """The port of a webhook; whatever is done with it has a minute."""
    tls = TlsContext()
    tls.load(MADE)
    server = WebhookServer(webhook(view), tls, "127.0.0.1", 0, PATIENCE)
    await server.start()
    try:
        async with asyncio.timeout(60):
            yield server.port
    finally:
        await server.stop()


def test_those_who_ask_nothing_give_way_to_those_who_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 3)

    async def play() -> int:
        async with served() as port, AsyncExitStack() as opened:
            idle = [await opened.enter_async_context(connected(port)) for _ in range(3)]
            await asyncio.gather(*(caller.until_closed() for caller in idle))
            return await (await opened.enter_async_context(connected(port))).ask()

    assert asyncio.run(play()) == 200


@pytest.mark.parametrize("asked", [0, 1])
def test_whoever_never_ends_a_request_is_cut_off(asked: int) -> None:
    async def play() -> None:
        async with served() as port, connected(port) as caller:
            for _ in range(asked):
                assert await caller.ask() == 200
            await caller.trickle()

    asyncio.run(play())


def test_whoever_waits_for_an_answer_gets_it() -> None:
    class Slow(Objects):
        async def catch_up(self) -> None:
            await super().catch_up()
            await asyncio.sleep(PATIENCE * 2)

    view = Slow()

    async def play() -> list[int]:
        async with served(view) as port, connected(port) as caller:
            return [await caller.ask(), await caller.ask()]

    assert asyncio.run(play()) == [200, 200]
    assert view.caught_up == 2
