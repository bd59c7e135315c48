"""Connections to the API server: HTTP/1.1 over TCP or TLS, kept alive, one request at a time on each.

There are no redirects, cookies or compression: a call costs a third of the processor time of a general HTTP library.
Invariants:

* A request leaves in one piece when ``send`` is called; no other task runs in between.
* A connection is reused only after an answer was read to its end and if the server keeps it open. Any failure or
  cancellation closes it.
* An incomplete answer is an error (an ``OSError``, as any failure here), never a short answer.

``Lines`` splits a watch into lines. An object may be megabytes long, so pieces are kept as they come and joined once.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections import deque
from collections.abc import Callable
from typing import cast
from urllib.parse import SplitResult, unquote, urlsplit

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from bursar.kube.client.errors import Malformed

CONNECTING = 10.0  # seconds
KEPT_IDLE = 15.0  # seconds; servers and what stands before them close idle connections, but hardly sooner
_HELD = 1024 * 1024  # bytes of an answer that wait to be read before the server has to wait, too
_AT_ONCE = 256 * 1024  # bytes that are read in one go
_PORTS = {"http": 80, "https": 443}
_OK = 200


class Connection(asyncio.BufferedProtocol):
    """One connection. Answers are read whole, or by pieces as they come (``streaming``)."""

    def __init__(self, buffer: memoryview) -> None:
        """``buffer``: of all connections in one event loop, since what was read is parsed before more is read."""
        self.status = 0  # of the answer
        self.retry_after = ""
        self.context: ssl.SSLContext | None = None
        self.idle_since = 0.0
        self.ended: Callable[[Connection], None] | None = None  # called when it is closed
        self._transport: asyncio.Transport | None = None
        self._wire: asyncio.Transport | None = None  # what lies below all encryption
        self._buffer = buffer
        self._parser = HttpResponseParser(self)
        self._streaming = False
        self._complete = True
        self._framed = False  # the answer says how long it is
        self._lasting = True  # the server keeps the connection open
        self._pieces: list[bytes] = []
        self._held = 0
        self._lost: OSError | None = None
        self._waiter: asyncio.Future[None] | None = None

    # Requests

    def send(self, request: bytes, *, streaming: bool = False) -> None:
        """Write a request, now."""
        if self._transport is None:
            raise ConnectionResetError("the connection is closed")
        if self._held > _HELD:  # of the previous answer, which was not read to its end
            self._transport.resume_reading()
        self.status, self.retry_after, self._pieces, self._held = 0, "", [], 0
        self._complete = self._framed = self._lasting = False
        self._streaming = streaming
        self._transport.write(request)

    async def whole(self) -> bytes:
        """The rest of the answer."""
        self._streaming = False
        if self._held > _HELD and self._transport is not None:
            self._transport.resume_reading()
        while not self._complete:
            await self._news()
        return b"".join(self._pieces)

    async def head(self) -> int:
        """The status of an answer that is streamed, as soon as it is there."""
        while not self.status:
            await self._news()
        return self.status

    async def piece(self) -> bytes:
        """What came since; empty at the end of the answer."""
        while not self._pieces:
            if self._complete:
                return b""
            await self._news()
        found = b"".join(self._pieces)
        self._pieces.clear()
        if self._held > _HELD and self._transport is not None:
            self._transport.resume_reading()
        self._held = 0
        return found

    async def rest(self, seconds: float) -> None:
        """Read nothing for so long: data waits in the kernel, and is then read in one go."""
        if self._wire is not None:
            self._wire.pause_reading()
            try:
                await asyncio.sleep(seconds)
            finally:
                self._wire.resume_reading()

    async def _news(self) -> None:
        if self._lost is not None:
            raise self._lost
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def reusable(self) -> bool:
        """Whether another request may follow."""
        return self._complete and self._lost is None and self._transport is not None and self._lasting

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        elif self.ended is not None:
            self.ended(self)

    async def encrypted(self, context: ssl.SSLContext, name: str) -> Connection:
        """A connection inside of this one, which is good for nothing else from now on."""
        transport, self._transport = self._transport, None
        if transport is None:
            raise ConnectionResetError("the connection is closed")
        inner = Connection(self._buffer)
        upon = await asyncio.get_running_loop().start_tls(transport, inner, context, server_hostname=name)
        if upon is None or inner._lost is not None:
            raise ConnectionResetError("the server closed the connection")
        inner._transport, inner._wire = upon, self._wire
        return inner

    # Callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = self._wire = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._complete:  # an answer without a request: it is out of step
            self.close()
            return
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except (HttpParserError, HttpParserUpgrade) as error:
            self._lost = ConnectionError(f"the answer is no HTTP: {error}")
            self.close()
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self._complete and self.status and not self._framed and exc is None:
            self._complete = True  # an answer that ends with its connection
        elif self._lost is None:
            self._lost = exc if isinstance(exc, OSError) else ConnectionResetError("the server closed the connection")
        self._wake()
        if self.ended is not None:
            self.ended(self)

    # Callbacks of the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        lower = name.lower()
        if lower in {b"content-length", b"transfer-encoding"}:
            self._framed = True
        elif lower == b"retry-after":
            self.retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= _OK:  # what comes before is no answer
            self.status = status
            self._lasting = self._parser.should_keep_alive()
            if self._streaming:
                self._wake()

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        if self._streaming:
            before, self._held = self._held, self._held + len(body)
            if before <= _HELD < self._held and self._transport is not None:
                self._transport.pause_reading()
            self._wake()

    def on_message_complete(self) -> None:
        if self.status:
            self._complete = True
            self._wake()


class Connections:
    """All connections to one server, by way of a proxy if there is one."""

    def __init__(self, server: str, proxy: str = "", server_name: str = "") -> None:
        self._server = urlsplit(server)
        self._proxy = urlsplit(proxy) if proxy else None
        self._server_name = server_name or self._server.hostname or ""
        self._idle: deque[Connection] = deque()  # the last one used is the first to be used again
        self._open: set[Connection] = set()
        self._buffer = memoryview(bytearray(_AT_ONCE))
        self._none_left = asyncio.Event()
        self._none_left.set()

        self.encrypted = self._server.scheme == "https"
        self.host = self._server.netloc.rpartition("@")[2]
        read_by_proxy = self._proxy if not self.encrypted else None
        # What the target of each request begins with, and the headers that name the server.
        self.root = ("" if read_by_proxy is None else f"http://{self.host}") + self._server.path.rstrip("/")
        self.headers = f"Host: {self.host}\r\n" + ("" if read_by_proxy is None else _credentials(read_by_proxy))

    async def take(self, context: ssl.SSLContext | None) -> Connection:
        """A connection for one request; to be given back, whatever becomes of it."""
        oldest = asyncio.get_running_loop().time() - KEPT_IDLE
        while self._idle:
            found = self._idle.pop()
            if found.reusable and found.context is context and found.idle_since > oldest:
                return found
            found.close()
        try:
            async with asyncio.timeout(CONNECTING):
                made = await self._connect(context)
        except TimeoutError:
            raise ConnectionError(f"no connection to {self.host} within {CONNECTING:.3g} s") from None
        made.context = context
        made.ended = self._ended
        self._open.add(made)
        self._none_left.clear()
        return made

    def give_back(self, connection: Connection) -> None:
        now = asyncio.get_running_loop().time()
        if connection.reusable:
            connection.idle_since = now
            self._idle.append(connection)
        else:
            connection.close()
        while self._idle and self._idle[0].idle_since <= now - KEPT_IDLE:  # more than are needed now
            self._idle.popleft().close()

    async def close(self) -> None:
        """Close all; returns when nothing is left of them."""
        self._idle.clear()
        for connection in list(self._open):
            connection.close()
        async with asyncio.timeout(CONNECTING):
            await self._none_left.wait()

    def _ended(self, connection: Connection) -> None:
        self._open.discard(connection)
        if not self._open:
            self._none_left.set()

    async def _connect(self, context: ssl.SSLContext | None) -> Connection:
        if self._proxy is not None:
            return await self._connect_through(self._proxy, context)
        return await self._reach(self._server, context, self._server_name)

    async def _connect_through(self, proxy: SplitResult, context: ssl.SSLContext | None) -> Connection:
        secure = ssl.create_default_context() if proxy.scheme == "https" else None
        outer = await self._reach(proxy, secure, proxy.hostname or "")
        if context is None:
            return outer
        name = self._server.hostname or ""
        target = f"[{name}]:{_port(self._server)}" if ":" in name else f"{name}:{_port(self._server)}"
        request = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{_credentials(proxy)}\r\n"
        try:
            outer.send(request.encode(), streaming=True)
            status = await outer.head()
            if status != _OK:
                raise ConnectionError(f"the proxy {proxy.hostname} answers {status}")
        except BaseException:
            outer.close()
            raise
        return await outer.encrypted(context, self._server_name)

    async def _reach(self, where: SplitResult, context: ssl.SSLContext | None, name: str) -> Connection:
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(lambda: Connection(self._buffer), where.hostname or "", _port(where))
        return made if context is None else await made.encrypted(context, name)


def _port(address: SplitResult) -> int:
    return address.port or _PORTS[address.scheme]


def _credentials(proxy: SplitResult) -> str:
    if proxy.username is None:
        return ""
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return f"Proxy-Authorization: Basic {b64encode(pair.encode()).decode()}\r\n"


LONGEST = 64 * 1024 * 1024
"""Bytes. etcd refuses objects of more than a few megabytes, so a longer line is no object."""


class Lines:
    """Splits a stream; what follows the last line end waits for the next piece."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._held = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that this piece completes, without their ends; blank ones are left out."""
        lines = piece.split(b"\n")
        rest = lines.pop()
        if lines and self._pieces:
            self._pieces.append(lines[0])
            lines[0] = b"".join(self._pieces)
        if lines:
            self._pieces, self._held = [], 0
        if rest:
            self._pieces.append(rest)
            self._held += len(rest)
            if self._held > LONGEST:
                raise Malformed(f"a line of more than {LONGEST} bytes")
        return [line for line in lines if line and not line.isspace()]
