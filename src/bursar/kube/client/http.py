"""One session with the API server: every call goes through here, is counted, bounded in time and, if a write, gated.

Invariants:

* Before a write's first byte leaves, the gate (the owner of the lease) has said how many seconds are left. It is
  asked twice: when the call starts, for the time-out, and again when the connection is ready and the body is about to
  be sent, because a process may have been frozen in between. A write held back raises ``Fenced``; a request without
  its body is never carried out. The server is told the same time-out, so that it does not carry it out later either.
* ``within`` bounds the whole call: waiting for a connection, all tries, all pauses.
* Calls are counted by verb, group and resource in the words of RBAC, whatever their outcome.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlencode

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict
from yarl import URL

from bursar._version import __version__
from bursar.kube.client.config import ClusterConfig
from bursar.kube.client.credentials import Secret
from bursar.kube.client.errors import ApiError, Fenced, KubeError, Unanswered, Unauthorized, error_for, status_from
from bursar.kube.client.retries import DEFAULT_RETRY, Retry, pause_after

Gate = Callable[[], float]
"""Seconds for which this process may still write; raises ``Fenced`` when it may not."""

DEFAULT_TIMEOUT = 30.0
IN_FLIGHT = 64


class Call(NamedTuple):
    """What is asked, in the words of RBAC: ``resource`` is a plural, ``plural/subresource`` or a bare path."""

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
    content_type: str = "application/json"
    gated: bool = True  # False, for what keeps the lease itself: neither asks the gate nor waits for a slot

    @property
    def write(self) -> bool:
        return self.body is not None

    def __str__(self) -> str:
        return f"{self.call.verb} {self.path}"


class _Outgoing(aiohttp.BytesPayload):
    """A body that asks the gate once more at the moment it is sent, and knows whether it was."""

    def __init__(self, body: bytes, content_type: str, gate: Gate | None) -> None:
        super().__init__(body, content_type=content_type)
        self._gate = gate
        self.sent = False
        self.refused: Fenced | None = None

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        if self._gate is not None:
            try:
                self._gate()
            except Fenced as refused:
                self.refused = refused
                raise
        self.sent = True
        await super().write_with_length(writer, content_length)


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


class Http:
    """The session. Use as an async context manager; ``gate`` is set by whoever owns the lease."""

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
        self._headers = {"User-Agent": user_agent, "Accept": "application/json", "Accept-Encoding": "identity"}
        self._slots = asyncio.Semaphore(in_flight)
        self._session: aiohttp.ClientSession | None = None
        self._tls: tuple[Secret, ssl.SSLContext] | None = None
        self._writing = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def __aenter__(self) -> Self:
        # Calls are bounded by the slots above; watches, one for each kind, need connections beside them.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10.0),
        )
        # It would send a DELETE again, unasked, when a connection was closed: by then the name may be another object's.
        self._session._retry_connection = False  # noqa: SLF001 there is no public way
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(self, request: Request, *, within: float | None = None, retry: Retry | None = None) -> bytes:
        """Carry out a call and return the answer's body. ``within``: seconds, for all tries together."""
        policy = self._retry if retry is None else retry
        backoff = policy.backoff()
        deadline = time.monotonic() + (self._timeout if within is None else within)
        renewed = False
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
                    raise
                await asyncio.sleep(pause)
            self.retries[request.call] += 1

    async def _attempt(self, request: Request, left: float, *, renew: bool) -> bytes:
        gate = self.gate if request.write and request.gated else None
        if gate is not None:
            left = min(left, gate())
        outgoing = None if request.body is None else _Outgoing(request.body, request.content_type, gate)
        self.calls[request.call] += 1
        try:
            with self._under_way(gate is not None):
                async with asyncio.timeout(left), self._slots if request.gated else nullcontext():
                    return await self._exchange(request, outgoing, left if gate else None, renew=renew)
        except TimeoutError:
            self.failures[request.call, 0] += 1
            sent = outgoing is None or outgoing.sent
            raise Unanswered(f"{request}: no answer within {max(left, 0.0):.3g} s", sent=sent) from None

    @contextmanager
    def _under_way(self, gated: bool) -> Iterator[None]:
        """Count a gated write, for ``drain``."""
        self._writing += gated
        self._quiet.clear() if self._writing else self._quiet.set()
        try:
            yield
        finally:
            self._writing -= gated
            self._quiet.clear() if self._writing else self._quiet.set()

    async def _exchange(
        self, request: Request, outgoing: _Outgoing | None, server_limit: float | None, *, renew: bool
    ) -> bytes:
        query = request.query
        if server_limit is not None:
            query = (*query, ("timeout", f"{max(server_limit, 0.001):.3f}s"))
        try:
            async with await self._open(request.method, request.path, query, outgoing, renew=renew) as response:
                body = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            if outgoing is not None and outgoing.refused is not None:
                raise outgoing.refused from None
            self.failures[request.call, 0] += 1
            sent = (outgoing is None or outgoing.sent) and not isinstance(error, aiohttp.ClientConnectorError)
            raise Unanswered(f"{request}: {_words(error)}", sent=sent) from error
        if response.status >= 300:
            raise self._refusal(request.call, str(request), response, body)
        return body

    def _refusal(self, call: Call, text: str, response: aiohttp.ClientResponse, body: bytes) -> ApiError:
        self.failures[call, response.status] += 1
        wish = response.headers.get("Retry-After", "")
        retry_after = float(wish) if wish.isascii() and wish.isdigit() else None
        return error_for(text, response.status, status_from(body, response.status), retry_after)

    async def _open(
        self,
        method: str,
        path: str,
        query: tuple[tuple[str, str], ...],
        body: _Outgoing | None = None,
        *,
        renew: bool = False,
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the session is not open: use it in `async with`")
        secret = await self.config.credentials.current(renew=renew)
        headers: CIMultiDict[str] = CIMultiDict()
        for name, value in self.config.headers.items():
            for each in (value,) if isinstance(value, str) else value:
                headers.add(name, each)
        if secret.authorization:
            headers["Authorization"] = secret.authorization
        text = f"{self.config.server}{path}" + (f"?{urlencode(query)}" if query else "")
        return await self._session.request(
            method,
            URL(text, encoded=True),
            data=body,
            headers=headers,
            allow_redirects=False,
            ssl=self._context(secret),
            server_hostname=self.config.trust.server_name or None,
            proxy=self.config.proxy or None,
        )

    def _context(self, secret: Secret) -> ssl.SSLContext | bool:
        if self.config.server.startswith("http:"):
            return True
        if self._tls is None or (self._tls[0].certificate, self._tls[0].key) != (secret.certificate, secret.key):
            self._tls = (secret, self.config.trust.context(secret))
        return self._tls[1]

    @asynccontextmanager
    async def stream(
        self, call: Call, path: str, query: tuple[tuple[str, str], ...], *, patience: float
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """An answer that is read as it comes. ``patience``: seconds until its first line must have come."""
        self.calls[call] += 1
        text = f"{call.verb} {path}"
        try:
            async with asyncio.timeout(patience):
                response = await self._open_watch(path, query, text, call)
        except TimeoutError:
            self.failures[call, 0] += 1
            raise Unanswered(f"{text}: no answer within {patience:.3g} s", sent=False) from None
        except (aiohttp.ClientError, OSError) as error:
            self.failures[call, 0] += 1
            raise Unanswered(f"{text}: {_words(error)}", sent=False) from error
        try:
            yield response.content
        finally:
            response.close()

    async def _open_watch(
        self, path: str, query: tuple[tuple[str, str], ...], text: str, call: Call
    ) -> aiohttp.ClientResponse:
        response = await self._open("GET", path, query)
        if response.status == 401:
            response.close()
            response = await self._open("GET", path, query, renew=True)
        if response.status >= 300:
            async with response:
                raise self._refusal(call, text, response, await response.read())
        return response

    async def drain(self, within: float) -> bool:
        """Wait until no gated write is under way; whether that came true in time."""
        try:
            async with asyncio.timeout(within):
                await self._quiet.wait()
        except TimeoutError:
            return False
        return True
