"""Discovery, OpenAPI v3 and the APIService of the answers API, made from the table of resources."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from bursar._version import __version__
from bursar.answers.resources import API_VERSION, GROUP, RESOURCES, ROOT, VERSION, AnswerResource
from bursar.kube.admission.predicate import ANSWERS_API, ANSWERS_SERVICE
from bursar.server.openapi import components
from bursar.server.operations import Parameter

Body = dict[str, Any]
OPENAPI = "/openapi/v3"
_DOCUMENT = f"{OPENAPI}/apis/{GROUP}/{VERSION}"
_MOMENTS = ("at",)  # parameters that this API does not take


def api_service(namespace: str) -> Body:
    """What registers the API with the cluster. The controller's leader patches the authority in."""
    service = {"name": ANSWERS_SERVICE, "namespace": namespace, "port": 443}
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": ANSWERS_API, "labels": {"app.kubernetes.io/name": "bursar"}},
        "spec": {
            "group": GROUP,
            "version": VERSION,
            "service": service,
            "groupPriorityMinimum": 100,
            "versionPriority": 10,
        },
    }


def found_at(path: str) -> Body | None:
    """What is served at a path of discovery; None if the path is none."""
    makers: dict[str, Callable[[], Body]] = {
        "/apis": _groups,
        f"/apis/{GROUP}": _group,
        ROOT: _resources,
        OPENAPI: _openapi_paths,
        _DOCUMENT: _openapi,
    }
    make = makers.get(path.rstrip("/"))
    return None if make is None else make()


def _group() -> Body:
    version = {"groupVersion": API_VERSION, "version": VERSION}
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": GROUP,
        "versions": [version],
        "preferredVersion": version,
    }


def _groups() -> Body:
    group = {name: value for name, value in _group().items() if name not in {"kind", "apiVersion"}}
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]}


def _resources() -> Body:
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": API_VERSION,
        "resources": [
            {
                "name": resource.name,
                "singularName": resource.kind.lower(),
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": list(resource.verbs),
            }
            for resource in RESOURCES
        ],
    }


def _openapi_paths() -> Body:
    return {"paths": {f"apis/{GROUP}/{VERSION}": {"serverRelativeURL": f"{_DOCUMENT}?version={__version__}"}}}


@cache
def _openapi() -> Body:
    paths: dict[str, Body] = {}
    for resource in RESOURCES:
        for verb in resource.verbs:
            for path in _paths(resource, verb):
                method = "post" if verb == "create" else "get"
                paths.setdefault(path, {})[method] = _operation(resource, verb, path)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Bursar answers", "version": VERSION},
        "paths": paths,
        "components": {"schemas": components()},
    }


def _paths(resource: AnswerResource, verb: str) -> list[str]:
    name = "/{name}" if verb == "get" else ""
    within = [f"{ROOT}/namespaces/{{namespace}}/{resource.name}{name}"] if resource.namespaced else []
    return within if name else [*within, f"{ROOT}/{resource.name}"]


def _operation(resource: AnswerResource, verb: str, path: str) -> Body:
    operation = resource.operation(verb)
    scope = "Namespaced" if "{namespace}" in path else ""
    content = {"application/json": {"schema": _schema(resource, verb)}}
    described: Body = {
        "operationId": f"{verb}{scope}{resource.kind}",
        "description": f"{resource.about} {operation.about}",
        "parameters": [*_path_parameters(path), *_query_parameters(operation.parameters, path)],
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-group-version-kind": {"group": GROUP, "version": VERSION, "kind": resource.kind},
    }
    if operation.accepts:
        types = ("application/yaml", "application/json")
        described["requestBody"] = {"content": {name: {"schema": {"type": "object"}} for name in types}}
    return described


def _schema(resource: AnswerResource, verb: str) -> Body:
    made = resource.operation(verb).answer
    return {"$ref": f"#/components/schemas/{made.__name__}"} if made is not None else {"type": "object"}


def _path_parameters(path: str) -> list[Body]:
    names = [name for name in ("namespace", "name") if f"{{{name}}}" in path]
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(parameters: tuple[Parameter, ...], path: str) -> list[Body]:
    found = []
    for one in parameters:
        if one.where != "header" and one.name not in _MOMENTS and f"{{{one.name}}}" not in path:
            schema: Body = {"type": one.format}
            schema = {"type": "array", "items": schema} if one.repeated else schema
            query = {"name": one.name, "in": "query", "description": one.about, "schema": schema}
            found.append(query | ({"required": True} if one.where == "path" and one.name != "namespace" else {}))
    return found
