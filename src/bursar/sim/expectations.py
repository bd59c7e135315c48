"""Whether what is there is what was expected: a subset match, and the difference when it is not.

Everything that is expected must be there; more may be. Mappings match key by key (null: the key must not be there).
Lists whose items have a ``type`` or ``name`` match item by item by that mark, as conditions and containers are read;
other lists match in order and in full. Quantities match by value where a mapping holds resources: ``1`` is ``1000m``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bursar.dimensions import dimension
from bursar.objects.errors import join
from bursar.objects.names import is_qualified
from bursar.quantity import QuantityError

_PLAIN_RESOURCES = ("cpu", "memory", "pods", "storage", "ephemeral-storage", "tflops", "vram", "gpu")
_NO_RESOURCES = ("labels", "annotations", "nodeSelector", "matchLabels")
_MARKS = ("type", "name")


class _Nothing:
    """Stands for what is not there."""

    def __repr__(self) -> str:
        return "nothing"


NOTHING = _Nothing()


@dataclass(frozen=True, slots=True)
class Difference:
    path: str
    expected: object
    found: object

    def lines(self) -> list[str]:
        return [f"- {self.path}: {_shown(self.expected)}", f"+ {self.path}: {_shown(self.found)}"]


def differences(expected: object, found: object, path: str = "") -> Iterator[Difference]:
    """All places where what was found is not what was expected."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        yield from _in_mapping(expected, found, path)
    elif isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        yield from _in_list(list(expected), list(found), path)
    elif type(expected) is not type(found) or expected != found:
        yield Difference(path, expected, found)


def _in_mapping(expected: Mapping[str, Any], found: Mapping[str, Any], path: str) -> Iterator[Difference]:
    resources = _holds_resources(found, path)
    for key, wanted in expected.items():
        where = join(path, str(key))
        got = found.get(key, NOTHING)
        if wanted is None:
            if got is not NOTHING and got is not None:
                yield Difference(where, NOTHING, got)
        elif got is NOTHING:
            yield Difference(where, wanted, NOTHING)
        elif not (resources and _same_amount(key, wanted, got)):
            yield from differences(wanted, got, where)


def _in_list(expected: list[Any], found: list[Any], path: str) -> Iterator[Difference]:
    mark = next((mark for mark in _MARKS if _all_marked(expected, mark) and _all_marked(found, mark)), None)
    if mark is None or not expected:
        if len(expected) != len(found):
            yield Difference(path, expected, found)
            return
        for index, (wanted, got) in enumerate(zip(expected, found, strict=True)):
            yield from differences(wanted, got, f"{path}[{index}]")
        return
    by_mark = {item[mark]: item for item in reversed(found)}
    for wanted in expected:
        where = f"{path}[{wanted[mark]}]"
        if wanted[mark] in by_mark:
            yield from differences(wanted, by_mark[wanted[mark]], where)
        else:
            yield Difference(where, wanted, NOTHING)


def _all_marked(items: list[Any], mark: str) -> bool:
    return all(isinstance(item, Mapping) and isinstance(item.get(mark), str) for item in items)


def _holds_resources(mapping: Mapping[str, Any], path: str) -> bool:
    if path.rpartition(".")[2] in _NO_RESOURCES:
        return False
    return all(_is_resource(str(key)) and _amount(str(key), value) is not None for key, value in mapping.items())


def _is_resource(name: str) -> bool:
    return name in _PLAIN_RESOURCES or name.startswith("hugepages-") or ("/" in name and is_qualified(name))


def _same_amount(name: str, expected: object, found: object) -> bool:
    wanted = _amount(name, expected)
    return wanted is not None and wanted == _amount(name, found)


def _amount(name: str, value: object) -> int | None:
    try:
        return dimension(name).parse(value, negative=True)
    except QuantityError:
        return None


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value if value and value.isprintable() and value == value.strip() else repr(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)
