"""From what the API server shows to what the control loop is told.

Objects other than pods become settings, after the same admission that the embedded cluster gives them. One that is not
acceptable is reported, and what was last good stays in force; it is tried again whenever another object changes, since
the fault may lie between objects. Marks that admission fills in, and that the webhook did not (it keeps out of
kube-system), are written on the object.

The order in which kinds arrive does not matter for long: a pod on a node that is not known yet counts in its quotas at
once, and on the node as soon as the node is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bursar.control.admission import Admission
from bursar.control.loop import Controller
from bursar.control.translation import ObjectChange
from bursar.kube.controller.names import INVALID
from bursar.kube.controller.world import Report, World
from bursar.objects.corekinds import NODE
from bursar.objects.errors import ManifestError
from bursar.objects.kinds import Kind
from bursar.objects.kindset import TypedObject
from bursar.policies.settings import Output

Given = tuple[TypedObject, dict[str, Any]]


class ObjectIntake:
    """Keeps the loop's settings in step with the objects."""

    def __init__(
        self,
        controller: Controller,
        world: World,
        admission: Admission,
        report: Report,
        condition: Callable[[str, str, str], None],
        write: Callable[[Output], None],
    ) -> None:
        """``condition``: is told (kind, key, problem) of objects whose last change is not in force; "": it is again."""
        self._controller = controller
        self._world = world
        self._admission = admission
        self._report = report
        self._condition = condition
        self._write = write
        self.invalid: dict[tuple[str, str], tuple[Given, str]] = {}  # by kind and key: as given, and what is wrong

    def start(self, objects: Sequence[tuple[Kind, bytes]]) -> None:
        """All objects of the cluster, at the start: in whatever order they fit together."""
        waiting = [given for given in (self._read(kind, raw) for kind, raw in objects) if given is not None]
        while waiting:
            failed = [given for given in waiting if not self._take(given, quiet=True)]
            if len(failed) == len(waiting):
                break
            waiting = failed
        for given in waiting:
            self._take(given)

    def seen(self, kind: Kind, raw: bytes) -> bool:
        """An object came or changed; whether that means anything to the loop."""
        given = self._read(kind, raw)
        if given is None or not self._is_new(given[0]):
            return False
        taken = self._take(given)
        if taken:
            self._retry_invalid()
        return taken

    def gone(self, kind: Kind, namespace: str, name: str) -> bool:
        """An object is gone."""
        key = self._world.key_at(kind.name, namespace, name)
        if key is None:
            return False
        self.invalid.pop((kind.name, key), None)
        try:
            self._controller.apply([ObjectChange(kind, key, None)])
        except ManifestError as error:  # others still need it: they are told, and it stays in force until they do not
            self._report(kind.name, key, INVALID, f"deleted, but {error}")
            return False
        self._world.drop(kind.name, key)
        self._retry_invalid()
        return True

    def _read(self, kind: Kind, raw: bytes) -> Given | None:
        try:
            return self._world.read(kind, raw)
        except ManifestError as error:
            key = error.subject.partition(" ")[2] or "?"
            self._report(kind.name, key, INVALID, str(error))
            return None

    def _is_new(self, given: TypedObject) -> bool:
        known = self._world.find(given.kind.name, given.key)
        return known is None or known.given.typed != given.typed or (given.kind.name, given.key) in self.invalid

    def _take(self, given: Given, *, quiet: bool = False) -> bool:
        one, metadata = given
        known = self._world.find(one.kind.name, one.key)
        try:
            old = None if known is None else known.given.body
            admitted = self._admission.admit(self._world, old, one)
            self._controller.apply([ObjectChange(one.kind, one.key, admitted)])
        except ManifestError as error:
            if not quiet:
                self._refused(given, str(error))
            return False
        if self.invalid.pop((one.kind.name, one.key), None) is not None:
            self._condition(one.kind.name, one.key, "")
        self._world.keep(one, metadata)
        self._fill_in(one, admitted)
        if one.kind.name == NODE.name and known is None:
            self._count_on(one.key)
        return True

    def _fill_in(self, given: TypedObject, admitted: TypedObject) -> None:
        before, after = given.body.get("metadata") or {}, admitted.body.get("metadata") or {}
        for part in ("labels", "annotations"):
            had = before.get(part) or {}
            filled = {name: value for name, value in (after.get(part) or {}).items() if had.get(name) != value}
            if filled:
                self._write(Output(given.kind.name, given.key, part, filled))

    def _refused(self, given: Given, problem: str) -> None:
        one = given[0]
        last = self.invalid.get((one.kind.name, one.key))
        self.invalid[one.kind.name, one.key] = (given, problem)
        if last is None or last[1] != problem:
            self._report(one.kind.name, one.key, INVALID, problem)
            self._condition(one.kind.name, one.key, problem)

    def _retry_invalid(self) -> None:
        for given, _ in list(self.invalid.values()):
            self._take(given)

    def _count_on(self, node: str) -> None:
        """Pods that were seen on the node before the node itself was."""
        for uid, claim in list(self._controller.engine.state.claims.items()):
            if claim.place == node and all(binding is None or binding.policy != "nodes" for binding in claim.bindings):
                self._controller.bound(uid, node, anew=True)
