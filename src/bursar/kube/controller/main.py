"""The controller process: election and terms, webhook and certificates, health and metrics, until a signal ends it.

Everything except decisions also runs while another replica leads. On shutdown pending events are written and the lease
is released.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from bursar.kube.admission.cert_rotation import CertificateKeeper, service_names
from bursar.kube.admission.manifests import quota_kinds
from bursar.kube.admission.review import fetch_from
from bursar.kube.admission.webhook import TlsContext, Webhook, WebhookServer
from bursar.kube.client.api import Api
from bursar.kube.client.auth import ClusterConfig
from bursar.kube.client.http import Http
from bursar.kube.controller.informers import QuotaView
from bursar.kube.controller.metrics import ControllerMetrics, HealthApp
from bursar.kube.controller.replica import ProcessOptions, Replica
from bursar.kube.controller.work_queue import cancelled
from bursar.kube.http_server import BackgroundServer
from bursar.policies.plugin import Registry, default_registry


@dataclass(frozen=True, slots=True)
class RunOptions:
    process: ProcessOptions = field(default_factory=ProcessOptions)
    host: str = "0.0.0.0"  # noqa: S104 all addresses of the pod
    health_port: int = 8080
    webhook_port: int | None = 9443  # None: no webhook


class Process:
    def __init__(self, api: Api, options: RunOptions, registry: Registry | None = None) -> None:
        self._options = options
        registry = default_registry() if registry is None else registry
        self.replica = Replica(api, registry, options.process)
        self.view = QuotaView(api, quota_kinds(registry))
        self.tls = TlsContext()
        admission = options.process.term.mirror.admission
        self._keeper = CertificateKeeper(
            api, admission.namespace, service_names(admission), self.tls, lambda: self.replica.election.leading
        )
        self._webhook = Webhook(admission, registry, self.view, fetch_from(api))
        metrics = ControllerMetrics(self.replica)
        self.health = BackgroundServer(
            HealthApp(self.unready, metrics.render, self.leads), options.host, options.health_port
        )
        self.webhook: WebhookServer | None = None

    def unready(self) -> list[str]:
        """What keeps this replica from serving, or from seeing the cluster where that is all it is for."""
        mode = self._options.process.term
        if mode.shadow or mode.dry_run:
            term = self.replica.term
            return [] if term is not None and term.ready else ["the cluster is not listed yet"]
        if self._options.webhook_port is None:
            return []
        missing = [] if self.view.ready() else ["the quota objects are not listed yet"]
        return missing if self.tls.loaded is not None else [*missing, "there is no certificate for the webhook yet"]

    def leads(self) -> int | None:
        """The term in which this replica decides, once its ledger is built."""
        term = self.replica.term
        return term.number if term is not None and term.ready and self.replica.election.leading else None

    async def run(self, announce: Callable[[str], None]) -> None:
        """Until cancelled."""
        await self.health.start()
        announce(f"health and metrics on port {self.health.port}")
        work = [self.replica.run()]
        port = self._options.webhook_port
        if port is not None:
            self.webhook = WebhookServer(self._webhook, self.tls, self._options.host, port)
            await self.webhook.start()
            announce(f"webhook on port {self.webhook.port}")
            work += [self.view.run(), self._keeper.run()]
        tasks = [asyncio.create_task(one) for one in work]
        try:
            await asyncio.gather(*tasks)
        finally:
            await cancelled(*tasks)
            if self.webhook is not None:
                await self.webhook.stop()
            await self.health.stop()


async def run(config: ClusterConfig, options: RunOptions, announce: Callable[[str], None]) -> None:
    """Run until SIGTERM or SIGINT."""
    gc.freeze()
    loop = asyncio.get_running_loop()
    async with Http(config) as http:
        process = asyncio.create_task(Process(Api(http), options).run(announce))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, process.cancel)
        try:
            await process
        except asyncio.CancelledError:
            announce("stopped")
