"""Label selectors and node selector terms of manifests, checked, as the core's own requirements."""

from __future__ import annotations

from bursar.objects.core import LabelSelector, NodeSelector, SelectorRequirement
from bursar.objects.errors import ManifestError
from bursar.objects.names import check_labels, is_qualified
from bursar.selectors import OPERATORS, NodeTerm, Requirement, Selector

LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_FIELD_OPERATORS = ("In", "NotIn")


def selector_from(selector: LabelSelector, path: str) -> Selector:
    """All requirements of a label selector; an empty one selects everything."""
    check_labels(selector.match_labels, f"{path}.matchLabels")
    wanted = [Requirement(key, "In", (value,)) for key, value in sorted(selector.match_labels.items())]
    for index, expression in enumerate(selector.match_expressions):
        wanted.append(_requirement(expression, f"{path}.matchExpressions[{index}]", LABEL_OPERATORS))
    return Selector(tuple(wanted))


def node_terms_from(selector: NodeSelector, path: str) -> tuple[NodeTerm, ...]:
    """The terms of a required node affinity, of which one must match."""
    if not selector.node_selector_terms:
        raise ManifestError("needs at least one term", f"{path}.nodeSelectorTerms")
    terms = []
    for index, term in enumerate(selector.node_selector_terms):
        where = f"{path}.nodeSelectorTerms[{index}]"
        expressions = [
            _requirement(expression, f"{where}.matchExpressions[{i}]", OPERATORS)
            for i, expression in enumerate(term.match_expressions)
        ]
        fields = [_field(field, f"{where}.matchFields[{i}]") for i, field in enumerate(term.match_fields)]
        terms.append(NodeTerm(tuple(expressions), tuple(fields)))
    return tuple(terms)


def _requirement(given: SelectorRequirement, path: str, operators: tuple[str, ...]) -> Requirement:
    if not is_qualified(given.key):
        raise ManifestError(f"{given.key!r:.80} is not a label key: name or prefix/name", f"{path}.key")
    if given.operator not in operators:
        raise ManifestError(f"{given.operator!r:.40} is none of {', '.join(operators)}", f"{path}.operator")
    _check_values(given, f"{path}.values")
    return Requirement(given.key, given.operator, given.values)


def _check_values(given: SelectorRequirement, path: str) -> None:
    operator, values = given.operator, given.values
    if operator in {"In", "NotIn"} and not values:
        raise ManifestError(f"{operator} needs at least one value", path)
    if operator in {"Exists", "DoesNotExist"} and values:
        raise ManifestError(f"{operator} takes no values", path)
    if operator in {"Gt", "Lt"} and (len(values) != 1 or not _is_integer(values[0])):
        raise ManifestError(f"{operator} needs exactly one value, a whole number", path)


def _is_integer(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) <= 19


def _field(given: SelectorRequirement, path: str) -> Requirement:
    if given.key != "metadata.name":
        raise ManifestError(f"{given.key!r:.80} is not a field to select nodes by: only metadata.name", f"{path}.key")
    if given.operator not in _FIELD_OPERATORS:
        raise ManifestError(f"{given.operator!r:.40} is none of {', '.join(_FIELD_OPERATORS)}", f"{path}.operator")
    if len(given.values) != 1:
        raise ManifestError("needs exactly one value", f"{path}.values")
    return Requirement(given.key, given.operator, given.values)
