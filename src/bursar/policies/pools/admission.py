"""Admission of quotas: defaults filled in, and everything refused that would break a tree.

Pure functions over a view of the cluster: nothing is remembered, so a dry run is like any other call, and they are
idempotent. The order of the checks is the original's; added are circles, the controller's own keys, and that every
meaningful key is checked on update too.

Admission of pods: they name a quota that takes pods, and run on the nodes of its tree.

The selectors of the tree's profiles are merged into the pod's required node affinity. Terms of an affinity are
alternatives, so every term is restricted; several profiles of a tree are alternatives too, so a term becomes one for
each of them. A term that says so already stays as it is, and one without requirements, which matches nothing, keeps
matching nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bursar.objects.decode import ManifestError, join
from bursar.policies.pools.node_pools import Profile
from bursar.policies.pools.parse import max_amounts, quota_from, text_list, weight_from
from bursar.policies.pools.root_quotas import as_json, shown
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
)
from bursar.policies.pools.topology import QuotaInfo, Topology, info_of, labels_of
from bursar.resources import dimension
from bursar.selectors import Requirement

_LABELS: Final = "metadata.labels"
_ANNOTATIONS: Final = "metadata.annotations"
_FLAGS: Final = (IS_PARENT, LENDS, IS_ROOT, FORCE_UPDATE)


def admit_quota(
    topology: Topology, old: Mapping[str, Any] | None, new: dict[str, Any], guarantee: bool
) -> dict[str, Any]:
    """The quota with its defaults; raises ``ManifestError``."""
    before = None if old is None else info_of(old)
    info = info_of(new)
    if before is not None and info.name in (ROOT, SYSTEM) and _meaning(before) != _meaning(info):
        raise ManifestError("is built in and cannot be changed")
    if info.name in BUILT_IN:
        _read(info)
        return new
    filled = _with_defaults(topology, old, new)
    info = info_of(filled)
    _check_unique(topology, info)
    _check_self(info, filled)
    if topology.root_profiles(info.name):
        _check_parenthood(topology, info, before)
        return filled  # everything else about it is the profile's
    _check_reserved(info, before)
    _check_place(topology, info, before, guarantee)
    return filled


def _meaning(info: QuotaInfo) -> tuple[object, ...]:
    return (info.labels, info.spec, info.annotations.get(WEIGHT), info.annotations.get(NAMESPACES))


def _read(info: QuotaInfo) -> None:
    maximum = info.spec.get("max") or {}
    quota_from(info.namespace, info.name, info.labels, info.annotations, maximum, info.spec.get("min") or {})


# Defaults


def _with_defaults(topology: Topology, old: Mapping[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    info = info_of(new)
    labels = dict(info.labels)
    labels[PARENT] = info.parent
    if not labels.get(TREE) and info.parent != ROOT:
        parent = topology.quotas.get(info.parent)
        if parent is None:
            raise ManifestError(f"there is no quota {info.parent}", join(_LABELS, PARENT))
        if parent.tree:
            labels[TREE] = parent.tree
    annotations = dict(info.annotations)
    if not topology.root_profiles(info.name):
        annotations[WEIGHT] = _weight(info, None if old is None else info_of(old))
    metadata = {**new["metadata"], "labels": labels}
    if annotations:
        metadata["annotations"] = annotations
    return {**new, "metadata": metadata}


def _weight(info: QuotaInfo, before: QuotaInfo | None) -> str:
    """The weight in the keys of max. One that is not given, or was filled in from the max before, follows the max."""
    maximum = info.maximum()
    given = weight_from(info.annotations)
    if before is not None and given == before.maximum() and weight_from(before.annotations) == given:
        given = {}
    return as_json(shown({resource: given.get(resource, maximum[resource]) for resource in maximum}))


# Checks


def _check_unique(topology: Topology, info: QuotaInfo) -> None:
    known = topology.quotas.get(info.name)
    if known is not None and known.namespace != info.namespace:
        problem = f"there is a quota of this name in namespace {known.namespace}: names are unique in the cluster"
        raise ManifestError(problem, "metadata.name")
    for namespace in info.namespaces():
        for name in sorted(topology.quotas):
            other = topology.quotas[name]
            if name != info.name and NAMESPACES in other.annotations and namespace in other.namespaces():
                problem = f"namespace {namespace} is bound to quota {name} already"
                raise ManifestError(problem, join(_ANNOTATIONS, NAMESPACES))


def _check_self(info: QuotaInfo, manifest: Mapping[str, Any]) -> None:
    for flag in _FLAGS:
        value = info.labels.get(flag, "")
        if value not in ("", "true", "false"):
            raise ManifestError(f"{value!r:.40} is neither 'true' nor 'false'", join(_LABELS, flag))
    _read(info)
    status = manifest.get("status")
    used = status.get("used") if isinstance(status, dict) else None
    if not isinstance(used, dict):
        return
    in_use = max_amounts(used, "status.used")
    maximum = info.maximum()
    for resource in text_list(info.annotations, STRICT_KEYS):
        if resource not in in_use:
            continue
        if resource not in maximum:
            raise ManifestError("is checked strictly and in use, so it must be listed", join("spec.max", resource))
        if maximum[resource] < in_use[resource]:
            show = dimension(resource).show
            problem = f"{show(maximum[resource])} is less than the {show(in_use[resource])} in use"
            raise ManifestError(problem, join("spec.max", resource))


def _check_reserved(info: QuotaInfo, before: QuotaInfo | None) -> None:
    """What only the controller writes, on root quotas."""
    for key in (IS_ROOT, PROFILE):
        value = info.labels.get(key, "")
        if value and (key != IS_ROOT or value == "true") and (before is None or before.labels.get(key) != value):
            raise ManifestError("is set by Bursar, on the root quota of a profile", join(_LABELS, key))
    for key in (TOTAL, UNSCHEDULABLE):
        value = info.annotations.get(key, "")
        if value and (before is None or before.annotations.get(key) != value):
            raise ManifestError("is set by Bursar, on the root quota of a profile", join(_ANNOTATIONS, key))


def _check_parenthood(topology: Topology, info: QuotaInfo, before: QuotaInfo | None) -> None:
    """A quota with children stays a parent; one with pods does not become one."""
    if before is None or before.is_parent == info.is_parent:
        return
    path = join(_LABELS, IS_PARENT)
    if before.is_parent:
        children = [child.name for child in topology.children_of(info.name)]
        if children:
            raise ManifestError(f"must stay true: {_listing(children)} are its children", path)
        return
    pods = topology.pods_of(info.name)
    if pods:
        raise ManifestError(f"must stay false: {_listing(pods)} belong to it", path)


def _check_place(topology: Topology, info: QuotaInfo, before: QuotaInfo | None, guarantee: bool) -> None:
    _check_parenthood(topology, info, before)
    parent = topology.quotas.get(info.parent)
    children = [child for child in topology.children_of(info.name) if child.name != info.name]
    _check_tree(info, None if before is None else _tree_before(topology, before), parent, children)
    if info.parent != ROOT:
        path = join(_LABELS, PARENT)
        if parent is None:
            raise ManifestError(f"there is no quota {info.parent}", path)
        if topology.below(info.name, info.parent):
            raise ManifestError(f"{info.parent} is this quota or below it: a quota cannot be below itself", path)
        if not parent.is_parent:
            raise ManifestError(f"{info.parent} may have no children: its label is-parent is not 'true'", path)
        _check_keys(info, parent)
    for child in children:
        _check_keys(child, info)
    if not info.forced and not info.is_root and (before is None or _promised(before) != _promised(info)):
        _check_sums(topology, info, parent, children)
        if guarantee and info.tree:
            _check_guarantee(topology, info)


def _promised(info: QuotaInfo) -> tuple[str, dict[str, int]]:
    """What the sums of mins depend on. Who leaves it as it is promises no more, however few nodes the tree has now."""
    return info.parent, info.minimum()


def _tree_before(topology: Topology, before: QuotaInfo) -> str | None:
    """The tree that it belonged to: the one that it named, or else that of its parent; None: nobody can say."""
    if before.tree or before.parent == ROOT:
        return before.tree
    parent = topology.quotas.get(before.parent)
    return None if parent is None else parent.tree


def _check_tree(info: QuotaInfo, before: str | None, parent: QuotaInfo | None, children: list[QuotaInfo]) -> None:
    path = join(_LABELS, TREE)
    if before is not None and before != info.tree:
        raise ManifestError(f"cannot change from {before!r} to {info.tree!r}: a quota stays in its tree", path)
    if info.parent != ROOT and parent is not None and parent.tree != info.tree:
        raise ManifestError(f"{info.tree!r} is not {parent.tree!r}, the tree of its parent {parent.name}", path)
    for child in children:
        if child.tree != info.tree:
            raise ManifestError(f"{info.tree!r} is not {child.tree!r}, the tree of its child {child.name}", path)


def _check_keys(child: QuotaInfo, parent: QuotaInfo) -> None:
    below = set(child.maximum())
    above = set(parent.maximum())
    if below != above:
        differing = ", ".join(sorted(below ^ above))
        raise ManifestError(f"{child.name} and its parent {parent.name} differ in {differing}", "spec.max")
    missing = set(child.minimum()) - set(parent.minimum())
    if missing:
        resources = ", ".join(sorted(missing))
        raise ManifestError(f"{child.name} has {resources}, but its parent {parent.name} has not", "spec.min")


def _check_sums(topology: Topology, info: QuotaInfo, parent: QuotaInfo | None, children: list[QuotaInfo]) -> None:
    """The mins of children fit the min of their parent, from both sides."""
    if info.parent != ROOT and parent is not None:
        siblings = [other for other in topology.children_of(parent.name) if other.name != info.name]
        _check_sum([*siblings, info], parent)
    if children:
        _check_sum(children, info)


def _check_sum(children: list[QuotaInfo], parent: QuotaInfo) -> None:
    sums: dict[str, int] = {}
    for child in children:
        for resource, amount in child.minimum().items():
            sums[resource] = sums.get(resource, 0) + amount
    has = parent.minimum()
    for resource in sorted(sums):
        if sums[resource] > has.get(resource, 0):
            show = dimension(resource).show
            together = f"{show(sums[resource])} for {_listing([child.name for child in children])} together"
            problem = f"{together} is more than the {show(has.get(resource, 0))} of their parent {parent.name}"
            raise ManifestError(problem, join("spec.min", resource))


def _check_guarantee(topology: Topology, info: QuotaInfo) -> None:
    """With guaranteed usage, a min can only be promised where an ancestor has that much."""
    need = _larger(info.minimum(), info.guaranteed(GUARANTEED))
    if _fits(info.minimum(), info.guaranteed(GUARANTEED)):
        return
    at = info
    while at.parent != ROOT:
        parent = topology.quotas[at.parent]
        for sibling in topology.children_of(parent.name):
            if sibling.name != at.name:
                for resource, amount in sibling.guaranteed(GUARANTEED).items():
                    need[resource] = need.get(resource, 0) + amount
        need = _larger(parent.minimum(), need)
        if _fits(need, parent.guaranteed(GUARANTEED)):
            return
        at = parent
    raise ManifestError("cannot be guaranteed: no quota above has that much left", "spec.min")


def _larger(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {resource: max(one.get(resource, 0), other.get(resource, 0)) for resource in {**one, **other}}


def _fits(amounts: dict[str, int], limits: dict[str, int]) -> bool:
    for resource, amount in amounts.items():
        if amount > limits.get(resource, 0):
            return False
    return True


def check_quota_removal(topology: Topology, manifest: Mapping[str, Any]) -> None:
    """A quota that is built in, a root, a parent or in use stays."""
    info = info_of(manifest)
    if info.name in (ROOT, SYSTEM, DEFAULT):
        raise ManifestError("is built in and cannot be deleted")
    profiles = topology.root_profiles(info.name)
    if profiles:
        raise ManifestError(f"is the root quota of profile {profiles[0].key}: delete that")
    _check_unused(topology, info.name)


def _check_unused(topology: Topology, name: str) -> None:
    children = [child.name for child in topology.children_of(name)]
    if children:
        raise ManifestError(f"has children: {_listing(children)}")
    pods = topology.pods_of(name)
    if pods:
        raise ManifestError(f"is in use by {len(pods)} {'pod' if len(pods) == 1 else 'pods'}: {_listing(pods, 2)}")


def check_root_unused(topology: Topology, name: str) -> None:
    """Before a profile lets go of its root quota."""
    try:
        _check_unused(topology, name)
    except ManifestError as error:
        raise ManifestError(f"its root quota {name} {error.problem}") from None


def _listing(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def admit_pod(
    topology: Topology, old: Mapping[str, Any] | None, new: dict[str, Any], parent_pods: bool
) -> dict[str, Any]:
    """The pod with the affinity of its tree; raises ``ManifestError``."""
    labels = labels_of(new)
    if old is not None and labels_of(old).get(PREEMPTIBLE) != labels.get(PREEMPTIBLE):
        raise ManifestError("cannot be changed", join("metadata.labels", PREEMPTIBLE))
    namespace = str(new["metadata"].get("namespace") or "")
    name = topology.resolve(namespace, labels)
    before = None if old is None else topology.resolve(namespace, labels_of(old))
    quota = topology.quotas.get(name)
    if quota is None:
        return new
    if quota.is_parent and name not in (DEFAULT, before) and not parent_pods:
        raise ManifestError(f"quota {name} has children: a pod must name one of those", _path(labels))
    profiles = [profile for profile in topology.profiles if profile.tree == quota.tree]
    return with_affinity(new, profiles) if quota.tree else new


def _path(labels: Mapping[str, str]) -> str:
    return join("metadata.labels", QUOTA_OF_POD) if labels.get(QUOTA_OF_POD) else "metadata.namespace"


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
        return [term]  # matches nothing, and must go on doing so
    for choice in choices:
        if _all_in(choice, expressions):
            return [term]
    kept = {key: value for key, value in term.items() if key != "new"}
    return [
        {**kept, "matchExpressions": [*expressions, *[r for r in choice if r not in expressions]]} for choice in choices
    ]


def _all_in(choice: list[dict[str, Any]], expressions: list[Any]) -> bool:
    for requirement in choice:
        if requirement not in expressions:
            return False
    return True


def _plain(requirements: tuple[Requirement, ...]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for requirement in requirements:
        plain: dict[str, Any] = {"key": requirement.key, "operator": requirement.operator}
        if requirement.values:
            plain["values"] = list(requirement.values)
        found.append(plain)
    return found
