"""Writing on everything but pods: statuses, labels and annotations of quotas and nodes, and quotas that policies own.

Changes of one object are gathered for a moment. A status that is Bursar's alone is replaced whole, so that a field that
is not wanted any more goes away; where others write fields too, only ours are patched. (Server-side apply would do
both, but it leaves null where a map loses its last entry, which a schema refuses.) A condition that says what it said
before keeps its time, whoever leads: a new leader's policies know nothing of what was before.
"""

from __future__ import annotations

from bursar.kube.client.api import Api, JsonPatch, PatchKind, Writing
from bursar.kube.client.resources import Resource
from bursar.kube.client.times import whole_seconds
from bursar.kube.controller.desk import Desk
from bursar.kube.controller.names import INVALID
from bursar.kube.controller.outcomes import Refused, sent
from bursar.kube.controller.ports import ObjectKey
from bursar.kube.controller.world import Report, World, status_is_ours
from bursar.objects.kinds import Kind
from bursar.policies.settings import Output

WIDTH = 4
GATHER = 1.0  # seconds in which changes of one object come together: so often is one written at most
STATUS_MANAGER = "bursar-status"
_INVALID = "Invalid"  # the type of the condition
_SINCE = "lastTransitionTime"


class ObjectWriter:
    """Carries out what policies want written."""

    def __init__(self, api: Api, world: World, report: Report, *, dry_run: bool = False) -> None:
        self._api = api
        self._world = world
        self._report = report
        self._dry_run = dry_run
        self._wanted: dict[ObjectKey, dict[str, Output]] = {}
        self._statuses: dict[ObjectKey, Output] = {}  # as policies last wanted them
        self._invalid: dict[ObjectKey, str] = {}  # objects whose last change is not in force, and why
        self.desk: Desk[ObjectKey] = Desk(self._perform, WIDTH, settle_for=GATHER)

    def write(self, outputs: dict[ObjectKey, dict[str, Output]]) -> None:
        for target, parts in outputs.items():
            known = self._wanted.setdefault(target, {})
            for part, output in parts.items():
                known[part] = _merged(known.get(part), output)
                if part == "status":
                    self._statuses[target] = output
            self.desk.want(target)

    def invalid(self, target: ObjectKey, problem: str) -> None:
        """The object's last change is not in force ("": it is again): its status says so, if that is Bursar's to write.

        Conditions of others are a list that a patch replaces whole: on their objects it stays with the event.
        """
        if self._invalid.get(target, "") == problem or not status_is_ours(self._world.kinds.find(target[0])):
            return
        if problem:
            self._invalid[target] = problem
        else:
            del self._invalid[target]
        status = self._statuses.get(target, Output(*target, "status", {}))
        self._wanted.setdefault(target, {}).setdefault("status", status)
        self.desk.want(target)

    def forget(self, target: ObjectKey) -> None:
        """The object is gone."""
        self._statuses.pop(target, None)
        self._invalid.pop(target, None)

    def _whole_status(self, output: Output) -> dict[str, object]:
        status = dict(output.value or {})
        given = status.get("conditions")
        conditions = list(given) if isinstance(given, list) else []
        problem = self._invalid.get((output.kind, output.key))
        if problem:
            told = {
                "type": _INVALID,
                "status": "True",
                "reason": "Refused",
                "message": problem,
                _SINCE: whole_seconds(),
            }
            conditions = [*(one for one in conditions if one.get("type") != _INVALID), told]
        if conditions:
            status["conditions"] = [self._since_when(output, one) for one in conditions]
        return status

    def _since_when(self, output: Output, condition: dict[str, object]) -> dict[str, object]:
        """The condition with the time that the object has for it: whoever wants it written may not know of before."""
        if _SINCE not in condition:
            return condition
        since = self._world.since(output.kind, output.key, str(condition["type"]), str(condition["status"]))
        return condition if since is None else {**condition, _SINCE: since}

    async def _perform(self, target: ObjectKey) -> None:
        parts = self._wanted.pop(target, {})
        kind = self._world.kinds.find(target[0])
        try:
            for part in ("object", "labels", "annotations", "status"):
                output = parts.get(part)
                if output is not None:
                    await self._write(kind, output)
                    del parts[part]
        except BaseException:
            for part, newer in self._wanted.get(target, {}).items():
                parts[part] = _merged(parts.get(part), newer)
            self._wanted[target] = parts
            raise

    async def _write(self, kind: Kind, output: Output) -> None:
        resource = Resource.of(kind)
        namespace, name = self._place(kind, output.key)
        if output.part == "object":
            await self._write_object(resource, namespace, name, output)
        elif output.part == "status":
            how = Writing(field_manager=STATUS_MANAGER, dry_run=self._dry_run)
            if status_is_ours(kind):
                whole: JsonPatch = [{"op": "add", "path": "/status", "value": self._whole_status(output)}]
                write = self._api.patch(resource, name, namespace, PatchKind.JSON, whole, subresource="status", how=how)
            else:
                part = {"status": output.value or {}}
                write = self._api.patch(resource, name, namespace, PatchKind.MERGE, part, subresource="status", how=how)
            await sent(write, refused=self._refused(output))
        else:
            self._world.note_written(output)  # as it is sent: when it is seen again, something else may be wanted
            patch = {"metadata": {output.part: output.value or {}}}
            how = Writing(dry_run=self._dry_run)
            write = self._api.patch(resource, name, namespace, PatchKind.MERGE, patch, how=how)
            await sent(write, refused=self._refused(output))

    async def _write_object(self, resource: Resource, namespace: str, name: str, output: Output) -> None:
        how = Writing(dry_run=self._dry_run)
        if output.value is None:
            await sent(self._api.delete(resource, name, namespace, how=how), refused=self._refused(output))
        else:
            write = self._api.apply(resource, name, namespace, output.value, force=True, how=how)
            await sent(write, refused=self._refused(output))

    def _place(self, kind: Kind, key: str) -> tuple[str, str]:
        known = self._world.find(kind.name, key)
        if known is not None:
            return known.namespace, known.name
        namespace, _, name = key.rpartition("/")
        return namespace, name

    def _refused(self, output: Output) -> Refused:
        return lambda why: self._report(output.kind, output.key, INVALID, f"{output.part} cannot be written: {why}")


def _merged(known: Output | None, newer: Output) -> Output:
    """Marks add up; everything else is the newest alone."""
    if known is None or newer.part not in {"labels", "annotations"}:
        return newer
    return Output(newer.kind, newer.key, newer.part, {**(known.value or {}), **(newer.value or {})})
