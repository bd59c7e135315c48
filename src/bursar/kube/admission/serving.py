"""The webhook's TLS server. Certificates are loaded into the live context: connections made from then on use them.

Private keys are handed to the TLS library through memory files, never through a disk: the root file system of the
container is read-only.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterator

import uvicorn

from bursar.kube.admission.certs import Certificates
from bursar.kube.admission.webhook import Webhook
from bursar.kube.serving import BackgroundServer, HttpProtocol

STOP_SECONDS = 5
MOST_CONNECTIONS = 256


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


class WebhookServer(BackgroundServer):
    """Serves the webhook."""

    def __init__(
        self,
        app: Webhook,
        tls: TlsContext,
        host: str = "0.0.0.0",  # noqa: S104 all addresses of the pod
        port: int = 9443,
        patience: int = 30,
    ) -> None:
        """``patience``: seconds that a connection may stay open without a request."""
        config = uvicorn.Config(
            app,
            http=HttpProtocol,
            loop="asyncio",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_keep_alive=patience,
            timeout_graceful_shutdown=STOP_SECONDS,
            limit_concurrency=MOST_CONNECTIONS,
            ssl_context_factory=lambda _config, _default: tls.context,
        )
        super().__init__(config, host, port)
