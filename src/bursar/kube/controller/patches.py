"""The patches that the controller sends, as plain data. Nothing here talks to anybody.

A pod is started by one strategic merge patch: it writes the record of the admission, narrows the pod's node affinity
and removes the gate (only ours: gates are merged by name). The pod's uid stands in it, so that it fails on another pod
of the same name.

On a gated pod the API server lets required node affinity be set where there is none; else requirements can only be
added to the terms that are there. So whatever narrows the pod goes into every term.

What a decision over a node becomes on Kubernetes: a pin, a fence around the GPU nodes, or nothing.

Pinned are the claims whose decision is about that very node: parts of its GPUs, or the share of CPU pods on a GPU node.
Everybody else's place is provisional, and the scheduler may find a better one; a CPU pod whose place is elsewhere is
kept off the GPU nodes, where it has no place.

What the controller writes down on pods so that another one can take over: admissions and holds, as JSON.

A record that cannot be read is none: it was forged (the guards refuse that) or written by a version that is not known.
The pod then counts by what is seen of it.

The names by which the controller knows its own marks on objects; those that guards know too are theirs.

What Bursar writes on a pod is never read back as a wish of the pod's owner; at a rebuild it is read as a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from bursar.kube.admission import predicate
from bursar.ledger.claims import Claim
from bursar.objects.core import Node
from bursar.policies.crossquota.arguments import GPU_NODE_LABEL
from bursar.policies.crossquota.node_quota import CrossQuotaNodeBody, count_gpus
from bursar.policies.crossquota.plugin import node_settings
from bursar.policies.crossquota.policy import CrossQuotaPolicy
from bursar.policies.elastic.settings import CAPACITY_LABEL
from bursar.policies.gpus.worker import CONTAINER_GPUS, GPU_IDS, HARD_PERCENT
from bursar.policies.policy import Policy

GATE: Final = predicate.GATE
GOVERNED_LABEL: Final = predicate.NAMESPACE_LABEL
ENFORCED: Final = predicate.ENFORCED
ADMISSION: Final = predicate.RECORD_ANNOTATION
TERM: Final = predicate.TERM_ANNOTATION
OWN_PREFIX: Final = predicate.OWN_PREFIX  # of annotations; labels with it are the users'
HOLD: Final = OWN_PREFIX + "hold"
GPU_NODE: Final = GPU_NODE_LABEL
OWN_ANNOTATIONS: Final = frozenset({GPU_IDS, CONTAINER_GPUS, HARD_PERCENT})
OWN_LABELS: Final = frozenset({CAPACITY_LABEL})

INVALID: Final = "control.invalid"
UNJUDGED: Final = "control.unjudged"
PREEMPTED: Final = "control.preempted-by-others"


def is_own_annotation(name: str) -> bool:
    return name.startswith(OWN_PREFIX) or name in OWN_ANNOTATIONS


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


_FRACTIONS = "gpus"


@dataclass(frozen=True, slots=True)
class Orders:
    """How the scheduler is bound to the decision."""

    pin: bool
    keep_off: bool


class PlacementJudge:
    """Judges claims that have their place, by the policies of one engine."""

    def __init__(self, policies: Iterable[Policy], *, pin_all: bool = False) -> None:
        self._cross = next((policy for policy in policies if isinstance(policy, CrossQuotaPolicy)), None)
        self.pin_all = pin_all

    def orders(self, claim: Claim, unjudged: tuple[str, ...], *, expressible: bool = True) -> Orders:
        """``expressible``: whether all that narrows the pod can be written without naming the node."""
        shares = self.shares_gpu_node(claim)
        fraction = takes_fractions(claim)
        pin = fraction or shares or ((self.pin_all or not expressible) and not unjudged)
        return Orders(bool(claim.place) and pin, not shares and self.must_stay_off(claim))

    def must_stay_off(self, claim: Claim) -> bool:
        """Whether GPU nodes are closed to the claim except where it was given a share of one."""
        cross = self._cross
        return cross is not None and bool(cross.index.patterns) and cross.index.scope.limited(claim)

    def unmarked(self, node: Node) -> bool:
        """Whether this is a GPU node without the label that keeps pods off."""
        cross = self._cross
        if cross is None or not cross.index.patterns:
            return False
        body = node_settings("", node)[0].body
        if not isinstance(body, CrossQuotaNodeBody) or body.labelled:
            return False
        return count_gpus(body.allocatable, cross.index.patterns) > 0

    def shares_gpu_node(self, claim: Claim) -> bool:
        """Whether its place is a GPU node on which it counts among the CPU pods."""
        if not claim.place or not self.must_stay_off(claim):
            return False
        facts = self._cross.index.node(claim.place) if self._cross is not None else None
        return facts is not None and facts.is_gpu_node()


def takes_fractions(claim: Claim) -> bool:
    """Whether its decision names GPUs."""
    return any(binding is not None and binding.policy == _FRACTIONS for binding in claim.bindings)


T = TypeVar("T")


class AdmissionRecord(Struct, frozen=True, omit_defaults=True):
    """Why a pod may run: the decision, what it is charged for, and whose place it took ((uid, owner) of each)."""

    seq: int
    term: int
    place: str = ""
    pinned: bool = False
    fenced: bool = False  # kept off the GPU nodes
    bindings: tuple[object, ...] = ()
    displaced: tuple[tuple[str, str], ...] = ()


class HoldRecord(Struct, frozen=True, omit_defaults=True):
    """A place promised to a pod that still waits, and who must leave for it ((uid, owner) of each)."""

    place: str
    victims: tuple[tuple[str, str], ...] = ()


_admission = msgspec.json.Decoder(AdmissionRecord)
_hold = msgspec.json.Decoder(HoldRecord)


def admission_of(annotations: Mapping[str, str]) -> AdmissionRecord | None:
    return _read(_admission, annotations.get(ADMISSION))


def hold_of(annotations: Mapping[str, str]) -> HoldRecord | None:
    return _read(_hold, annotations.get(HOLD))


def admission_record(
    claim: Claim, seq: int, term: int, orders: Orders, displaced: tuple[tuple[str, str], ...]
) -> AdmissionRecord:
    bindings = tuple(binding.record() for binding in claim.bindings if binding is not None)
    return AdmissionRecord(seq, term, claim.place, orders.pin, orders.keep_off, bindings, displaced)


def written(record: Struct) -> str:
    return msgspec.json.encode(record).decode()


def _read(decoder: msgspec.json.Decoder[T], text: str | None) -> T | None:
    if text is None:
        return None
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
