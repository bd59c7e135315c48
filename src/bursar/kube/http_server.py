"""An HTTP server inside a running event loop, for the webhook and for health and metrics.

It closes connections on which no request arrives, so that idle ones do not block others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
"""A raw ASGI application."""

_TICK = 1.0  # seconds


class ListenError(OSError):
    """An address cannot be had."""


class HttpProtocol(HttpToolsProtocol):
    """One connection. As long as no request is under way the next one is due, however much of it trickles in.

    uvicorn by itself waits for ever for the first request, and for one that has begun to arrive.
    """

    _due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as it is there
        super().connection_made(transport)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cease()
        super().connection_lost(exc)

    def on_headers_complete(self) -> None:
        self._cease()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        sent_ahead = bool(self.pipeline)
        super().on_response_complete()
        if not sent_ahead:
            self._await_request()

    def _await_request(self) -> None:
        self._cease()
        self._due = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _cease(self) -> None:
        if self._due is not None:
            self._due.cancel()


class _Server(uvicorn.Server):
    """Says when it serves, and leaves signals to the process that runs it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.serving = asyncio.Event()
        self.stopping = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.serving.set()

    async def main_loop(self) -> None:
        """What is to be done once a second, until it stops: each look at the clock wakes the process."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK):
                    await self.stopping.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class BackgroundServer:
    """Serves from ``start`` to ``stop``."""

    def __init__(self, app: App, host: str, port: int, settings: Mapping[str, Any] | None = None) -> None:
        """``settings`` are more settings of uvicorn."""
        chosen: dict[str, Any] = {"http": HttpProtocol, **(settings or {})}
        config = uvicorn.Config(
            app, loop="asyncio", ws="none", lifespan="off", access_log=False, log_config=None, **chosen
        )
        self._address = (host, port)
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None
        self.port = port

    async def start(self) -> None:
        """Listen; returns when requests are served. ``ListenError`` when the address cannot be had."""
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        try:
            listener = socket.create_server(self._address, family=family, backlog=1024)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error)
            raise ListenError(f"cannot listen on {self._address[0]}:{self._address[1]}: {why}") from error
        self.port = listener.getsockname()[1]
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]))
        await self._server.serving.wait()

    async def stop(self) -> None:
        """Answer what is under way, then end."""
        self._server.should_exit = True
        self._server.stopping.set()
        if self._task is not None:
            await self._task
