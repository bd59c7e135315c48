"""The HTTP application: routes from the table of operations, with access, limits and problems around every handler.

Each request has an id, which its answer and its messages in the log carry; ``X-Request-Id`` of the caller names it.
Changes and refused requests are logged, other requests at level debug.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from bursar.server import logs, openapi, problems
from bursar.server.access import Access
from bursar.server.agent_requests import AGENT_CALL
from bursar.server.background import AuditWatch
from bursar.server.copies import Copies
from bursar.server.dashboard import Dashboard
from bursar.server.handlers import Handlers
from bursar.server.metrics import ServerMetrics
from bursar.server.operations import AGENT, API, OPERATIONS, READ, STORE_FILE, Operation, Operations
from bursar.server.problems import CONTENT_TYPE, RefusedError, Reply
from bursar.server.request_query import RequestQuery
from bursar.server.requests import IDENTITY, LARGEST_BODY, in_thread, read_request, response
from bursar.server.retention import StoreCopies
from bursar.server.service import NotDoneError, Pending, Service, StoppedError
from bursar.server.sessions import Sessions, is_loopback
from bursar.server.steady_clock import WORTH_SAYING, offset_told
from bursar.server.stream import Stream
from bursar.server.types import Problem

LOG = logging.getLogger("bursar.server")
Handler = Callable[[Request], Awaitable[Response]]
_STREAMS_AT_MOST = 256
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,64}")


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What a request may cost."""

    body: int = LARGEST_BODY
    seconds: float = 30.0  # for the answer
    body_seconds: float = 30.0


