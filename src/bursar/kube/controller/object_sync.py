"""Object sync: turns objects other than pods into settings of the control loop, through the same admission as
embedded.

An invalid object is reported and its last good form stays in force; if it never had one, its pods wait
(``QuotaSelection``). It is tried again whenever another object changes, since the fault may lie between objects. So is
a deletion that other objects block. Marks that admission adds and the webhook did not are written on the object.

Objects found at the start were admitted before. They stay in force even if, for example, their tree has lost nodes
since: otherwise their pods would belong to no quota. A pod on an unknown node is charged to its quotas at once, and to
the node when it appears.

``QuotaSelection`` says which pods a quota selects: by the namespaces it names and by the label through which a pod
names its quota. A quota that never was valid still selects its pods: they wait, and its namespaces stay governed. A
valid quota of the same policy for that namespace or name takes precedence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from bursar.control.admission import Admission, ObjectChange
from bursar.control.controller import Controller
from bursar.kube.controller.object_cache import ObjectCache, Report
from bursar.kube.controller.patches import INVALID
from bursar.kube.controller.work_queue import ObjectKey
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import Kind, TypedObject
from bursar.policies.plugin import Plugin, Registry
from bursar.policies.results import Output

Body = Mapping[str, Any]
Given = tuple[TypedObject, dict[str, Any]]


class ObjectSync:
    """Keeps the loop's settings in step with the objects."""

    def __init__(
        self,
        controller: Controller,
        cache: ObjectCache,
        admission: Admission,
        report: Report,
        condition: Callable[[str, str, str], None],
        write: Callable[[Output], None],
        changed: Callable[[Kind, str, bool], None],
        unknown: Callable[[str, str, Body | None, str], None],
    ) -> None:
        """Callbacks: ``condition(kind, key, problem)`` for an object whose last change is not in force (empty: it is
        again), ``changed(kind, key, new)`` for one that came into force or went out of it, and ``unknown(kind, key,
        manifest, problem)`` for one that never was in force (without a manifest: it is gone).
        """
        self._controller = controller
        self._cache = cache
        self._admission = admission
        self._report = report
        self._condition = condition
        self._write = write
        self._changed = changed
        self._unknown = unknown
        self._deleted: dict[tuple[str, str], Kind] = {}  # by kind and key: still in force, because others need it
        self.invalid: dict[tuple[str, str], tuple[Given | None, str]] = {}  # as given, if readable; what is wrong

    def start(self, objects: Iterable[tuple[Kind, bytes]]) -> Iterator[None]:
        """Apply all objects of the cluster at the start, in an order in which each is valid. A step is one object."""
        waiting: list[Given] = []
        for kind, raw in objects:
            yield
            given = self._read(kind, raw)
            if given is not None:
                waiting.append(given)
        quiet = True
        while waiting:
            failed: list[Given] = []
            for given in waiting:
                yield
                if not self._take(given, listed=True, quiet=quiet):
                    failed.append(given)
            if not quiet:
                return
            quiet = len(failed) < len(waiting)  # else once more, to report the rest
            waiting = failed

    def seen(self, kind: Kind, raw: bytes) -> bool:
        """An object was added or changed. Returns whether that changes settings."""
        given = self._read(kind, raw)
        if given is None or not self._is_new(given[0]):
            return False
        self._deleted.pop((kind.name, given[0].key), None)
        taken = self._take(given)
        if taken:
            self._retry()
        return taken

    def gone(self, kind: Kind, namespace: str, name: str) -> bool:
        key = self._cache.key_at(kind.name, namespace, name)
        if key is None:
            return self._forget_refused(kind, namespace, name)
        self.invalid.pop((kind.name, key), None)
        problem = self._drop(kind, key)
        if problem:  # other objects need it: it stays in force until they do not
            self._report(kind.name, key, INVALID, f"deleted, but {problem}")
            self._deleted[kind.name, key] = kind
            return False
        self._retry()
        return True

    def _forget_refused(self, kind: Kind, namespace: str, name: str) -> bool:
        """An object that was never in force is gone: it must not come into force later."""
        key = f"{namespace}/{name}" if namespace else name
        if self.invalid.pop((kind.name, key), None) is None:
            return False
        self._condition(kind.name, key, "")
        self._unknown(kind.name, key, None, "")
        return True

    def _drop(self, kind: Kind, key: str) -> str:
        """Take an object out of force. Returns what prevents that, or an empty text."""
        try:
            self._controller.apply([ObjectChange(kind, key, None)])
        except ManifestError as error:
            return str(error)
        self._cache.drop(kind.name, key)
        self._changed(kind, key, False)
        return ""

    def _read(self, kind: Kind, raw: bytes) -> Given | None:
        try:
            return self._cache.read(kind, raw)
        except ManifestError as error:
            body = msgspec.json.decode(raw)
            self._refused((kind.name, error.subject.partition(" ")[2]), None, body, str(error))
            return None

    def _is_new(self, given: TypedObject) -> bool:
        known = self._cache.find(given.kind.name, given.key)
        name = (given.kind.name, given.key)
        return known is None or known.given.typed != given.typed or name in self.invalid or name in self._deleted

    def _take(self, given: Given, *, listed: bool = False, quiet: bool = False) -> bool:
        """``listed``: it existed before, so it is admitted as an update without a change."""
        one, metadata = given
        known = self._cache.find(one.kind.name, one.key)
        old = one.body if listed else None
        if known is not None:
            old = known.given.body
        try:
            admitted = self._admission.admit(self._cache, old, one)
            self._controller.apply([ObjectChange(one.kind, one.key, admitted)])
        except ManifestError as error:
            if not quiet:
                self._refused((one.kind.name, one.key), given, one.body, str(error))
            return False
        if self.invalid.pop((one.kind.name, one.key), None) is not None:
            self._condition(one.kind.name, one.key, "")
        self._cache.keep(one, metadata)
        self._fill_in(one, admitted)
        self._changed(one.kind, one.key, known is None)
        return True

    def _fill_in(self, given: TypedObject, admitted: TypedObject) -> None:
        before, after = given.body.get("metadata") or {}, admitted.body.get("metadata") or {}
        for part in ("labels", "annotations"):
            had = before.get(part) or {}
            filled = {name: value for name, value in (after.get(part) or {}).items() if had.get(name) != value}
            if filled:
                self._write(Output(given.kind.name, given.key, part, filled))

    def _refused(self, name: tuple[str, str], given: Given | None, body: Body, problem: str) -> None:
        last = self.invalid.get(name)
        self.invalid[name] = (given, problem)
        if last is None or last[1] != problem:
            self._report(*name, INVALID, problem)
            self._condition(*name, problem)
        tried_again = last is not None and given is not None and last[0] is given and last[1] == problem
        if self._cache.find(*name) is None and not tried_again:
            self._unknown(*name, body, problem)

    def _retry(self) -> None:
        """Something changed: try invalid objects again, and those that waited for them."""
        while self._retried():
            pass

    def _retried(self) -> bool:
        """Try each of them once. Returns whether any was accepted."""
        dropped = [name for name, kind in list(self._deleted.items()) if not self._drop(kind, name[1])]
        for name in dropped:
            del self._deleted[name]
        taken = [self._take(given) for given, _ in list(self.invalid.values()) if given is not None]
        return bool(dropped) or any(taken)


