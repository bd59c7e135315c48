"""Connections: how long each may take for what, and how many there may be.

A connection that is open and sends nothing useful costs a file handle, and a process has few of them. So headers,
bodies and TLS handshakes have a time-out, headers have a size, and connections are counted. When they are too many, the
one that has waited longest without a request is closed for the new one, so half-open connections cannot keep others
out. If all of them are busy, the new one is refused.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

LOG = logging.getLogger("bursar.server")
_RESERVED = 128  # file handles for the store, its readers and child processes
_LEAST = 16
_WARN_EVERY = 60.0
_PAUSE = 0.1  # after the system refused another connection
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a connection may cost."""

    headers: float = 10.0  # seconds for the headers of a request, and for a TLS handshake
    body: float = 30.0  # seconds for the body of a request
    idle: float = 30.0  # seconds between two requests
    header_bytes: int = 64 * 1024
    connections: int = 1000

    def most(self) -> int:
        """The number of connections that this process has file handles for."""
        handles, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if handles == resource.RLIM_INFINITY:
            return self.connections
        return min(self.connections, max(_LEAST, handles - _RESERVED))


class ConnectionConfig(uvicorn.Config):
    """The server's options, with limits for each connection."""

    def __init__(self, app: Any, limits: ConnectionLimits, **options: Any) -> None:  # noqa: ANN401 as the library has it
        super().__init__(app, http=BoundedConnection, timeout_keep_alive=int(limits.idle), **options)
        self.limits = limits


class BoundedConnection(HttpToolsProtocol):
    """One connection, with a deadline for what it has to send."""

    def __init__(self, config: uvicorn.Config, server_state: ServerState, **others: Any) -> None:  # noqa: ANN401
        super().__init__(config, server_state, **others)
        self._limits = cast("ConnectionConfig", config).limits
        self._deadline: asyncio.TimerHandle | None = None
        self._header_bytes = 0
        self._in_headers = False
        self._in_body = False
        self.since = 0.0

    @property
    def waits(self) -> bool:
        """Whether no request is being answered here."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is None or cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.since = self.loop.time()
        self._limit(self._limits.headers, self._late_headers)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_limit()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._in_body:
            if self._deadline is None:
                self._limit(self._limits.headers, self._late_headers)
            self._header_bytes += len(data)
        super().data_received(data)
        if self._in_headers and self._header_bytes > self._limits.header_bytes:
            self._refuse(_TOO_LARGE)

    def on_message_begin(self) -> None:
        self._in_headers = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_headers, self._in_body = False, True
        self._header_bytes = 0
        self._limit(self._limits.body + 1, self._late_body)  # the handler that reads the body answers before
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        self._end_limit()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        super().on_response_complete()

    def _limit(self, seconds: float, act: Callable[[], None]) -> None:
        self._end_limit()
        self._deadline = self.loop.call_later(seconds, act)

    def _end_limit(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late_headers(self) -> None:
        self._deadline = None
        if self.waits:
            self._refuse(_TOO_SLOW if self._in_headers else b"")

    def _late_body(self) -> None:
        self._deadline = None
        self._refuse(b"")

    def _refuse(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            if answer and self.waits:
                self.transport.write(answer)
            self.transport.close()

    def abort(self) -> None:
        self.transport.abort()


class Acceptor:
    """Accepts connections, and keeps their number within the limit."""

    def __init__(
        self,
        state: ServerState,
        make: Callable[[], asyncio.Protocol],
        limits: ConnectionLimits,
        context: ssl.SSLContext | None,
    ) -> None:
        self._state = state
        self._make = make
        self._limits = limits
        self._most = limits.most()
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._listening: list[asyncio.Task[None]] = []
        self._opening: dict[asyncio.Task[None], None] = {}  # the oldest first: TLS handshakes
        self._warned = -_WARN_EVERY

    def listen(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listening.append(self._loop.create_task(self._accept(listener)))

    def close(self) -> None:
        for task in [*self._listening, *self._opening]:
            task.cancel()

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = await self._loop.sock_accept(listener)
            except OSError as error:  # no file handle, or the caller has gone
                self._warn("a connection cannot be accepted: %s", error)
                await asyncio.sleep(_PAUSE)
                continue
            if len(self._opening) + len(self._state.connections) >= self._most and not self._close_one():
                self._warn("a connection is refused: %d are open and busy, the most that there may be", self._most)
                with suppress(OSError):
                    connection.send(b"" if self._context else _FULL)
                connection.close()
                continue
            task = self._loop.create_task(self._open(connection))
            self._opening[task] = None
            task.add_done_callback(self._opened)
            await asyncio.sleep(0)  # so that it is opened, and counted as waiting, before the next one

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening.pop(task, None)

    async def _open(self, connection: socket.socket) -> None:
        patience = self._limits.headers if self._context else None
        try:
            await self._loop.connect_accepted_socket(
                self._make, connection, ssl=self._context, ssl_handshake_timeout=patience
            )
        except (OSError, ssl.SSLError):  # the caller speaks no TLS, or too slowly
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise

    def _close_one(self) -> bool:
        """Close the connection that has waited longest without a request; False if all have one."""
        if self._opening and self._context is not None:
            oldest = next(iter(self._opening))
            oldest.cancel()
            self._opening.pop(oldest)
            return True
        known = [one for one in self._state.connections if isinstance(one, BoundedConnection)]
        waiting = [one for one in known if one.waits and not one.transport.is_closing()]
        if not waiting:
            return False
        min(waiting, key=lambda one: one.since).abort()
        return True

    def _warn(self, message: str, *values: object) -> None:
        now = self._loop.time()
        if now - self._warned >= _WARN_EVERY:
            self._warned = now
            LOG.warning(message, *values)
