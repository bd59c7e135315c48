"""Objects into settings: each policy translates its own; disruption budgets are the engine's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bursar.control.kinds import SECTION, ControlSection
from bursar.engine import budgets
from bursar.engine.budgets import BudgetBody
from bursar.objects.core import PodDisruptionBudget
from bursar.objects.corekinds import DISRUPTION_BUDGET, POD, int_or_percent
from bursar.objects.errors import ManifestError
from bursar.objects.kinds import Kind
from bursar.objects.kindset import TypedObject
from bursar.objects.selectors import selector_from
from bursar.policies.plugin import Plugin, Registry
from bursar.policies.settings import Setting

CONFIGURATION = "Configuration"


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """An object came or changed (``object``), or went (None). ``created``: milliseconds, for pods."""

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
    """The settings that these changes mean, in the order of the changes; pods are no settings."""
    found: list[Setting] = []
    for change in changes:
        try:
            found.extend(_settings(registry, change))
        except ManifestError as error:
            raise error.located(subject=f"{change.kind.kind} {change.key}") from None
    return found


def control_section(changes: Iterable[ObjectChange]) -> ControlSection | None:
    """The loop's own options, if these changes say something about them."""
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
        return [setting for plugin in registry for setting in _configured(plugin, change)]
    found: list[Setting] = []
    for plugin in registry:
        translate = plugin.translate.get(change.kind.name)
        if translate is not None:
            found.extend(translate(change.key, change.typed))
    return found


def _configured(plugin: Plugin, change: ObjectChange) -> list[Setting]:
    translate = plugin.translate.get(CONFIGURATION)
    return [] if translate is None else translate(change.key, _section(change, plugin.name))


def _section(change: ObjectChange, name: str) -> Any:  # noqa: ANN401 each policy has its own
    return None if change.object is None else getattr(change.typed.spec, name, None)


def _budget(key: str, budget: PodDisruptionBudget | None) -> Setting:
    """A budget without a selector selects nobody; one without a bound wants one pod to stay, as in Kubernetes."""
    spec = None if budget is None else budget.spec
    if spec is None or spec.selector is None:
        return Setting(budgets.KIND, key, None)
    namespace = key.partition("/")[0]
    selector = selector_from(spec.selector, "spec.selector")
    if spec.max_unavailable is not None:
        number, percent = int_or_percent(spec.max_unavailable, "spec.maxUnavailable")
        return Setting(budgets.KIND, key, BudgetBody(namespace, selector, None, number, percent))
    wanted = 1 if spec.min_available is None else spec.min_available
    number, percent = int_or_percent(wanted, "spec.minAvailable")
    return Setting(budgets.KIND, key, BudgetBody(namespace, selector, number, None, percent))
