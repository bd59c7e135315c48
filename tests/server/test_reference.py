"""The written reference and the OpenAPI document follow the table of operations."""

from __future__ import annotations

from pathlib import Path

import msgspec

from bursar.server.openapi import document
from bursar.server.operations import API, OPERATIONS
from tests.reference import reference_page

ROOT = Path(__file__).resolve().parents[2]


def test_the_reference_is_up_to_date() -> None:
    advice = "run: make reference"
    assert (ROOT / "docs" / "api.md").read_text() == reference_page("api.md"), advice


def test_names_and_routes_of_operations_are_unique() -> None:
    assert len({operation.name for operation in OPERATIONS}) == len(OPERATIONS)
    assert len({(operation.method, operation.path) for operation in OPERATIONS}) == len(OPERATIONS)


def test_path_parameters_are_described() -> None:
    for operation in OPERATIONS:
        described = {parameter.name for parameter in operation.parameters if parameter.where == "path"}
        assert described == {part[1:-1] for part in operation.path.split("/") if part.startswith("{")}


def test_the_document_holds_every_operation_and_resolves_its_references() -> None:
    whole = document()
    for operation in OPERATIONS:
        assert whole["paths"][API + operation.path][operation.method.lower()]["operationId"] == operation.name
    text = msgspec.json.encode(whole).decode()
    for reference_ in {part.partition('"')[0] for part in text.split('"$ref":"')[1:]}:
        assert reference_.rpartition("/")[2] in whole["components"]["schemas"]
