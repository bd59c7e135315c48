"""Root quotas, which are made from profiles.

The min of a root quota is what the nodes of its profile have, times the ratio; its max is unlimited; the profile
defines its labels. Several profiles of one tree may share a root quota, which then has the sum.
"""

from __future__ import annotations

import json
from typing import Final, cast

from bursar.ledger.state import State
from bursar.policies.pools.derived_state import MARKS, DerivedState
from bursar.policies.pools.node_pools import NodePools, Profile
from bursar.policies.pools.settings import (
    ENDLESS,
    IGNORE_DEFAULT_TREE,
    IS_PARENT,
    IS_ROOT,
    LENDS,
    NAMESPACES,
    PARENT,
    PROFILE,
    ROOT,
    TOTAL,
    TREE,
    UNSCHEDULABLE,
    WEIGHT,
    Amounts,
    PoolQuotaBody,
)
from bursar.resources import dimension

Marks = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...], Amounts, tuple[str, ...]]
"""What users wrote on the object: other labels, other annotations, weight, namespaces."""

NO_MARKS: Final[Marks] = ((), (), (), ())


def marks_of(state: State, name: str) -> Marks:
    found = state.cell(MARKS, name)
    return NO_MARKS if found is None else cast("Marks", found)


def root_labels(profiles: list[Profile]) -> dict[str, str]:
    labels = {PROFILE: profiles[0].name}
    for profile in profiles:
        labels.update(dict(profile.labels))
    labels[PARENT] = ROOT
    labels[TREE] = profiles[0].tree
    labels[IS_ROOT] = "true"
    return labels


def root_quota(node_pools: NodePools, name: str, marks: Marks = NO_MARKS) -> PoolQuotaBody | None:
    """The root quota as its profiles define it; None when no profile does."""
    profiles = node_pools.profiles_of_root(name)
    if not profiles:
        return None
    labels = root_labels(profiles)
    maximum: dict[str, int] = {}
    minimum: dict[str, int] = {}
    for profile in profiles:
        total = node_pools.total(profile)
        unlisted = node_pools.sums[profile.key].unlisted
        for resource in profile.resources:
            maximum[resource] = ENDLESS * dimension(resource).resolution
            more = maximum[resource] if resource in unlisted else total.get(resource, 0)
            minimum[resource] = minimum.get(resource, 0) + more
    return PoolQuotaBody(
        name,
        profiles[0].namespace,
        ROOT,
        profiles[0].tree,
        labels.get(IS_PARENT) == "true",
        labels.get(LENDS) != "false",
        maximum,
        {resource: min(amount, maximum[resource]) for resource, amount in minimum.items()},
        dict(marks[2]),
        marks[3],
        True,
    )


def root_manifest(derived: DerivedState, state: State, quota: PoolQuotaBody) -> dict[str, object]:
    """The ElasticQuota object of a root quota."""
    profiles = derived.node_pools.profiles_of_root(quota.name)
    foreign_labels, foreign_annotations, weight, namespaces = marks_of(state, quota.name)
    totals: dict[str, int] = {}
    idle: dict[str, int] = {}
    for profile in profiles:
        _add(totals, derived.node_pools.total(profile))
        _add(idle, derived.node_pools.idle(profile))
    annotations = dict(foreign_annotations) | {TOTAL: as_json(shown(totals)), UNSCHEDULABLE: as_json(shown(idle))}
    if weight:
        annotations[WEIGHT] = as_json(shown(dict(weight)))
    if namespaces:
        annotations[NAMESPACES] = as_json(list(namespaces))
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {
            "name": quota.name,
            "namespace": quota.namespace,
            "labels": dict(sorted((dict(foreign_labels) | root_labels(profiles)).items())),
            "annotations": dict(sorted(annotations.items())),
        },
        "spec": {"max": shown(quota.maximum), "min": shown(quota.minimum)},
    }


def ignores_default_tree(profiles: list[Profile]) -> bool:
    """Whether a profile sets ignore-default-tree, which has no effect."""
    return any((IGNORE_DEFAULT_TREE, "true") in profile.labels for profile in profiles)


def _add(sums: dict[str, int], more: dict[str, int]) -> None:
    for resource, amount in more.items():
        sums[resource] = sums.get(resource, 0) + amount


def shown(amounts: dict[str, int]) -> dict[str, str]:
    """Canonical quantities, sorted by resource, zeros kept."""
    return {resource: dimension(resource).show(amounts[resource]) for resource in sorted(amounts)}


def listing(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def as_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
