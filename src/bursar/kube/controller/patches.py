"""The patches that the controller sends, and the records it keeps on pods, as plain data.

One strategic merge patch starts a pod: it writes the admission record, narrows the node affinity and removes Bursar's
gate. It contains the pod's uid, so it fails on another pod of the same name. On a gated pod the API server allows
required node affinity to be set, or requirements to be added to its terms; so a constraint goes into every term.

``PlacementRuleSet`` translates a place: a pod whose decision depends on the very node (GPU fractions, CPU pods on GPU
nodes) is pinned, a CPU pod placed elsewhere is fenced off the GPU nodes, and for any other pod the scheduler may
choose a better node.

Admission and hold records let the next leader take over. An unreadable record is ignored: the pod then counts as it
is. Bursar's own marks on a pod are never read as requests of its owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from bursar.kube.admission import predicate
from bursar.ledger.claims import Claim
from bursar.ledger.preemption_history import Displacement
from bursar.objects.core import Node
from bursar.objects.kinds import NODE
from bursar.objects.pods import GPU_NODE_LABEL
from bursar.policies.plugin import ObjectView, PlacementRules, Registry, installed_marks
from bursar.policies.policy import Policy, QuotaPolicy
from bursar.selectors import NodeNeeds, Requirement

GATE: Final = predicate.GATE
GOVERNED_LABEL: Final = predicate.NAMESPACE_LABEL
ENFORCED: Final = predicate.ENFORCED
ADMISSION: Final = predicate.RECORD_ANNOTATION
TERM: Final = predicate.TERM_ANNOTATION
OWN_PREFIX: Final = predicate.OWN_PREFIX  # of annotations; labels with it are the users'
HOLD: Final = OWN_PREFIX + "hold"
OWN_ANNOTATIONS: Final = frozenset(installed_marks().own_annotations)
OWN_LABELS: Final = frozenset(installed_marks().own_labels)

INVALID: Final = "control.invalid"
UNJUDGED: Final = "control.unjudged"
UNSCHEDULED: Final = "control.unscheduled"
OTHER_GATES: Final = "control.other-gates"
PREEMPTED: Final = "control.preempted-by-others"
TOO_LARGE: Final = "control.too-large"
UNKNOWN_SCHEDULER: Final = "control.unknown-scheduler"


def is_own_annotation(name: str) -> bool:
    return name.startswith(OWN_PREFIX) or name in OWN_ANNOTATIONS


Body = dict[str, Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OFF_GPU_NODES: Body = {"key": GPU_NODE_LABEL, "operator": "DoesNotExist"}


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


def within(terms: list[Body], needs: Iterable[NodeNeeds], node: str, labels: Mapping[str, str]) -> list[Body]:
    """The terms of a pod, restricted to the nodes that its quotas allow.

    Each becomes one for each alternative. But a pod with terms of its own can get no more of them, so it gets only the
    first alternative with the node that was chosen, if any has it.
    """
    for one in needs:
        choices = one.terms
        if choices is None:
            continue
        if terms and len(choices) > 1:
            choices = tuple(choice for choice in choices if choice.matches(node, labels))[:1] or choices
        extra = [[_plain(requirement) for requirement in choice.expressions] for choice in choices]
        if not terms:
            terms = [{"matchExpressions": expressions} for expressions in extra] or [{}]  # which matches no node
        else:
            terms = [_with(term, expressions, ()) for term in terms for expressions in extra]
    return terms


def _plain(requirement: Requirement) -> Body:
    values = {"values": list(requirement.values)} if requirement.values else {}
    return {"key": requirement.key, "operator": requirement.operator, **values}


def start_patch(uid: str, filled: Filled, annotations: Mapping[str, str | None], *, pin: str, keep_off: bool) -> Body:
    """Ungate a pod, with what admission filled in; ``pin`` is its node, or empty."""
    spec: Body = {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}
    terms = narrowed(filled.before, filled.terms, pin=pin, keep_off=keep_off)
    if terms is not None:
        spec["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}
    return {"metadata": {"uid": uid, "annotations": {**filled.annotations, **annotations}}, "spec": spec}


def metadata_patch(uid: str, *, annotations: Mapping[str, str | None], labels: Mapping[str, str | None]) -> Body:
    """Write marks on a pod; None removes one."""
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

    Where more terms would be needed than there are (several alternatives), the API server forbids it. A pinned pod
    needs none of them: its node was chosen among the right ones.
    """
    terms = admitted if not before or len(admitted) == len(before) else before
    expressions = [OFF_GPU_NODES] if keep_off else []
    fields = [{"key": "metadata.name", "operator": "In", "values": [pin]}] if pin else []
    if expressions or fields:
        new = {"matchExpressions": expressions, "matchFields": fields}
        terms = [_with(term, expressions, fields) for term in terms] or [{key: one for key, one in new.items() if one}]
    return None if terms == before else terms


def _with(term: Body, expressions: Sequence[Body], fields: Sequence[Body]) -> Body:
    if not term.get("matchExpressions") and not term.get("matchFields"):
        return term  # matches nothing, and must go on doing so
    result = dict(term)
    for name, wanted in (("matchExpressions", expressions), ("matchFields", fields)):
        have = list(term.get(name) or [])
        added = [one for one in wanted if one not in have]
        if added:
            result[name] = have + added
    return result


