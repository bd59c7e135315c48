"""The session with the API server: every call is counted, bounded in time and, if it is a write, gated by the lease.

Invariants:

* The gate (the lease) is asked twice before the first byte of a write leaves: at the start of the call, for the
  time-out, and when the connection is ready, because the process may have been frozen in between. A write that it
  holds back raises ``Fenced`` and nothing was sent. The request carries the remaining time, so that the server does
  not carry it out later.
* ``within`` bounds the whole call: waiting for a connection, all tries, all pauses.
* Calls are counted by verb, group and resource in the words of RBAC, whatever their outcome.

Reads are retried after any transient failure. A write is retried only if it certainly was not carried out: refused
with 429 and Retry-After, or never sent. After a time-out or a cut connection the outcome is unknown.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlencode

from bursar._version import __version__
from bursar.kube.client.auth import ClusterConfig, Secret
from bursar.kube.client.connections import Connection, Connections
from bursar.kube.client.errors import (
    ApiError,
    ConfigError,
    KubeError,
    ServerError,
    Throttled,
    Unanswered,
    Unauthorized,
    error_for,
    status_from,
)

_PASSING = frozenset({500, 502, 503, 504})
LONGEST_RETRY_AFTER = 60.0
"""Seconds; a longer Retry-After of the server is cut to this."""


@dataclass(slots=True)
class Backoff:
    """Pauses that double up to a cap, each drawn from its upper half so that many clients do not come back at once."""

    base: float = 0.2
    cap: float = 30.0
    attempt: int = 0

    def next(self) -> float:
        ceiling = min(self.cap, self.base * 2.0 ** min(self.attempt, 30))
        self.attempt += 1
        return ceiling * random.uniform(0.5, 1.0)  # noqa: S311 spreads load, keeps no secret

    def reset(self) -> None:
        self.attempt = 0


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a call is tried, and the pauses between."""

    attempts: int = 6
    base: float = 0.1
    cap: float = 5.0

    def backoff(self) -> Backoff:
        return Backoff(self.base, self.cap)


DEFAULT_RETRY = Retry()
NO_RETRY = Retry(attempts=1)


def pause_after(error: KubeError, backoff: Backoff, *, write: bool) -> float | None:
    """Seconds to wait before the call is tried again; None: it must not be."""
    if isinstance(error, Throttled):
        if write and (error.retry_after is None or is_budget(error)):
            return None
        return _as_requested(error.retry_after, backoff)
    if isinstance(error, Unanswered):
        return None if write and error.sent else backoff.next()
    if isinstance(error, ServerError) and not write and error.code in _PASSING:
        return _as_requested(error.retry_after, backoff)
    return None


def _as_requested(seconds: float | None, backoff: Backoff) -> float:
    return max(backoff.next(), apart(min(seconds or 0.0, LONGEST_RETRY_AFTER)))


def apart(seconds: float) -> float:
    """The given pause and up to half as long again, so that clients refused together do not return together."""
    return seconds * random.uniform(1.0, 1.5)  # noqa: S311 spreads load, keeps no secret


def is_budget(error: Throttled) -> bool:
    """Whether a 429 is the refusal of a disruption budget, and not a request to slow down."""
    return any(cause.reason == "DisruptionBudget" for cause in error.causes)


Gate = Callable[[], float]
"""Seconds for which this process may still write; raises ``Fenced`` when it may not."""

DEFAULT_TIMEOUT = 30.0
IN_FLIGHT = 64
JSON = "application/json"


class Call(NamedTuple):
    """A call in the terms of RBAC: ``resource`` is a plural, ``plural/subresource`` or a bare path."""

    verb: str
    group: str
    resource: str


class Request(NamedTuple):
    """One call, ready to be sent any number of times. Without a body it is a read."""

    call: Call
    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    content_type: str = JSON
    accept: str = JSON
    gated: bool = True  # False for the lease itself: it neither passes the gate nor waits for a slot

    @property
    def write(self) -> bool:
        return self.body is not None

    def __str__(self) -> str:
        return f"{self.call.verb} {self.path}"


