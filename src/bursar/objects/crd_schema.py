"""The structural schema of a typed struct: what the API server is told of a kind.

Structural means: no references, no alternatives but number-or-text, no null (a field that may be None may be absent).
Strict structs are closed, lenient ones keep fields that are not listed. What a CEL rule walks over must be bounded, or
the API server estimates that the rule costs too much: lists and mappings of a spec are bounded unless they say so
themselves.
"""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from bursar.objects.crd_rules import RESOURCE_NAME

Schema = dict[str, Any]

QUANTITY = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)(([KMGTPE]i)|[numkMGTPE]|([eE][+-]?[0-9]+))?$"
LONGEST_QUANTITY = 128
MOST_ITEMS = 1024
MOST_PROPERTIES = 64

_SCALARS: dict[type, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number"},
}
_ANYTHING: Schema = {"x-kubernetes-preserve-unknown-fields": True}
_INT32 = (-(2**31), 2**31 - 1)


def schema_of(annotation: object, bounded: bool = True) -> Schema:
    """The schema of a type; ``bounded``: lists and mappings without a bound of their own get one."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        found = schema_of(arguments[0], bounded)
        for meta in arguments[1:]:
            found |= _constraints(meta, found)
        return found
    if origin in {Union, UnionType}:
        return _union([choice for choice in arguments if choice is not NoneType], bounded)
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin in {tuple, list}:
        most = {"maxItems": MOST_ITEMS} if bounded else {}
        return {"type": "array", "items": schema_of(arguments[0], bounded), "x-kubernetes-list-type": "atomic"} | most
    if origin is dict:
        return _mapping(arguments[1], bounded)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return _struct(annotation, bounded)
    if annotation is object:
        return dict(_ANYTHING)
    if isinstance(annotation, type) and annotation in _SCALARS:
        return dict(_SCALARS[annotation])
    raise TypeError(f"there is no structural schema for {annotation!r}")


def _union(choices: list[Any], bounded: bool) -> Schema:
    if len(choices) == 1:
        return schema_of(choices[0], bounded)
    if set(choices) in ({str, int, float}, {str, int}):
        return {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "pattern": QUANTITY,
            "maxLength": LONGEST_QUANTITY,
            "minimum": 0,
        }
    if set(choices) == {bool, str}:
        return dict(_ANYTHING)  # whoever declares it lists what it may be
    raise TypeError(f"there is no structural schema for one of {choices!r}")


def _mapping(values: object, bounded: bool) -> Schema:
    if values is object:
        return {"type": "object"} | _ANYTHING
    found: Schema = {"type": "object", "additionalProperties": schema_of(values, bounded)}
    if not bounded:
        return found
    found["maxProperties"] = MOST_PROPERTIES
    if "x-kubernetes-int-or-string" in found["additionalProperties"]:
        rule = f"self.all(name, name.matches(r'^{RESOURCE_NAME}$'))"
        found["x-kubernetes-validations"] = [{"rule": rule, "message": "a key is not the name of a resource"}]
    return found


def _struct(struct: type[msgspec.Struct], bounded: bool) -> Schema:
    fields = msgspec.structs.fields(struct)
    found: Schema = {
        "type": "object",
        "properties": {field.encode_name: schema_of(field.type, bounded) for field in fields},
    }
    required = [field.encode_name for field in fields if field.required]
    if required:
        found["required"] = required
    if not struct.__struct_config__.forbid_unknown_fields:
        found |= _ANYTHING
    rules = rules_of(struct)
    if rules:
        found["x-kubernetes-validations"] = rules
    return found


def rules_of(struct: type[msgspec.Struct]) -> list[Schema]:
    """The CEL rules that a struct declares itself."""
    declared = getattr(struct, "rules", ())
    return [
        {"rule": rule.rule, "message": rule.message} | ({"fieldPath": rule.path} if rule.path else {})
        for rule in declared
    ]


def _constraints(meta: object, schema: Schema) -> Schema:
    if not isinstance(meta, Meta):
        return {}
    found: Schema = {}
    if meta.description is not None:
        found["description"] = meta.description
    if (meta.ge, meta.le) == _INT32:
        found["format"] = "int32"
    for key, value in (("minimum", meta.ge), ("maximum", meta.le), ("pattern", meta.pattern)):
        if value is not None:
            found[key] = value
    size = {"string": "Length", "array": "Items", "object": "Properties"}.get(schema.get("type", ""), "")
    for key, value in ((f"min{size}", meta.min_length), (f"max{size}", meta.max_length)):
        if value is not None:
            found[key] = value
    return found | (meta.extra_json_schema or {})
