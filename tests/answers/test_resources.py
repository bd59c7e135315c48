"""Paths of the answers API: what is served where, and that discovery, OpenAPI and the client agree about it."""

from __future__ import annotations

import pytest

from bursar.answers import discovery
from bursar.answers.resources import RESOURCES, ROOT, NoSuchPathError, path_of, read_path


@pytest.mark.parametrize(
    ("method", "path", "operation", "values"),
    [
        ("GET", "namespaces/a/explanations/p", "explain", {"namespace": "a", "name": "p"}),
        ("GET", "namespaces/a/claims", "claims", {"namespace": "a"}),
        ("GET", "claims", "claims", {}),
        ("GET", "queue", "queue", {}),
        ("GET", "nodes", "nodes", {}),
        ("POST", "namespaces/a/whatifs", "what_if", {}),
        ("POST", "plans", "plan", {}),
    ],
)
def test_paths_stand_for_operations(method: str, path: str, operation: str, values: dict[str, str]) -> None:
    found = read_path(method, f"{ROOT}/{path}")
    assert (found.asked().name, found.values()) == (operation, values)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "pods", 404),
        ("GET", "namespaces/a/nodes", 404),
        ("GET", "explanations/p", 404),
        ("GET", "namespaces/a/explanations", 405),
        ("POST", "namespaces/a/claims", 405),
        ("POST", "namespaces/a/whatifs/x", 405),
        ("DELETE", "namespaces/a/claims/p", 405),
        ("GET", "namespaces/a/claims/p/log", 404),
    ],
)
def test_nothing_else_is_served(method: str, path: str, status: int) -> None:
    with pytest.raises(NoSuchPathError) as caught:
        read_path(method, f"{ROOT}/{path}")
    assert caught.value.status == status


def test_the_client_asks_where_the_server_answers() -> None:
    for resource in RESOURCES:
        for verb in resource.verbs:
            operation = resource.operation(verb)
            values = {"namespace": "a b"} if resource.namespaced else {}
            path, left = path_of(operation.name, values | ({"name": "p/q"} if verb == "get" else {}))
            found = read_path("POST" if verb == "create" else "GET", path)
            assert (found.asked(), left) == (operation, {})
            assert found.namespace == values.get("namespace", "")


def test_discovery_names_every_resource_and_openapi_every_path() -> None:
    served = discovery.found_at(ROOT)
    assert served is not None
    assert [one["name"] for one in served["resources"]] == [resource.name for resource in RESOURCES]
    assert not {"delete", "watch", "deletecollection"} & {verb for one in served["resources"] for verb in one["verbs"]}
    index = discovery.found_at("/openapi/v3")
    assert index is not None
    (address,) = (one["serverRelativeURL"] for one in index["paths"].values())
    document = discovery.found_at(address.partition("?")[0])
    assert document is not None
    for path, methods in document["paths"].items():
        for method in methods:
            read_path(method.upper(), path.replace("{namespace}", "a").replace("{name}", "p"))
    assert f"{ROOT}/namespaces/{{namespace}}/explanations/{{name}}" in document["paths"]
