"""Admission of pods: each gets the affinity of its tree.

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
from bursar.policies.pools.settings import DEFAULT, PREEMPTIBLE, QUOTA_OF_POD
from bursar.policies.pools.topology import Topology, labels_of
from bursar.selectors import Requirement

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def admit_pod(
    topology: Topology, old: Mapping[str, Any] | None, new: dict[str, Any], parent_pods: bool
) -> dict[str, Any]:
    """The pod with the affinity of its tree; raises ``ManifestError``."""
    labels = labels_of(new)
    if old is not None and labels_of(old).get(PREEMPTIBLE) != labels.get(PREEMPTIBLE):
        raise ManifestError("cannot be changed", join("metadata.labels", PREEMPTIBLE))
    namespace = str(new["metadata"].get("namespace") or "")
    name = topology.name_of(namespace, labels)
    before = None if old is None else topology.name_of(namespace, labels_of(old))
    quota = topology.quota(name)
    if quota is None:
        return new
    if quota.is_parent and name not in (DEFAULT, before) and not parent_pods:
        path = join("metadata.labels", QUOTA_OF_POD) if labels.get(QUOTA_OF_POD) else "metadata.namespace"
        raise ManifestError(f"quota {name} has children: a pod must name one of those", path)
    tree = topology.tree_of(quota)
    return with_affinity(new, topology.profiles.profiles_of(tree)) if tree else new


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
