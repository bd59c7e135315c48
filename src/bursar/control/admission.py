"""Admission: what is checked and filled in before an object is stored. Pure; the same in a dry run.

Each policy brings the functions for its kinds. The loop's own: a pod gets its priority when it is created and keeps
it, whatever becomes of its PriorityClass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import msgspec
from msgspec import structs

from bursar.objects.core import Pod, PriorityClass
from bursar.objects.corekinds import POD, PRIORITY_CLASS
from bursar.objects.errors import ManifestError
from bursar.objects.kinds import Kind
from bursar.objects.kindset import KindSet, TypedObject
from bursar.objects.manifests import Document
from bursar.objects.priorities import Priorities
from bursar.policies.plugin import ObjectView, Registry

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
        """The object as it is to be stored; ``ManifestError`` when it must not be. ``view`` is without it."""
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
        return given if body is given.body else self._kinds.read(Document("", 0, body))

    def check_removal(self, view: ObjectView, kind: Kind, key: str, read: Callable[[], Mapping[str, Any]]) -> None:
        """``ManifestError`` when the object must not be deleted now. ``read``: its manifest, if it is asked for."""
        for plugin in self._plugins:
            check = plugin.check_removal.get(kind.name)
            if check is not None:
                try:
                    check(view, read())
                except ManifestError as error:
                    raise error.located(subject=f"{kind.kind} {key}") from None


def _with_priority(view: ObjectView, old: Mapping[str, Any] | None, given: TypedObject) -> TypedObject:
    """The manifest and what was read of it get the same fields, so that it need not be read once more."""
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
    """What the pod got when it was created. A manifest may leave it out or repeat it, but not change it."""
    for field in _PRIORITY_FIELDS:
        if new.get(field) is not None and new[field] != old.get(field):
            problem = f"is {old.get(field)!r} since the pod was created, and cannot become {new[field]!r:.60}"
            raise ManifestError(problem, f"spec.{field}")
    return {field: old[field] for field in _PRIORITY_FIELDS if field in old}
