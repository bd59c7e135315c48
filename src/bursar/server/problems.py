"""Errors as problem details (RFC 9457), and replies: answers and problems as text with a status."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from bursar.engine.engine import Engine
from bursar.objects.decode import ManifestError
from bursar.server.service import KeyReusedError, NoSuchChangeError, StoppedError
from bursar.server.time_travel import MomentError, PrunedMomentError
from bursar.server.types import Problem
from bursar.sim.apply import ConflictError
from bursar.store.schema import StoreError

LOG = logging.getLogger("bursar.server")
CONTENT_TYPE = "application/problem+json"
ENCODER = msgspec.json.Encoder(decimal_format="string")

TITLES = {
    400: "the request is not understood",
    401: "a token is needed",
    403: "this token may not do that",
    404: "there is no such thing",
    405: "this path has no such method",
    408: "the request came too slowly",
    409: "the state does not allow it",
    410: "that moment is no longer kept",
    413: "the request is too large",
    415: "this kind of content is not read",
    422: "the request is refused",
    429: "too many such questions wait",
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


def with_position(found: Problem, engine: Engine) -> Problem:
    """With the state that the refused request left unchanged."""
    with engine.lock:
        return msgspec.structs.replace(found, seq=engine.version, digest=f"{engine.digest:016x}")


class Reply(msgspec.Struct, frozen=True):
    """An answer or a problem, as text."""

    status: int
    body: bytes = b""


def reply_with(answer: object) -> Reply:
    return Reply(200, ENCODER.encode(answer))


def reply_of(error: Exception, engine: Engine) -> Reply:
    """The reply for a question that failed, with the state that it was asked of."""
    found = problem_of(error)
    if found is None:
        LOG.error("a question failed", exc_info=error)
        found = problem(500, "the server has a defect; its log says more")
    return Reply(found.status, ENCODER.encode(with_position(found, engine)))
