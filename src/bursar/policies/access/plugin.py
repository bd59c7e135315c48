"""The access policy: a claim uses a quota only from a namespace that may, and below the priority that counts there.

A claim is judged by the rules of its quota and of all quotas above it, so a quota below only narrows. A quota of whose
path nothing names anybody is *unowned*: everybody may use it, unless the Configuration says otherwise. A claim that was
admitted stays, whatever becomes of the rules. Until a claim may use its quota, its demand counts nowhere.

A claim above the cap is refused; one that preempts nobody counts as the cap (``most_priority``). Where no cap is given,
classes of the system (2,000,000,000 and more) are above it, except in kube-system.

The rules are in cells; the indexes here follow them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, cast, final

from bursar.ledger.claims import PENDING, Binding, Claim, ClaimSpec
from bursar.ledger.transaction import Transaction
from bursar.objects.core import Namespace
from bursar.objects.pods import PRIORITY_CLASS_DETAIL
from bursar.policies.fix_fields import FixFields, no_limit_fields
from bursar.policies.ownership import (
    ACCESS,
    NAMESPACE_SETTING,
    OPTIONS_SETTING,
    RULES_SETTING,
    AccessOptions,
    AccessRule,
    AccessRules,
    NamespaceLabels,
    OwnerRules,
    by_scheduler,
    rule_in,
)
from bursar.policies.plugin import Plugin, Reason
from bursar.policies.policy import QuotaPolicy
from bursar.policies.results import Refusal, Setting

NAME: Final = ACCESS
_RULES: Final = "access.rules"
_LABELS: Final = "access.namespaces"
_OPTIONS: Final = "access.options"
_TABLES: Final = {RULES_SETTING: _RULES, NAMESPACE_SETTING: _LABELS, OPTIONS_SETTING: _OPTIONS}
_USERS_HIGHEST: Final = 1_999_999_999
_SYSTEM: Final = "kube-system"


@final
class AccessPolicy(QuotaPolicy):
    """Refuses claims of namespaces that may not use the quota, and of priorities that do not count in it."""

    def __init__(self) -> None:
        super().__init__(NAME, (RULES_SETTING, NAMESPACE_SETTING, OPTIONS_SETTING))
        self.excludes = True
        self.rules: Final[dict[str, dict[str, AccessRule]]] = {}  # by quota, by the object that says so
        self.by_mark: Final[dict[str, dict[str, str]]] = {}  # the quota by label and value
        self.by_namespace: Final[dict[str, dict[str, None]]] = {}  # by namespace: its quotas
        self.children: Final[dict[str, Counter[str]]] = {}  # by quota: those right below it, by how many rules
        self.labels: Final[dict[str, dict[str, str]]] = {}  # of namespaces
        self.scheduled: Final[set[str]] = set()  # namespaces whose pods quota alone admits
        self.refuse_unowned: bool = False
        self.owner_rules = Owners(self)

    # Rules

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        """Returns the pending claims whose answer changes: their demand counts from now on, or no longer."""
        table, value = _cell(setting)
        if self.state.cell(table, setting.key) == value:
            return []
        before = self._refused_classes()
        tx.put(NAME, table, setting.key, value)
        after = self._refused_classes()
        found: list[str] = []
        for key, alike in self.state.pending.items():
            if (key in before) != (key in after):
                found.extend(alike)
        return sorted(found)

    def _refused_classes(self) -> set[tuple[ClaimSpec, str]]:
        found: set[tuple[ClaimSpec, str]] = set()
        for key, alike in self.state.pending.items():
            for claim in alike.values():
                if self._judge(claim) is not None:
                    found.add(key)
                break
        return found

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        if table == _LABELS:
            self.labels.pop(key, None)
            self.scheduled.discard(key)
            if new is not None:
                labels, placed = cast("tuple[tuple[tuple[str, str], ...], bool]", new)
                self.labels[key] = dict(labels)
                if placed:
                    self.scheduled.add(key)
        elif table == _OPTIONS:
            self.refuse_unowned = new is not None
        elif table == _RULES:
            self._rules_changed(key, _rules_of(old), _rules_of(new))
        self.concerns_changed()

    def _rules_changed(self, source: str, before: list[AccessRule], after: list[AccessRule]) -> None:
        for rule in before:
            self._drop(source, rule)
        for rule in after:
            self._add(source, rule)
        self.owner_rules.touch(source)
        for quota in self._affected(before, after):
            for other in self.rules.get(quota, {}):
                self.owner_rules.touch(other)

    def _affected(self, before: list[AccessRule], after: list[AccessRule]) -> set[str]:
        """The quotas of these rules, those right above, and all below where an owner came or went."""
        inherited = {rule.quota: (False, "") for rule in (*before, *after)}
        old = inherited | {rule.quota: (rule.named, rule.parent) for rule in before}
        new = inherited | {rule.quota: (rule.named, rule.parent) for rule in after}
        todo = [quota for quota in inherited if old[quota] != new[quota]]
        found = {rule.parent for rule in (*before, *after)} | set(inherited)
        seen = set(todo)
        while todo:
            for below in self.children.get(todo.pop(), ()):
                if below not in seen:
                    seen.add(below)
                    todo.append(below)
        return found | seen

    def _add(self, source: str, rule: AccessRule) -> None:
        self.rules.setdefault(rule.quota, {})[source] = rule
        self.children.setdefault(rule.parent, Counter())[rule.quota] += 1
        if rule.label:
            self.by_mark.setdefault(rule.label, {})[rule.value] = rule.quota
        for namespace in rule.members:
            self.by_namespace.setdefault(namespace, {})[rule.quota] = None

    def _drop(self, source: str, rule: AccessRule) -> None:
        known = self.rules[rule.quota]
        del known[source]
        below = self.children[rule.parent]
        below[rule.quota] -= 1
        if not below[rule.quota]:
            del below[rule.quota]
        if not below:
            del self.children[rule.parent]
        if not known:
            del self.rules[rule.quota]
        if rule.label and not any(other.label for other in known.values()):
            marks = self.by_mark[rule.label]
            marks.pop(rule.value, None)
            if not marks:
                del self.by_mark[rule.label]
        for namespace in rule.members:
            if any(namespace in other.members for other in known.values()):
                continue
            quotas = self.by_namespace[namespace]
            quotas.pop(rule.quota, None)
            if not quotas:
                del self.by_namespace[namespace]

    # One claim

    def concerns(self, claim: Claim) -> bool:
        return self._judge(claim) is not None

    def quotas_of(self, claim: Claim) -> list[str]:
        """The quotas of the claim: those that its labels name, and in other dialects one of its namespace."""
        named: list[str] = []
        for label, value in claim.spec.labels.items():
            quota = self.by_mark.get(label, {}).get(value)
            if quota is not None:
                named.append(quota)
        found = sorted(named)
        dialects = {_dialect(quota) for quota in named}
        own = f"/{claim.namespace}"
        for quota in sorted(self.by_namespace.get(claim.namespace, {}), key=lambda one: (not one.endswith(own), one)):
            if _dialect(quota) not in dialects:
                dialects.add(_dialect(quota))
                found.append(quota)
        return found

    def bind(self, claim: Claim, place: str) -> Binding | Refusal | None:
        if claim.state != PENDING:  # one that was admitted stays
            return None
        return self._judge(claim)

    def _judge(self, claim: Claim) -> Refusal | None:
        for quota in self.quotas_of(claim):
            refusal = self._refusal(claim, quota)
            if refusal is not None:
                return refusal
        return None

    def _refusal(self, claim: Claim, quota: str) -> Refusal | None:
        labels = self.labels.get(claim.namespace, {})
        path = list(self.path(quota))
        for rule in path:
            if not rule.admits(claim.namespace, labels):
                note = f"{rule.subject} may not be used from namespace {claim.namespace}"
                return Refusal(NAME, "access.namespace", note, permanent=True)
        if self.refuse_unowned and path and not any(rule.named for rule in path):
            note = f"{path[0].subject} names no namespace that may use it, and control.unowned is refuse"
            return Refusal(NAME, "access.unowned", note, permanent=True)
        most = self._most(claim, path)
        if most is not None and claim.spec.priority > most and claim.spec.preempts:
            name = claim.spec.details.get(PRIORITY_CLASS_DETAIL, "")
            whose = f" of PriorityClass {name}" if name else ""
            note = f"its priority {claim.spec.priority}{whose} is above {most}, the highest in {path[0].subject}"
            return Refusal(NAME, "access.priority", note, permanent=True)
        return None

    def most_priority(self, claim: Claim) -> int | None:
        """The least of the caps of all its quotas."""
        found: int | None = None
        for quota in self.quotas_of(claim):
            most = self._most(claim, list(self.path(quota)))
            if most is not None and (found is None or most < found):
                found = most
        return found

    def _most(self, claim: Claim, path: list[AccessRule]) -> int | None:
        given = [rule.max_priority for rule in path if rule.max_priority is not None]
        if path and claim.namespace != _SYSTEM:
            given.append(_USERS_HIGHEST)
        return min(given) if given else None

    def path(self, quota: str) -> Iterator[AccessRule]:
        """The rules of the quota, then of those above it. A circle, which nothing in force has, ends it too."""
        seen: set[str] = set()
        while quota and quota not in seen:
            seen.add(quota)
            known = self.rules.get(quota, {})
            quota = ""
            for source in sorted(known):
                yield known[source]
                quota = known[source].parent or quota

    def unowned(self, source: str) -> list[str]:
        """The quotas of an object, without those that have others below, that everybody may use."""
        found: list[str] = []
        for cell in cast("tuple[object, ...]", self.state.cell(_RULES, source) or ()):
            rule = rule_in(cell)
            if (
                rule.label
                and rule.quota not in self.children
                and not any(above.named for above in self.path(rule.quota))
            ):
                found.append(rule.subject)
        return found


@final
class Owners(OwnerRules):
    """What others ask about the rules."""

    def __init__(self, policy: AccessPolicy) -> None:
        super().__init__()
        self.policy: Final = policy

    def unowned(self, source: str) -> list[str]:
        return self.policy.unowned(source)

    def most_priority(self, claim: Claim) -> int | None:
        return self.policy.most_priority(claim)

    def by_scheduler(self, claim: Claim) -> bool:
        """Quotas above say it for those below."""
        quotas = self.policy.quotas_of(claim)
        if claim.namespace in self.policy.scheduled:
            return True
        return any(rule.by_scheduler for quota in quotas for rule in self.policy.path(quota))


def _rules_of(cell: object) -> list[AccessRule]:
    return [rule_in(row) for row in cast("tuple[object, ...]", cell or ())]


def _cell(setting: Setting) -> tuple[str, tuple[object, ...] | None]:
    """The table and the value of a setting's cell."""
    body = setting.body
    if isinstance(body, AccessRules):
        return _RULES, tuple([rule.cell() for rule in body.rules]) or None
    if isinstance(body, NamespaceLabels):
        return _LABELS, (body.labels, body.by_scheduler) if body.labels or body.by_scheduler else None
    if isinstance(body, AccessOptions):
        return _OPTIONS, (True,) if body.refuse_unowned else None
    return _TABLES[setting.kind], None


