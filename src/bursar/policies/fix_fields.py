"""Fields of manifests that suggested fixes may edit: those that hold limits, and those that hold what a pod requests.

A refusal names an account. The policy finds the manifests behind it, and the fields that were too small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bursar.ledger.claims import Claim
from bursar.policies.results import Refusal
from bursar.quantity import QuantityError
from bursar.resources import dimension

Path = tuple[str | int, ...]


def look_up(body: object, path: Path) -> Any:  # noqa: ANN401 any part of a manifest
    """Returns the value at a path, or None if there is none."""
    found = body
    for step in path:
        if isinstance(step, str) and isinstance(found, Mapping):
            found = found.get(step)
        elif isinstance(step, int) and isinstance(found, list) and step < len(found):
            found = found[step]
        else:
            return None
    return found


@dataclass
class LimitField:
    """A field of a manifest that holds a limit, and its amount now."""

    kind: str
    key: str
    path: Path
    resource: str
    amount: int
    whole: bool = False  # a plain number, not a quantity
    ceiling: Path = ()  # another field of the object that has to be at least as large, if it is there
    shared: bool = False  # the refused limit is a sum to which this field adds

    def value(self, amount: int) -> object:
        return amount if self.whole else dimension(self.resource).show(amount)


def limit_fields(
    kind: str,
    body: Mapping[str, Any] | None,
    path: Path,
    resource: str,
    *,
    whole: bool = False,
    ceiling: Path = (),
    shared: bool = False,
) -> list[LimitField]:
    """The field at a path of a manifest. A resource that is not listed there has no limit, except in ``min``."""
    value = look_up(body, path)
    if body is None or (value is None and path[1] != "min"):
        return []
    try:
        amount = 0 if value is None else int(value) if whole else dimension(resource).parse(value)
    except QuantityError:
        return []
    namespace, name = look_up(body, ("metadata", "namespace")), look_up(body, ("metadata", "name"))
    key = f"{namespace}/{name}" if namespace else name
    return [LimitField(kind, key, path, resource, amount, whole, ceiling, shared)]


def no_limit_fields(_view: object, _claim: Claim, _refusal: Refusal) -> list[LimitField]:
    """For policies over nodes and GPUs: no manifest of a quota holds their limits."""
    return []


@dataclass(frozen=True)
class LabelChoice:
    """A label in place of one that names nothing."""

    given: str
    name: str
    value: str


@dataclass
class FixFields:
    """What suggested fixes may change for a policy."""

    limits: Callable[[Any, Claim, Refusal], Iterable[LimitField]] | None = None
    """(``ObjectView``, claim, refusal) -> the fields that hold the limit. None: the account itself is raised."""

    requests: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By resource: the annotations of a pod that hold how much it requests."""

    preemptible: str = ""  # a label that, as "false", forbids to preempt the pod

    labels: Callable[[Any, Claim, Refusal], Iterable[LabelChoice]] | None = None
    """(``ObjectView``, claim, refusal) -> labels that the pod may have meant, the most likely first."""
