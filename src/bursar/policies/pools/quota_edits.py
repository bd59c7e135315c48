"""One quota before and after an apply: its defaults, and the rules that it must keep by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

from bursar.objects.decode import ManifestError, join
from bursar.policies.plugin import ObjectEdit
from bursar.policies.pools.parse import max_amounts, quota_from, stored_quota, text_list, weight_from
from bursar.policies.pools.root_quotas import as_json, shown
from bursar.policies.pools.settings import (
    FORCE_UPDATE,
    IS_PARENT,
    IS_ROOT,
    LENDS,
    NAMESPACES,
    PROFILE,
    STRICT_KEYS,
    TOTAL,
    UNSCHEDULABLE,
    WEIGHT,
    PoolQuotaBody,
    QuotaObject,
)
from bursar.policies.pools.topology import labels_of
from bursar.resources import dimension

LABELS: Final = "metadata.labels"
ANNOTATIONS: Final = "metadata.annotations"
_FLAGS: Final = (IS_PARENT, LENDS, IS_ROOT, FORCE_UPDATE)


@final
class QuotaEdit:
    """A quota before and after one apply."""

    def __init__(self, edit: ObjectEdit) -> None:
        self.edit: Final = edit
        self.name: Final = edit.key.rpartition("/")[2]
        self.before: Final = None if edit.old is None else stored_quota(edit.old)
        self.manifest: dict[str, Any] | None = edit.new  # later with its defaults
        self.after: QuotaObject | None = None if edit.new is None else _read(edit.new)

    def fill(self, manifest: dict[str, Any]) -> None:
        self.manifest = manifest
        self.after = _read(manifest)

    @property
    def old(self) -> PoolQuotaBody | None:
        return None if self.before is None else self.before.quota

    @property
    def new(self) -> PoolQuotaBody | None:
        return None if self.after is None else self.after.quota

    @property
    def is_forced(self) -> bool:
        """Whether its own sums and guarantees are not checked."""
        after = self.after
        return after is not None and "true" in (after.labels.get(FORCE_UPDATE), after.labels.get(IS_ROOT))

    def promises(self) -> bool:
        """Whether it is promised something by another quota than before, or something else."""
        old, new = self.old, self.new
        if old is None or new is None:
            return new is not None
        return (old.parent, old.minimum) != (new.parent, new.minimum)


def _read(manifest: Mapping[str, Any]) -> QuotaObject:
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    namespace, name = str(metadata.get("namespace") or ""), str(metadata["name"])
    annotations = metadata.get("annotations") or {}
    return quota_from(namespace, name, labels_of(manifest), annotations, spec.get("max") or {}, spec.get("min") or {})


def differ(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a built-in quota changes."""
    return _meaning(old) != _meaning(new)


def _meaning(manifest: Mapping[str, Any]) -> tuple[object, ...]:
    annotations = manifest["metadata"].get("annotations") or {}
    return (labels_of(manifest), manifest.get("spec") or {}, annotations.get(WEIGHT), annotations.get(NAMESPACES))


def default_weight(given: QuotaObject, before: QuotaObject | None) -> str:
    """The weight in the keys of max. One that is not given, or was filled in from the max before, follows the max."""
    maximum = given.quota.maximum
    weight = weight_from(given.annotations)
    if before is not None and weight == before.quota.maximum and weight_from(before.annotations) == weight:
        weight = {}
    return as_json(shown({resource: weight.get(resource, maximum[resource]) for resource in maximum}))


def check_self(given: QuotaObject, manifest: Mapping[str, Any]) -> None:
    for flag in _FLAGS:
        value = given.labels.get(flag, "")
        if value not in ("", "true", "false"):
            raise ManifestError(f"{value!r:.40} is neither 'true' nor 'false'", join(LABELS, flag))
    status = manifest.get("status")
    used = status.get("used") if isinstance(status, dict) else None
    if not isinstance(used, dict):
        return
    in_use = max_amounts(used, "status.used")
    maximum = given.quota.maximum
    for resource in text_list(given.annotations, STRICT_KEYS):
        if resource not in in_use:
            continue
        if resource not in maximum:
            raise ManifestError("is checked strictly and in use, so it must be listed", join("spec.max", resource))
        if maximum[resource] < in_use[resource]:
            show = dimension(resource).show
            problem = f"{show(maximum[resource])} is less than the {show(in_use[resource])} in use"
            raise ManifestError(problem, join("spec.max", resource))


def check_reserved(given: QuotaObject, before: QuotaObject | None) -> None:
    """Only Bursar writes these, on root quotas."""
    for key in (IS_ROOT, PROFILE):
        value = given.labels.get(key, "")
        if value and (key != IS_ROOT or value == "true") and (before is None or before.labels.get(key) != value):
            raise ManifestError("is set by Bursar, on the root quota of a profile", join(LABELS, key))
    for key in (TOTAL, UNSCHEDULABLE):
        value = given.annotations.get(key, "")
        if value and (before is None or before.annotations.get(key) != value):
            raise ManifestError("is set by Bursar, on the root quota of a profile", join(ANNOTATIONS, key))


# Amounts by resource


def keys_of(quota: PoolQuotaBody) -> tuple[object, object]:
    return set(quota.maximum), set(quota.minimum)


def extra_keys(child: PoolQuotaBody, parent: PoolQuotaBody, path: str) -> set[str]:
    """The resources of a child that its parent lacks."""
    if path == "spec.max":
        return child.maximum.keys() - parent.maximum.keys()
    return child.minimum.keys() - parent.minimum.keys()


def joined(names: set[str]) -> str:
    return ", ".join(sorted(names))


def larger(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {resource: max(one.get(resource, 0), other.get(resource, 0)) for resource in {**one, **other}}


def fits(amounts: dict[str, int], limits: dict[str, int]) -> bool:
    return all(amount <= limits.get(resource, 0) for resource, amount in amounts.items())
