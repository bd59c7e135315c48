"""Admission checks and completes an object before it is stored, and translates it to settings of the policies.

Each plugin brings the functions for its kinds: for one object, or for all that one apply or delete changes, which are
judged together. The control loop adds its own: a pod gets its priority when it is created and keeps it, disruption
budgets are settings of the engine, and the Configuration has a section ``control``. ``PodBook`` makes claims of pods.
Admission is pure, and the same in a dry run. The module also lists the reasons of the control loop and of all plugins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, cast

import msgspec
from msgspec import Meta, structs

from bursar.control.gangs import forked
from bursar.engine import disruption_budgets
from bursar.engine.decision import REASONS as ENGINE_REASONS
from bursar.engine.disruption_budgets import BudgetBody, BudgetOptions
from bursar.ledger.claims import Claim
from bursar.objects import local_options
from bursar.objects.core import Part, Pod, PodDisruptionBudget, PriorityClass
from bursar.objects.crds import Section, configuration_kind
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import (
    CORE_KINDS,
    DISRUPTION_BUDGET,
    POD,
    PRIORITY_CLASS,
    Kind,
    KindSet,
    TypedObject,
    int_or_percent,
)
from bursar.objects.manifests import Document
from bursar.objects.pods import Priorities, SpecCache, claim_from_pod
from bursar.objects.validation import duration_ms, selector_from
from bursar.policies.ownership import ACCESS, OPTIONS_SETTING, RULES_SETTING, AccessOptions, AccessRules
from bursar.policies.plugin import ObjectEdit, ObjectView, Plugin, Reason, Registry
from bursar.policies.results import Setting

_PRIORITY_FIELDS = {
    "priority": "priority",
    "priorityClassName": "priority_class_name",
    "preemptionPolicy": "preemption_policy",
}


class Admission:
    """The admission of all policies, for any store of objects."""

    def __init__(self, registry: Registry, kinds: KindSet) -> None:
        self._plugins = list(registry)
        self._kinds = kinds

    def admit(self, view: ObjectView, old: Mapping[str, Any] | None, given: TypedObject) -> TypedObject:
        """Returns the object to store, or raises ``ManifestError``. ``view`` does not contain it.

        Of several objects that are applied together each is completed, and then all are reviewed.
        """
        return self.review(view, [(old, self.complete(view, old, given))])[0]

    def complete(self, view: ObjectView, old: Mapping[str, Any] | None, given: TypedObject) -> TypedObject:
        """The object with the defaults of all policies that judge it alone."""
        try:
            if given.kind.name == POD.name:
                given = _with_priority(view, old, given)
            body = given.body
            for plugin in self._plugins:
                admit = plugin.admit.get(given.kind.name)
                if admit is not None:
                    body = admit(view, old, body)
        except ManifestError as error:
            raise error.located(subject=f"{given.kind.kind} {given.key}") from None
        return self._read(given, body)

    def review(
        self, view: ObjectView, given: Sequence[tuple[Mapping[str, Any] | None, TypedObject]]
    ) -> list[TypedObject]:
        """(manifest before or None, object) of all that one apply changes -> the objects to store. ``view`` contains
        none of them.
        """
        edits = [ObjectEdit(one.kind.name, one.key, old, one.body) for old, one in given]
        for plugin in self._plugins:
            edits = _reviewed(plugin, view, edits)
        return [self._read(one, edit.new or {}) for (_, one), edit in zip(given, edits, strict=True)]

    def _read(self, given: TypedObject, body: dict[str, Any]) -> TypedObject:
        return given if body is given.body else self._kinds.read(Document("", 0, body))

    def check_removal(self, view: ObjectView, kind: Kind, key: str, body: Mapping[str, Any]) -> None:
        """Raises ``ManifestError`` if the object must not be deleted now."""
        for plugin in self._plugins:
            check = plugin.check_removal.get(kind.name)
            if check is not None:
                try:
                    check(view, body)
                except ManifestError as error:
                    raise error.located(subject=f"{kind.kind} {key}") from None

    def review_removal(self, view: ObjectView, gone: Sequence[tuple[Kind, str, Mapping[str, Any]]]) -> None:
        """Raises ``ManifestError`` if these objects must not all be deleted. ``view`` contains them."""
        edits = [ObjectEdit(kind.name, key, body, None) for kind, key, body in gone]
        for plugin in self._plugins:
            _reviewed(plugin, view, edits)


def _reviewed(plugin: Plugin, view: ObjectView, edits: list[ObjectEdit]) -> list[ObjectEdit]:
    if plugin.review is None or not any(edit.kind in plugin.reviewed for edit in edits):
        return edits
    return plugin.review(view, edits)


def _with_priority(view: ObjectView, old: Mapping[str, Any] | None, given: TypedObject) -> TypedObject:
    """Sets the fields in the manifest and in the typed pod alike, so that it need not be read again."""
    spec = given.body.get("spec") or {}
    pod = cast("Pod", given.typed)
    if old is not None:
        kept = _kept_priority(old.get("spec") or {}, spec)
    else:
        classes = [msgspec.convert(body, PriorityClass) for body in view.list(PRIORITY_CLASS.name)]
        priority, preempts = Priorities(classes).of(pod.spec)
        kept = {"priority": priority, "preemptionPolicy": "PreemptLowerPriority" if preempts else "Never"}
    typed = structs.replace(pod.spec, **{_PRIORITY_FIELDS[name]: value for name, value in kept.items()})
    body = {**given.body, "spec": {**spec, **kept}}
    return replace(given, body=body, typed=structs.replace(pod, spec=typed))


def _kept_priority(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The priority from the creation of the pod. A manifest may omit or repeat it, but not change it."""
    for field in _PRIORITY_FIELDS:
        if new.get(field) is not None and new[field] != old.get(field):
            problem = f"is {old.get(field)!r} since the pod was created, and cannot become {new[field]!r:.60}"
            raise ManifestError(problem, f"spec.{field}")
    return {field: old[field] for field in _PRIORITY_FIELDS if field in old}


