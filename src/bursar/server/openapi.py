"""The OpenAPI document and the API reference (docs/api.md), made from the operations and the response types."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from bursar._version import __version__
from bursar.server import types
from bursar.server.operations import ADMIN, API, OPERATIONS, Operation, Parameter
from bursar.server.types import Problem

_REF = "#/components/schemas/{name}"
_PROBLEM = "application/problem+json"
_ALWAYS = {400: "not understood", 401: "no token", 403: "the token may not do this", 413: "too large",
           422: "understood and refused", 503: "takes no changes any more, or was too slow"}  # fmt: skip
_SOME = {404: "no such thing", 409: "another version, or a state that does not allow it", 410: "no longer kept"}

EXAMPLES = {"objects": '{"objects": ["Pod/team-a/train-1"]}', "pods": '{"pods": ["team-a/train-1"]}'}
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
    """The whole document."""
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
    if operation.role == ADMIN:
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
        schema = {"type": "string"} if operation.streams else _MANIFEST
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


_HEAD = f"""# HTTP API

Generated by `make reference`; do not edit. The same, for machines: `GET /openapi.json`.

Paths begin with `{API}`. Answers are JSON. Amounts are canonical quantities as text (`40Gi`, `500m`), times are RFC
3339 in UTC. Bodies called *manifests* are YAML or JSON with any number of documents, as for kubectl; lists are
taken apart.

**Moments.** Every answer about state carries a `moment`: `seq`, the last journal record in it, `digest`, the
fingerprint of the ledger after that record, `resourceVersion`, the last write to an object, and `time`. What an
answer shows is durable: it survives a crash of the server. Most reads take `at`: a time (`2026-11-01T10:03:00Z`), a
time span ago (`-5m`) or the number of a journal record.

**Pages.** Lists take `limit` and answer with `continue` if there is more; asking with `continue=` gives the next
page of the same moment, whatever changed meanwhile. A page whose moment is no longer kept is answered with 410.

**Errors** are `application/problem+json` (RFC 9457): `title`, `status`, `detail` (one line for people), and where
they apply `source`, `document`, `line`, `object` and `field`. A refused request changes nothing; the problem
carries the `seq` and `digest` of the state it left as it was. 400: not understood. 401, 403: no token, or one that
may not do this. 404: no such thing. 405: no such method. 409: the object has another version, or its state does not
allow it. 410: no longer kept. 413: larger than the server takes. 422: understood and refused. 503: the server takes
no changes any more, or was too slow; nothing is known about the outcome of a change that was answered so, repeat it
with its `Idempotency-Key`.

**Access.** On the loopback interface no token is needed unless a token file was given. With one, requests carry
`Authorization: Bearer TOKEN`; a token has the role `read` or `admin`, and changes need `admin`. `/healthz` and
`/readyz` are open to all; `/metrics` and `/openapi.json` need the role `read`.
"""


def reference() -> str:
    """The whole page."""
    parts = [_HEAD, "## Operations\n", *_overview(), ""]
    for operation in OPERATIONS:
        parts.extend(_operation_section(operation))
    parts.append("## Types\n")
    for name, schema in components().items():
        parts.extend(_type(name, schema))
    return "\n".join(parts).rstrip() + "\n"


def _overview() -> Iterator[str]:
    yield "| | path | answers | role |"
    yield "|---|---|---|---|"
    for operation in OPERATIONS:
        role = "admin" if operation.role == ADMIN else "read"
        yield f"| {operation.method} | `{operation.path or '/'}` | {_answer(operation)} | {role} |"


def _answer(operation: Operation[Any]) -> str:
    if operation.answer is None:
        return "a stream" if operation.streams else "a manifest"
    return _link(operation.answer.__name__)


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _operation_section(operation: Operation[Any]) -> Iterator[str]:
    yield f"### {operation.method} {operation.path or '/'}\n"
    yield f"{operation.about}\n"
    if operation.accepts == "manifests":
        yield "Body: manifests.\n"
    elif operation.accepts:
        yield f"Body: `{EXAMPLES[operation.accepts]}`\n"
    for parameter in operation.parameters:
        where = "" if parameter.where == "query" else f" ({parameter.where})"
        yield f"- `{parameter.name}`{where}: {parameter.about}"
    if operation.parameters:
        yield ""
    yield f"Answers {_answer(operation)}.\n"


def _type(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}\n"
    about = schema.get("description", "")
    if about and about != types.Answer.__doc__:
        yield " ".join(about.split()) + "\n"
    for field, inner in schema["properties"].items():
        yield f"- `{field}`: {_shape(inner)}"
    yield ""


def _shape(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return _link(schema["$ref"].rpartition("/")[2])
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_shape(schema.get('items', {}))}"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return f"map to {_shape(inner)}" if isinstance(inner, dict) and inner else "object"
    return str(kind) if kind else "anything"