@dataclass(frozen=True, slots=True)
class Orders:
    """How the scheduler is bound to the decision."""

    pin: bool
    keep_off: bool


class PlacementRuleSet:
    """Judges claims that have their place, by the placement rules of all policies of an engine."""

    def __init__(self, registry: Registry, policies: Iterable[Policy], nodes: ObjectView, *, pin_all: bool) -> None:
        pairs = registry.paired(policies)
        self._nodes = nodes
        self._quotas = [policy for _, policy in pairs if isinstance(policy, QuotaPolicy)]
        self._rules: list[PlacementRules] = [p.placement(policy) for p, policy in pairs if p.placement is not None]
        self._needs_node = [plugin.needs_node for plugin in registry if plugin.needs_node is not None]
        self.pin_all = pin_all

    def orders(self, claim: Claim, unjudged: tuple[str, ...], *, expressible: bool = True) -> Orders:
        """``expressible``: whether all that narrows the pod can be written without naming the node."""
        pinned = [rules for rules in self._rules if rules.pins(claim)]
        pin = bool(pinned) or ((self.pin_all or not expressible) and not unjudged)
        keep_off = any(rules not in pinned and rules.keeps_off(claim) for rules in self._rules)
        return Orders(bool(claim.place) and pin, keep_off)

    def restricted(self, claim: Claim, filled: Filled) -> Filled:
        """What admission filled in, with the nodes that the claim's quotas allow it now."""
        needs = [policy.node_needs(claim) for policy in self._quotas]
        wanted = [one for one in needs if one is not None]
        if not wanted:
            return filled
        node = self._nodes.get(NODE.name, claim.place) or {"metadata": {}}
        terms = within(filled.terms, wanted, claim.place, node["metadata"].get("labels") or {})
        return Filled(filled.annotations, filled.before, terms)

    def must_stay_off(self, claim: Claim) -> bool:
        """Whether GPU nodes are closed to the claim, except one to which it is pinned."""
        return any(rules.keeps_off(claim) for rules in self._rules)

    def unmarked(self, node: Node) -> bool:
        """Whether this is a GPU node without the label that keeps pods off."""
        return any(rules.unmarked(node) for rules in self._rules)

    def needs_node(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
        """Whether the pod can only be admitted together with a node."""
        return any(needs(labels, annotations) for needs in self._needs_node)


T = TypeVar("T")


class HistoryRecord(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The pod's preemption history: its lineage, its victims, and the victims of those."""

    lineage: str = ""  # if it is not the pod's uid
    displaced: tuple[tuple[str, str], ...] = ()  # by itself: (lineage, key of its heirs)
    history: tuple[Displacement, ...] = ()  # by others that it displaced

    @property
    def displacements(self) -> tuple[Displacement, ...]:
        return (*((loser, key, "") for loser, key in self.displaced), *self.history)


class AdmissionRecord(HistoryRecord, frozen=True, omit_defaults=True):
    """Why a pod may run: the decision, and what it is charged for."""

    seq: int
    term: int
    place: str = ""
    pinned: bool = False
    fenced: bool = False  # kept off the GPU nodes
    scheduled: bool = False  # admitted by quota alone
    bindings: tuple[object, ...] = ()


class HoldRecord(HistoryRecord, frozen=True, omit_defaults=True):
    """A place promised to a pending pod, and the victims it waits for, each as (uid, key of its heirs)."""

    place: str
    victims: tuple[tuple[str, str], ...] = ()


_admission = msgspec.json.Decoder(AdmissionRecord)
_hold = msgspec.json.Decoder(HoldRecord)


def admission_of(annotations: Mapping[str, str]) -> AdmissionRecord | None:
    return _read(_admission, annotations.get(ADMISSION))


def hold_of(annotations: Mapping[str, str]) -> HoldRecord | None:
    return _read(_hold, annotations.get(HOLD))


def admission_record(claim: Claim, seq: int, term: int, orders: Orders, past: HistoryRecord) -> AdmissionRecord:
    bindings = tuple(binding.record() for binding in claim.bindings if binding is not None)
    return AdmissionRecord(
        seq,
        term,
        claim.place,
        orders.pin,
        orders.keep_off,
        not claim.spec.placeable,
        bindings,
        **msgspec.structs.asdict(past),
    )


def history_record(uid: str, lineage: str, displacements: Iterable[Displacement]) -> HistoryRecord:
    """What a claim's preemption history is on its pod."""
    own = lineage or uid
    displaced, history = [], []
    for loser, key, winner in displacements:
        if winner == own:
            displaced.append((loser, key))
        else:
            history.append((loser, key, winner))
    return HistoryRecord(lineage=lineage, displaced=tuple(displaced), history=tuple(history))


def written(record: Struct) -> str:
    return msgspec.json.encode(record).decode()


def _read(decoder: msgspec.json.Decoder[T], text: str | None) -> T | None:
    if text is None:
        return None
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
