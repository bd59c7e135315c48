"""Requests, checked against the table of operations: bodies are bounded, and parameters are known.

An unknown parameter is an error: a misspelt filter would otherwise select everything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request

from bursar.objects.decode import ManifestError
from bursar.objects.manifests import Document, load_text
from bursar.selectors import Requirement, Selector
from bursar.server.operations import PAGE, Operation, Parameter
from bursar.server.problems import RefusedError

LARGEST_BODY = 8 * 1024 * 1024
_YAML = ("application/yaml", "application/x-yaml", "text/yaml")
_JSON = ("application/json",)
_TRUTH = {"true": True, "1": True, "false": False, "0": False, "": True}
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_TERM = re.compile(r"\s*(?P<not>!?)\s*(?P<key>[^=!,\s]+)\s*(?:(?P<op>==?|!=)\s*(?P<value>[^=!,\s]*))?\s*")


@dataclass(frozen=True, slots=True)
class RequestQuery:
    """One request: its parameters by name, and its body."""

    operation: Operation[Any]
    values: dict[str, Any]
    body: bytes
    content_type: str

    def text(self, name: str) -> str:
        return str(self.values.get(name, ""))

    def number(self, name: str, default: int = 0) -> int:
        return int(self.values.get(name, default))

    def truth(self, name: str) -> bool:
        return bool(self.values.get(name, False))

    @property
    def limit(self) -> int:
        return self.number("limit", PAGE)

    def documents(self) -> list[Document]:
        """The manifests of the body; what a journal could not hold is refused."""
        source = self.text("source")
        if self.content_type in _JSON:
            source = source if source.endswith(".json") else f"{source or 'request'}.json"
        try:
            text = self.body.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise RefusedError(400, f"the body is not UTF-8 text: {error}") from None
        try:
            found = load_text(text, source)
        except RecursionError:
            raise RefusedError(400, "the body is nested too deeply") from None
        if not found:
            raise RefusedError(400, "the body holds no object")
        for document in found:
            _check_plain(document)
        return found

    def names(self) -> list[str]:
        """The objects or pods that the body names."""
        wanted = self.operation.accepts
        try:
            found = msgspec.json.decode(self.body, type=dict[str, list[str]])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RefusedError(400, f"the body is not understood: {error}") from None
        if list(found) != [wanted]:
            raise RefusedError(400, f"the body is not understood: expected only the field {wanted}")
        if not found[wanted]:
            raise RefusedError(400, f"{wanted} is empty")
        return found[wanted]


def _check_plain(document: Document) -> None:
    try:
        msgspec.json.encode(document.body)
    except (UnicodeEncodeError, OverflowError, msgspec.EncodeError, TypeError, ValueError, RecursionError) as error:
        raise document.error(ManifestError(f"cannot be stored: {error}")) from None


async def read_request(request: Request, operation: Operation[Any], largest: int) -> RequestQuery:
    """The request, or ``RefusedError``."""
    values = _parameters(request, operation)
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if operation.method == "POST" and operation.accepts:
        allowed = (*_YAML, *_JSON) if operation.accepts == "manifests" else _JSON
        if content_type not in allowed:
            raise RefusedError(415, f"the content type {content_type!r:.60} is not one of {', '.join(allowed)}")
    return RequestQuery(operation, values, await _body(request, largest), content_type)


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


def label_filter(text: str) -> Callable[[Mapping[str, str]], bool]:
    """Whether labels match ``a=b,c!=d,e,!f``."""
    return Selector(tuple(_requirement(part) for part in text.split(",") if text)).matches


def _requirement(part: str) -> Requirement:
    found = _TERM.fullmatch(part)
    if found is None or (found["not"] and found["op"]):
        raise RefusedError(400, f"the label filter {part!r:.60} has none of the forms a=b, a!=b, a, !a")
    if found["op"]:
        return Requirement(found["key"], "NotIn" if found["op"] == "!=" else "In", (found["value"],))
    return Requirement(found["key"], "DoesNotExist" if found["not"] else "Exists")