SECTION = "control"


class ControlSection(Part, frozen=True):
    """``Configuration.spec.control``."""

    strict: bool = False  # no claim passes the most urgent pending one
    take_back: Annotated[
        Literal["free-to-recreate", "all", "never"],
        Meta(
            description="Kubernetes: which pods are evicted when the scheduler cannot bind them to the node that they"
            " were pinned to. free-to-recreate: those of ReplicaSets and StatefulSets, and of Jobs that ignore it."
        ),
    ] = "free-to-recreate"
    budgets: Annotated[
        Literal["honour", "ignore-for-over-quota"],
        Meta(
            description="Whether disruption budgets protect pods that use what their quota borrows. On Kubernetes those"
            " are then deleted, which takes a right of its own."
        ),
    ] = "honour"
    place_deadline: Annotated[
        str,
        Meta(
            description="Kubernetes: how long a pod that quota alone admitted may wait for a node, such as 10m.",
            extra_json_schema={"maxLength": 63},
        ),
    ] = "10m"
    max_grace_period: Annotated[
        str,
        Meta(
            description="Kubernetes: the most time, such as 5m, that an evicted pod gets to end, whatever it asks for.",
            extra_json_schema={"maxLength": 63},
        ),
    ] = ""
    unowned: Annotated[
        Literal["allow", "refuse"],
        Meta(
            description="Whether pods of any namespace may use a quota or tree node that names no namespaces, nor do"
            " those above it."
        ),
    ] = "allow"
    ignored_gates: Annotated[
        tuple[str, ...],
        Meta(
            description="Kubernetes: scheduling gates of others that do not hold a pod back, because what removes them"
            " waits for Bursar."
        ),
    ] = ()

    def deadline(self) -> int:
        """``place_deadline`` in milliseconds."""
        return duration_ms(self.place_deadline, "spec.control.placeDeadline")

    def longest_grace(self) -> int | None:
        """``max_grace_period`` in whole seconds; None: as the pods ask for."""
        if not self.max_grace_period:
            return None
        return -(-duration_ms(self.max_grace_period, "spec.control.maxGracePeriod") // 1000)


def known_kinds(registry: Registry) -> KindSet:
    """Kubernetes' own kinds, the Configuration with a section for each policy that has one, and the policies' kinds."""
    sections = {plugin.name: plugin.section for plugin in registry if plugin.section is not None}
    own: dict[str, Section] = {SECTION: ControlSection, local_options.SECTION: local_options.LocalSection}
    configuration = configuration_kind(sections | own)
    return KindSet([*CORE_KINDS, configuration, *(kind for plugin in registry for kind in plugin.kinds)])


CONFIGURATION = "Configuration"


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """An object was created or changed (``object``), or deleted (None). ``created`` is in milliseconds, for pods."""

    kind: Kind
    key: str
    object: TypedObject | None
    created: int = 0

    @property
    def is_pod(self) -> bool:
        return self.kind.name == POD.name

    @property
    def typed(self) -> Any:  # noqa: ANN401 the struct of whatever kind it is
        return None if self.object is None else self.object.typed


def settings_of(registry: Registry, changes: Iterable[ObjectChange]) -> list[Setting]:
    """The settings of these changes, in their order. Pods are not settings."""
    found: list[Setting] = []
    for change in changes:
        try:
            found.extend(_settings(registry, change))
        except ManifestError as error:
            raise error.located(subject=f"{change.kind.kind} {change.key}") from None
    return found


def control_section(changes: Iterable[ObjectChange]) -> ControlSection | None:
    """The options of the control loop, if these changes contain a Configuration."""
    section: ControlSection | None = None
    for change in changes:
        if change.kind.kind == CONFIGURATION:
            section = _section(change, SECTION) or ControlSection()
    return section


def _settings(registry: Registry, change: ObjectChange) -> list[Setting]:
    if change.is_pod:
        return []
    if change.kind.name == DISRUPTION_BUDGET.name:
        return [_budget(change.key, change.typed)]
    if change.kind.kind == CONFIGURATION:
        local_options.local_options(_section(change, local_options.SECTION))  # checked here, read by the agents
        options = [setting for plugin in registry for setting in _configured(plugin, change)]
        return [*options, *_control_settings(registry, change)]
    found: list[Setting] = []
    for plugin in registry:
        translate = plugin.translate.get(change.kind.name)
        if translate is not None:
            found.extend(translate(change.key, change.typed))
        access = plugin.access.get(change.kind.name)
        if access is not None and ACCESS in registry:
            rules = None if change.typed is None else AccessRules(tuple(access(change.key, change.typed)))
            found.append(Setting(RULES_SETTING, f"{change.kind.name}/{change.key}", rules))
    return found


def _control_settings(registry: Registry, change: ObjectChange) -> list[Setting]:
    section: ControlSection = _section(change, SECTION) or ControlSection()
    section.longest_grace()
    section.deadline()
    budgets = BudgetOptions(section.budgets == "ignore-for-over-quota")
    found = [Setting(disruption_budgets.OPTIONS, change.key, budgets)]
    if ACCESS in registry:
        found.append(Setting(OPTIONS_SETTING, change.key, AccessOptions(section.unowned == "refuse")))
    return found


def _configured(plugin: Plugin, change: ObjectChange) -> list[Setting]:
    translate = plugin.translate.get(CONFIGURATION)
    return [] if translate is None else translate(change.key, _section(change, plugin.name))


def _section(change: ObjectChange, name: str) -> Any:  # noqa: ANN401 each policy has its own
    return None if change.object is None else getattr(change.typed.spec, name, None)


def _budget(key: str, budget: PodDisruptionBudget | None) -> Setting:
    """A budget without a selector selects no pod; one without a bound keeps one pod, as in Kubernetes."""
    spec = None if budget is None else budget.spec
    if spec is None or spec.selector is None:
        return Setting(disruption_budgets.KIND, key, None)
    namespace = key.partition("/")[0]
    selector = selector_from(spec.selector, "spec.selector")
    if spec.max_unavailable is not None:
        number, percent = int_or_percent(spec.max_unavailable, "spec.maxUnavailable")
        return Setting(disruption_budgets.KIND, key, BudgetBody(namespace, selector, None, number, percent))
    wanted = 1 if spec.min_available is None else spec.min_available
    number, percent = int_or_percent(wanted, "spec.minAvailable")
    return Setting(disruption_budgets.KIND, key, BudgetBody(namespace, selector, number, None, percent))


_PRIORITIES = Priorities()
_ENDED = ("Succeeded", "Failed")


class PodBook:
    """The claims of the existing pods, by the pod's namespace/name. Admission has set each pod's priority already."""

    def __init__(self, registry: Registry, specs: SpecCache) -> None:
        self._unpreemptible = [plugin.unpreemptible for plugin in registry if plugin.unpreemptible is not None]
        self._cache = specs
        self._claims: dict[str, Claim] = {}
        self._keys: dict[str, str] = {}

    def fork(self) -> PodBook:
        """A copy to go on with."""
        return forked(self, _claims=dict(self._claims), _keys=dict(self._keys))

    def read(self, change: ObjectChange) -> tuple[Claim | None, str]:
        """The claim that the pod makes, new and in no ledger, and its key; None when it is gone or has ended."""
        pod = cast("Pod | None", change.typed)
        if pod is None or pod.status.phase in _ENDED:
            return None, change.key
        claim = claim_from_pod(pod, change.created, _PRIORITIES, self._unpreemptible, self._cache)
        return claim, change.key

    def add(self, key: str, claim: Claim) -> None:
        self._claims[key] = claim
        self._keys[claim.uid] = key

    def remove(self, uid: str) -> None:
        key = self._keys.pop(uid, None)
        if key is not None:
            del self._claims[key]

    def claim(self, key: str) -> Claim | None:
        return self._claims.get(key)


CONTROL_REASONS: Final = (
    Reason(
        "control.group-incomplete",
        "The pod starts together with its group, and not all of the group is there yet.",
        "Submit the others, or correct `bursar.dev/group-size`.",
    ),
    Reason(
        "control.leaving",
        "The pod is admitted, and starts when others that were told to leave are gone from its quota, or from the "
        "places of its group, which starts together.",
        "Wait: they leave within their grace period.",
    ),
    Reason(
        "control.invalid",
        "Kubernetes only: an object cannot be read, or what Bursar wants to write on it is refused.",
        "Correct what the note names; a pod must be created again.",
    ),
    Reason(
        "control.unjudged",
        "Kubernetes only: the pod must have its node chosen by Bursar, and has constraints that Bursar does not judge.",
        "Take away the constraint that the note names (volumes, spread, pod affinity, resource claims).",
    ),
    Reason(
        "control.too-large",
        "Kubernetes only: the pod has more of something than is read, so that no pod can slow decisions down.",
        "Shorten the field that the note names; a pod must be created again. A pod that runs counts all the same.",
    ),
    Reason(
        "control.other-gates",
        "Kubernetes only: scheduling gates of others hold the pod back; until they are gone its demand does not count.",
        "Wait for what removes them, or list a gate that waits for Bursar in `control.ignoredGates`.",
    ),
    Reason(
        "control.unknown-scheduler",
        "Kubernetes only: the pod names a scheduler that is not known to run here. It is decided like any other.",
        "Correct `schedulerName`, or name the scheduler in `admission.runningSchedulers` if it does run.",
    ),
    Reason(
        "control.place-lost",
        "Kubernetes only: the scheduler did not bind the pod where Bursar had a place for it; it is evicted.",
        "Its owner creates it again, for another node; see the scheduler's events on the pod.",
    ),
    Reason(
        "control.unscheduled",
        "Kubernetes only: the pod is admitted and keeps its quota, and its scheduler has not bound it.",
        "See the scheduler's words in the note; delete the pod if it cannot run.",
    ),
    Reason(
        "control.preempted-by-others",
        "Kubernetes only: not Bursar but the scheduler itself preempts the pod, for one of higher priority.",
        "Its owner creates it again, and it waits for quota again; let quota govern the pods of higher priority too.",
    ),
    Reason(
        "control.ledger-differs",
        "Kubernetes only: the ledger and the cluster did not agree about the pod, and the ledger was put right.",
        "If it comes again, report it, with the event's note.",
    ),
)


def all_reasons(registry: Registry) -> dict[str, tuple[Reason, ...]]:
    """All reasons, by source: the policies in their order, the engine, the control loop."""
    found = {plugin.name: plugin.reasons for plugin in registry}
    return {**found, "engine": ENGINE_REASONS, "control": CONTROL_REASONS}
