"""Errors as problem details (RFC 9457), and blocking work in worker threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar, TypeVarTuple

import msgspec
from anyio import to_thread
from starlette.responses import Response

from bursar.objects.decode import ManifestError
from bursar.server.service import KeyReusedError, NoSuchChangeError, Service, StoppedError
from bursar.server.time_travel import MomentError, PrunedMomentError
from bursar.server.types import Problem
from bursar.sim.apply import ConflictError
from bursar.store.schema import StoreError

CONTENT_TYPE = "application/problem+json"

TITLES = {
    400: "the request is not understood",
    401: "a token is needed",
    403: "this token may not do that",
    404: "there is no such thing",
    405: "this path has no such method",
    409: "the state does not allow it",
    410: "that moment is no longer kept",
    413: "the request is too large",
    415: "this kind of content is not read",
    422: "the request is refused",
    500: "a defect of the server",
    503: "no changes are taken",
    507: "there is no room for it",
}


_STATUSES = {
    PrunedMomentError: 410,
    MomentError: 400,
    NoSuchChangeError: 404,
    KeyReusedError: 422,
    StoppedError: 503,
    StoreError: 503,
}


class RefusedError(Exception):
    """A request that is answered with a problem."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = dict(headers or {})


def problem(status: int, detail: str, **more: str | int) -> Problem:
    found = Problem(type="about:blank", title=TITLES[status], status=status, detail=detail)
    return msgspec.structs.replace(found, **more)


def response(found: Problem, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(found), found.status, headers, CONTENT_TYPE)


def problem_of(error: Exception) -> Problem | None:
    """The problem that an error stands for; None if it is a defect."""
    if isinstance(error, RefusedError):
        return problem(error.status, str(error))
    if isinstance(error, ManifestError):
        places: dict[str, str | int] = {"source": error.source, "document": error.document, "line": error.line}
        return problem(_status(error), str(error), **places, object=error.subject, field=error.path)
    status = next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), None)
    return None if status is None else problem(status, str(error))


def _status(error: ManifestError) -> int:
    if isinstance(error, ConflictError):
        return 409
    return 404 if error.problem == "does not exist" else 422


def with_position(found: Problem, service: Service) -> Problem:
    """With the state that the refused request left unchanged."""
    engine = service.cluster.engine
    with engine.lock:
        return msgspec.structs.replace(found, seq=engine.version, digest=f"{engine.digest:016x}")


T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


async def in_thread(work: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
    """Run it in a worker thread. A request that timed out does not wait for it."""
    return await to_thread.run_sync(work, *arguments, abandon_on_cancel=True)
