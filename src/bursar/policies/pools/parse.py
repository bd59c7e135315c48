"""Reads quotas and profiles from objects, with errors that name the field.

Koordinator ignores annotations that are not JSON and ratios that are not numbers; they are refused here. One exception
stays: a max of more cores than can be counted is unlimited, because Koordinator's built-in quotas are written so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from bursar.objects.decode import ManifestError, join
from bursar.objects.requests import amounts_from
from bursar.objects.validation import is_qualified
from bursar.policies.pools.settings import (
    DEFAULT,
    DEFAULT_TREE,
    EXCLUSIVE,
    IS_PARENT,
    LENDS,
    NAMESPACES,
    PARENT,
    RESOURCE_KEYS,
    ROOT,
    SYSTEM,
    TREE,
    WEIGHT,
    PoolQuotaBody,
    QuotaObject,
)
from bursar.quantity import MAX_AMOUNT, UNIT, QuantityError, parse
from bursar.resources import dimension

DEFAULT_KEYS: Final = ("cpu", "memory")
_RATIO: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,18})?")
_ANNOTATIONS: Final = "metadata.annotations"


def quota_from(
    namespace: str,
    name: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    maximum: Mapping[str, object],
    minimum: Mapping[str, object],
) -> QuotaObject:
    """An ElasticQuota; raises ``ManifestError``."""
    quota = quota_of_labels(namespace, name, labels)
    quota.maximum = max_amounts(maximum, "spec.max")
    quota.minimum = amounts_from(minimum, "spec.min")
    for resource, amount in quota.minimum.items():
        _check_min(resource, amount, quota.maximum)
    weight = weight_from(annotations)
    quota.weight = {resource: amount for resource, amount in weight.items() if resource in quota.maximum}
    quota.namespaces = tuple(text_list(annotations, NAMESPACES))
    return QuotaObject(quota, labels, annotations)


def stored_quota(manifest: Mapping[str, Any]) -> QuotaObject:
    """A stored ElasticQuota, of which labels, max and min are read; they may break the rules of ``quota_from``."""
    metadata = manifest["metadata"]
    spec = manifest.get("spec") or {}
    labels = metadata.get("labels") or {}
    quota = quota_of_labels(str(metadata.get("namespace") or ""), str(metadata["name"]), labels)
    quota.maximum = max_amounts(spec.get("max") or {}, "spec.max")
    quota.minimum = max_amounts(spec.get("min") or {}, "spec.min")
    return QuotaObject(quota, labels, metadata.get("annotations") or {})


def quota_of_labels(namespace: str, name: str, labels: Mapping[str, str]) -> PoolQuotaBody:
    """A quota with its parent and tree, without amounts."""
    parent = labels.get(PARENT) or ROOT
    tree = DEFAULT_TREE if name in (SYSTEM, DEFAULT) else labels.get(TREE, DEFAULT_TREE)
    is_parent = labels.get(IS_PARENT) == "true"
    return PoolQuotaBody(name, namespace, parent, tree, is_parent, labels.get(LENDS) != "false")


def max_amounts(quantities: Mapping[str, object], path: str) -> dict[str, int]:
    """Amounts of a max; more than can be counted is unlimited."""
    countable: dict[str, object] = {}
    endless: list[str] = []
    for resource, value in quantities.items():
        if _is_endless(resource, value):
            endless.append(resource)
        else:
            countable[resource] = value
    found = amounts_from(countable, path)
    for resource in endless:
        found[resource] = MAX_AMOUNT
    return found


def _is_endless(resource: str, value: object) -> bool:
    found = dimension(resource) if is_qualified(resource) else None
    if found is None or found.resolution == UNIT:
        return False
    try:
        return parse(value, UNIT) > MAX_AMOUNT // found.resolution
    except QuantityError:
        return False


def _check_min(resource: str, amount: int, most: Mapping[str, int]) -> None:
    path = join("spec.min", resource)
    if resource not in most:
        raise ManifestError("is not in spec.max, which says what the quota manages", path)
    if amount > most[resource]:
        show = dimension(resource).show
        raise ManifestError(f"{show(amount)} is more than the max of {show(most[resource])}", path)


def weight_from(annotations: Mapping[str, str]) -> dict[str, int]:
    """The shared weight; empty when none is given."""
    path = join(_ANNOTATIONS, WEIGHT)
    text = annotations.get(WEIGHT, "")
    if not text:
        return {}
    given = _json(text, path)
    if not isinstance(given, dict):
        raise ManifestError("is not a JSON object of quantities by resource", path)
    return max_amounts(given, path)


def amounts_in(annotations: Mapping[str, str], key: str) -> dict[str, int]:
    """Amounts that Bursar wrote into an annotation."""
    text = annotations.get(key, "")
    given = _json(text, join(_ANNOTATIONS, key)) if text else {}
    return max_amounts(given, join(_ANNOTATIONS, key)) if isinstance(given, dict) else {}


def text_list(annotations: Mapping[str, str], key: str) -> list[str]:
    """A JSON list of texts in an annotation, each once; empty when there is none."""
    text = annotations.get(key, "")
    path = join(_ANNOTATIONS, key)
    given = _json(text, path) if text else []
    if not isinstance(given, list):
        raise ManifestError('is not a JSON list of names, such as ["a","b"]', path)
    found: list[str] = []
    for item in given:
        if not isinstance(item, str) or not item:
            raise ManifestError(f"{item!r:.40} is not a name", path)
        if item not in found:
            found.append(item)
    return found


def _json(text: str, path: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ManifestError(f"is not JSON: {error}", path) from None
    except RecursionError:
        raise ManifestError("is not JSON: nested too deeply", path) from None


def resource_keys(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The resources that the root quota of a profile manages."""
    keys = text_list(annotations, RESOURCE_KEYS)
    for key in keys:
        if not is_qualified(key):
            raise ManifestError(f"{key!r:.60} is not a resource", join(_ANNOTATIONS, RESOURCE_KEYS))
    return tuple(sorted(keys)) if keys else DEFAULT_KEYS


def is_exclusive(annotations: Mapping[str, str]) -> bool:
    """Whether pods of the default tree are kept off the nodes of a profile."""
    value = annotations.get(EXCLUSIVE, "true")
    if value not in ("true", "false"):
        raise ManifestError(f"{value!r:.40} is neither 'true' nor 'false'", join(_ANNOTATIONS, EXCLUSIVE))
    return value == "true"


def ratio_from(text: str | None) -> tuple[int, int]:
    """The ratio as a fraction: more than 0, at most 1."""
    if text is None:
        return 1, 1
    if not _RATIO.fullmatch(text):
        raise ManifestError(f"{text!r:.40} is not a decimal number such as 0.9", "spec.resourceRatio")
    whole, _, digits = text.partition(".")
    numerator = int(whole + digits)
    denominator: int = 10 ** len(digits)
    if not 0 < numerator <= denominator:
        raise ManifestError(f"{text} is not more than 0 and at most 1", "spec.resourceRatio")
    return numerator, denominator


def tree_id(namespace: str, name: str) -> str:
    """The tree of a profile that names none: the FNV-1a hash of its key, as Koordinator computes it."""
    found = 0xCBF29CE484222325
    for byte in f"{namespace}/{name}".encode():
        found = ((found ^ byte) * 0x100000001B3) % 2**64
    return str(found)
