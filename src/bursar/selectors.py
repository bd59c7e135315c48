"""Label requirements and what a claim needs of a node: pure matching over strings.

The same requirement serves label selectors, node affinity and quota profiles. Everything here is immutable and
has a plain form (``record``: lists, strings, numbers) from which ``from_record`` builds an equal object, so that
it can stand in a journal.

Kubernetes rules kept: requirements of one term are ANDed and terms are ORed; a term without requirements matches
nothing; ``NotIn`` and ``DoesNotExist`` match when the key is absent; ``Gt`` and ``Lt`` compare 64-bit integers only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast, final

_LONGEST_INTEGER: Final = 4000  # Python refuses to read more digits than that
OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


@final
class Requirement:
    """``key operator values`` over a set of labels."""

    __slots__ = ("key", "operator", "values")

    def __init__(self, key: str, operator: str, values: tuple[str, ...] = ()) -> None:
        if operator not in OPERATORS:
            raise ValueError(f"operator {operator!r} is none of {', '.join(OPERATORS)}")
        self.key: Final = key
        self.operator: Final = operator
        self.values: Final = values

    def __repr__(self) -> str:
        return self.show()

    def show(self) -> str:
        if self.operator in ("Exists", "DoesNotExist"):
            return f"{self.key} {self.operator}"
        return f"{self.key} {self.operator} [{', '.join(self.values)}]"

    def matches(self, labels: Mapping[str, str]) -> bool:
        found = labels.get(self.key)
        operator = self.operator
        if operator == "In":
            return found is not None and found in self.values
        if operator == "NotIn":
            return found is None or found not in self.values
        if operator == "Exists":
            return found is not None
        if operator == "DoesNotExist":
            return found is None
        return found is not None and self._compares(found)

    def _compares(self, found: str) -> bool:
        left = integer_of(found)
        right = integer_of(self.values[0]) if len(self.values) == 1 else None
        if left is None or right is None:
            return False
        return left > right if self.operator == "Gt" else left < right

    def record(self) -> list[object]:
        return [self.key, self.operator, list(self.values)]


def integer_of(text: str) -> int | None:
    """The 64-bit integer that a label value is; None if it is none."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _LONGEST_INTEGER:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def requirement_from_record(record: object) -> Requirement:
    key, operator, values = cast("list[object]", record)
    return Requirement(str(key), str(operator), tuple(str(v) for v in cast("list[object]", values)))


@final
class Selector:
    """A label selector: all requirements must match. Without requirements it matches everything."""

    __slots__ = ("requirements",)

    def __init__(self, requirements: tuple[Requirement, ...] = ()) -> None:
        self.requirements: Final = requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        for requirement in self.requirements:
            if not requirement.matches(labels):
                return False
        return True

    def show(self) -> str:
        return ", ".join([r.show() for r in self.requirements]) or "everything"


@final
class NodeTerm:
    """One term of a required node affinity: label requirements and field requirements (``metadata.name``)."""

    __slots__ = ("expressions", "fields")

    def __init__(self, expressions: tuple[Requirement, ...], fields: tuple[Requirement, ...] = ()) -> None:
        self.expressions: Final = expressions
        self.fields: Final = fields

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        if not self.expressions and not self.fields:
            return False
        for requirement in self.expressions:
            if not requirement.matches(labels):
                return False
        field = {"metadata.name": name}
        for requirement in self.fields:
            if not requirement.matches(field):
                return False
        return True

    def record(self) -> list[object]:
        return [[r.record() for r in self.expressions], [r.record() for r in self.fields]]


def term_from_record(record: object) -> NodeTerm:
    expressions, fields = cast("list[list[object]]", record)
    return NodeTerm(
        tuple(requirement_from_record(r) for r in expressions),
        tuple(requirement_from_record(r) for r in fields),
    )


@final
class Taint:
    """A mark on a node that keeps claims away unless they tolerate it."""

    __slots__ = ("effect", "key", "value")

    def __init__(self, key: str, value: str, effect: str) -> None:
        self.key: Final = key
        self.value: Final = value
        self.effect: Final = effect

    def show(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@final
class Toleration:
    """Lets a claim run on a tainted node. Empty key with Exists tolerates all; empty effect all effects."""

    __slots__ = ("effect", "key", "operator", "value")

    def __init__(self, key: str, operator: str, value: str, effect: str) -> None:
        self.key: Final = key
        self.operator: Final = operator or "Equal"
        self.value: Final = value
        self.effect: Final = effect

    def tolerates(self, taint: Taint) -> bool:
        if self.effect not in ("", taint.effect):
            return False
        if self.key == "":
            return self.operator == "Exists"
        if self.key != taint.key:
            return False
        return self.operator == "Exists" or (self.operator == "Equal" and self.value == taint.value)

    def record(self) -> list[object]:
        return [self.key, self.operator, self.value, self.effect]


@final
class NodeNeeds:
    """What a claim requires of its node, beyond room. ``terms`` None: no required affinity."""

    __slots__ = ("host_ports", "node_name", "selector", "terms", "tolerations")

    def __init__(
        self,
        selector: dict[str, str],
        terms: tuple[NodeTerm, ...] | None = None,
        tolerations: tuple[Toleration, ...] = (),
        host_ports: tuple[tuple[str, str, int], ...] = (),
        node_name: str = "",
    ) -> None:
        self.selector: Final = selector
        self.terms: Final = terms
        self.tolerations: Final = tolerations
        self.host_ports: Final = host_ports  # (protocol, host address, port)
        self.node_name: Final = node_name

    def selects(self, name: str, labels: Mapping[str, str]) -> bool:
        """nodeName, nodeSelector and required node affinity."""
        if self.node_name and self.node_name != name:
            return False
        for key, value in self.selector.items():
            if labels.get(key) != value:
                return False
        return self.terms is None or any_term(self.terms, name, labels)

    def untolerated(self, taints: tuple[Taint, ...]) -> Taint | None:
        """The first taint that keeps the claim away (PreferNoSchedule never does)."""
        for taint in taints:
            if taint.effect == "PreferNoSchedule":
                continue
            if not any_tolerates(self.tolerations, taint):
                return taint
        return None

    def record(self) -> list[object]:
        terms = None if self.terms is None else [t.record() for t in self.terms]
        tolerations = [t.record() for t in self.tolerations]
        return [self.selector, terms, tolerations, [list(p) for p in self.host_ports], self.node_name]


def any_term(terms: tuple[NodeTerm, ...], name: str, labels: Mapping[str, str]) -> bool:
    for term in terms:
        if term.matches(name, labels):
            return True
    return False


def any_tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    for toleration in tolerations:
        if toleration.tolerates(taint):
            return True
    return False


NO_NEEDS: Final = NodeNeeds({})


def needs_from_record(record: object) -> NodeNeeds:
    selector, terms, tolerations, ports, node_name = cast("list[object]", record)
    parsed = None if terms is None else tuple(term_from_record(t) for t in cast("list[object]", terms))
    return NodeNeeds(
        dict(cast("dict[str, str]", selector)),
        parsed,
        tuple(_toleration_from_record(t) for t in cast("list[object]", tolerations)),
        tuple(_port_from_record(p) for p in cast("list[object]", ports)),
        str(node_name),
    )


def _toleration_from_record(record: object) -> Toleration:
    key, operator, value, effect = cast("list[str]", record)
    return Toleration(key, operator, value, effect)


def _port_from_record(record: object) -> tuple[str, str, int]:
    protocol, address, port = cast("list[object]", record)
    return (str(protocol), str(address), cast("int", port))
