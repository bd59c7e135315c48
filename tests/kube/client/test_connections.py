"""Connections: what is read of answers, when one is used again, and the way through a proxy."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bursar.kube.client import connections
from bursar.kube.client import connections as module
from bursar.kube.client.api import PODS, Api
from bursar.kube.client.auth import ClusterConfig, Given, Secret, Trust
from bursar.kube.client.connections import Connection, Connections, Lines
from bursar.kube.client.errors import ConfigError, Malformed, Unanswered
from bursar.kube.client.http import NO_RETRY, Http
from tests.kube.client.certificates import authority, issued_by
from tests.kube.fakeapi import FakeApi
from tests.kube.waiting import eventually

pytestmark = pytest.mark.anyio
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\n"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def served(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[Connections]:
    """A server of one kind, and connections to it."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):  # nobody asks any more
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    async with server:
        scheme = "http" if tls is None else "https"
        found = Connections(f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        yield found
        await found.close()


def saying(*answers: bytes, hang: bool = False) -> Serve:
    """Answers one request after the other, then closes the connection, or keeps it open."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
        if hang:
            await reader.read()

    return serve


async def asked(connection: Connection) -> tuple[int, bytes]:
    connection.send(REQUEST)
    body = await connection.whole()
    return connection.status, body


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (OK + b"Content-Length: 3\r\n\r\nabc", (200, b"abc")),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", (200, b"abc")),
        (OK + b"\r\nabc", (200, b"abc")),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\na", (200, b"a")),
        (b"HTTP/1.1 204 No Content\r\n\r\n", (204, b"")),
        (b"HTTP/1.0 500 Oh\r\nContent-Length: 1\r\n\r\na", (500, b"a")),
    ],
    ids=["length", "chunks", "until the end", "continue", "nothing", "old"],
)
async def test_answers_are_read_whole(answer: bytes, expected: tuple[int, bytes]) -> None:
    async with served(saying(answer)) as found:
        assert await asked(await found.take(None)) == expected


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        OK + b"Content-Length: 4\r\n\r\nabc",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
        b"220 smtp.example.com\r\n",
    ],
    ids=["none", "head cut", "body cut", "chunks cut", "no HTTP"],
)
async def test_answers_that_are_not_finished_are_errors(answer: bytes) -> None:
    async with served(saying(answer)) as found:
        connection = await found.take(None)
        with pytest.raises(OSError, match=r".+"):
            await asked(connection)
        assert not connection.reusable


async def test_a_connection_is_used_again_after_a_whole_answer() -> None:
    answer = OK + b"Content-Length: 1\r\n\r\na"
    async with served(saying(answer, answer, hang=True)) as found:
        first = await found.take(None)
        for _ in range(2):
            assert await asked(first) == (200, b"a")
            found.give_back(first)
            assert await found.take(None) is first


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Connection: close\r\nContent-Length: 1\r\n\r\na",
        OK + b"Content-Length: 1\r\n\r\naMORE",
        b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na",
    ],
    ids=["closing", "more than was asked for", "old"],
)
async def test_others_are_not_used_again(answer: bytes) -> None:
    async with served(saying(answer, hang=True)) as found:
        first = await found.take(None)
        first.send(REQUEST)
        with suppress(OSError):
            await first.whole()
        found.give_back(first)
        await eventually(lambda: not first.reusable)
        assert await found.take(None) is not first


async def test_one_that_was_given_up_is_closed() -> None:
    async with served(saying(b"", hang=True)) as found:
        first = await found.take(None)
        first.send(REQUEST)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await first.whole()
        found.give_back(first)
        await asyncio.sleep(0)
        with pytest.raises(OSError, match="closed"):
            first.send(REQUEST)


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "TLS"])
async def test_nothing_is_left_of_a_session_that_was_closed(encrypted: bool) -> None:
    known = authority("ca")
    certificate = issued_by(known, "server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    Trust()._add_certificate(context, Secret("", certificate.pem, certificate.key))
    async with FakeApi(tls=context if encrypted else None) as fake:
        config = ClusterConfig(fake.url, Trust(known.pem))
        async with Http(config) as http:
            await asyncio.gather(*(Api(http).serves(PODS) for _ in range(3)))
            made = list(http._open()._open)
        assert made
        assert all(connection._transport is None for connection in made)


async def test_one_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_IDLE", 0.01)
    async with served(saying(OK + b"Content-Length: 0\r\n\r\n", hang=True)) as found:
        first = await found.take(None)
        await asked(first)
        found.give_back(first)
        await asyncio.sleep(0.02)
        assert await found.take(None) is not first


async def test_those_that_are_not_needed_any_more_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_IDLE", 0.01)
    async with served(saying(OK + b"Content-Length: 0\r\n\r\n", hang=True)) as found:
        first, second = await found.take(None), await found.take(None)
        await asked(first)
        found.give_back(first)
        await asyncio.sleep(0.02)
        await asked(second)
        found.give_back(second)
        await asyncio.sleep(0.005)
        assert (first.reusable, second.reusable) == (False, True)


async def test_one_that_the_server_closed_is_not_used_again() -> None:
    async with served(saying(OK + b"Content-Length: 0\r\n\r\n")) as found:
        first = await found.take(None)
        await asked(first)
        found.give_back(first)
        await eventually(lambda: not first.reusable)
        assert await found.take(None) is not first


async def test_a_stream_is_read_as_it_comes_and_holds_up_the_server() -> None:
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(200):
            writer.write(b"20000\r\n" + b"x" * 0x20000 + b"\r\n")
            await writer.drain()
            sent += 1
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async with served(serve) as found:
        connection = await found.take(None)
        connection.send(REQUEST, streaming=True)
        assert await connection.head() == 200
        await asyncio.sleep(0.2)
        assert sent < 150  # of 200: it waits for us
        total = 0
        while piece := await connection.piece():
            total += len(piece)
        assert (total, sent) == (200 * 0x20000, 200)
        assert connection.reusable


@pytest.mark.parametrize("encrypted", [False, True])
async def test_what_comes_during_a_rest_is_read_in_one_go(encrypted: bool) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"Transfer-Encoding: chunked\r\n\r\n")
        for number in range(10):
            writer.write(b"1\r\n%d\r\n" % number)
            await asyncio.sleep(0.01)
        await reader.read()

    known = authority("ca")
    certificate = issued_by(known, "server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    Trust()._add_certificate(context, Secret("", certificate.pem, certificate.key))
    async with served(serve, context if encrypted else None) as found:
        connection = await found.take(Trust(known.pem).context(Secret()) if encrypted else None)
        connection.send(REQUEST, streaming=True)
        await connection.head()
        first = await connection.piece()
        await connection.rest(0.3)
        assert connection._pieces == []
        assert first + await connection.piece() == b"0123456789"


async def test_a_connection_whose_answer_nobody_read_to_its_end_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HELD", 10)
    long = OK + b"Content-Length: 100\r\n\r\n" + b"x" * 100
    async with served(saying(long, OK + b"Content-Length: 1\r\n\r\na")) as found:
        connection = await found.take(None)
        connection.send(REQUEST, streaming=True)
        await connection.head()
        await eventually(lambda: connection.reusable)
        found.give_back(connection)
        again = await found.take(None)
        assert again is connection
        assert await asyncio.wait_for(asked(again), 60) == (200, b"a")


# Through a proxy


@asynccontextmanager
async def proxy(seen: list[bytes], status: bytes = b"200 OK") -> AsyncIterator[str]:
    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        seen.append(head)
        target = head.split()[1].decode()
        if head.startswith(b"CONNECT"):
            writer.write(b"HTTP/1.1 " + status + b"\r\n\r\n")
        if not status.startswith(b"200"):
            writer.close()
            return
        host, _, port = target.removeprefix("http://").partition("/")[0].rpartition(":")
        there, beyond = await asyncio.open_connection(host, int(port))
        if not head.startswith(b"CONNECT"):
            beyond.write(head.replace(f"http://{host}:{port}".encode(), b"", 1))
        await asyncio.gather(pump(reader, beyond), pump(there, writer), return_exceptions=True)

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://some:one@127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_proxy_is_a_tunnel_for_tls() -> None:
    known, seen = authority("ca"), list[bytes]()
    certificate = issued_by(known, "server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    Trust()._add_certificate(context, Secret("", certificate.pem, certificate.key))
    async with (
        FakeApi(tls=context) as fake,
        proxy(seen) as way,
        Http(ClusterConfig(fake.url, Trust(known.pem), proxy=way)) as http,
    ):
        for _ in range(2):
            assert await Api(http).serves(PODS)
    assert len(seen) == 1  # the connection is kept
    assert seen[0].startswith(b"CONNECT 127.0.0.1:")
    assert b"Proxy-Authorization: Basic c29tZTpvbmU=\r\n" in seen[0]


async def test_a_proxy_reads_what_is_not_encrypted() -> None:
    seen: list[bytes] = []
    async with FakeApi() as fake, proxy(seen) as way, Http(ClusterConfig(fake.url, proxy=way)) as http:
        assert await Api(http).serves(PODS)
    assert seen[0].startswith(f"GET {fake.url}/api/v1 HTTP/1.1\r\n".encode())


async def test_a_proxy_that_refuses_is_named() -> None:
    seen: list[bytes] = []
    trust = Trust(insecure=True)
    async with (
        proxy(seen, b"407 No") as way,
        Http(ClusterConfig("https://127.0.0.1:1", trust, proxy=way), retry=NO_RETRY) as http,
    ):
        with pytest.raises(Unanswered, match=r"the proxy 127.0.0.1 answers 407"):
            await Api(http).serves(PODS)


async def test_a_proxy_that_does_not_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECTING", 0.1)
    left = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            await reader.read()
        left.set()
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        way = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        config = ClusterConfig("https://127.0.0.1:1", Trust(insecure=True), proxy=way)
        async with Http(config, retry=NO_RETRY) as http:
            with pytest.raises(Unanswered, match="no connection"):
                await Api(http).serves(PODS)
            await asyncio.wait_for(left.wait(), 60)


async def test_headers_that_would_be_more_than_one_are_refused() -> None:
    config = ClusterConfig("http://127.0.0.1:1", credentials=Given(Secret("Bearer a\r\nX: y")), source="file")
    async with Http(config) as http:
        with pytest.raises(ConfigError, match="file: the header Authorization"):
            await Api(http).serves(PODS)


# Lines out of pieces


@given(st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line and line.strip())), st.data())
def test_cuts_do_not_matter(wanted: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(line + b"\n" for line in wanted)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=12)))
    splitter = Lines()
    found = [
        line
        for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)
        for line in splitter.feed(whole[start:end])
    ]
    assert found == wanted


def test_blank_lines_are_left_out() -> None:
    assert Lines().feed(b"\n \r\na\n\n") == [b"a"]


def test_a_line_without_end_waits() -> None:
    splitter = Lines()
    assert splitter.feed(b"ab") == []
    assert splitter.feed(b"c\nd") == [b"abc"]
    assert splitter.feed(b"\n") == [b"d"]


def test_a_line_beyond_all_measure_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LONGEST", 10)
    splitter = Lines()
    splitter.feed(b"x" * 10)
    with pytest.raises(Malformed):
        splitter.feed(b"x")
