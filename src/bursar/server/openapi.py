"""The OpenAPI document, made from the table of operations and the response types."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from bursar._version import __version__
from bursar.server.operations import API, OPERATIONS, READ, Operation, Parameter
from bursar.server.types import Problem

_REF = "#/components/schemas/{name}"
_PROBLEM = "application/problem+json"
_ALWAYS = {
    400: "not understood",
    401: "no token",
    403: "the token may not do this",
    408: "the body came too slowly",
    413: "too large",
    422: "understood and refused",
    429: "too many questions wait that need a copy of the cluster",
    503: "takes no changes any more, or was too slow",
}
_FILE = {"type": "string", "format": "binary"}
_SOME = {404: "no such thing", 409: "another version, or a state that does not allow it", 410: "no longer kept"}

_MANIFEST: dict[str, Any] = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata"],
    "properties": {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
        "spec": {"type": "object"},
    },
}


@cache
def components() -> dict[str, dict[str, Any]]:
    """The schemas of all answers, by name."""
    types = [operation.answer for operation in OPERATIONS if operation.answer is not None]
    _, found = msgspec.json.schema_components([*dict.fromkeys(types), Problem], ref_template=_REF)
    return {name: found[name] for name in sorted(found)}


def document() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        described = _operation(operation)
        paths.setdefault(f"{API}{operation.path}", {})[operation.method.lower()] = described
    for path, about in (("/healthz", "Whether the process lives."), ("/readyz", "Whether it takes changes.")):
        paths[path] = {"get": _plain(path.strip("/"), about, "text/plain", [200, 503])}
    paths["/metrics"] = {"get": _plain("metrics", "Metrics for Prometheus.", "text/plain", [200, 401, 403])}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Bursar", "version": __version__, "description": "Quotas for shared GPU clusters."},
        "paths": paths,
        "components": {
            "schemas": components(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _plain(name: str, about: str, content_type: str, statuses: list[int]) -> dict[str, Any]:
    good = {"description": about, "content": {content_type: {"schema": {"type": "string"}}}}
    responses = {str(status): good if status in {200, 503} else _refused("") for status in statuses}
    return {"operationId": name, "summary": about, "responses": responses}


def _operation(operation: Operation[Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.about.partition(". ")[0].rstrip(".") + ".",
        "description": operation.about,
        "parameters": [_parameter(parameter) for parameter in operation.parameters],
        "responses": _responses(operation),
    }
    if operation.accepts:
        described["requestBody"] = {"required": True, "content": _body(operation.accepts)}
    if operation.role != READ:
        described["security"] = [{"token": []}, {}]
    return described


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.format}
    if parameter.format == "integer":
        schema["minimum"] = parameter.least
        schema["maximum"] = parameter.most
    if parameter.where == "path":
        schema |= {"minLength": 1} if parameter.format == "string" else {}
    if parameter.repeated:
        schema = {"type": "array", "items": schema}
    return {
        "name": parameter.name,
        "in": parameter.where,
        "required": parameter.required or parameter.where == "path",
        "description": parameter.about,
        "schema": schema,
    }


def _responses(operation: Operation[Any]) -> dict[str, Any]:
    if operation.answer is not None:
        schema: dict[str, Any] = {"$ref": _REF.format(name=operation.answer.__name__)}
    else:
        schema = {"type": "string"} if operation.streams else _FILE if operation.is_file else _MANIFEST
    done = {"description": "done", "content": {operation.produces: {"schema": schema}}}
    refused = {str(status): _refused(about) for status, about in _ALWAYS.items()}
    refused |= {str(status): _refused(_SOME[status]) for status in operation.problems}
    return {"200": done, **refused}


def _refused(about: str) -> dict[str, Any]:
    schema = {"$ref": _REF.format(name="Problem")}
    return {"description": about or "refused", "content": {_PROBLEM: {"schema": schema}}}


def _body(accepts: str) -> dict[str, Any]:
    if accepts == "manifests":
        several = {"type": "object", "required": ["kind", "items"], "properties": {
            "kind": {"const": "List"}, "items": {"type": "array", "items": _MANIFEST}}}  # fmt: skip
        return {
            "application/json": {"schema": {"anyOf": [_MANIFEST, several]}},
            "application/yaml": {"schema": {"type": "string"}},
        }
    schema = {
        "type": "object",
        "required": [accepts],
        "additionalProperties": False,
        "properties": {accepts: {"type": "array", "minItems": 1, "items": {"type": "string"}}},
    }
    return {"application/json": {"schema": schema}}
