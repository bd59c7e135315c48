"""A typed client of the API on the standard library; the command line uses it.

It opens one connection per request. A request that the server refuses raises ``RequestFailedError`` with the server's
problem; so does a server that cannot be reached or does not speak this API, with status 0.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from bursar.server import types
from bursar.server.operations import API, Operation, Operations
from bursar.server.types import ServerEvent

DEFAULT_ADDRESS = "http://127.0.0.1:8321"
_LONGEST_EVENT = 4 * 1024 * 1024
_PART = 1024 * 1024  # bytes of a file at a time
_FILE_PATIENCE = 3600.0  # seconds until the server must have made a file

T = TypeVar("T")


class RequestFailedError(Exception):
    """The request was refused (``problem.status``), or there is no server to answer it (status 0)."""

    def __init__(self, problem: types.Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem

    @property
    def status(self) -> int:
        return self.problem.status


class Client(Operations):
    """Sends the operations of the table to one server."""

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

    def call(self, operation: Operation[T], /, *given: object, **named: object) -> T:
        return self._ask(operation, *operation.arguments(given, named))

    def _ask(self, operation: Operation[T], values: dict[str, Any], body: bytes) -> T:
        """Send a request; ``values`` are its parameters by name."""
        path, query, headers = API + operation.path, {}, {}
        for parameter in operation.parameters:
            value = values.get(parameter.name, "")
            if parameter.where == "path":
                path = path.replace(f"{{{parameter.name}}}", _part(parameter.name, value))
            elif parameter.name in values and parameter.where == "header":
                headers[parameter.name] = str(value)
            elif parameter.name in values:
                query[parameter.name] = "true" if value is True else value
        if operation.accepts:
            headers["Content-Type"] = content_type(operation)
        target = f"{path}?{urlencode(query, doseq=True)}" if query else path
        patience = _FILE_PATIENCE if operation.is_file else self._timeout
        connection, response = self._open(operation.method, target, body, headers, patience)
        if operation.streams:
            return cast("T", self._events(connection, response))
        if operation.is_file and response.status < 300:
            return cast("T", self._parts(connection, response))
        try:
            content = _check(response)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()
        try:
            return msgspec.json.decode(content, type=operation.answer or cast("type[T]", dict))
        except msgspec.DecodeError as error:
            raise self._unreachable(f"answered something else than this API: {error}") from error

    def _events(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> Iterator[ServerEvent]:
        """The live stream, until the connection ends or not even a heartbeat came within the timeout."""
        try:
            if response.status >= 300:
                _check(response)
            yield from _read_events(response)
        except OSError as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def _parts(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> Iterator[bytes]:
        """A file, part by part; ``RequestFailedError`` unless all of it comes."""
        missing = int(response.getheader("Content-Length", "0"))
        try:
            while part := response.read(_PART):
                missing -= len(part)
                yield part
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()
        if missing:
            raise self._unreachable(f"the connection ended {missing:,} bytes before the file did")

    def _open(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str], patience: float
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        if self._secure:
            context = ssl.create_default_context(cafile=None if self._ca_file is None else str(self._ca_file))
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=patience, context=context
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=patience)
        given = dict(headers)
        if self._token:
            given["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, target, body or None, given)
            return connection, connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception | str) -> RequestFailedError:
        detail = f"{self.address}: {error}"
        problem = types.Problem(type="about:blank", title="no answer from the server", status=0, detail=detail)
        return RequestFailedError(problem)


def content_type(operation: Operation[Any]) -> str:
    return "application/yaml" if operation.accepts == "manifests" else "application/json"


def _part(name: str, value: object) -> str:
    """A parameter inside a path; a claim without a namespace has "-" there."""
    return quote(str(value) or "-", safe="/" if name == "key" else "")


def _check(response: http.client.HTTPResponse) -> bytes:
    """The content of a success; raises the problem of anything else."""
    content = response.read()
    if response.status < 300:
        return content
    try:
        problem = msgspec.json.decode(content, type=types.Problem)
    except msgspec.DecodeError:
        detail = f"answered {response.status} {response.reason}"
        problem = types.Problem(type="about:blank", title="unexpected", status=response.status, detail=detail)
    raise RequestFailedError(problem)


def _read_events(response: http.client.HTTPResponse) -> Iterator[ServerEvent]:
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
