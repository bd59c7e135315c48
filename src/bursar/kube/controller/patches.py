"""The patches that the controller sends, as plain data. Nothing here talks to anybody.

A pod is started by one strategic merge patch: it writes the record of the admission, narrows the pod's node affinity
and removes the gate (only ours: gates are merged by name). The pod's uid stands in it, so that it fails on another pod
of the same name.

On a gated pod the API server lets required node affinity be set where there is none; else requirements can only be
added to the terms that are there. So whatever narrows the pod goes into every term.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bursar.kube.controller.names import GATE, GPU_NODE

Body = dict[str, Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OFF_GPU_NODES: Body = {"key": GPU_NODE, "operator": "DoesNotExist"}


@dataclass(frozen=True, slots=True)
class Filled:
    """What admission fills in: annotations, and in place of the terms of the required node affinity others."""

    annotations: Mapping[str, str]
    before: list[Body]
    terms: list[Body]

    @property
    def expressible(self) -> bool:
        """Whether what admission narrows can be written without a pin."""
        return not self.before or len(self.terms) == len(self.before)


def filled_in(pod: Mapping[str, Any], admitted: Mapping[str, Any]) -> Filled:
    """The difference between a pod as it was given and as it was admitted (with the defaults of its namespace)."""
    before = pod["metadata"].get("annotations") or {}
    after = admitted["metadata"].get("annotations") or {}
    added = {name: value for name, value in after.items() if before.get(name) != value}
    return Filled(added, node_terms(pod), node_terms(admitted))


def start_patch(uid: str, filled: Filled, annotations: Mapping[str, str | None], *, pin: str, keep_off: bool) -> Body:
    """Let a pod go, with what admission filled in; ``pin``: its node, or ""."""
    spec: Body = {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}
    terms = narrowed(filled.before, filled.terms, pin=pin, keep_off=keep_off)
    if terms is not None:
        spec["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}
    return {"metadata": {"uid": uid, "annotations": {**filled.annotations, **annotations}}, "spec": spec}


def metadata_patch(uid: str, *, annotations: Mapping[str, str | None], labels: Mapping[str, str | None]) -> Body:
    """Write marks on a pod; None takes one away."""
    metadata: Body = {"uid": uid}
    if annotations:
        metadata["annotations"] = dict(annotations)
    if labels:
        metadata["labels"] = dict(labels)
    return {"metadata": metadata}


def node_terms(pod: Mapping[str, Any]) -> list[Body]:
    """The terms of the pod's required node affinity."""
    affinity = (pod.get("spec") or {}).get("affinity") or {}
    required = (affinity.get("nodeAffinity") or {}).get(_REQUIRED) or {}
    return list(required.get("nodeSelectorTerms") or [])


def with_node_terms(pod: Mapping[str, Any], terms: list[Body]) -> Body:
    """The pod with these terms of its required node affinity."""
    spec = pod.get("spec") or {}
    affinity = spec.get("affinity") or {}
    on_nodes = {**(affinity.get("nodeAffinity") or {}), _REQUIRED: {"nodeSelectorTerms": terms}}
    return {**pod, "spec": {**spec, "affinity": {**affinity, "nodeAffinity": on_nodes}}}


def narrowed(before: list[Body], admitted: list[Body], *, pin: str, keep_off: bool) -> list[Body] | None:
    """The terms to write; None when nothing changes.

    Where admission would need more terms than there are (several alternatives), the API server forbids it. A pinned
    pod needs none of them: its node was chosen among the right ones.
    """
    terms = admitted if not before or len(admitted) == len(before) else before
    expressions = [OFF_GPU_NODES] if keep_off else []
    fields = [{"key": "metadata.name", "operator": "In", "values": [pin]}] if pin else []
    if expressions or fields:
        terms = [_with(term, expressions, fields) for term in terms] if terms else [_with({}, expressions, fields)]
    return None if terms == before else terms


def _with(term: Body, expressions: Sequence[Body], fields: Sequence[Body]) -> Body:
    if term and not term.get("matchExpressions") and not term.get("matchFields"):
        return term  # matches nothing, and must go on doing so
    result = dict(term)
    for name, wanted in (("matchExpressions", expressions), ("matchFields", fields)):
        have = list(term.get(name) or [])
        added = [one for one in wanted if one not in have]
        if added:
            result[name] = have + added
    return result
