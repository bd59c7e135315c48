"""The webhook server: raw ASGI, three routes, TLS with certificates that can be replaced while it runs.

``/mutate-quotas`` and ``/validate-quotas`` judge quota kinds; ``/gate-pods/<arm>`` is the gate for servers without
MutatingAdmissionPolicy. Bodies, answers and times are bounded. Until all objects of the cluster are known the answer
is 503, which the API server treats as a refusal. Private keys reach the TLS library through memory files: the root
file system of the container is read-only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Iterator

from bursar.kube.admission.certs import Certificates
from bursar.kube.admission.manifests import GATE_PODS, MUTATE_QUOTAS, REMOVAL_SECONDS, TIMEOUT_SECONDS, VALIDATE_QUOTAS
from bursar.kube.admission.predicate import AdmissionOptions
from bursar.kube.admission.review import (
    AdmissionRequest,
    Fetch,
    LiveView,
    PodGate,
    QuotaReviewer,
    ReviewError,
    allowed,
    read_review,
    refused,
)
from bursar.kube.http_server import BackgroundServer, Message, Receive, Send
from bursar.objects.decode import ManifestError
from bursar.policies.plugin import Registry

Answer = tuple[int, bytes]

MOST_BYTES = 8 * 2**20
"""The API server takes requests of up to 3 MiB, and sends the object as it is and as it was."""

_JSON = b"application/json"
_TEXT = b"text/plain; charset=utf-8"
_log = logging.getLogger(__name__)


class RequestError(Exception):
    """A request that is not the API server's: a status and what is wrong."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status
        self.problem = problem


class Webhook:
    def __init__(
        self, options: AdmissionOptions, registry: Registry, view: LiveView, fetch: Fetch | None = None
    ) -> None:
        self._view = view
        self._quotas = QuotaReviewer(registry, view, fetch)
        self._gate = PodGate(options)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"this application serves http only, not {scope['type']}")
        try:
            status, body = await self._respond(scope, receive)
            kind = _JSON
        except RequestError as error:
            status, body, kind = error.status, error.problem.encode(), _TEXT
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _respond(self, scope: Message, receive: Receive) -> Answer:
        handle = self._route(scope["path"])
        if scope["method"] != "POST":
            raise RequestError(405, "only POST is served here")
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                body = await _body(scope, receive)
            request = read_review(body)
        except TimeoutError:
            raise RequestError(408, "the body did not arrive in time") from None
        except ReviewError as error:
            raise RequestError(400, f"the body {error}") from None
        try:
            async with asyncio.timeout(REMOVAL_SECONDS if request.operation == "DELETE" else TIMEOUT_SECONDS):
                return 200, await handle(request)
        except TimeoutError:
            raise RequestError(503, "Bursar cannot learn in time what there is: try again") from None
        except ManifestError as error:
            return 200, refused(request.uid, str(error))
        except RequestError:
            raise
        except Exception as error:
            _log.exception("cannot judge %s %s/%s", request.kind.kind, request.namespace, request.name)
            raise RequestError(500, f"cannot judge it: {type(error).__name__}") from error

    def _route(self, path: str) -> Callable[[AdmissionRequest], Awaitable[bytes]]:
        if path == MUTATE_QUOTAS:
            return self._mutate
        if path == VALIDATE_QUOTAS:
            return self._validate
        arm = self._gate.arm(path.removeprefix(GATE_PODS)) if path.startswith(GATE_PODS) else None
        if arm is None:
            raise RequestError(404, "nothing is served here")

        async def gate(request: AdmissionRequest) -> bytes:
            return allowed(request.uid, self._gate.patch(arm, request.object or {}))

        return gate

    async def _mutate(self, request: AdmissionRequest) -> bytes:
        self._require_view()
        return allowed(request.uid, await self._quotas.fill(request))

    async def _validate(self, request: AdmissionRequest) -> bytes:
        self._require_view()
        await self._quotas.check(request)
        return allowed(request.uid)

    def _require_view(self) -> None:
        if not self._view.ready():
            raise RequestError(503, "Bursar has not seen all objects of the cluster yet: try again")


async def _body(scope: Message, receive: Receive) -> bytes:
    headers = dict(scope["headers"])
    if not headers.get(b"content-type", b"").startswith(_JSON):
        raise RequestError(415, "the body must be application/json")
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestError(400, "the request was cut off")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > MOST_BYTES:
            raise RequestError(413, f"the body is longer than {MOST_BYTES} bytes")
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


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
    def __init__(
        self,
        app: Webhook,
        tls: TlsContext,
        host: str = "0.0.0.0",  # noqa: S104 all addresses of the pod
        port: int = 9443,
        patience: int = 30,
    ) -> None:
        """``patience``: seconds that a connection may stay open without a request."""
        settings = {
            "server_header": False,
            "timeout_keep_alive": patience,
            "timeout_graceful_shutdown": STOP_SECONDS,
            "limit_concurrency": MOST_CONNECTIONS,
            "ssl_context_factory": lambda _config, _default: tls.context,
        }
        super().__init__(app, host, port, settings)
