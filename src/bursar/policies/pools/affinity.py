"""Admission of pods: they name a quota that takes pods, and run on the nodes of its tree.

The selectors of the tree's profiles are merged into the pod's required node affinity. Terms of an affinity are
alternatives, so every term is restricted; several profiles of a tree are alternatives too, so a term becomes one for
each of them. A term that says so already stays as it is, and one without requirements, which matches nothing, keeps
matching nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bursar.objects.errors import ManifestError, join
from bursar.policies.pools.names import DEFAULT, PREEMPTIBLE, QUOTA_OF_POD
from bursar.policies.pools.profiles import Profile
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