@dataclass(slots=True)
class _Sending:
    """How far an attempt got."""

    sent: bool = False


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def _with_previous(error: Unanswered, before: KubeError) -> Unanswered:
    """The error of the last try, with that of the one before: the last may only have run out of time."""
    return error if str(error) == str(before) else Unanswered(f"{error} (the try before: {before})", sent=error.sent)


_encoded = lru_cache(maxsize=256)(urlencode)  # of what is asked with each call: it is mostly the same


class Http:
    """The session. Use as an async context manager; the owner of the lease sets ``gate``."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        in_flight: int = IN_FLIGHT,
        retry: Retry = DEFAULT_RETRY,
        user_agent: str = f"bursar/{__version__}",
    ) -> None:
        self.config = config
        self.gate: Gate | None = None
        self.calls: Counter[Call] = Counter()
        self.failures: Counter[tuple[Call, int]] = Counter()  # by the answer's code; 0: no answer
        self.retries: Counter[Call] = Counter()
        self._timeout = timeout
        self._retry = retry
        self._slots = asyncio.Semaphore(in_flight)
        self._connections: Connections | None = None
        self._given = {"User-Agent": user_agent, **config.headers}
        self._headers: tuple[Secret, str] | None = None  # as written, with the secret that they contain
        self._tls: tuple[Secret, ssl.SSLContext] | None = None
        self._writing = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def __aenter__(self) -> Self:
        config = self.config
        self._connections = Connections(config.server, config.proxy, config.trust.server_name)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connections is not None:
            await self._connections.close()

    async def send(self, request: Request, *, within: float | None = None, retry: Retry | None = None) -> bytes:
        """Carry out a call and return the answer's body. ``within``: seconds, for all tries together."""
        policy = self._retry if retry is None else retry
        backoff = policy.backoff()
        deadline = time.monotonic() + (self._timeout if within is None else within)
        renewed = False
        before: KubeError | None = None  # why the last try was not the first
        while True:
            try:
                return await self._attempt(request, deadline - time.monotonic(), renew=renewed)
            except Unauthorized:
                if renewed:
                    raise
                renewed = True
            except KubeError as error:
                pause = pause_after(error, backoff, write=request.write)
                if pause is None or backoff.attempt >= policy.attempts or time.monotonic() + pause >= deadline:
                    if isinstance(error, Unanswered) and before is not None:
                        raise _with_previous(error, before) from error
                    raise
                before = error
                await asyncio.sleep(pause)
            self.retries[request.call] += 1

    async def _attempt(self, request: Request, left: float, *, renew: bool) -> bytes:
        gate = self.gate if request.write and request.gated else None
        if gate is not None:
            left = min(left, gate())
        self.calls[request.call] += 1
        sending = _Sending()
        self._under_way(gate, 1)
        try:
            async with asyncio.timeout(left), self._slots if request.gated else nullcontext():
                return await self._exchange(request, sending, gate, left, renew=renew)
        except TimeoutError:
            self.failures[request.call, 0] += 1
            sent = sending.sent or not request.write
            raise Unanswered(f"{request}: no answer within {max(left, 0.0):.3g} s", sent=sent) from None
        finally:
            self._under_way(gate, -1)

    def _under_way(self, gate: Gate | None, step: int) -> None:
        """Count a gated write, for ``drain``."""
        if gate is not None:
            self._writing += step
            self._quiet.clear() if self._writing else self._quiet.set()

    async def _exchange(
        self, request: Request, sending: _Sending, gate: Gate | None, left: float, *, renew: bool
    ) -> bytes:
        try:
            connection, headers = await self._ready(renew=renew)
        except OSError as error:
            self.failures[request.call, 0] += 1
            raise Unanswered(f"{request}: {_words(error)}", sent=not request.write) from error
        try:
            limit = "" if gate is None else f"timeout={max(min(left, gate()), 0.001):.3f}s"
            connection.send(self._written(request, limit, headers))
            sending.sent = True
            body = await connection.whole()
        except OSError as error:
            self.failures[request.call, 0] += 1
            raise Unanswered(f"{request}: {_words(error)}", sent=sending.sent or not request.write) from error
        finally:
            self._open().give_back(connection)
        if connection.status >= 300:
            raise self._refusal(request.call, str(request), connection, body)
        return body

    def _refusal(self, call: Call, text: str, connection: Connection, body: bytes) -> ApiError:
        status, pending = connection.status, connection.retry_after
        self.failures[call, status] += 1
        retry_after = float(pending) if pending.isascii() and pending.isdigit() else None
        return error_for(text, status, status_from(body, status), retry_after)

    def _open(self) -> Connections:
        if self._connections is None:
            raise RuntimeError("the session is not open: use it in `async with`")
        return self._connections

    async def _ready(self, *, renew: bool = False) -> tuple[Connection, str]:
        """A connection, and the headers of every request on it."""
        secret = await self.config.credentials.current(renew=renew)
        connections = self._open()
        if self._headers is None or self._headers[0] is not secret:
            self._headers = secret, connections.headers + self._header_lines(secret)
        return await connections.take(self._context(secret)), self._headers[1]

    def _header_lines(self, secret: Secret) -> str:
        lines: list[str] = []
        given = {**self._given, "Authorization": secret.authorization} if secret.authorization else self._given
        for name, value in given.items():
            for each in (value,) if isinstance(value, str) else value:
                if not f"{name}{each}".isprintable():
                    raise ConfigError(f"{self.config.source}: the header {name} has characters that no header has")
                lines.append(f"{name}: {each}\r\n")
        return "".join(lines)

    def _written(self, request: Request, limit: str, headers: str) -> bytes:
        parts = [part for part in (_encoded(request.query) if request.query else "", limit) if part]
        target = f"{self._open().root}{request.path}" + (f"?{'&'.join(parts)}" if parts else "")
        head = f"{request.method} {target} HTTP/1.1\r\n{headers}Accept: {request.accept}\r\n"
        if request.body is None:
            return f"{head}\r\n".encode()
        return (
            f"{head}Content-Type: {request.content_type}\r\nContent-Length: {len(request.body)}\r\n\r\n".encode()
            + request.body
        )

    def _context(self, secret: Secret) -> ssl.SSLContext | None:
        if not self._open().encrypted:
            return None
        if self._tls is None or (self._tls[0].certificate, self._tls[0].key) != (secret.certificate, secret.key):
            self._tls = (secret, self.config.trust.context(secret))
        return self._tls[1]

    @asynccontextmanager
    async def stream(
        self, call: Call, path: str, query: tuple[tuple[str, str], ...], *, patience: float
    ) -> AsyncIterator[Connection]:
        """An answer that is read as it comes. ``patience``: seconds until its first line must have come."""
        self.calls[call] += 1
        request = Request(call, "GET", path, query)
        try:
            async with asyncio.timeout(patience):
                connection = await self._open_watch(request)
        except TimeoutError:
            self.failures[call, 0] += 1
            raise Unanswered(f"{request}: no answer within {patience:.3g} s", sent=False) from None
        except OSError as error:
            self.failures[call, 0] += 1
            raise Unanswered(f"{request}: {_words(error)}", sent=False) from error
        try:
            yield connection
        finally:
            self._open().give_back(connection)

    async def _open_watch(self, request: Request) -> Connection:
        connection = await self._asked(request, renew=False)
        if connection.status == 401:
            self._open().give_back(connection)
            connection = await self._asked(request, renew=True)
        if connection.status >= 300:
            try:
                body = await connection.whole()
            finally:
                self._open().give_back(connection)
            raise self._refusal(request.call, str(request), connection, body)
        return connection

    async def _asked(self, request: Request, *, renew: bool) -> Connection:
        """The beginning of an answer."""
        connection, headers = await self._ready(renew=renew)
        try:
            connection.send(self._written(request, "", headers), streaming=True)
            await connection.head()
        except BaseException:
            self._open().give_back(connection)
            raise
        return connection

    async def drain(self, within: float) -> bool:
        """Wait until no gated write is under way; whether that came true in time."""
        try:
            async with asyncio.timeout(within):
                await self._quiet.wait()
        except TimeoutError:
            return False
        return True
