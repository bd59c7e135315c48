"""What a typed struct says to the API server beyond its fields: CEL rules, and the parts that all statuses share.

A struct declares its rules as ``rules: ClassVar[tuple[Rule, ...]]``; the schema of every kind that contains it carries
them. Bounds, patterns and descriptions of single fields stand in their annotation (``Meta``), where
``extra_json_schema`` is for what only the API server checks, because Python checks it with a better sentence.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from bursar.objects.core import Part

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


class Status(Part, frozen=True):
    """What is written by Bursar, and never read from a manifest."""

    conditions: Conditions = ()
    observed_generation: Annotated[int | None, Meta(description="The generation that the status is about.")] = None
