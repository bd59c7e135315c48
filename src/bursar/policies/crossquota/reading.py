"""The flat arguments of an administrator, as they are written, into typed ones.

Keys are those of the plugin's ``arguments``; values may be text or numbers. A key that nobody knows, a value that
cannot be read, and a quota for a resource that has none to check are errors that name the key: nothing is ever
taken for no limit. Everything is read before anything is in force.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final, cast

from bursar.dimensions import dimension
from bursar.objects.core import LabelSelector
from bursar.objects.decode import decode
from bursar.objects.errors import ManifestError, join
from bursar.objects.names import is_qualified
from bursar.objects.selectors import selector_from
from bursar.policies.crossquota.amounts import Percent, PercentError, parse_percent
from bursar.policies.crossquota.arguments import DEFAULT_EXEMPT, DEFAULT_RESOURCES, DEFAULT_WEIGHT, Arguments
from bursar.policies.crossquota.names import (
    EXEMPT_DAEMON_SETS,
    EXEMPT_MIRRORS,
    EXEMPT_NAMESPACES,
    GPU_NAMES,
    PERCENTAGE,
    PREFER,
    QUOTA,
    RESERVE_EACH,
    RESOURCE_WEIGHT,
    RESOURCES,
    SELECTOR,
    VOLCANO,
    WEIGHT,
    unspelt,
)
from bursar.policies.crossquota.patterns import PatternError, compile_pattern
from bursar.quantity import QuantityError
from bursar.selectors import Selector

HEAVIEST: Final = 1_000_000
KEYS: Final = (
    GPU_NAMES,
    RESOURCES,
    WEIGHT,
    SELECTOR,
    PREFER,
    EXEMPT_NAMESPACES,
    EXEMPT_DAEMON_SETS,
    EXEMPT_MIRRORS,
    VOLCANO,
)
PREFIXES: Final = (QUOTA, PERCENTAGE, RESOURCE_WEIGHT, RESERVE_EACH)
_SHOWN: Final = 60


def read_arguments(given: Mapping[str, object], path: str = "") -> Arguments:
    """The arguments; raises ``ManifestError`` with the path of the key."""
    _check_keys(given, path)
    resources = _resources(given, path)
    quotas = _amounts(given, QUOTA, path)
    percentages = _percentages(given, path)
    for prefix, names in ((QUOTA, quotas), (PERCENTAGE, percentages)):
        for name in names:
            if name not in resources:
                problem = f"{name} is not one of {RESOURCES}, so this would limit nothing"
                raise ManifestError(problem, join(path, _key_of(given, prefix, name)))
    return Arguments(
        _gpu_names(given, path),
        resources,
        quotas,
        percentages,
        _whole(given.get(WEIGHT, DEFAULT_WEIGHT), join(path, WEIGHT)),
        _weights(given, path),
        _selector(given, path),
        _flag(given, PREFER, path),
        _amounts(given, RESERVE_EACH, path),
        _namespaces(given, path),
        _flag(given, EXEMPT_DAEMON_SETS, path),
        _flag(given, EXEMPT_MIRRORS, path),
    )


def _check_keys(given: Mapping[str, object], path: str) -> None:
    for key in given:
        if key in KEYS:
            continue
        prefix = _prefix_of(key)
        if not prefix:
            close = difflib.get_close_matches(key[:100], [*KEYS, *PREFIXES], n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join([*KEYS, *PREFIXES])}"
            raise ManifestError(f"is not a known argument; {hint}", join(path, key))
        resource = unspelt(key[len(prefix) :])
        if not is_qualified(resource):
            raise ManifestError(f"{resource!r:.60} is not the name of a resource", join(path, key))
        if _key_of(given, prefix, resource) != key:
            raise ManifestError(f"{resource} is given twice", join(path, key))


def _prefix_of(key: str) -> str:
    for prefix in PREFIXES:
        if key.startswith(prefix):
            return prefix
    return ""


def _key_of(given: Mapping[str, object], prefix: str, resource: str) -> str:
    """The first key that gives this of the resource: the slash of its name may be written as two underscores."""
    for key in given:
        if key.startswith(prefix) and unspelt(key[len(prefix) :]) == resource:
            return key
    return prefix + resource


def _by_resource(given: Mapping[str, object], prefix: str) -> dict[str, object]:
    return {unspelt(key[len(prefix) :]): value for key, value in given.items() if key.startswith(prefix)}


def _text(given: Mapping[str, object], key: str, path: str) -> str:
    value = given.get(key, "")
    if not isinstance(value, str):
        raise ManifestError(f"{value!r:.60} is not text: names, separated by commas", join(path, key))
    return value.strip()


def _names(given: Mapping[str, object], key: str, path: str) -> tuple[str, ...]:
    """The names of a list with commas; () if it is absent or blank."""
    text = _text(given, key, path)
    if not text:
        return ()
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ManifestError(f"{text!r:.60} names nothing", join(path, key))
    for at, name in enumerate(names):
        if name in names[:at]:
            raise ManifestError(f"{name!r:.60} is listed twice", join(path, key))
    return tuple(names)


def _gpu_names(given: Mapping[str, object], path: str) -> tuple[str, ...]:
    names = _names(given, GPU_NAMES, path)
    for name in names:
        try:
            compile_pattern(name)
        except PatternError as error:
            shown = name if len(name) <= _SHOWN else name[:_SHOWN] + "…"
            raise ManifestError(f"{shown!r} {error}", join(path, GPU_NAMES)) from None
    return names


def _resources(given: Mapping[str, object], path: str) -> tuple[str, ...]:
    names = _names(given, RESOURCES, path)
    for name in names:
        if not is_qualified(name):
            raise ManifestError(f"{name!r:.60} is not the name of a resource", join(path, RESOURCES))
    return names or DEFAULT_RESOURCES


def _namespaces(given: Mapping[str, object], path: str) -> tuple[str, ...]:
    return _names(given, EXEMPT_NAMESPACES, path) if EXEMPT_NAMESPACES in given else DEFAULT_EXEMPT


def _amounts(given: Mapping[str, object], prefix: str, path: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for resource, value in _by_resource(given, prefix).items():
        try:
            found[resource] = dimension(resource).parse(value)
        except QuantityError as error:
            raise ManifestError(str(error), join(path, _key_of(given, prefix, resource))) from None
    return found


def _percentages(given: Mapping[str, object], path: str) -> dict[str, Percent]:
    found: dict[str, Percent] = {}
    for resource, value in _by_resource(given, PERCENTAGE).items():
        try:
            found[resource] = parse_percent(value)
        except PercentError as error:
            raise ManifestError(str(error), join(path, _key_of(given, PERCENTAGE, resource))) from None
    return found


def _weights(given: Mapping[str, object], path: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for resource, value in _by_resource(given, RESOURCE_WEIGHT).items():
        found[resource] = _whole(value, join(path, _key_of(given, RESOURCE_WEIGHT, resource)))
    return found


def _whole(value: object, path: str) -> int:
    """A weight: 10, 10.0 and "10" are the same."""
    number = -1
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 18:
        number = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    if not 0 <= number <= HEAVIEST:
        shown = f"{value!r:.40}" if isinstance(value, (str, int, float)) else "this"
        raise ManifestError(f"{shown} is not a weight: a whole number from 0 to {HEAVIEST}", path)
    return number


def _flag(given: Mapping[str, object], key: str, path: str) -> bool:
    value = given.get(key, True)
    if value is True or value == "true":
        return True
    if value is False or value == "false":
        return False
    raise ManifestError(f"{value!r:.40} is neither true nor false", join(path, key))


def _selector(given: Mapping[str, object], path: str) -> Selector:
    if SELECTOR not in given:
        return Selector()
    where = join(path, SELECTOR)
    value = given[SELECTOR]
    if not isinstance(value, dict):
        raise ManifestError("expected a mapping with matchLabels or matchExpressions", where)
    try:
        read, _ = decode(cast("dict[str, object]", value), LabelSelector)
    except ManifestError as error:
        raise error.inside(where) from None
    return selector_from(read, where)
