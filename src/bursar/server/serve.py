"""Running the server: a socket, an event loop, the service and its threads, from start to a clean end."""

from __future__ import annotations

import contextlib
import gc
import logging
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import cast

import uvicorn
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from bursar.objects.decode import ManifestError
from bursar.server.access import Access, TokenFileError, TokenVerifier
from bursar.server.app import App, RequestLimits
from bursar.server.background import AuditWatch, SnapshotKeeper, Ticker
from bursar.server.connections import Acceptor, BoundedConnection, ConnectionConfig, ConnectionLimits
from bursar.server.copies import CopyProcesses
from bursar.server.demo import Demo
from bursar.server.local_agent import AgentError, MachineOptions, running_agent
from bursar.server.retention import remove_leftovers
from bursar.server.service import Service
from bursar.server.sessions import is_loopback
from bursar.server.steady_clock import Clock, SteadyClock
from bursar.store import schema
from bursar.store.schema import StoreError

LOG = logging.getLogger("bursar.server")
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8321


class StartError(Exception):
    """The server cannot start: one line that says why."""


class UnsafeError(Exception):
    """What was asked for would let anybody in."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    data: Path
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    tokens: Path | None = None
    oidc: Path | None = None  # a file that names an identity provider
    certificate: Path | None = None
    key: Path | None = None
    demo: bool = False
    retain: int | None = None  # for how long history is kept, in milliseconds; None: for ever
    local: MachineOptions | None = None  # run real jobs on this machine
    limits: RequestLimits = field(default_factory=RequestLimits)
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    clock: Clock = field(default_factory=SteadyClock)

    def check(self) -> None:
        """``UnsafeError`` unless it is safe to listen like this."""
        if not is_loopback(self.host) and self.tokens is None and self.oidc is None:
            raise UnsafeError(f"to listen on {self.host}, give a file of tokens: --tokens FILE, or --oidc FILE")
        if (self.certificate is None) != (self.key is None):
            raise UnsafeError("TLS needs both a certificate and its key: --tls-cert FILE --tls-key FILE")
        if self.certificate is not None and self.key is not None:
            check_tls(self.certificate, self.key)

    def warnings(self) -> Iterator[str]:
        """What is open to others, one sentence each."""
        if not is_loopback(self.host) and self.certificate is None:
            advice = "give --tls-cert and --tls-key, or listen on 127.0.0.1 behind a proxy with TLS"
            yield f"{self.host} has no TLS, so tokens and answers can be read on their way: {advice}"
        for path in (self.data, schema.log_of(self.data)):
            if path.exists() and path.stat().st_mode & 0o077:
                yield f"{path} holds all manifests, and other users may read it: run: chmod 600 {path}"


def check_tls(certificate: Path, key: Path) -> None:
    """``StartError`` with the name of the file that is wrong."""
    for path, what, load in (
        (certificate, "certificate", x509.load_pem_x509_certificates),
        (key, "private key", lambda text: load_pem_private_key(text, None)),
    ):
        try:
            load(path.read_bytes())
        except OSError as error:
            raise StartError(f"{path}: the {what} cannot be read: {error.strerror}") from error
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            secret = " without a password" if what == "private key" else ""
            raise StartError(f"{path}: holds no {what} in PEM{secret}") from error
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise StartError(f"{key}: is not the key of the certificate in {certificate}") from error


@contextlib.contextmanager
def _on_signals(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> Iterator[None]:
    """What signals that ask to end do meanwhile. They come to the main thread; elsewhere nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, known in before.items():
            signal.signal(number, known)


def _end(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


class BursarServer(uvicorn.Server):
    """Ends live streams before it waits for connections to close, and takes a signal for the end, not for a failure."""

    app: App | None = None
    acceptor: Acceptor | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The library would raise the signal again, so that nothing after the server is closed properly."""
        with _on_signals(self.handle_exit):
            yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections within their limits, which the library does not know."""
        config = cast("ConnectionConfig", self.config)

        def make() -> BoundedConnection:
            return BoundedConnection(config, self.server_state, app_state={})

        self.servers = []
        self.acceptor = Acceptor(self.server_state, make, config.limits, config.ssl)
        for listener in sockets or []:
            self.acceptor.listen(listener)
        self.started = True

    async def shutdown(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        if self.acceptor is not None:
            self.acceptor.close()
        if self.app is not None:
            self.app.close_streams()
        await super().shutdown(sockets)  # type: ignore[arg-type]


@contextlib.contextmanager
def running(options: ServeOptions) -> Iterator[tuple[Service, App]]:
    """The service with its threads, and the application over it."""
    options.check()
    access = Access(options.tokens, None if options.oidc is None else verifier(options.oidc))
    remove_leftovers(options.data)
    service = Service.open(options.data, clock=options.clock)
    audit = AuditWatch(service)
    keeper = SnapshotKeeper(service, kept=options.retain)
    ticker = Ticker(service)
    copies = CopyProcesses(service, seconds=options.limits.seconds)
    try:
        yield (
            service,
            App(service, copies=copies, access=access, audit=audit, limits=options.limits, demo=options.demo),
        )
    finally:
        with _on_signals(signal.SIG_IGN):  # it is ending
            copies.close()
            ticker.stop()
            keeper.stop()
            audit.stop()
            service.close()


def verifier(path: Path) -> TokenVerifier:
    """Of an identity provider. What it needs is imported only by servers that have one."""
    from bursar.server.oidc import OidcVerifier, read_options  # noqa: PLC0415 it takes 50 ms

    return OidcVerifier(read_options(path))


def server(app: App, options: ServeOptions) -> BursarServer:
    config = ConnectionConfig(
        app.asgi(),
        options.connections,
        loop="asyncio",
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=5,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
        ssl_version=ssl.PROTOCOL_TLS_SERVER,
    )
    built = BursarServer(config)
    built.app = app
    return built


def serve_forever(options: ServeOptions, say: Callable[[str], None]) -> None:
    """Until a signal ends it. ``say`` is called once, when requests are served: with the address."""
    options.check()
    for warning in options.warnings():
        LOG.warning(warning)
    try:
        listener = listen(options.host, options.port)
    except OSError as error:
        problem = f"cannot listen on {options.host}:{options.port}: {error.strerror or error}"
        raise StartError(f"{problem}; name another port with --port") from error
    try:
        with (
            _on_signals(_end),
            running(options) as (service, app),
            _lively(service, options),
            running_agent(service, options.local),
        ):
            scheme = "https" if options.certificate else "http"
            host = f"[{options.host}]" if ":" in options.host else options.host
            address = f"{scheme}://{host}:{listener.getsockname()[1]}"
            built = server(app, options)
            built.config.load()
            gc.freeze()  # what was loaded stays: to go through it stops every request for 30 ms with 10,000 pods
            with built.capture_signals():  # before anybody can know of it
                say(address)
                built.run(sockets=[listener])
    except (StoreError, TokenFileError, ManifestError, AgentError, ssl.SSLError) as error:
        raise StartError(str(error)) from error
    finally:
        listener.close()


def listen(host: str, port: int) -> socket.socket:
    """A socket to serve on. Named as TCP: only then does the event loop send answers at once, instead of holding the
    second part back until the caller has acknowledged the first, which takes it 40 ms.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


@contextlib.contextmanager
def _lively(service: Service, options: ServeOptions) -> Iterator[None]:
    """With ``demo``, run the demo meanwhile."""
    if not options.demo:
        yield
        return
    demo = Demo(service)
    try:
        yield
    finally:
        demo.stop()