class App:
    def __init__(
        self,
        service: Service,
        *,
        access: Access | None = None,
        audit: AuditWatch | None = None,
        limits: RequestLimits | None = None,
        copies: Copies,
        demo: bool = False,
    ) -> None:
        self.copies = copies
        self._service = service
        self._access = access or Access(None)
        self._sessions = Sessions(self._access)
        self._dashboard = Dashboard(self._sessions)
        self._audit = audit
        self._limits = limits or RequestLimits()
        self._handlers = Handlers(service, copies, demo=demo)
        self._metrics = ServerMetrics(service, audit, copies)
        self._streams: set[Stream] = set()
        self._backups = StoreCopies(service.store)

    def asgi(self) -> Starlette:
        routes = [self._route(operation) for operation in OPERATIONS]
        routes += [
            *self._dashboard.routes(),
            Route("/healthz", self._healthz, methods=["GET"]),
            Route("/readyz", self._readyz, methods=["GET"]),
            self._agent_route(),
            Route("/metrics", self._guard("metrics", READ, self._render_metrics), methods=["GET"]),
            Route("/openapi.json", self._guard("openapi", READ, self._openapi), methods=["GET"]),
        ]
        app = Starlette(routes=routes, exception_handlers={HTTPException: self._http_problem})
        app.router.redirect_slashes = False
        return app

    def close_streams(self) -> None:
        """For a shutdown, which would wait for open streams."""
        for stream in list(self._streams):
            stream.end()

    def _route(self, operation: Operation[Any]) -> Route:
        path = API + operation.path.replace("{key}", "{key:path}")
        handler = self._events if operation.streams else self._handle(operation)
        if operation.is_file:
            route = self._guard(operation.name, operation.role, self._backup, limited=False)
            return Route(path, route, methods=[operation.method])
        guarded = self._guard(operation.name, operation.role, handler, limited=operation.streams)
        return Route(path, guarded, methods=[operation.method])

    def _agent_route(self) -> Route:
        async def handle(request: Request) -> Response:
            asked = await self._read(request, AGENT_CALL)
            answer = self._handlers.agents.answer
            given = asked.text("machine"), asked.text("request"), asked.body, asked.identity
            return _json(await in_thread(answer, *given))

        return Route(API + AGENT_CALL.path, self._guard(AGENT_CALL.name, AGENT, handle), methods=["POST"])

    def _handle(self, operation: Operation[Any]) -> Handler:
        async def handle(request: Request) -> Response:
            asked = await self._read(request, operation)
            begun = perf_counter()
            async with asyncio.timeout(self._limits.seconds):
                answer = await in_thread(self._handlers.answer, asked)
                if isinstance(answer, Pending):
                    await _durable(answer)
                    answer = answer.answer
                elif isinstance(answer, Future):
                    return _replied(await asyncio.wrap_future(answer))
            if operation.method == "POST" and operation.role != READ:
                self._metrics.changes.labels(operation.name).observe(perf_counter() - begun)
            return _json(answer)

        return handle

    async def _read(self, request: Request, operation: Operation[Any]) -> RequestQuery:
        """The request, once all of its body is there."""
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                return await read_request(request, operation, self._limits.body)
        except TimeoutError:
            detail = f"the body did not come within {self._limits.body_seconds:g} seconds"
            raise RefusedError(408, detail, {"Connection": "close"}) from None

    # Around every handler

    def _guard(self, name: str, role: str, handler: Handler, *, limited: bool = True) -> Handler:
        async def guarded(request: Request) -> Response:
            begun = perf_counter()
            given = request.headers.get("x-request-id", "")
            number = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
            with logs.serving(number) as context:
                try:
                    self._check_host(request)
                    identity = self._sessions.identify(request)
                    context.actor = identity.name
                    identity.check(role)
                    request.scope[IDENTITY] = identity
                    response = await asyncio.wait_for(handler(request), self._limits.seconds if limited else None)
                except Exception as error:  # noqa: BLE001 whatever it is becomes a problem
                    response = await self._problem(error)
                seconds = perf_counter() - begun
                _log(name, role, request, response.status_code, seconds)
            if not isinstance(response, StreamingResponse):
                self._metrics.requests.labels(name, str(response.status_code)).observe(seconds)
            response.headers["Cache-Control"] = "no-store"
            response.headers["X-Request-Id"] = number
            return response

        return guarded

    def _check_host(self, request: Request) -> None:
        """Without tokens only this machine is served, and no web page under another host name (DNS rebinding)."""
        if not self._access.open:
            return
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
        if not is_loopback(host):
            raise RefusedError(403, "without a token file this server answers to localhost only")

    async def _problem(self, error: Exception) -> Response:
        if isinstance(error, TimeoutError):
            detail = f"not done within {self._limits.seconds:g} seconds; whether a change was made is not known"
            return response(problems.problem(503, detail), {"Retry-After": "1"})
        found = problems.problem_of(error)
        if found is None:
            LOG.error("a request failed", exc_info=error)
            found = problems.problem(500, "the server has a defect; its log says more")
        headers = error.headers if isinstance(error, RefusedError) else {}
        if isinstance(error, StoppedError):
            headers = {"Retry-After": "5"}
        if found.status >= 400 and found.status not in {401, 403}:
            found = await in_thread(self._positioned, found)
        return response(found, headers)

    def _positioned(self, found: Problem) -> Problem:
        return self._service.read(lambda cluster: problems.with_position(found, cluster.engine))[0]

    async def _http_problem(self, request: Request, error: Exception) -> Response:
        """Unknown paths and methods."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
        detail = f"there is nothing at {request.url.path!r:.200}"
        if status == 405:
            detail = f"{request.method} is not a method of {request.url.path!r:.200}"
        return response(problems.problem(status if status in problems.TITLES else 400, detail), headers)

    # Besides the table

    async def _healthz(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _readyz(self, request: Request) -> Response:
        error = self._service.error
        if error is not None:
            return PlainTextResponse(f"{error}\n", 503)
        ahead = self._service.ahead
        note = f"time is {offset_told(ahead)}\n" if ahead >= WORTH_SAYING else ""
        return PlainTextResponse(f"ready\n{note}")

    async def _render_metrics(self, request: Request) -> Response:
        text = await in_thread(self._metrics.render)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _openapi(self, request: Request) -> Response:
        return _json(openapi.document())

    async def _events(self, request: Request) -> Response:
        asked = await read_request(request, Operations.events, 0)
        last = asked.number("Last-Event-ID") if "Last-Event-ID" in asked.values else None
        if last is not None and not self._service.store.pruned_to <= last <= self._service.store.last_seq:
            raise RefusedError(400, f"there is no record {last} to resume after: read the state again")
        if len(self._streams) >= _STREAMS_AT_MOST:
            raise RefusedError(503, f"{_STREAMS_AT_MOST} streams are open, which is the most")
        stream = Stream(self._service, last)
        self._streams.add(stream)

        async def events() -> Any:  # noqa: ANN401 an iterator of bytes
            try:
                async for text in stream:
                    yield text
            finally:
                self._streams.discard(stream)

        return StreamingResponse(events(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def _backup(self, request: Request) -> Response:
        await read_request(request, Operations.backup, 0)
        copy = await in_thread(self._backups.make)
        headers = {"Content-Length": str(copy.size), "Content-Disposition": 'attachment; filename="bursar.db"'}
        return StreamingResponse(copy.parts(), media_type=STORE_FILE, headers=headers)


def _log(name: str, role: str, request: Request, status: int, seconds: float) -> None:
    """One line for the request."""
    level = logging.INFO if role not in {READ, AGENT} or status >= 400 else logging.DEBUG
    if LOG.isEnabledFor(level):
        caller = request.client.host if request.client is not None else ""
        told = logs.fields(
            operation=name, path=request.url.path[:200], status=status, ms=round(seconds * 1000, 1), caller=caller
        )
        LOG.log(level, "answered", extra=told)


async def _durable(change: Pending) -> None:
    """Return when the change is on the disk."""
    if change.durable is None:
        return
    try:
        await asyncio.wrap_future(change.durable)
    except Exception as error:  # whatever kept the disk from it
        raise NotDoneError(f"not done, and nothing of it is kept: {error}") from error


def _json(answer: object) -> Response:
    return Response(problems.ENCODER.encode(answer), media_type="application/json")


def _replied(reply: Reply) -> Response:
    """What another process answered."""
    return Response(reply.body, reply.status, media_type="application/json" if reply.status < 400 else CONTENT_TYPE)
