"""How values are written: names and labels, selectors, durations (``1h30m``, ``250ms``), times and lists of names.

Durations and times are exact milliseconds inside Bursar. Nothing here reads a clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from bursar.objects.core import LabelSelector, NodeSelector, SelectorRequirement
from bursar.objects.decode import ManifestError, check_choice, join
from bursar.selectors import OPERATORS, NodeTerm, Requirement, Selector

_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*")
_NAMESPACE = re.compile(_DNS_LABEL)
_NAME_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def check_name(name: str, path: str) -> None:
    if len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
        raise ManifestError(
            f"{name!r:.60} is not a name: up to 253 of a-z, 0-9, '-' and '.', with a letter or digit at both ends", path
        )


def check_namespace(name: str, path: str) -> None:
    if len(name) > 63 or not _NAMESPACE.fullmatch(name):
        raise ManifestError(
            f"{name!r:.60} is not a namespace: up to 63 of a-z, 0-9 and '-', with a letter or digit at both ends", path
        )


@lru_cache(maxsize=8192)
def is_qualified(name: str) -> bool:
    """``name`` or ``prefix/name``: the keys of labels and annotations, and resources."""
    prefix, slash, last = name.rpartition("/")
    if slash and (len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(last) <= 63 and _NAME_PART.fullmatch(last) is not None


def check_labels(labels: Mapping[str, str], path: str) -> None:
    check_keys(labels, path)
    for key, value in labels.items():
        if value and (len(value) > 63 or not _NAME_PART.fullmatch(value)):
            raise ManifestError(
                f"{value!r:.80} is not a label value: up to 63 letters, digits, '-', '_' and '.', "
                "with a letter or digit at both ends",
                join(path, key),
            )


def check_keys(marks: Mapping[str, str], path: str) -> None:
    """The keys of labels or annotations."""
    for key in marks:
        if not is_qualified(key):
            raise ManifestError("is not a key of the form name or prefix/name", join(path, key))


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
    check_choice(given.operator, operators, f"{path}.operator")
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
    check_choice(given.operator, _FIELD_OPERATORS, f"{path}.operator")
    if len(given.values) != 1:
        raise ManifestError("needs exactly one value", f"{path}.values")
    return Requirement(given.key, given.operator, given.values)


_UNITS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,12})?"
_DURATION = re.compile("".join(rf"(?:(?P<{unit}>{_NUMBER}){unit})?" for unit in _UNITS), re.ASCII)


def duration_ms(value: object, path: str = "") -> int:
    """Milliseconds; the units are h, m, s and ms, in that order, each at most once. ``0`` needs no unit."""
    if value == "0" or (isinstance(value, int) and not isinstance(value, bool) and value == 0):
        return 0
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None or not match.group():
        raise ManifestError(f"{value!r:.60} is not a duration: write it as 30s, 5m, 1h30m or 250ms", path)
    return sum(_part(number, unit, path) for unit, number in match.groupdict().items() if number)


def _part(number: str, unit: str, path: str) -> int:
    whole, _, fraction = number.partition(".")
    scale: int = 10 ** len(fraction)
    milliseconds, finer = divmod(int(whole + fraction) * _UNITS[unit], scale)
    if finer:
        raise ManifestError(f"'{number}{unit}' is not a duration: finer than a millisecond", path)
    return milliseconds


def show_duration(ms: int) -> str:
    """A duration as people write it: 1h30m, 250ms."""
    parts: list[str] = []
    for unit, size in _UNITS.items():
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp(ms: int, *, whole: bool = False) -> str:
    """A time as Kubernetes writes it; with milliseconds only where there are some, and never if ``whole``."""
    moment = _EPOCH + timedelta(milliseconds=ms)
    return moment.isoformat(timespec="milliseconds" if ms % 1000 and not whole else "seconds").replace("+00:00", "Z")


def time_ms(text: str) -> int:
    """The milliseconds of a time in RFC 3339, in UTC if it names no zone; ``ValueError`` if it is none."""
    moment = datetime.fromisoformat(text)
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def few(names: Sequence[str], most: int = 3) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
