"""HTTP: requests, checked against the table of operations, and problems as responses.

Bodies are bounded, and parameters are known: a misspelt filter would otherwise select everything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, TypeVarTuple

import msgspec
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from bursar.server.access import OPEN
from bursar.server.operations import Operation, Parameter
from bursar.server.problems import CONTENT_TYPE, RefusedError
from bursar.server.request_query import JSON_TYPES, RequestQuery
from bursar.server.types import Problem

LARGEST_BODY = 8 * 1024 * 1024
IDENTITY = "bursar.identity"  # where the scope of a request has it
_YAML = ("application/yaml", "application/x-yaml", "text/yaml")
_TRUTH = {"true": True, "1": True, "false": False, "0": False, "": True}
_INTEGER = re.compile(r"-?[0-9]{1,18}")


async def read_request(request: Request, operation: Operation[Any], largest: int) -> RequestQuery:
    """The request, or ``RefusedError``."""
    values = _parameters(request, operation)
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if operation.method == "POST" and operation.accepts:
        allowed = (*_YAML, *JSON_TYPES) if operation.accepts == "manifests" else JSON_TYPES
        if content_type not in allowed:
            raise RefusedError(415, f"the content type {content_type!r:.60} is not one of {', '.join(allowed)}")
    body = await _body(request, largest)
    return RequestQuery(operation, values, body, content_type, request.scope.get(IDENTITY, OPEN))


async def _body(request: Request, largest: int) -> bytes:
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > largest:
        raise RefusedError(413, f"the body has {declared} bytes; this server takes up to {largest}")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > largest:
            raise RefusedError(413, f"the body is larger than {largest} bytes, the most that this server takes")
        parts.append(part)
    return b"".join(parts)


def _parameters(request: Request, operation: Operation[Any]) -> dict[str, Any]:
    known = {parameter.name: parameter for parameter in operation.parameters}
    values: dict[str, Any] = {}
    for name in request.query_params:
        parameter = known.get(name)
        if parameter is None or parameter.where != "query":
            names = ", ".join(p.name for p in operation.parameters if p.where == "query") or "none"
            raise RefusedError(400, f"the parameter {name!r:.60} is not known here; known are: {names}")
        given = request.query_params.getlist(name)
        if parameter.repeated:
            values[name] = [_value(parameter, one) for one in given]
        elif len(given) > 1:
            raise RefusedError(400, f"the parameter {name} is given {len(given)} times")
        else:
            values[name] = _value(parameter, given[0])
    for parameter in operation.parameters:
        if parameter.where == "path":
            values[parameter.name] = _value(parameter, request.path_params[parameter.name])
        elif parameter.where == "header" and parameter.name in request.headers:
            values[parameter.name] = _value(parameter, request.headers[parameter.name])
        elif parameter.required and parameter.name not in values:
            raise RefusedError(400, f"the parameter {parameter.name} is required: {parameter.about}")
    return values


def _value(parameter: Parameter, text: str) -> str | int | bool:
    if len(text) > 2000:
        raise RefusedError(400, f"the parameter {parameter.name} is longer than 2000 characters")
    if "\x00" in text or not _is_unicode(text):
        raise RefusedError(400, f"the parameter {parameter.name} holds characters that no name has")
    if parameter.format == "boolean":
        if text.lower() not in _TRUTH:
            raise RefusedError(400, f"the parameter {parameter.name} is true or false, not {text!r:.40}")
        return _TRUTH[text.lower()]
    if parameter.format == "integer":
        if not _INTEGER.fullmatch(text) or not parameter.least <= int(text) <= parameter.most:
            problem = f"{text!r:.40} is not a number from {parameter.least} to {parameter.most}"
            raise RefusedError(400, f"the parameter {parameter.name}: {problem}")
        return int(text)
    return text


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def response(found: Problem, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(found), found.status, headers, CONTENT_TYPE)


T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


async def in_thread(work: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
    """Run it in a worker thread. A request that timed out does not wait for it."""
    return await to_thread.run_sync(work, *arguments, abandon_on_cancel=True)
