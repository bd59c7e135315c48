"""CustomResourceDefinitions of the kinds that Bursar reads, generated from their typed structs.

Group, version, plural and short names are those of the upstream projects, so that their users' manifests apply
unchanged. A CRD checks what Python refuses on a spec alone. The admission webhook checks the rest: labels and
annotations, other objects, cycles in a tree, amounts beyond 62 bits, arguments of the section ``crossquota``.

Schemas are structural: no references, no alternatives but number-or-text, no null. Strict structs are closed, lenient
ones preserve unknown fields. Lists and mappings of a spec are bounded, because the API server estimates the cost of CEL
rules from the bounds. A struct declares its CEL rules as ``rules: ClassVar[tuple[Rule, ...]]``, and the bounds,
patterns and descriptions of its fields in their annotations (``Meta``).

``Configuration`` is Bursar's own kind: one object, named ``default``, whose spec has a section for each policy. Its
struct is made from the sections that exist, so that an unknown section or key is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from bursar.objects.core import Manifest, Part
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import Kind, PrinterColumn

SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
RESOURCE_NAME = rf"({SUBDOMAIN}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"
"""Patterns, as in ``objects.names``, for the API server."""


class Rule(NamedTuple):
    """One rule of ``x-kubernetes-validations``; ``self`` is the struct that declares it."""

    rule: str
    message: str
    path: str = ""  # of the field that is to be blamed, such as .max


def amount(value: str) -> str:
    """CEL for the quantity that a value stands for, which may be a number or text."""
    return f"(type({value}) == int ? quantity('0').add(int({value})) : quantity({value}))"


def not_above(less: str, more: str) -> str:
    """CEL: neither of two quantities is missing its sense by the first being more than the second."""
    return f"{amount(less)}.compareTo({amount(more)}) <= 0"


MIN_WITHIN_MAX = Rule(
    "!has(self.min) || !has(self.max) || "
    f"self.max.all(name, !(name in self.min) || {not_above('self.min[name]', 'self.max[name]')})",
    "max must not be less than min in any resource that both list",
    ".max",
)


class StatusCondition(Part, frozen=True):
    """A condition in the form of Kubernetes."""

    type: Annotated[str, Meta(description="What the condition is about.")]
    status: Annotated[Literal["True", "False", "Unknown"], Meta(description="Whether it holds.")]
    reason: Annotated[str, Meta(description="Why, in one word for machines.")] = ""
    message: Annotated[str, Meta(description="Why, in a sentence.")] = ""
    last_transition_time: Annotated[
        str | None, Meta(description="Since when it is so.", extra_json_schema={"format": "date-time"})
    ] = None
    observed_generation: Annotated[int | None, Meta(description="The generation of the object that it is about.")] = (
        None
    )


Conditions = Annotated[
    tuple[StatusCondition, ...],
    Meta(
        description="How the object fares; one entry a type.",
        extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    ),
]


class WrittenStatus(Part, frozen=True):
    """What is written by Bursar, and never read from a manifest."""

    conditions: Conditions = ()
    observed_generation: Annotated[int | None, Meta(description="The generation that the status is about.")] = None


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
        return dict(_ANYTHING)  # the annotation lists what it may be
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


CATEGORY = "bursar"
AGE = PrinterColumn("Age", ".metadata.creationTimestamp")
# Kubernetes wants to know where names of its own domain were agreed upon.
_APPROVALS = {"scheduling.sigs.k8s.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/52"}
_STEP = re.compile(r"\.(?P<name>(?:[^.\[\\]|\\.)+)|\[(?P<index>[^\]]*)\]")
_ROOT = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}


def definitions(kinds: Iterable[Kind]) -> list[dict[str, Any]]:
    """The definition of every kind that is not Kubernetes' own, by name."""
    found = [definition(kind) for kind in kinds if kind.group and kind.qualified]
    return sorted(found, key=lambda crd: str(crd["metadata"]["name"]))


def definition(kind: Kind) -> dict[str, Any]:
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
    return schema_of(kind.status or WrittenStatus, bounded=False)


def _column(column: PrinterColumn, schema: Schema) -> dict[str, Any]:
    found: dict[str, Any] = {"name": column.title, "type": _column_type(column, schema), "jsonPath": column.path}
    return found | ({"priority": 1} if column.wide else {})


def _column_type(column: PrinterColumn, schema: Schema) -> str:
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


GROUP = "bursar.dev"
VERSION = "v1alpha1"
NAME = "default"


_ONLY = f"there is one Configuration, and its name is {NAME!r}"
RULES = (Rule(f"self.metadata.name == {NAME!r}", _ONLY),)

Section = type[msgspec.Struct] | type[dict[str, object]]


def configuration_kind(sections: Mapping[str, Section]) -> Kind:
    """The kind whose ``spec.<name>`` is read into the type of that name, None when it is not given."""
    spec = msgspec.defstruct(
        "ConfigurationSpec",
        [(name, section | None, None) for name, section in sorted(sections.items())],
        bases=(Part,),
        rename=None,
    )
    struct = msgspec.defstruct("Configuration", [("spec", spec, spec())], bases=(Manifest,), namespace={"rules": RULES})
    short_names = ("bursarconfig",)
    return Kind(
        GROUP, VERSION, "Configuration", "configurations", False, struct, True, short_names=short_names, check=_check
    )


def _check(configuration: Manifest) -> None:
    if configuration.metadata.name != NAME:
        raise ManifestError(_ONLY, "metadata.name")
