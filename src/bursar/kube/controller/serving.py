"""Health and metrics of a replica over plain HTTP: /healthz, /readyz, /metrics.

A replica that waits for its turn is ready as soon as it can serve webhooks: being ready is not leading.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

from bursar.kube.serving import BackgroundServer, HttpProtocol

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class HealthApp:
    """A raw ASGI application."""

    def __init__(self, unready: Callable[[], list[str]], metrics: Callable[[], Awaitable[bytes]]) -> None:
        self._unready = unready
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        status, text = await self._answer(scope["path"])
        kind = b"text/plain; version=0.0.4; charset=utf-8"
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": text})

    async def _answer(self, path: str) -> tuple[int, bytes]:
        if path == "/healthz":
            return 200, b"ok\n"
        if path == "/readyz":
            missing = self._unready()
            return (503, "".join(f"{one}\n" for one in missing).encode()) if missing else (200, b"ok\n")
        if path == "/metrics":
            return 200, await self._metrics()
        return 404, b"there are /healthz, /readyz and /metrics\n"


class HealthServer(BackgroundServer):
    """Serves health and metrics."""

    def __init__(self, app: HealthApp, host: str, port: int) -> None:
        config = uvicorn.Config(
            app, http=HttpProtocol, loop="asyncio", ws="none", lifespan="off", access_log=False, log_config=None
        )
        super().__init__(config, host, port)
