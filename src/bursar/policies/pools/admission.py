"""Admission of quotas and pods: fills in defaults, and refuses what would break a tree.

These are pure and idempotent functions over a topology of the cluster. The checks are in Koordinator's order; added are
cycles, keys that only Bursar writes, and the check of every meaningful key on update.

A pod must belong to a quota that takes pods, and runs on the nodes of its tree: the selectors of the tree's profiles
are merged into its required node affinity. Terms of an affinity are alternatives, and so are the profiles of a tree;
each term becomes one for each profile. A term that has the requirements already stays as it is, and one without
requirements, which matches nothing, keeps matching nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bursar.objects.decode import ManifestError, join
from bursar.policies.pools.node_pools import Profile
from bursar.policies.pools.parse import amounts_in, max_amounts, quota_from, stored_quota, text_list, weight_from
from bursar.policies.pools.root_quotas import as_json, listing, shown
from bursar.policies.pools.settings import (
    BUILT_IN,
    DEFAULT,
    FORCE_UPDATE,
    GUARANTEED,
    IS_PARENT,
    IS_ROOT,
    LENDS,
    NAMESPACES,
    PARENT,
    PREEMPTIBLE,
    PROFILE,
    QUOTA_OF_POD,
    ROOT,
    STRICT_KEYS,
    SYSTEM,
    TOTAL,
    TREE,
    UNSCHEDULABLE,
    WEIGHT,
    PoolQuotaBody,
    QuotaObject,
)
from bursar.policies.pools.topology import Topology, labels_of
from bursar.resources import dimension
from bursar.selectors import Requirement

_LABELS: Final = "metadata.labels"
_ANNOTATIONS: Final = "metadata.annotations"
_FLAGS: Final = (IS_PARENT, LENDS, IS_ROOT, FORCE_UPDATE)


def admit_quota(
    topology: Topology, old: Mapping[str, Any] | None, new: dict[str, Any], guarantee: bool
) -> dict[str, Any]:
    """The quota with its defaults; raises ``ManifestError``."""
    name = str(new["metadata"]["name"])
    if old is not None and name in (ROOT, SYSTEM) and _meaning(old) != _meaning(new):
        raise ManifestError("is built in and cannot be changed")
    given = _read(new)
    if name in BUILT_IN:
        return new
    before = None if old is None else stored_quota(old)
    filled = _with_defaults(topology, before, given, new)
    given = _read(filled)
    _check_unique(topology, given.quota)
    _check_self(given, filled)
    by_profile = bool(topology.node_pools.profiles_of_root(name))  # the profile defines all but is-parent
    if not by_profile:
        _check_reserved(given, before)
    _check_parenthood(topology, given.quota, before)
    if not by_profile:
        _check_place(topology, given, None if before is None else before.quota, guarantee)
    return filled


def _read(manifest: Mapping[str, Any]) -> QuotaObject:
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    namespace, name = str(metadata.get("namespace") or ""), str(metadata["name"])
    annotations = metadata.get("annotations") or {}
    return quota_from(namespace, name, labels_of(manifest), annotations, spec.get("max") or {}, spec.get("min") or {})


def _meaning(manifest: Mapping[str, Any]) -> tuple[object, ...]:
    annotations = manifest["metadata"].get("annotations") or {}
    return (labels_of(manifest), manifest.get("spec") or {}, annotations.get(WEIGHT), annotations.get(NAMESPACES))


# Defaults


def _with_defaults(
    topology: Topology, before: QuotaObject | None, given: QuotaObject, manifest: dict[str, Any]
) -> dict[str, Any]:
    quota = given.quota
    labels = {**given.labels, PARENT: quota.parent}
    if not labels.get(TREE) and quota.parent != ROOT:
        parent = topology.names.quotas.get(quota.parent)
        if parent is None:
            raise ManifestError(f"there is no quota {quota.parent}", join(_LABELS, PARENT))
        if parent.tree:
            labels[TREE] = parent.tree
    annotations = dict(given.annotations)
    if not topology.node_pools.profiles_of_root(quota.name):
        annotations[WEIGHT] = _weight(given, before)
    metadata = {**manifest["metadata"], "labels": labels}
    if annotations:
        metadata["annotations"] = annotations
    return {**manifest, "metadata": metadata}


def _weight(given: QuotaObject, before: QuotaObject | None) -> str:
    """The weight in the keys of max. One that is not given, or was filled in from the max before, follows the max."""
    maximum = given.quota.maximum
    weight = weight_from(given.annotations)
    if before is not None and weight == before.quota.maximum and weight_from(before.annotations) == weight:
        weight = {}
    return as_json(shown({resource: weight.get(resource, maximum[resource]) for resource in maximum}))


# Checks


def _check_unique(topology: Topology, quota: PoolQuotaBody) -> None:
    topology.names.check_name(quota.name, quota.namespace, "metadata.name")
    for namespace in quota.namespaces:
        for name in topology.names.lists.get(namespace, []):
            if name != quota.name:
                problem = f"namespace {namespace} is bound to quota {name} already"
                raise ManifestError(problem, join(_ANNOTATIONS, NAMESPACES))


def _check_self(given: QuotaObject, manifest: Mapping[str, Any]) -> None:
    for flag in _FLAGS:
        value = given.labels.get(flag, "")
        if value not in ("", "true", "false"):
            raise ManifestError(f"{value!r:.40} is neither 'true' nor 'false'", join(_LABELS, flag))
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


def _check_reserved(given: QuotaObject, before: QuotaObject | None) -> None:
    """Only Bursar writes these, on root quotas."""
    for key in (IS_ROOT, PROFILE):
        value = given.labels.get(key, "")
        if value and (key != IS_ROOT or value == "true") and (before is None or before.labels.get(key) != value):
            raise ManifestError("is set by Bursar, on the root quota of a profile", join(_LABELS, key))
    for key in (TOTAL, UNSCHEDULABLE):
        value = given.annotations.get(key, "")
        if value and (before is None or before.annotations.get(key) != value):
            raise ManifestError("is set by Bursar, on the root quota of a profile", join(_ANNOTATIONS, key))


def _check_parenthood(topology: Topology, quota: PoolQuotaBody, before: QuotaObject | None) -> None:
    """A quota with children stays a parent; one with pods does not become one."""
    if before is None or before.quota.is_parent == quota.is_parent:
        return
    path = join(_LABELS, IS_PARENT)
    if before.quota.is_parent:
        children = topology.names.children.get(quota.name, [])
        if children:
            raise ManifestError(f"must stay true: {listing(children)} are its children", path)
        return
    pods = topology.pods_of(quota.name)
    if pods:
        raise ManifestError(f"must stay false: {listing(pods)} belong to it", path)


def _check_place(topology: Topology, given: QuotaObject, before: PoolQuotaBody | None, guarantee: bool) -> None:
    quota = given.quota
    children = [child for child in topology.children_of(quota.name) if child.name != quota.name]
    _check_tree(quota, None if before is None else _tree_before(topology, before), children)
    misplaced = topology.names.misplaced(quota)
    if misplaced is not None:
        raise ManifestError(misplaced[1], join(_LABELS, misplaced[0]))
    parent = None if quota.parent == ROOT else topology.read(quota.parent).quota
    if parent is not None:
        _check_keys(quota, parent)
    for child in children:
        _check_keys(child, quota)
    if "true" in (given.labels.get(FORCE_UPDATE), given.labels.get(IS_ROOT)):
        return
    if before is not None and (before.parent, before.minimum) == (quota.parent, quota.minimum):
        return  # it promises no more, however few nodes the tree has now
    if parent is not None:
        siblings = [other for other in topology.children_of(parent.name) if other.name != quota.name]
        _check_sum([*siblings, quota], parent)
    _check_sum(children, quota)
    if guarantee and quota.tree:
        _check_guarantee(topology, given)


def _tree_before(topology: Topology, before: PoolQuotaBody) -> str | None:
    """The tree that it belonged to: the one that it named, or that of its parent; None if that is gone."""
    if before.tree or before.parent == ROOT:
        return before.tree
    parent = topology.names.quotas.get(before.parent)
    return None if parent is None else parent.tree


def _check_tree(quota: PoolQuotaBody, before: str | None, children: list[PoolQuotaBody]) -> None:
    path = join(_LABELS, TREE)
    if before is not None and before != quota.tree:
        raise ManifestError(f"cannot change from {before!r} to {quota.tree!r}: a quota stays in its tree", path)
    for child in children:
        if child.tree != quota.tree:
            raise ManifestError(f"{quota.tree!r} is not {child.tree!r}, the tree of its child {child.name}", path)


def _check_keys(child: PoolQuotaBody, parent: PoolQuotaBody) -> None:
    differing = child.maximum.keys() ^ parent.maximum.keys()
    if differing:
        problem = f"{child.name} and its parent {parent.name} differ in {', '.join(sorted(differing))}"
        raise ManifestError(problem, "spec.max")
    missing = child.minimum.keys() - parent.minimum.keys()
    if missing:
        resources = ", ".join(sorted(missing))
        raise ManifestError(f"{child.name} has {resources}, but its parent {parent.name} has not", "spec.min")


def _check_sum(children: list[PoolQuotaBody], parent: PoolQuotaBody) -> None:
    """The mins of children fit the min of their parent."""
    sums: dict[str, int] = {}
    for child in children:
        for resource, amount in child.minimum.items():
            sums[resource] = sums.get(resource, 0) + amount
    for resource in sorted(sums):
        has = parent.minimum.get(resource, 0)
        if sums[resource] > has:
            show = dimension(resource).show
            together = f"{show(sums[resource])} for {listing([child.name for child in children])} together"
            problem = f"{together} is more than the {show(has)} of their parent {parent.name}"
            raise ManifestError(problem, join("spec.min", resource))


def _check_guarantee(topology: Topology, given: QuotaObject) -> None:
    """With guaranteed usage, a min can only be promised where an ancestor has that much."""
    at = given.quota
    guaranteed = amounts_in(given.annotations, GUARANTEED)
    if _fits(at.minimum, guaranteed):
        return
    need = _larger(at.minimum, guaranteed)
    while at.parent != ROOT:
        parent = topology.read(at.parent)
        for sibling in topology.names.children.get(at.parent, []):
            if sibling != at.name:
                for resource, amount in amounts_in(topology.read(sibling).annotations, GUARANTEED).items():
                    need[resource] = need.get(resource, 0) + amount
        need = _larger(parent.quota.minimum, need)
        if _fits(need, amounts_in(parent.annotations, GUARANTEED)):
            return
        at = parent.quota
    raise ManifestError("cannot be guaranteed: no quota above has that much left", "spec.min")


def _larger(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {resource: max(one.get(resource, 0), other.get(resource, 0)) for resource in {**one, **other}}


def _fits(amounts: dict[str, int], limits: dict[str, int]) -> bool:
    return all(amount <= limits.get(resource, 0) for resource, amount in amounts.items())


def check_quota_removal(topology: Topology, manifest: Mapping[str, Any]) -> None:
    """Raises ``ManifestError`` for a quota that is built in, a root, a parent or in use."""
    name = str(manifest["metadata"]["name"])
    if name in BUILT_IN:
        raise ManifestError("is built in and cannot be deleted")
    profiles = topology.node_pools.profiles_of_root(name)
    if profiles:
        raise ManifestError(f"is the root quota of profile {profiles[0].key}: delete that")
    _check_unused(topology, name)


def _check_unused(topology: Topology, name: str) -> None:
    children = topology.names.children.get(name, [])
    if children:
        raise ManifestError(f"has children: {listing(children)}")
    pods = topology.pods_of(name)
    if pods:
        raise ManifestError(f"is in use by {len(pods)} {'pod' if len(pods) == 1 else 'pods'}: {listing(pods, 2)}")


def check_root_unused(topology: Topology, name: str) -> None:
    """Raises ``ManifestError`` if the root quota of a profile is in use."""
    try:
        _check_unused(topology, name)
    except ManifestError as error:
        raise ManifestError(f"its root quota {name} {error.problem}") from None


_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def admit_pod(
    topology: Topology, old: Mapping[str, Any] | None, new: dict[str, Any], parent_pods: bool
) -> dict[str, Any]:
    """The pod with the affinity of its tree; raises ``ManifestError``."""
    labels = labels_of(new)
    if old is not None and labels_of(old).get(PREEMPTIBLE) != labels.get(PREEMPTIBLE):
        raise ManifestError("cannot be changed", join("metadata.labels", PREEMPTIBLE))
    namespace = str(new["metadata"].get("namespace") or "")
    name = topology.names.name_of(namespace, labels)
    before = None if old is None else topology.names.name_of(namespace, labels_of(old))
    quota = topology.names.quotas.get(name)
    if quota is None:
        return new
    if quota.is_parent and name not in (DEFAULT, before) and not parent_pods:
        path = join("metadata.labels", QUOTA_OF_POD) if labels.get(QUOTA_OF_POD) else "metadata.namespace"
        raise ManifestError(f"quota {name} has children: a pod must name one of those", path)
    return with_affinity(new, topology.node_pools.profiles_of(quota.tree)) if quota.tree else new


def with_affinity(pod: dict[str, Any], profiles: list[Profile]) -> dict[str, Any]:
    """The pod, restricted to the nodes that one of the profiles selects."""
    choices = [_plain(profile.requirements) for profile in profiles if profile.requirements is not None]
    if not choices or [] in choices:
        return pod  # no profile, or one that selects every node
    spec = pod.get("spec") or {}
    affinity = spec.get("affinity") or {}
    on_nodes = affinity.get("nodeAffinity") or {}
    required = on_nodes.get(_REQUIRED) or {}
    terms = list(required.get("nodeSelectorTerms") or [])
    merged: list[dict[str, Any]] = []
    for term in terms or [{"matchExpressions": [], "new": True}]:
        merged.extend(_restricted(term, choices))
    if merged == terms:
        return pod
    required = {**required, "nodeSelectorTerms": merged}
    affinity = {**affinity, "nodeAffinity": {**on_nodes, _REQUIRED: required}}
    return {**pod, "spec": {**spec, "affinity": affinity}}


def _restricted(term: dict[str, Any], choices: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    expressions = list(term.get("matchExpressions") or [])
    if not expressions and not term.get("matchFields") and not term.get("new"):
        return [term]  # matches nothing, and must stay so
    for choice in choices:
        if all(requirement in expressions for requirement in choice):
            return [term]
    kept = {key: value for key, value in term.items() if key != "new"}
    return [
        {**kept, "matchExpressions": [*expressions, *[r for r in choice if r not in expressions]]} for choice in choices
    ]


def _plain(requirements: tuple[Requirement, ...]) -> list[dict[str, Any]]:
    return [
        {"key": one.key, "operator": one.operator, **({"values": list(one.values)} if one.values else {})}
        for one in requirements
    ]
