"""A client of the API, typed, on the standard library alone: what the command line uses.

One connection a request: commands are short, and a connection that is kept open would have to be looked after. Whatever
the server refuses is an ``ApiError`` with the server's own problem; a server that cannot be reached or does not speak
this API is one too, with status 0.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from bursar.server import types

DEFAULT_ADDRESS = "http://127.0.0.1:8321"
_API = "/api/v1"
_YAML = "application/yaml"
_JSON = "application/json"
_LONGEST_EVENT = 4 * 1024 * 1024

T = TypeVar("T")
Query = Mapping[str, str | int | bool | Sequence[str] | None]


class RequestFailedError(Exception):
    """The request was refused (``problem.status``), or there is no server to answer it (status 0)."""

    def __init__(self, problem: types.Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem

    @property
    def status(self) -> int:
        return self.problem.status


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of the live stream; ``id`` resumes after it."""

    id: str
    type: str
    data: Any


class Client:
    """Talks to one server."""

    def __init__(
        self, address: str = DEFAULT_ADDRESS, *, token: str = "", ca_file: Path | None = None, timeout: float = 60
    ) -> None:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"{address!r:.200} is no address of a server: expected http://HOST:PORT")
        self.address = f"{parts.scheme}://{parts.netloc}"
        self._host, self._port = parts.hostname, parts.port
        self._secure = parts.scheme == "https"
        self._token = token
        self._ca_file = ca_file
        self._timeout = timeout

    # Changing

    def apply(self, manifests: str | bytes, *, source: str = "", dry_run: bool = False, key: str = "") -> types.Change:
        """Create or update all objects of a YAML or JSON text, or none. ``key`` makes a retry safe."""
        query: Query = {"source": source, "dryRun": dry_run}
        return self._send("POST", "/apply", types.Change, query, manifests, _YAML, key)

    def delete(self, references: Sequence[str], *, dry_run: bool = False) -> types.Change:
        """Delete objects named ``Kind/namespace/name``: all, or none."""
        body = msgspec.json.encode({"objects": list(references)})
        return self._send("POST", "/delete", types.Change, {"dryRun": dry_run}, body)

    def finish(self, pods: Sequence[str]) -> types.Change:
        """These running pods succeed."""
        return self._send("POST", "/finish", types.Change, {}, msgspec.json.encode({"pods": list(pods)}))

    def undo(self, change: int, *, dry_run: bool = False) -> types.Change:
        return self._send("POST", f"/changes/{change}/undo", types.Change, {"dryRun": dry_run}, b"")

    def changes(self, *, limit: int = 20) -> types.ChangeList:
        """Applied changes, the newest first."""
        return self._get("/changes", types.ChangeList, {"limit": limit})

    # Reading

    def info(self) -> types.Info:
        return self._get("", types.Info, {})

    def kinds(self) -> types.KindList:
        return self._get("/kinds", types.KindList, {})

    def objects(self, **query: str | int | None) -> types.ObjectList:
        """Filters: ``kind``, ``namespace``, ``label``, ``limit``, ``continue``, ``at``."""
        return self._get("/objects", types.ObjectList, query)

    def get_object(self, kind: str, key: str, *, at: str = "") -> dict[str, Any]:
        """One manifest."""
        found: dict[str, Any] = self._get(f"/objects/{_part(kind)}/{quote(key)}", dict, {"at": at})
        return found

    def claims(self, **query: str | int | None) -> types.ClaimList:
        """Filters: ``namespace``, ``label``, ``phase``, ``node``, ``quota``, ``limit``, ``continue``, ``at``."""
        return self._get("/claims", types.ClaimList, query)

    def claim(self, namespace: str, name: str, *, at: str = "") -> types.ClaimRow:
        return self._get(_claim_path(namespace, name), types.ClaimRow, {"at": at})

    def explain(self, namespace: str, name: str, *, at: str = "", fixes: bool = False) -> types.Explanation:
        query: Query = {"at": at, "fixes": fixes}
        return self._get(f"{_claim_path(namespace, name)}/explain", types.Explanation, query)

    def quotas(self, **query: str | int | None) -> types.QuotaList:
        """Filters: ``kind``, ``namespace``, ``policy``, ``limit``, ``continue``, ``at``."""
        return self._get("/quotas", types.QuotaList, query)

    def nodes(self, **query: str | int | None) -> types.NodeList:
        return self._get("/nodes", types.NodeList, query)

    def gpus(self, **query: str | int | None) -> types.GpuList:
        return self._get("/gpus", types.GpuList, query)

    def queue(self, **query: str | int | None) -> types.QueueList:
        return self._get("/queue", types.QueueList, query)

    def decisions(self, *, before: int = 0, limit: int = 100, claim: str = "") -> types.DecisionList:
        """Journal records, the newest first."""
        return self._get("/decisions", types.DecisionList, {"before": before or None, "limit": limit, "claim": claim})

    def history(self, kind: str, key: str) -> types.ObjectHistory:
        return self._get(f"/history/{_part(kind)}/{quote(key)}", types.ObjectHistory, {})

    def diff(self, start: str, end: str = "") -> types.Difference:
        return self._get("/diff", types.Difference, {"from": start, "to": end})

    # Asking

    def what_if(self, manifests: str | bytes, *, source: str = "") -> types.WhatIf:
        return self._send("POST", "/what-if", types.WhatIf, {"source": source}, manifests, _YAML)

    def plan(
        self, manifests: str | bytes, *, source: str = "", delete: Sequence[str] = (), horizon: str = ""
    ) -> types.Plan:
        query: Query = {"source": source, "delete": delete, "horizon": horizon}
        return self._send("POST", "/plan", types.Plan, query, manifests, _YAML)

    # Watching

    def events(self, last_id: str = "", *, timeout: float = 60) -> Iterator[ServerEvent]:
        """The live stream, until the connection ends or nothing (not even a heartbeat) came for ``timeout`` seconds."""
        headers = {"Last-Event-ID": last_id} if last_id else {}
        connection, response = self._open("GET", f"{_API}/events", None, headers, timeout)
        try:
            _check(response)
            yield from _events(response)
        except OSError as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    # Transport

    def _get(self, path: str, answer: type[T], query: Query) -> T:
        return self._send("GET", path, answer, query, None)

    def _send(
        self,
        method: str,
        path: str,
        answer: type[T],
        query: Query,
        body: str | bytes | None,
        content_type: str = _JSON,
        key: str = "",
    ) -> T:
        headers = {} if body is None else {"Content-Type": content_type}
        if key:
            headers["Idempotency-Key"] = key
        data = body.encode() if isinstance(body, str) else body
        target = f"{_API}{path}{_query(query)}"
        connection, response = self._open(method, target, data, headers, self._timeout)
        try:
            content = _check(response)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()
        try:
            return msgspec.json.decode(content, type=answer)
        except msgspec.DecodeError as error:
            raise self._unreachable(f"answered something else than this API: {error}") from error

    def _open(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str], timeout: float
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        if self._secure:
            context = ssl.create_default_context(cafile=None if self._ca_file is None else str(self._ca_file))
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=timeout, context=context
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        given = dict(headers)
        if self._token:
            given["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, target, body, given)
            return connection, connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception | str) -> RequestFailedError:
        detail = f"{self.address}: {error}"
        problem = types.Problem(type="about:blank", title="no answer from the server", status=0, detail=detail)
        return RequestFailedError(problem)


