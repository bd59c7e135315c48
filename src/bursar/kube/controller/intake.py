"""From what the API server shows to what the control loop is told.

Objects other than pods become settings, after the same admission that the embedded cluster gives them. One that is not
acceptable is reported, and what was last good stays in force; what never was is told to ``unknown``, for its pods to
wait. It is tried again whenever another object changes, since the fault may lie between objects. So is a deletion that
others stand in the way of. Marks that admission fills in, and
that the webhook did not (it keeps out of kube-system), are written on the object.

What is there at the start was admitted before. What became of others since, such as the nodes that a tree has, does not
put it out of force: its pods would belong to no quota, or to one that limits nobody.

The order in which kinds arrive does not matter for long: a pod on a node that is not known yet counts in its quotas at
once, and on the node as soon as the node is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from bursar.control.admission import Admission
from bursar.control.loop import Controller
from bursar.control.translation import ObjectChange
from bursar.kube.controller.names import INVALID
from bursar.kube.controller.world import Report, World
from bursar.objects.errors import ManifestError
from bursar.objects.kinds import Kind
from bursar.objects.kindset import TypedObject
from bursar.policies.settings import Output

Body = Mapping[str, Any]
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
        changed: Callable[[Kind, str, bool], None],
        unknown: Callable[[str, str, Body | None, str], None],
    ) -> None:
        """``condition``: is told (kind, key, problem) of objects whose last change is not in force; "": it is again.

        ``changed``: is told (kind, key, whether it is new) of objects that came into force, or went out of it.
        ``unknown``: is told (kind, key, manifest, problem) of those that never were in force; None: such a one is gone.
        """
        self._controller = controller
        self._world = world
        self._admission = admission
        self._report = report
        self._condition = condition
        self._write = write
        self._changed = changed
        self._unknown = unknown
        self._deleted: dict[tuple[str, str], Kind] = {}  # by kind and key: still in force, because others need it
        self.invalid: dict[tuple[str, str], tuple[Given | None, str]] = {}  # as given, if readable; what is wrong

    def start(self, objects: Iterable[tuple[Kind, bytes]]) -> Iterator[None]:
        """All objects of the cluster, at the start: in whatever order they fit together. A step is one of them."""
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
            quiet = len(failed) < len(waiting)  # else nothing helps them: once more, for people to be told
            waiting = failed

    def seen(self, kind: Kind, raw: bytes) -> bool:
        """An object came or changed; whether that means anything to the loop."""
        given = self._read(kind, raw)
        if given is None or not self._is_new(given[0]):
            return False
        self._deleted.pop((kind.name, given[0].key), None)
        taken = self._take(given)
        if taken:
            self._retry()
        return taken

    def gone(self, kind: Kind, namespace: str, name: str) -> bool:
        """An object is gone."""
        key = self._world.key_at(kind.name, namespace, name)
        if key is None:
            return self._forget_refused(kind, namespace, name)
        self.invalid.pop((kind.name, key), None)
        problem = self._drop(kind, key)
        if problem:  # others still need it: people are told, and it stays in force until they do not
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
        """Take an object out of force; what stands in the way."""
        try:
            self._controller.apply([ObjectChange(kind, key, None)])
        except ManifestError as error:
            return str(error)
        self._world.drop(kind.name, key)
        self._changed(kind, key, False)
        return ""

    def _read(self, kind: Kind, raw: bytes) -> Given | None:
        try:
            return self._world.read(kind, raw)
        except ManifestError as error:
            body = msgspec.json.decode(raw)
            self._refused((kind.name, error.subject.partition(" ")[2]), None, body, str(error))
            return None

    def _is_new(self, given: TypedObject) -> bool:
        known = self._world.find(given.kind.name, given.key)
        name = (given.kind.name, given.key)
        return known is None or known.given.typed != given.typed or name in self.invalid or name in self._deleted

    def _take(self, given: Given, *, listed: bool = False, quiet: bool = False) -> bool:
        """``listed``: it was there before us, so it is judged as a change that changes nothing."""
        one, metadata = given
        known = self._world.find(one.kind.name, one.key)
        old = one.body if listed else None
        if known is not None:
            old = known.given.body
        try:
            admitted = self._admission.admit(self._world, old, one)
            self._controller.apply([ObjectChange(one.kind, one.key, admitted)])
        except ManifestError as error:
            if not quiet:
                self._refused((one.kind.name, one.key), given, one.body, str(error))
            return False
        if self.invalid.pop((one.kind.name, one.key), None) is not None:
            self._condition(one.kind.name, one.key, "")
        self._world.keep(one, metadata)
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
        if self._world.find(*name) is None and not tried_again:
            self._unknown(*name, body, problem)

    def _retry(self) -> None:
        """Something changed: what was not acceptable may be now, and with it what waited for that in turn."""
        while self._retried():
            pass

    def _retried(self) -> bool:
        """Try everything that waits once; whether any of it went through."""
        dropped = [name for name, kind in list(self._deleted.items()) if not self._drop(kind, name[1])]
        for name in dropped:
            del self._deleted[name]
        taken = [self._take(given) for given, _ in list(self.invalid.values()) if given is not None]
        return bool(dropped) or any(taken)
