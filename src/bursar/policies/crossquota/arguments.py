"""The arguments of the crossquota policy: as administrators write them, typed, and as a cell of the ledger.

Keys are those of the Volcano plugin's ``arguments``; values may be text or numbers. An unknown key, an unreadable
value and a quota for a resource that is not checked are errors that name the key: no error is read as "no limit".
Without arguments no resource is a GPU, so nothing is limited.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import gcd
from typing import Final, TypeVar, cast, final

from bursar.objects.core import LabelSelector
from bursar.objects.decode import ManifestError, decode, join
from bursar.objects.validation import is_qualified, selector_from
from bursar.policies.crossquota.gpu_patterns import PatternError, compile_pattern
from bursar.policies.results import Body
from bursar.resources import UNLIMITED, dimension
from bursar.selectors import Requirement, Selector

Percent = tuple[int, int]
"""Numerator and denominator of the number of hundredths, in lowest terms: 50.5 is (101, 2)."""

_DECIMAL: Final = re.compile(r"([0-9]{1,12})(?:\.([0-9]{0,18}))?(?:[eE]([-+]?[0-9]{1,2}))?", re.ASCII)
_SHOWN_PERCENT: Final = 40


class PercentError(ValueError):
    """A value that is no acceptable percentage."""


def parse_percent(value: object) -> Percent:
    """Reads a plain decimal number above 0 and up to 100, without a percent sign, exactly."""
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
    """That share of an amount, floored. A share of ``UNLIMITED`` is unlimited."""
    if base == UNLIMITED:
        return UNLIMITED
    return base * percent[0] // (100 * percent[1])


DEFAULT_RESOURCES: Final = ("cpu",)
DEFAULT_WEIGHT: Final = 10
DEFAULT_WEIGHTS: Final[dict[str, int]] = {"cpu": 10, "memory": 1}
DEFAULT_EXEMPT: Final = ("kube-system",)


@final
@dataclass
class Arguments(Body):
    """What the administrator configures; amounts are in the resolution of their dimension."""

    gpu_names: tuple[str, ...] = ()  # regular expressions
    resources: tuple[str, ...] = DEFAULT_RESOURCES  # in the order in which they are checked
    quotas: dict[str, int] = field(default_factory=dict)
    percentages: dict[str, Percent] = field(default_factory=dict)
    weight: int = DEFAULT_WEIGHT
    weights: dict[str, int] = field(default_factory=dict)
    selector: Selector = field(default_factory=Selector)
    prefer_others: bool = True  # nodes without a GPU come first
    reserves: dict[str, int] = field(default_factory=dict)  # for each idle GPU
    exempt_namespaces: tuple[str, ...] = DEFAULT_EXEMPT
    exempt_daemon_sets: bool = True
    exempt_mirrors: bool = True

    def weight_of(self, resource: str) -> int:
        return self.weights.get(resource, DEFAULT_WEIGHTS.get(resource, 1))

    def binding_part(self) -> tuple[object, ...]:
        """What decides which claims are bound, and at what cost: claims are bound again when it changes."""
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

Pairs = tuple[tuple[str, int], ...]
SelectorCell = tuple[tuple[str, str, tuple[str, ...]], ...]


def arguments_of(cell: object) -> Arguments:
    """The inverse of ``Arguments.cell``; without a cell there are no arguments."""
    if cell is None:
        return NO_ARGUMENTS
    names, resources, quotas, percentages, weights, selector, prefer, reserves, exempt = cast(
        "tuple[tuple[str, ...], tuple[str, ...], Pairs, tuple[tuple[str, Percent], ...], tuple[int, Pairs],"
        " SelectorCell, bool, Pairs, tuple[tuple[str, ...], bool, bool]]",
        cell,
    )
    return Arguments(
        names,
        resources,
        dict(quotas),
        dict(percentages),
        weights[0],
        dict(weights[1]),
        Selector(tuple([Requirement(key, operator, values) for key, operator, values in selector])),
        prefer,
        dict(reserves),
        *exempt,
    )


def _selector_cell(selector: Selector) -> SelectorCell:
    return tuple([(r.key, r.operator, r.values) for r in selector.requirements])


NAME: Final = "crossquota"
PREFIX: Final = "crossquota/"  # of the account of a node: what CPU pods use there
RESERVE: Final = "/reserve"  # after the node's name: the account of what all claims use there
TOPIC: Final = "nodes"  # the topic of all nodes, whose changes wake claims that found no node
NODE_KIND: Final = "crossquota.Node"
ARGUMENTS_KIND: Final = "crossquota.Arguments"
NODES: Final = "crossquota.nodes"  # table: node -> what its quotas follow from
ARGUMENTS: Final = "crossquota.arguments"
CURRENT: Final = "default"  # the only key of the table of arguments

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
GPU_DRIVER: Final = "gpu."  # prefix of the names of GPU drivers, such as gpu.nvidia.com

QUOTA_REASON: Final = "crossquota.quota."  # then the resource
RESERVE_REASON: Final = "crossquota.reserve."
BAD_ANNOTATION: Final = "crossquota.annotation"
EXCEEDED: Final = "crossquota.exceeded"
GPUS: Final = "gpus"  # the dimension that counts GPUs in the account of all claims


def spelt(resource: str) -> str:
    """A resource in keys of arguments and annotations, which must not have a second slash."""
    return resource.replace("/", "__", 1)


def unspelt(name: str) -> str:
    """The inverse. The domain of a resource has no underscore, so the first pair is the slash."""
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
    """The typed arguments; raises ``ManifestError`` with the path of the key."""
    _check_keys(given, path)
    resources = _resources(given, path)
    quotas = _each(given, QUOTA, path, _amount)
    percentages = _each(given, PERCENTAGE, path, _percent)
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
        _each({WEIGHT: DEFAULT_WEIGHT, **given}, WEIGHT, path, _weight)[""],
        _each(given, RESOURCE_WEIGHT, path, _weight),
        _selector(given, path),
        _flag(given, PREFER, path),
        _each(given, RESERVE_EACH, path, _amount),
        _names(given, EXEMPT_NAMESPACES, path) if EXEMPT_NAMESPACES in given else DEFAULT_EXEMPT,
        _flag(given, EXEMPT_DAEMON_SETS, path),
        _flag(given, EXEMPT_MIRRORS, path),
    )


def _check_keys(given: Mapping[str, object], path: str) -> None:
    for key in given:
        if key in KEYS:
            continue
        prefix = next((prefix for prefix in PREFIXES if key.startswith(prefix)), "")
        if not prefix:
            close = difflib.get_close_matches(key[:100], [*KEYS, *PREFIXES], n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join([*KEYS, *PREFIXES])}"
            raise ManifestError(f"is not a known argument; {hint}", join(path, key))
        resource = unspelt(key[len(prefix) :])
        if not is_qualified(resource):
            raise ManifestError(f"{resource!r:.60} is not the name of a resource", join(path, key))
        if _key_of(given, prefix, resource) != key:
            raise ManifestError(f"{resource} is given twice", join(path, key))


def _key_of(given: Mapping[str, object], prefix: str, resource: str) -> str:
    """The first key for the resource: the slash of its name may be written as two underscores."""
    for key in given:
        if key.startswith(prefix) and unspelt(key[len(prefix) :]) == resource:
            return key
    return prefix + resource


T = TypeVar("T")


def _each(given: Mapping[str, object], prefix: str, path: str, read: Callable[[str, object], T]) -> dict[str, T]:
    """The values of all keys with the prefix, read by ``read``, by resource."""
    found: dict[str, T] = {}
    for key, value in given.items():
        if key.startswith(prefix):
            resource = unspelt(key[len(prefix) :])
            try:
                found[resource] = read(resource, value)
            except ValueError as error:
                raise ManifestError(str(error), join(path, key)) from None
    return found


def _amount(resource: str, value: object) -> int:
    return dimension(resource).parse(value)


def _percent(_: str, value: object) -> Percent:
    return parse_percent(value)


def _weight(_: str, value: object) -> int:
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
        raise ValueError(f"{shown} is not a weight: a whole number from 0 to {HEAVIEST}")
    return number


def _names(given: Mapping[str, object], key: str, path: str) -> tuple[str, ...]:
    """The names of a list with commas; () if it is absent or blank."""
    value = given.get(key, "")
    if not isinstance(value, str):
        raise ManifestError(f"{value!r:.60} is not text: names, separated by commas", join(path, key))
    text = value.strip()
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
