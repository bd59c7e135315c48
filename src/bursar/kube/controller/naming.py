"""Which pods quotas are for: by the namespaces that they name, and by the label by which a pod names its quota.

A quota that is not acceptable and never was in force, such as one that a new leader finds so, names its pods all the
same. Nobody knows what it allows, so these wait, and its namespaces stay governed. Where another quota of the same
policy is in force in a namespace, or under the name that a pod names, that one decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from bursar.kube.controller.ports import ObjectKey
from bursar.policies.plugin import Plugin, Registry

_K = TypeVar("_K")
_Mark = tuple[str, str, str]
"""What pods are known by: a policy, "" and their namespace, or a policy, a label of theirs and its value."""


@dataclass(frozen=True, slots=True)
class _Named:
    """What one quota names; ``problem``: why it is not in force, if it is not."""

    namespaces: frozenset[str]
    problem: str


class Naming:
    """What the quotas name, those in force and those that never were."""

    def __init__(self, registry: Registry) -> None:
        self._plugins: dict[str, Plugin] = {kind: plugin for plugin in registry for kind in plugin.namespaces}
        self._by_quota: dict[ObjectKey, _Named] = {}
        self._count: dict[str, int] = {}  # how many quotas name a namespace
        self._in_force: dict[_Mark, int] = {}  # how many of those are in force
        self._unknown: dict[_Mark, set[ObjectKey]] = {}  # quotas that never were

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
        now = None if body is None else _Named(frozenset(plugin.namespaces[kind](key, body)), problem)
        touched = _spaces(before) ^ _spaces(now)
        known = {name for name in touched if name in self._count}
        if before is not None:
            self._note(plugin, (kind, key), before, -1)
        if now is not None:
            self._by_quota[kind, key] = now
            self._note(plugin, (kind, key), now, 1)
        return frozenset(name for name in touched if (name in known) != (name in self._count))

    def _note(self, plugin: Plugin, quota: ObjectKey, named: _Named, step: int) -> None:
        for name in named.namespaces:
            _add(self._count, name, step)
        marks: list[_Mark] = [(plugin.name, "", name) for name in named.namespaces]
        if quota[0] in plugin.chosen:
            marks.append((plugin.name, plugin.chosen[quota[0]], quota[1].rpartition("/")[2]))
        for mark in marks:
            if not named.problem:
                _add(self._in_force, mark, step)
            elif step > 0:
                self._unknown.setdefault(mark, set()).add(quota)
            else:
                self._unknown[mark].remove(quota)

    def problem(self, namespace: str, labels: Mapping[str, str]) -> str:
        """Why a pod has to wait for a quota to be mended; "": it has not."""
        for kind, plugin in self._plugins.items():
            label = plugin.chosen.get(kind, "")
            chosen = labels.get(label, "") if label else ""  # whoever names a quota is not of its namespace's
            mark = (plugin.name, label, chosen) if chosen else (plugin.name, "", namespace)
            if self._unknown.get(mark) and mark not in self._in_force:
                return self._words(min(self._unknown[mark]))
        return ""

    def _words(self, quota: ObjectKey) -> str:
        problem = self._by_quota[quota].problem
        return f"its quota {quota[0]} {quota[1]} is not in force, so nobody knows what it allows: {problem}"


def _spaces(named: _Named | None) -> frozenset[str]:
    return frozenset() if named is None else named.namespaces


def _add(counts: dict[_K, int], key: _K, step: int) -> None:
    left = counts.get(key, 0) + step
    if left:
        counts[key] = left
    else:
        del counts[key]