_K = TypeVar("_K")
_Mark = tuple[str, str, str]
"""How a quota selects pods: (policy, "", namespace) or (policy, label, value)."""


@dataclass(frozen=True, slots=True)
class _Named:
    """The namespaces of one quota, and why it is not in force, if it is not."""

    namespaces: frozenset[str]
    problem: str


class QuotaSelection:
    """The pods that quotas select, both those in force and those that never were."""

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
        """An object was added, changed or (None) deleted. Returns the namespaces that are newly named, or no longer.

        ``problem`` says why it is invalid and never was in force.
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
        """Why a pod waits for a quota to be corrected; empty if it does not."""
        for kind, plugin in self._plugins.items():
            label = plugin.chosen.get(kind, "")
            chosen = labels.get(label, "") if label else ""  # a pod that names a quota is not under its namespace's
            mark = (plugin.name, label, chosen) if chosen else (plugin.name, "", namespace)
            if self._unknown.get(mark) and mark not in self._in_force:
                quota = min(self._unknown[mark])
                why = self._by_quota[quota].problem
                return f"its quota {quota[0]} {quota[1]} is not in force, so its limits are unknown: {why}"
        return ""


def _spaces(named: _Named | None) -> frozenset[str]:
    return frozenset() if named is None else named.namespaces


def _add(counts: dict[_K, int], key: _K, step: int) -> None:
    left = counts.get(key, 0) + step
    if left:
        counts[key] = left
    else:
        del counts[key]
