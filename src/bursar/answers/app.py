"""The HTTP side of the answers API: discovery, requests of users, refusals as Kubernetes reports them.

A request is one of the API server's proxy (see ``access``); its connection has shown a client certificate that the TLS
context verified. The answer is that of the server's API, with the fields by which clients know an object.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.requests import Request

from bursar.answers import discovery
from bursar.answers.access import NotTrustedError, ProxyTrust, User
from bursar.answers.forks import ForkFailedError
from bursar.answers.questions import NotReadyError, Questions
from bursar.answers.resources import API_VERSION, AnswerPath, NoSuchPathError, read_path
from bursar.kube.http_server import Message, Receive, Send
from bursar.server.problems import RefusedError, problem_of
from bursar.server.request_query import RequestQuery
from bursar.server.requests import LARGEST_BODY, read_request

log = logging.getLogger(__name__)
PEER = "bursar.peer"  # in the state of a connection: the common name of its client certificate
_OF_KUBERNETES = frozenset(
    {
        "pretty",
        "timeout",
        "timeoutSeconds",
        "fieldManager",
        "fieldValidation",
        "resourceVersion",
        "resourceVersionMatch",
    }
)  # query parameters that clients add
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class AnswersApp:
    """A raw ASGI application."""

    def __init__(self, questions: Questions, trust: Callable[[], ProxyTrust | None]) -> None:
        self._questions = questions
        self._trust = trust
        self.answered: Counter[tuple[str, int]] = Counter()  # by resource and status

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"this application serves http only, not {scope['type']}")
        name, status, body, headers = "", 200, b"", dict[str, str]()
        try:
            user = self._user(scope)
            found = discovery.found_at(scope["path"]) if scope["method"] == "GET" else None
            if found is not None:
                body = msgspec.json.encode(found)
            else:
                path = read_path(scope["method"], scope["path"])
                name = path.resource.name
                body = await self._answer(path, scope, receive, user)
        except Exception as error:  # noqa: BLE001 every error is answered
            status, problem, headers = refusal(error)
            body = msgspec.json.encode(status_object(status, problem))
        self.answered[name, status] += 1
        await _send(send, status, body, headers)

    def _user(self, scope: Message) -> User:
        trust = self._trust()
        if trust is None:
            raise NotReadyError("how to recognise the API server is not known yet")
        headers: dict[str, list[str]] = {}
        for raw, value in scope["headers"]:
            headers.setdefault(raw.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        return trust.user((scope.get("state") or {}).get(PEER, ""), headers)

    async def _answer(self, path: AnswerPath, scope: Message, receive: Receive, user: User) -> bytes:
        asked = await _read(path, scope, receive)
        found = msgspec.json.decode(await self._questions.answer(asked, user))
        return msgspec.json.encode(as_object(path, found))


async def _read(path: AnswerPath, scope: Message, receive: Receive) -> RequestQuery:
    """The request as the server's API would have it: what stands in a path there may be a query parameter here."""
    pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    pairs = [(name, value) for name, value in pairs if name not in _OF_KUBERNETES]
    values = path.values()
    in_path = [one.name for one in path.asked().parameters if one.where == "path"]
    given = {name: value for name, value in pairs if name in in_path} | values
    missing = [name for name in in_path if not given.get(name)]
    if missing:
        raise RefusedError(400, f"the parameter {missing[0]} is required")
    query = urlencode([pair for pair in pairs if pair[0] not in in_path]).encode()
    path_params = {name: given[name] for name in in_path}
    request = Request({**scope, "query_string": query, "path_params": path_params}, receive)
    asked = await read_request(request, path.asked(), LARGEST_BODY)
    asked.values.update(values)
    return asked


def as_object(path: AnswerPath, answer: dict[str, Any]) -> dict[str, Any]:
    """With the fields by which clients of Kubernetes know an object, or a list of them."""
    kind, metadata = path.resource.kind, {"name": path.name} if path.name else {}
    if path.namespace:
        metadata["namespace"] = path.namespace
    if path.verb == "list":
        kind, metadata = f"{kind}List", {}
        answer = {**answer, "items": [_row(row) for row in answer.get("items", ())]}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, **answer}


def _row(row: dict[str, Any]) -> dict[str, Any]:
    names = {name: row[name] for name in ("name", "namespace") if row.get(name)}
    return {"metadata": names, **row} if names else row


def refusal(error: Exception) -> tuple[int, str, dict[str, str]]:
    """The status, the sentence and the headers for a question that failed."""
    if isinstance(error, NotTrustedError):
        return 401, str(error), {}
    if isinstance(error, NoSuchPathError):
        return error.status, str(error), {}
    if isinstance(error, NotReadyError):
        return 503, str(error), {"Retry-After": "2"}
    if isinstance(error, TimeoutError):
        return 504, "the answer takes too long: ask about fewer pods, or without fixes", {}
    if isinstance(error, ForkFailedError):
        return 500, str(error), {}
    known = problem_of(error)
    if known is None:
        log.error("a question failed", exc_info=error)
        return 500, "a defect of Bursar; its log says more", {}
    return known.status, known.detail, error.headers if isinstance(error, RefusedError) else {}


def status_object(status: int, problem: str) -> dict[str, Any]:
    reason = _REASONS.get(status, "InternalError")
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": problem,
            "reason": reason, "code": status}  # fmt: skip


async def _send(send: Send, status: int, body: bytes, headers: dict[str, str]) -> None:
    given = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    lines = [(name.lower().encode(), value.encode()) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})
