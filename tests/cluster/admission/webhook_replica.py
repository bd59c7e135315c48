"""A replica of the webhook in a thread: its server, its certificates, its view of the cluster."""

import asyncio
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from typing import Any

from bursar.control.admission import known_kinds
from bursar.kube.admission.cert_rotation import CertificateKeeper, now_utc
from bursar.kube.admission.manifests import quota_kinds
from bursar.kube.admission.predicate import AdmissionOptions
from bursar.kube.admission.review import fetch_from
from bursar.kube.admission.webhook import TlsContext, Webhook, WebhookServer
from bursar.kube.client.api import Api
from bursar.kube.client.http import Http
from bursar.kube.client.kubeconfig import load
from bursar.objects.kinds import Kind
from bursar.policies.plugin import default_registry
from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.api import Object


class PlaneView:
    """The objects of the plane, asked for each time."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._kinds = {kind.name: kind for kind in known_kinds(default_registry())}

    def ready(self) -> bool:
        return True

    async def catch_up(self) -> None:
        """It is never behind."""

    def get(self, kind: str, key: str) -> Mapping[str, Any] | None:
        found = [body for body in self.list(kind) if key in (_key(body), body["metadata"]["name"])]
        return found[0] if found else None

    def list(self, kind: str, namespace: str | None = None) -> Iterable[Mapping[str, Any]]:
        known = self._kinds[kind]
        items: list[Object] = self._plane.api().get(collection(known))["items"]
        return [body for body in items if namespace in (None, body["metadata"].get("namespace"))]


def _key(body: Mapping[str, Any]) -> str:
    return f"{body['metadata'].get('namespace', '')}/{body['metadata']['name']}"


def collection(kind: Kind, namespace: str = "") -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return f"{root}/namespaces/{namespace}/{kind.plural}" if namespace else f"{root}/{kind.plural}"


class Replica:
    """One replica, from ``start`` to ``stop``. Its clock is ahead by ``ahead``."""

    def __init__(self, plane: ControlPlane, *, leading: bool = True) -> None:
        self._plane = plane
        self._leading = leading
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.tls = TlsContext()
        self.ahead = timedelta()

    def start(self, port: int = 0) -> int:
        """The port on which it serves."""
        self._thread.start()
        return int(self.call(self._start(port)))

    def sync(self) -> None:
        """One pass over the certificates."""
        self.call(self._keeper.sync())

    def call(self, work: Any) -> Any:  # noqa: ANN401 a coroutine of anything
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(60)

    def stop(self) -> None:
        with suppress(RuntimeError):
            self.call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self, port: int) -> int:
        self._http = Http(load(str(self._plane.kubeconfig)))
        await self._http.__aenter__()
        self._keeper = CertificateKeeper(
            Api(self._http),
            "bursar-system",
            ["127.0.0.1"],
            self.tls,
            lambda: self._leading,
            now=lambda: now_utc() + self.ahead,
            settle=10.0,  # only a renewal waits for it,
        )
        app = Webhook(AdmissionOptions(), default_registry(), PlaneView(self._plane), fetch_from(Api(self._http)))
        self._server = WebhookServer(app, self.tls, "127.0.0.1", port)
        await self._server.start()
        return self._server.port

    async def _stop(self) -> None:
        await self._server.stop()
        await self._http.__aexit__(None, None, None)


def open_definitions() -> list[Object]:
    """Definitions of all quota kinds that take anything, so that only the webhook judges."""
    unapproved = {"api-approved.kubernetes.io": "unapproved, for tests"}  # asked for below k8s.io
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{kind.plural}.{kind.group}", "annotations": unapproved},
            "spec": {
                "group": kind.group,
                "scope": "Namespaced" if kind.namespaced else "Cluster",
                "names": {"plural": kind.plural, "kind": kind.kind},
                "versions": [
                    {
                        "name": kind.version,
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": anything},
                        "subresources": {"status": {}},
                    }
                ],
            },
        }
        for kind in quota_kinds(default_registry())
    ]


def at_port(configuration: Object, port: int) -> Object:
    """A webhook configuration that calls this machine instead of a service."""
    hooks = []
    for hook in configuration["webhooks"]:
        path = hook["clientConfig"]["service"]["path"]
        hooks.append({**hook, "clientConfig": {"url": f"https://127.0.0.1:{port}{path}"}})
    return {**configuration, "webhooks": hooks}
