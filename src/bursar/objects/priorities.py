"""Priority classes: which priority a pod has, and whether it may preempt."""

from __future__ import annotations

from collections.abc import Iterable

from bursar.objects.core import PodSpec, PriorityClass
from bursar.objects.errors import ManifestError

SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
HIGHEST_OF_USERS = 1_000_000_000
_POLICIES = ("PreemptLowerPriority", "Never")


class Priorities:
    """The priority classes of a cluster; those of the system are always there."""

    def __init__(self, classes: Iterable[PriorityClass] = ()) -> None:
        self._classes: dict[str, tuple[int, bool]] = {name: (value, True) for name, value in SYSTEM_CLASSES.items()}
        self._default = (0, True)
        defaults: list[tuple[int, bool]] = []
        for given in classes:
            entry = (given.value, given.preemption_policy != "Never")
            self._classes[given.metadata.name] = entry
            if given.global_default:
                defaults.append(entry)
        if defaults:
            self._default = min(defaults)  # of several, Kubernetes takes the lowest

    def of(self, spec: PodSpec, path: str = "spec") -> tuple[int, bool]:
        """(priority, may preempt). A priority in the pod itself wins: the API server copied it from the class."""
        check_preemption_policy(spec.preemption_policy, f"{path}.preemptionPolicy")
        value, preempts = self._of_class(spec, path)
        if spec.priority is not None:
            value = spec.priority
        if spec.preemption_policy:
            preempts = spec.preemption_policy != "Never"
        return value, preempts

    def _of_class(self, spec: PodSpec, path: str) -> tuple[int, bool]:
        name = spec.priority_class_name
        if not name:
            return self._default if spec.priority is None else (spec.priority, True)
        found = self._classes.get(name)
        if found is not None:
            return found
        if spec.priority is not None:  # the class was deleted after the pod was created
            return spec.priority, True
        raise ManifestError(f"there is no PriorityClass {name!r:.80}", f"{path}.priorityClassName")


def check_preemption_policy(policy: str, path: str) -> None:
    if policy and policy not in _POLICIES:
        raise ManifestError(f"{policy!r:.40} is none of {', '.join(_POLICIES)}", path)


def check_priority_class(given: PriorityClass) -> None:
    name = given.metadata.name
    check_preemption_policy(given.preemption_policy, "preemptionPolicy")
    if name.startswith("system-"):
        if SYSTEM_CLASSES.get(name) != given.value:
            raise ManifestError("names that start with system- are Kubernetes' own", "metadata.name")
    elif given.value > HIGHEST_OF_USERS:
        raise ManifestError(f"{given.value} is more than {HIGHEST_OF_USERS}, the highest for users", "value")
