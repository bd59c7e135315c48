"""A server on a real socket, in this process, for tests; and short manifests."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec

from bursar.server.app import App, RequestLimits
from bursar.server.client import Client
from bursar.server.connections import ConnectionLimits
from bursar.server.copies import CopyProcesses
from bursar.server.serve import ServeOptions, listen, running, server
from bursar.server.service import Service
from bursar.server.steady_clock import Clock, SteadyClock
from bursar.server.stream import Stream
from bursar.server.types import Change

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"nvidia.com/gpu": 4}},
}


def node(name: str, gpus: int = 4) -> dict[str, Any]:
    return {**NODE, "metadata": {"name": name}, "status": {"allocatable": {"nvidia.com/gpu": gpus}}}


def quota(namespace: str, least: int, **spec: object) -> dict[str, Any]:
    return {
        "apiVersion": "n8s.nebuly.ai/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"namespace": namespace, "name": "quota"},
        "spec": {"min": {"nvidia.com/gpu": least}, **spec},
    }


def pod(namespace: str, name: str, gpus: int = 1, **marks: str) -> dict[str, Any]:
    annotations = {f"sim.bursar.dev/{key.replace('_', '-')}": value for key, value in marks.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": gpus}}}]},
    }


def text(*manifests: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": list(manifests)})


def wait_for(what: str, seen: Callable[[], object], limit: float = 60) -> None:
    """Return as soon as it is seen; a busy machine may take its time."""
    end = time.monotonic() + limit
    while not seen():
        assert time.monotonic() < end, what
        time.sleep(0.01)


class ManualClock:
    """Time that passes when the test says so."""

    def __init__(self, now: int = 1_800_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class Live:
    """A running server and a client of it."""

    def __init__(self, service: Service, port: int, token: str = "", app: App | None = None) -> None:
        self.service = service
        self._app = app
        self.port = port
        self.address = f"http://127.0.0.1:{port}"
        self.client = Client(self.address, token=token)

    @property
    def copies(self) -> CopyProcesses:
        assert self._app is not None
        assert isinstance(self._app.copies, CopyProcesses)
        return self._app.copies

    def streams(self) -> list[Stream]:
        """The live streams that are open."""
        assert self._app is not None
        return list(self._app._streams)

    def give(self, *manifests: dict[str, Any]) -> Change:
        return self.client.apply(text(*manifests))

    def position(self) -> tuple[int, str]:
        moment = self.client.info().moment
        return moment.seq, moment.digest

    def raw(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return response.status, found, response.read()
        finally:
            connection.close()


@contextmanager
def live(
    data: Path,
    *,
    clock: Clock | None = None,
    tokens: Path | None = None,
    limits: RequestLimits | None = None,
    connections: ConnectionLimits | None = None,
    token: str = "",
    port: int = 0,
    **more: Any,  # noqa: ANN401
) -> Iterator[Live]:
    options = ServeOptions(
        data=data,
        port=0,
        tokens=tokens,
        limits=limits or RequestLimits(),
        connections=connections or ConnectionLimits(),
        clock=clock or SteadyClock(),
        **more,
    )
    listener = listen("127.0.0.1", port)
    try:
        with running(options) as (service, app):
            built = server(app, options)
            thread = Thread(target=lambda: built.run(sockets=[listener]), daemon=True)
            thread.start()
            while not built.started:
                time.sleep(0.005)
            try:
                assert isinstance(app.copies, CopyProcesses)
                yield Live(service, listener.getsockname()[1], token, app)
            finally:
                built.should_exit = True
                thread.join(timeout=60)
                assert not thread.is_alive()
    finally:
        listener.close()
