"""CEL selectors of devices, as far as they are read: comparisons joined by ``&&``.

Read are comparisons of ``device.driver``, of an attribute and of a capacity with a literal::

    device.driver == "gpu.nvidia.com"
    device.attributes["gpu.nvidia.com"].type == "gpu"
    device.attributes["gpu.nvidia.com"].flag
    device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) >= 0
    device.capacity["gpu.nvidia.com"].memory.isGreaterThan(quantity("40Gi"))

Any other term counts as true, so that a selector never excludes a device which the scheduler may choose. A device that
lacks the attribute or capacity does not match, as in Kubernetes, where that is an error of the expression.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from bursar.quantity import MILLI, QuantityError, parse

LONGEST = 10 * 1024  # Kubernetes' own bound of an expression
_DEEPEST = 8  # levels of parentheses that are read

Value = str | int | bool
QualifiedName = tuple[str, str]
"""Domain and name of an attribute or capacity."""


class SelectorTerm(NamedTuple):
    """One comparison; ``field`` is driver, attribute or capacity."""

    field: str
    name: QualifiedName
    compare: str
    value: Value


_COMPARE: dict[str, Callable[[Value, Value], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_PLACE = r"""device\.(?P<field>attributes|capacity)\[(?P<quote>['"])(?P<domain>[^'"\\]*)(?P=quote)\]\.(?P<name>\w+)"""
_OPERATOR = r"(?P<compare>==|!=|<=|>=|<|>)"
_LITERAL = r"""(?P<value>"[^"\\]*"|'[^'\\]*'|-?[0-9]{1,18}|true|false)"""
_QUANTITY = r"""quantity\(\s*(?P<value>"[^"\\]*"|'[^'\\]*')\s*\)"""
_DRIVER = re.compile(rf"device\.driver\s*(?P<compare>==|!=)\s*{_LITERAL}")
_ATTRIBUTE = re.compile(rf"{_PLACE}\s*{_OPERATOR}\s*{_LITERAL}")
_FLAG = re.compile(_PLACE)
_COMPARED_TO = re.compile(rf"{_PLACE}\.compareTo\(\s*{_QUANTITY}\s*\)\s*{_OPERATOR}\s*0")
_GREATER = re.compile(rf"{_PLACE}\.(?P<method>isGreaterThan|isLessThan)\(\s*{_QUANTITY}\s*\)")
_EQUAL = re.compile(rf"{_PLACE}\s*(?P<compare>==|!=)\s*{_QUANTITY}")
_UNREAD = re.compile(r"""//|\"{3}|'{3}|\b[bBrR]{1,2}['"]""")  # comments, and texts that other rules quote
_METHODS = {"isGreaterThan": ">", "isLessThan": "<"}


@lru_cache(maxsize=4096)
def terms_of(expression: str) -> tuple[SelectorTerm, ...]:
    """The terms that are read; every one of them must hold."""
    found: list[SelectorTerm] = []
    todo = [] if _UNREAD.search(expression) else [(expression, 0)]
    while todo:
        given, depth = todo.pop()
        text = _unwrapped(given.strip())
        parts = _conjuncts(text)
        if len(parts) > 1:
            todo += [(part, depth + 1) for part in reversed(parts) if depth < _DEEPEST]
        elif (term := _term(text)) is not None:
            found.append(term)
    return tuple(found)


def matches(
    terms: tuple[SelectorTerm, ...],
    driver: str,
    attributes: Mapping[QualifiedName, Value],
    capacity: Mapping[QualifiedName, int],
) -> bool:
    """Whether a device may match; ``capacity`` is in thousandths."""
    for term in terms:
        if term.field == "driver":
            given: Value | None = driver
        elif term.field == "attributes":
            given = attributes.get(term.name)
        else:
            given = capacity.get(term.name)
        if given is None or isinstance(given, bool) != isinstance(term.value, bool):
            return False
        if isinstance(given, str) != isinstance(term.value, str) or not _COMPARE[term.compare](given, term.value):
            return False
    return True


def driver_of(terms: tuple[SelectorTerm, ...]) -> str:
    """The only driver whose devices can match; "" if any may."""
    for term in terms:
        if term.field == "driver" and term.compare == "==":
            return str(term.value)
    return ""


def _term(text: str) -> SelectorTerm | None:
    """None for what is not read."""
    if found := _DRIVER.fullmatch(text):
        value = _literal(found["value"])
        return SelectorTerm("driver", ("", ""), found["compare"], value) if isinstance(value, str) else None
    if found := _ATTRIBUTE.fullmatch(text):
        if found["field"] == "capacity":
            return None
        value = _literal(found["value"])
        ordered = found["compare"] not in {"==", "!="}
        return None if ordered and isinstance(value, bool) else _placed(found, found["compare"], value)
    if found := _FLAG.fullmatch(text):
        return _placed(found, "==", True) if found["field"] == "attributes" else None
    for pattern in (_COMPARED_TO, _GREATER, _EQUAL):
        if found := pattern.fullmatch(text):
            return _quantity_term(found)
    return None


def _quantity_term(found: re.Match[str]) -> SelectorTerm | None:
    if found["field"] != "capacity":
        return None
    try:
        value = parse(found["value"][1:-1], MILLI)
    except QuantityError:
        return None
    groups = found.groupdict()
    return _placed(found, groups.get("compare") or _METHODS[groups["method"]], value)


def _placed(found: re.Match[str], compare: str, value: Value) -> SelectorTerm:
    return SelectorTerm(found["field"], (found["domain"], found["name"]), compare, value)


def _literal(text: str) -> Value:
    if text[0] in "'\"":
        return text[1:-1]
    return text == "true" if text in {"true", "false"} else int(text)


def _unwrapped(text: str) -> str:
    """Without parentheses around the whole."""
    for _ in range(_DEEPEST):
        if not text.startswith("(") or _closing(text) != len(text) - 1:
            break
        text = text[1:-1].strip()
    return text


def _closing(text: str) -> int:
    """Where the parenthesis that opens the text closes; -1 if it does not."""
    depth = 0
    for at, character in _outside_strings(text):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth == 0:
                return at
    return -1


def _conjuncts(text: str) -> list[str]:
    """The parts that ``&&`` joins at the top; the whole text where anything there binds less tightly."""
    depth, begin = 0, 0
    parts: list[str] = []
    before = ""
    for at, character in _outside_strings(text):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif depth == 0 and (character == "?" or (character == before == "|")):
            return [text]
        elif depth == 0 and character == before == "&":
            parts.append(text[begin : at - 1])
            begin = at + 1
        before = "" if begin == at + 1 else character
    return [*parts, text[begin:]]


def _outside_strings(text: str) -> list[tuple[int, str]]:
    """The characters with their places, without the contents of texts in quotes."""
    found: list[tuple[int, str]] = []
    quote, escaped = "", False
    for at, character in enumerate(text):
        if quote:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
            found.append((at, " "))
        else:
            found.append((at, character))
    return found