def _part(text: str) -> str:
    return quote(text, safe="")


def _claim_path(namespace: str, name: str) -> str:
    return f"/claims/{_part(namespace or '-')}/{_part(name)}"


def _query(query: Query) -> str:
    given: list[tuple[str, str]] = []
    for name, value in query.items():
        if isinstance(value, bool):
            given.extend([(name, "true")] if value else [])
        elif isinstance(value, int):
            given.append((name, str(value)))
        elif isinstance(value, str):
            given.extend([(name, value)] if value else [])
        elif value is not None:
            given.extend((name, one) for one in value)
    return f"?{urlencode(given)}" if given else ""


def _check(response: http.client.HTTPResponse) -> bytes:
    """The content of a success that is no stream; raises the problem of anything else."""
    if response.status < 300 and response.headers.get_content_type() == "text/event-stream":
        return b""
    content = response.read()
    if response.status < 300:
        return content
    try:
        problem = msgspec.json.decode(content, type=types.Problem)
    except msgspec.DecodeError:
        detail = f"answered {response.status} {response.reason}"
        problem = types.Problem(type="about:blank", title="unexpected", status=response.status, detail=detail)
    raise RequestFailedError(problem)


def _events(response: http.client.HTTPResponse) -> Iterator[ServerEvent]:
    fields: dict[str, str] = {}
    while line := response.readline(_LONGEST_EVENT):
        text = line.decode().rstrip("\r\n")
        if text:
            name, _, value = text.partition(": ")
            if name:  # a line that begins with a colon is a heartbeat
                fields[name] = value
        elif "data" in fields:
            data = msgspec.json.decode(fields["data"])
            yield ServerEvent(fields.get("id", ""), fields.get("event", ""), data)
            fields = {}
