"""The webhook's TLS server. Certificates are loaded into the live context: connections made from then on use them.

Private keys are handed to the TLS library through memory files, never through a disk: the root file system of the
container is read-only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Iterator

import uvicorn

from bursar.kube.admission.certs import Certificates
from bursar.kube.admission.webhook import Webhook

STOP_SECONDS = 5


class TlsContext:
    """A server context whose certificate can be exchanged while it serves."""

    def __init__(self) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.loaded: Certificates | None = None

    def load(self, certificates: Certificates) -> None:
        """From now on new connections get this certificate; ``ssl.SSLError``, and no change, if it is bad."""
        if certificates == self.loaded:
            return
        trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for context in (trial, self.context):
            with _memory_file(certificates.certificate) as chain, _memory_file(certificates.key) as key:
                context.load_cert_chain(chain, key)
        self.loaded = certificates


@contextlib.contextmanager
def _memory_file(content: bytes) -> Iterator[str]:
    descriptor = os.memfd_create("bursar-tls")
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


class _Server(uvicorn.Server):
    """Says when it serves, and leaves signals to whoever runs the process."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.serving = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.serving.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class WebhookServer:
    """Serves the webhook in the running event loop, from ``start`` to ``stop``."""

    def __init__(self, app: Webhook, tls: TlsContext, host: str = "0.0.0.0", port: int = 9443) -> None:  # noqa: S104 all addresses of the pod
        self._address = (host, port)
        config = uvicorn.Config(
            app,
            http="httptools",
            loop="asyncio",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=STOP_SECONDS,
            limit_concurrency=256,
            ssl_context_factory=lambda _config, _default: tls.context,
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None
        self.port = port

    async def start(self) -> None:
        """Listen; returns when requests are served. ``OSError`` when the address cannot be had."""
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        listener = socket.create_server(self._address, family=family, backlog=1024)
        self.port = listener.getsockname()[1]
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]))
        await self._server.serving.wait()

    async def stop(self) -> None:
        """Answer what is under way, then end."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
