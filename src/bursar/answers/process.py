"""The process of a replica that answers: it follows the cluster and serves the aggregated API until a signal ends it.

The certificate is the one that the controller's leader keeps in a Secret. The authority of the API server's proxy comes
from a ConfigMap. Both are read again every minute, and new connections get what was read last. Health and metrics have
a port of their own, without certificates.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import gc
import logging
import resource
import signal
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

from prometheus_client import generate_latest
from prometheus_client.core import Metric

from bursar.answers.access import ProxyTrust, Reviews, read_trust
from bursar.answers.app import PEER, AnswersApp
from bursar.answers.follower import ClusterFollower
from bursar.answers.forks import SECONDS, Forks
from bursar.answers.questions import Questions
from bursar.kube.admission.certs import CertificateError, Certificates, read_secret
from bursar.kube.admission.predicate import CERTIFICATES
from bursar.kube.admission.webhook import TlsContext
from bursar.kube.client.api import SECRETS, Api
from bursar.kube.client.auth import ClusterConfig
from bursar.kube.client.errors import KubeError
from bursar.kube.client.http import Http
from bursar.kube.controller.metrics import Families, HealthApp, Values, counter, gauge, resident
from bursar.kube.controller.mirror import MirrorOptions
from bursar.kube.controller.work_queue import cancelled
from bursar.kube.http_server import BackgroundServer, HttpProtocol
from bursar.policies.plugin import Registry, default_registry

log = logging.getLogger(__name__)
READ_EVERY = 60.0
_FIRST = 2.0  # seconds between reads as long as something is missing
_CONNECTIONS = 256
_STOP_SECONDS = 5
STALE_AFTER = 30.0  # seconds behind the cluster after which a replica is not ready


@dataclass(frozen=True, slots=True)
class AnswersOptions:
    mirror: MirrorOptions = field(default_factory=MirrorOptions)
    host: str = "0.0.0.0"  # noqa: S104 all addresses of the pod
    port: int = 9444
    health_port: int = 8080


class ProxyProtocol(HttpProtocol):
    """A connection that passes on whose certificate it has shown."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as it is there
        super().connection_made(transport)
        self.app_state = {**self.app_state, PEER: _common_name(transport.get_extra_info("ssl_object"))}


def _common_name(connection: ssl.SSLObject | None) -> str:
    """The name in the client's certificate, which the TLS context has verified."""
    shown = None if connection is None else connection.getpeercert()
    subject = cast("tuple[tuple[tuple[str, str], ...], ...]", (shown or {}).get("subject", ()))
    return next((value for part in subject for name, value in part if name == "commonName"), "")


class ProxyTls:
    """TLS contexts that demand a client certificate of the API server's proxy; each connection gets the newest."""

    def __init__(self) -> None:
        self.front = self._made()
        self.front.sni_callback = self._choose
        self._current: ssl.SSLContext | None = None
        self._loaded: tuple[Certificates, str] | None = None

    @staticmethod
    def _made() -> ssl.SSLContext:
        context = TlsContext().context
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    @property
    def ready(self) -> bool:
        return self._current is not None

    def load(self, certificates: Certificates, authorities: str) -> None:
        """From now on; ``ssl.SSLError``, and no change, if one of them is bad."""
        if (certificates, authorities) == self._loaded:
            return
        made = TlsContext()
        made.context.verify_mode = ssl.CERT_REQUIRED
        made.context.load_verify_locations(cadata=authorities)
        made.load(certificates)
        self._current, self._loaded = made.context, (certificates, authorities)

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> int | None:
        if self._current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self._current
        return None


