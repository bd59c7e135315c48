"""Which pods quotas are for: by the namespaces that they name, and by the label by which a pod names its quota.

A quota that is not acceptable and never was in force, such as one that a new leader finds so, names its pods all the
same. Nobody knows what it allows, so these wait, and its namespaces stay governed. Where another quota of the same
policy is in force in a namespace, that one decides, as it does when two quotas want the same namespace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from bursar.kube.controller.ports import ObjectKey
from bursar.policies.plugin import Plugin, Registry

_K = TypeVar("_K")


@dataclass(frozen=True, slots=True)
class _Named:
    """What one quota names; ``problem``: why it is not in force, if it is not."""

    policy: str
    namespaces: frozenset[str]
    problem: str

    def __bool__(self) -> bool:
        return bool(self.namespaces or self.problem)


class Naming:
    """What the quotas name, those in force and those that never were."""

    def __init__(self, registry: Registry) -> None:
        self._plugins: dict[str, Plugin] = {kind: plugin for plugin in registry for kind in plugin.namespaces}
        self._by_quota: dict[ObjectKey, _Named] = {}
        self._count: dict[str, int] = {}  # how many quotas name a namespace
        self._in_force: dict[tuple[str, str], int] = {}  # of these, how many are in force: by policy and namespace
        self._unknown: dict[str, set[ObjectKey]] = {}  # by namespace: quotas that were never in force
        self._chosen: dict[tuple[str, str], ObjectKey] = {}  # the same by (label, its value) of pods

    def __contains__(self, namespace: str) -> bool:
        return namespace in self._count

    def __iter__(self) -> Iterator[str]:
        return iter(self._count)

    def take(self, kind: str, key: str, body: Mapping[str, Any] | None, problem: str = "") -> frozenset[str]:
        """An object came, changed or (None) is gone; the namespaces that are named, or not named, since then.

        ``problem``: it is not acceptable, and never was in force.
        """
        plugin = self._plugins.get(kind)
        if plugin is None:
            return frozenset()
        before = self._by_quota.pop((kind, key), None)
        now = None if body is None else _Named(plugin.name, frozenset(plugin.namespaces[kind](key, body)), problem)
        touched = (before.namespaces if before else frozenset()) ^ (now.namespaces if now else frozenset())
        known = {name for name in touched if name in self._count}
        if before is not None:
            self._note(plugin, (kind, key), before, -1)
        if now:
            self._by_quota[kind, key] = now
            self._note(plugin, (kind, key), now, 1)
        return frozenset(name for name in touched if (name in known) != (name in self._count))

    def _note(self, plugin: Plugin, quota: ObjectKey, named: _Named, step: int) -> None:
        for name in named.namespaces:
            _add(self._count, name, step)
            if not named.problem:
                _add(self._in_force, (named.policy, name), step)
            elif step > 0:
                self._unknown.setdefault(name, set()).add(quota)
            else:
                self._unknown[name].discard(quota)
        label = plugin.chosen.get(quota[0])
        if named.problem and label is not None:
            chosen = label, quota[1].rpartition("/")[2]
            if step > 0:
                self._chosen[chosen] = quota
            elif self._chosen.get(chosen) == quota:
                del self._chosen[chosen]

    def problem(self, namespace: str, labels: Mapping[str, str]) -> str:
        """Why a pod has to wait for a quota to be mended; "": it has not."""
        for quota in sorted(self._unknown.get(namespace, ())):
            named_otherwise = labels.get(self._plugins[quota[0]].chosen.get(quota[0], ""))
            if not named_otherwise and (self._by_quota[quota].policy, namespace) not in self._in_force:
                return self._words(quota)
        for (label, name), quota in self._chosen.items():
            if labels.get(label) == name:
                return self._words(quota)
        return ""

    def _words(self, quota: ObjectKey) -> str:
        problem = self._by_quota[quota].problem
        return f"its quota {quota[0]} {quota[1]} is not in force, so nobody knows what it allows: {problem}"


def _add(counts: dict[_K, int], key: _K, step: int) -> None:
    left = counts.get(key, 0) + step
    if left:
        counts[key] = left
    else:
        del counts[key]