def _dialect(quota: str) -> str:
    return quota.partition("/")[0]


def namespace_settings(key: str, namespace: Namespace | None) -> list[Setting]:
    if namespace is None:
        return [Setting(NAMESPACE_SETTING, key, None)]
    meta = namespace.metadata
    body = NamespaceLabels(tuple(sorted(meta.labels.items())), by_scheduler(meta.annotations))
    return [Setting(NAMESPACE_SETTING, key, body)]


REASONS: Final = (
    Reason(
        "access.namespace",
        "The pod uses a quota, or a node of a quota tree, that names the namespaces that may use it, and the pod's is "
        "none of them.",
        "Name a quota of your own, or have its owner add the namespace (`bursar.dev/namespaces`, or `namespaces` of a "
        "tree node).",
    ),
    Reason(
        "access.unowned",
        "Nothing names the namespaces that may use the pod's quota, and `control.unowned` is `refuse`.",
        "Have the quota name its namespaces.",
    ),
    Reason(
        "access.priority",
        "The pod's priority is above the highest that counts in its quota. Without a cap that is 1,999,999,999.",
        "Use a lower PriorityClass, or one with `preemptionPolicy: Never`, which counts as the cap.",
    ),
)


PLUGIN = Plugin(
    NAME,
    90,
    AccessPolicy,
    translate={"Namespace": namespace_settings},
    reasons=REASONS,
    title="Who may use a quota ([guide](kubernetes/owners.md))",
    fixes=FixFields(limits=no_limit_fields),
)