class AnswersMetrics:
    def __init__(self, api: Api, follower: ClusterFollower, app: AnswersApp, forks: Forks) -> None:
        self._api = api
        self._follower = follower
        self._app = app
        self._forks = forks

    async def render(self) -> bytes:
        return await asyncio.to_thread(generate_latest, Families(list(self._families())))

    def _families(self) -> Iterator[Metric]:
        follower = self._follower
        text = "Seconds for which the ledger has not been up to date with the cluster."
        yield gauge("bursar_answers_behind_seconds", text, (), {(): follower.behind()})
        yield gauge("bursar_answers_ready", "Whether questions are answered.", (), {(): float(follower.ready)})
        text = "How often the ledger was built again because it differed from the cluster."
        yield counter("bursar_answers_rebuilt", text, (), {(): follower.rebuilt})
        yield counter("bursar_answers_events", "Events of the cluster that were applied.", (), {(): follower.applied})
        asked: Values = {(name, str(status)): count for (name, status), count in self._app.answered.items()}
        yield counter("bursar_answers_requests", "Requests, by resource and status.", ("resource", "code"), asked)
        text = "Questions that were refused because too many waited."
        yield counter("bursar_answers_refused", text, (), {(): self._forks.refused})
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        yield gauge("bursar_resident_peak_bytes", "The most memory that the process had.", (), {(): peak})
        yield gauge("bursar_resident_bytes", "The memory of the process now.", (), {(): resident()})
        calls: Values = {(call.verb, call.resource): count for call, count in self._api.http.calls.items()}
        yield counter("bursar_api_calls", "Calls of the API server.", ("verb", "resource"), calls)


class AnswersReplica:
    """One replica that answers."""

    def __init__(self, api: Api, options: AnswersOptions, registry: Registry | None = None) -> None:
        registry = default_registry() if registry is None else registry
        self._api = api
        self._namespace = options.mirror.admission.namespace
        self._trust: ProxyTrust | None = None
        self.tls = ProxyTls()
        self.follower = ClusterFollower(api, registry, options.mirror)
        self.reviews = Reviews(api)
        self.forks = Forks()
        self.app = AnswersApp(Questions(registry, self.follower, self.reviews, self.forks), lambda: self._trust)
        metrics = AnswersMetrics(api, self.follower, self.app, self.forks)
        self.health = BackgroundServer(HealthApp(self.unready, metrics.render), options.host, options.health_port)
        settings = {
            "http": ProxyProtocol,
            "server_header": False,
            "timeout_keep_alive": int(SECONDS) + _STOP_SECONDS,
            "timeout_graceful_shutdown": _STOP_SECONDS,
            "limit_concurrency": _CONNECTIONS,
            "ssl_context_factory": lambda _config, _default: self.tls.front,
        }
        self.server = BackgroundServer(self.app, options.host, options.port, settings)

    def unready(self) -> list[str]:
        """What keeps this replica from answering."""
        missing = [] if self.follower.ready else ["the cluster is not listed yet"]
        if self.follower.ready and self.follower.behind() > STALE_AFTER:
            missing.append(f"the ledger is {self.follower.behind():.0f} s behind the cluster")
        return missing if self.tls.ready else [*missing, "the certificates are not there yet"]

    async def run(self, announce: Callable[[str], None]) -> None:
        """Until cancelled."""
        await self.health.start()
        announce(f"health and metrics on port {self.health.port}")
        await self.server.start()
        announce(f"answers on port {self.server.port}")
        tasks = [asyncio.create_task(one) for one in (self.follower.run(), self._keep_certificates())]
        try:
            await asyncio.gather(*tasks)
        finally:
            await cancelled(*tasks)
            await self.server.stop()
            await self.health.stop()

    async def _keep_certificates(self) -> None:
        """For ever: what is read from the cluster. What fails is logged and tried again."""
        while True:
            try:
                await self._read_certificates()
            except (KubeError, ValueError, ssl.SSLError) as error:
                log.warning("certificates of the answers: %s", error)
            await asyncio.sleep(READ_EVERY if self.tls.ready else _FIRST)

    async def _read_certificates(self) -> None:
        self._trust = trust = await read_trust(self._api)
        found = await self._api.get(SECRETS, CERTIFICATES, self._namespace)
        data: dict[str, str] = found.plain().get("data") or {}
        try:
            stored = read_secret({name: base64.b64decode(text) for name, text in data.items()})
        except binascii.Error as error:
            raise CertificateError(str(error)) from None
        self.tls.load(stored, trust.authorities)


async def run(config: ClusterConfig, options: AnswersOptions, announce: Callable[[str], None]) -> None:
    """Run until SIGTERM or SIGINT."""
    gc.freeze()
    loop = asyncio.get_running_loop()
    async with Http(config) as http:
        process = asyncio.create_task(AnswersReplica(Api(http), options).run(announce))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, process.cancel)
        try:
            await process
        except asyncio.CancelledError:
            announce("stopped")
