"""The arguments in force: typed, and in the plain form in which they stand in the ledger.

Without arguments there are no GPU names, so nothing is a GPU node, nothing is limited and every score is 0.

The flat arguments of an administrator, as they are written, into typed ones.

Keys are those of the plugin's ``arguments``; values may be text or numbers. A key that nobody knows, a value that
cannot be read, and a quota for a resource that has none to check are errors that name the key: nothing is ever
taken for no limit. Everything is read before anything is in force.

Percentages: read exactly, as a fraction, and taken of an amount, floored.

A percentage is more than 0 and at most 100, given as text or as a number, without a sign for percent. NaN, infinity
and everything else that is no plain decimal number is refused.

The names that the rules share: accounts, tables, argument keys, annotations and reasons.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from math import gcd
from typing import Final, cast, final

from bursar.objects.core import LabelSelector
from bursar.objects.decode import ManifestError, decode, join
from bursar.objects.validation import is_qualified, selector_from
from bursar.policies.crossquota.gpu_patterns import PatternError, compile_pattern
from bursar.policies.results import Body
from bursar.quantity import QuantityError
from bursar.resources import UNLIMITED, dimension
from bursar.selectors import Requirement, Selector

Percent = tuple[int, int]
"""Numerator and denominator of the number of hundredths, in lowest terms: 50.5 is (101, 2)."""

_DECIMAL: Final = re.compile(r"([0-9]{1,12})(?:\.([0-9]{0,18}))?(?:[eE]([-+]?[0-9]{1,2}))?", re.ASCII)
_SHOWN_PERCENT: Final = 40


class PercentError(ValueError):
    """A value that is no acceptable percentage."""


def parse_percent(value: object) -> Percent:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise PercentError("is not a percentage: expected a number or a string")
    text = value if isinstance(value, str) else repr(value)
    shown = repr(text if len(text) <= _SHOWN_PERCENT else text[:_SHOWN_PERCENT] + "…")
    found = _DECIMAL.fullmatch(text)
    if found is None:
        sign = ", written without a sign" if text.endswith("%") else ""
        raise PercentError(f"{shown} is not a percentage: a number above 0 and up to 100{sign}")
    fraction = found.group(2) or ""
    numerator = int(found.group(1) + fraction)
    exponent = int(found.group(3) or "0") - len(fraction)
    if exponent >= 0:
        numerator *= 10**exponent
    denominator = 10 ** max(-exponent, 0)
    if numerator == 0 or numerator > 100 * denominator:
        raise PercentError(f"{shown} is not above 0 and up to 100")
    common = gcd(numerator, denominator)
    return (numerator // common, denominator // common)


def percent_of(percent: Percent, base: int) -> int:
    """That share of an amount, floored; of what has no limit there is no limit."""
    if base == UNLIMITED:
        return UNLIMITED
    return base * percent[0] // (100 * percent[1])


DEFAULT_RESOURCES: Final = ("cpu",)
DEFAULT_WEIGHT: Final = 10
DEFAULT_WEIGHTS: Final[dict[str, int]] = {"cpu": 10, "memory": 1}
DEFAULT_EXEMPT: Final = ("kube-system",)


@final
class Arguments(Body):
    """What the administrator says; amounts are in the resolution of their dimension."""

    __slots__ = (
        "exempt_daemon_sets",
        "exempt_mirrors",
        "exempt_namespaces",
        "gpu_names",
        "percentages",
        "prefer_others",
        "quotas",
        "reserves",
        "resources",
        "selector",
        "weight",
        "weights",
    )

    def __init__(
        self,
        gpu_names: tuple[str, ...] = (),
        resources: tuple[str, ...] = DEFAULT_RESOURCES,
        quotas: dict[str, int] | None = None,
        percentages: dict[str, Percent] | None = None,
        weight: int = DEFAULT_WEIGHT,
        weights: dict[str, int] | None = None,
        selector: Selector | None = None,
        prefer_others: bool = True,
        reserves: dict[str, int] | None = None,
        exempt_namespaces: tuple[str, ...] = DEFAULT_EXEMPT,
        exempt_daemon_sets: bool = True,
        exempt_mirrors: bool = True,
    ) -> None:
        self.gpu_names: Final = gpu_names  # regular expressions
        self.resources: Final = resources  # in the order in which they are checked
        self.quotas: Final = quotas if quotas is not None else {}
        self.percentages: Final = percentages if percentages is not None else {}
        self.weight: Final = weight
        self.weights: Final = weights if weights is not None else {}
        self.selector: Final = selector if selector is not None else Selector()
        self.prefer_others: Final = prefer_others  # nodes without a GPU come first
        self.reserves: Final = reserves if reserves is not None else {}  # to be left for each idle GPU
        self.exempt_namespaces: Final = exempt_namespaces
        self.exempt_daemon_sets: Final = exempt_daemon_sets
        self.exempt_mirrors: Final = exempt_mirrors

    def weight_of(self, resource: str) -> int:
        return self.weights.get(resource, DEFAULT_WEIGHTS.get(resource, 1))

    def binding_part(self) -> tuple[object, ...]:
        """What decides which claims are bound, and at what cost: if it changes, they are bound anew."""
        return (
            self.gpu_names,
            self.resources,
            _selector_cell(self.selector),
            tuple(sorted(self.reserves)),
            (self.exempt_namespaces, self.exempt_daemon_sets, self.exempt_mirrors),
        )

    def cell(self) -> tuple[object, ...]:
        return (
            self.gpu_names,
            self.resources,
            tuple(sorted(self.quotas.items())),
            tuple(sorted(self.percentages.items())),
            (self.weight, tuple(sorted(self.weights.items()))),
            _selector_cell(self.selector),
            self.prefer_others,
            tuple(sorted(self.reserves.items())),
            (self.exempt_namespaces, self.exempt_daemon_sets, self.exempt_mirrors),
        )


NO_ARGUMENTS: Final = Arguments()


def arguments_of(cell: object) -> Arguments:
    """The inverse of ``Arguments.cell``; no cell: no arguments."""
    if cell is None:
        return NO_ARGUMENTS
    names, resources, quotas, percentages, weights, rows, prefer, reserves, exempt = cast("tuple[object, ...]", cell)
    weight, by_resource = cast("tuple[object, ...]", weights)
    namespaces, daemon_sets, mirrors = cast("tuple[object, ...]", exempt)
    return Arguments(
        cast("tuple[str, ...]", names),
        cast("tuple[str, ...]", resources),
        _by_name(quotas),
        dict(cast("tuple[tuple[str, Percent], ...]", percentages)),
        cast("int", weight),
        _by_name(by_resource),
        _selector_of(rows),
        bool(prefer),
        _by_name(reserves),
        cast("tuple[str, ...]", namespaces),
        bool(daemon_sets),
        bool(mirrors),
    )


def _by_name(pairs: object) -> dict[str, int]:
    return dict(cast("tuple[tuple[str, int], ...]", pairs))


def _selector_cell(selector: Selector) -> tuple[object, ...]:
    return tuple([(r.key, r.operator, r.values) for r in selector.requirements])


def _selector_of(rows: object) -> Selector:
    requirements = cast("tuple[tuple[str, str, tuple[str, ...]], ...]", rows)
    return Selector(tuple([Requirement(key, operator, values) for key, operator, values in requirements]))


NAME: Final = "crossquota"
PREFIX: Final = "crossquota/"  # of the account of a node: what CPU pods use there
RESERVE: Final = "/reserve"  # then follows on the node's name: what all claims use there
TOPIC: Final = "nodes"  # the topic of all nodes: a claim that finds no place listens to it
NODE_KIND: Final = "crossquota.Node"
ARGUMENTS_KIND: Final = "crossquota.Arguments"
NODES: Final = "crossquota.nodes"  # the table of what is known of each node
ARGUMENTS: Final = "crossquota.arguments"
CURRENT: Final = "default"  # the only key of that table

GPU_NAMES: Final = "gpu-resource-names"
RESOURCES: Final = "quota-resources"
QUOTA: Final = "quota."
PERCENTAGE: Final = "quota-percentage."
WEIGHT: Final = "crossQuotaWeight"
RESOURCE_WEIGHT: Final = "weight."
SELECTOR: Final = "label-selector"
PREFER: Final = "prefer-non-gpu-nodes"
RESERVE_EACH: Final = "reserve-per-gpu."
EXEMPT_NAMESPACES: Final = "exempt-namespaces"
EXEMPT_DAEMON_SETS: Final = "exempt-daemonsets"
EXEMPT_MIRRORS: Final = "exempt-mirror-pods"
VOLCANO: Final = "volcano-scheduler.conf"

NODE_MARKS: Final = "volcano.sh/crossquota-"  # then the resource
NODE_PERCENTAGE_MARKS: Final = "volcano.sh/crossquota-percentage-"
STRATEGY: Final = "volcano.sh/crossquota-scoring-strategy"
LEAST_ALLOCATED: Final = "least-allocated"
GPU_DRIVER: Final = "gpu."  # how the names of drivers for GPUs begin, such as gpu.nvidia.com

QUOTA_REASON: Final = "crossquota.quota."  # then the resource
RESERVE_REASON: Final = "crossquota.reserve."
BAD_ANNOTATION: Final = "crossquota.annotation"
EXCEEDED: Final = "crossquota.exceeded"
GPUS: Final = "gpus"  # the dimension in which the account of all claims counts the GPUs that are taken


def spelt(resource: str) -> str:
    """A resource as keys of arguments and annotations spell it: these may hold no second slash."""
    return resource.replace("/", "__", 1)


def unspelt(name: str) -> str:
    """The inverse; the domain of a resource has no underscore, so the first pair is the slash."""
    return name if "/" in name else name.replace("__", "/", 1)


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
