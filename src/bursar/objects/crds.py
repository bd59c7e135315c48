"""CustomResourceDefinitions of the kinds that Bursar reads, generated from their typed structs.

Group, version, plural and short names are those of the originals, so that their users' manifests apply unchanged. A
definition says what Python refuses on an object's spec alone. Left to the admission webhook is what CEL cannot see or
say: labels and annotations, other objects, cycles in a tree, amounts beyond 62 bits, arguments of the section
``crossquota``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from bursar.objects.crd_rules import Status
from bursar.objects.crd_schema import Schema, rules_of, schema_of
from bursar.objects.kinds import Column, Kind

CATEGORY = "bursar"
AGE = Column("Age", ".metadata.creationTimestamp")
# Kubernetes wants to know where names of its own domain were agreed upon.
_APPROVALS = {"scheduling.sigs.k8s.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/52"}
_STEP = re.compile(r"\.(?P<name>(?:[^.\[\\]|\\.)+)|\[(?P<index>[^\]]*)\]")
_ROOT = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}


def definitions(kinds: Iterable[Kind]) -> list[dict[str, Any]]:
    """The definition of every kind that is not Kubernetes' own, by name."""
    found = [definition(kind) for kind in kinds if kind.group and kind.qualified]
    return sorted(found, key=lambda crd: str(crd["metadata"]["name"]))


def definition(kind: Kind) -> dict[str, Any]:
    """One CustomResourceDefinition."""
    schema = root_schema(kind)
    metadata: dict[str, Any] = {"name": f"{kind.plural}.{kind.group}"}
    if kind.group in _APPROVALS:
        metadata["annotations"] = {"api-approved.kubernetes.io": _APPROVALS[kind.group]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": kind.group,
            "names": _names(kind),
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "preserveUnknownFields": False,
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(column, schema) for column in (*kind.columns, AGE)],
                }
            ],
        },
    }


def _names(kind: Kind) -> dict[str, Any]:
    names: dict[str, Any] = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
    }
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    return names | {"categories": [CATEGORY]}


def root_schema(kind: Kind) -> Schema:
    """The schema of a whole object: spec and status from the structs, the rest is Kubernetes' own."""
    properties = {name: dict(schema) for name, schema in _ROOT.items()}
    required: list[str] = []
    for field in msgspec.structs.fields(kind.struct):
        if field.encode_name not in properties and field.encode_name != "status":
            properties[field.encode_name] = schema_of(field.type)
            if field.required:
                required.append(field.encode_name)
    properties["status"] = status_schema(kind)
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    rules = rules_of(kind.struct)
    if rules:
        schema["x-kubernetes-validations"] = rules
    return schema


def status_schema(kind: Kind) -> Schema:
    """What may be written to the status; of kinds that are not strict others write there too."""
    if not kind.has_status:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return schema_of(kind.status or Status, bounded=False)


def _column(column: Column, schema: Schema) -> dict[str, Any]:
    found: dict[str, Any] = {"name": column.title, "type": _column_type(column, schema), "jsonPath": column.path}
    return found | ({"priority": 1} if column.wide else {})


def _column_type(column: Column, schema: Schema) -> str:
    """From the schema, which also shows that there is such a field."""
    if column.path == AGE.path:
        return "date"
    if column.path.startswith(".metadata"):
        return "string"
    for step in _STEP.finditer(column.path):
        name = step["name"]
        inner = schema.get("items") if name is None else schema.get("properties", {}).get(name.replace("\\", ""))
        schema = inner or schema.get("additionalProperties") or {}
        if not schema:
            raise ValueError(f"the column {column.title} prints {column.path}, which has no {step.group()}")
    found = str(schema.get("type", "string"))
    return found if found in {"integer", "number", "boolean"} else "string"
