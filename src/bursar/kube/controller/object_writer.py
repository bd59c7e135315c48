"""The status writer for objects other than pods: status, labels and annotations, and objects that policies own.

Changes of one object are gathered for a moment. A status that only Bursar writes is replaced whole, so that dropped
fields disappear; otherwise only Bursar's fields are patched. (Server-side apply leaves null where a map loses its last
entry, which a schema refuses.) An unchanged condition keeps its transition time across leaders.

Policies report a change once. The wanted state is remembered here, and written again when an object is deleted and
recreated. Objects that policies own are recreated and repaired. Nothing is written on an object that does not exist.

``NamespaceKeeper`` labels the namespaces that a quota names, for the gate. The label goes a little after the last
quota, so that replacing a quota lets no pod pass. It has a field manager of its own: a label set by an administrator
stays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Iterable
from typing import Any

from bursar.control.actions import REPAIRED, repair_note
from bursar.kube.client.api import NAMESPACES, Api, JsonPatch, PatchKind, Resource, Writing
from bursar.kube.client.events import whole_seconds
from bursar.kube.client.models import RawObject
from bursar.kube.controller.object_cache import CachedObject, ObjectCache, Report, status_is_ours
from bursar.kube.controller.object_sync import QuotaSelection
from bursar.kube.controller.patches import ENFORCED, GOVERNED_LABEL, INVALID, Body
from bursar.kube.controller.work_queue import KeyedWorkQueue, ObjectKey, Parts, Refused, RetryLater, add_output, sent
from bursar.objects.kinds import NODE, Kind
from bursar.policies.results import Output
from bursar.policies.status import condition

WIDTH = 4
GATHER = 1.0  # seconds in which changes of one object come together: so often is one written at most
STATUS_MANAGER = "bursar-status"
_SENT = 8  # forms of an object that a late watch event may show
_INVALID = "Invalid"  # the type of the condition
_SINCE = "lastTransitionTime"


class ObjectWriter:
    def __init__(self, api: Api, cache: ObjectCache, report: Report, *, dry_run: bool = False) -> None:
        self._api = api
        self._cache = cache
        self._report = report
        self._dry_run = dry_run
        self._wanted: dict[ObjectKey, Parts] = {}  # to be written
        self._last: dict[ObjectKey, Parts] = {}  # as policies last wanted it; not of nodes, whose marks policies read
        self._own: dict[ObjectKey, CachedObject | None] = {}  # objects that policies own, as last compared
        self._sent: dict[ObjectKey, deque[Body]] = {}  # what was written of these
        self._missing: dict[
            ObjectKey, str | None
        ] = {}  # uid of the deleted object ("": out of force, too); None: never existed
        self._invalid: dict[ObjectKey, str] = {}  # objects whose last change is not in force, and why
        self.queue: KeyedWorkQueue[ObjectKey] = KeyedWorkQueue(self._perform, WIDTH, settle_for=GATHER)

    def write(self, outputs: dict[ObjectKey, Parts]) -> None:
        """Takes what policies want written, after each cycle: objects may have come and gone since the last one."""
        for target, parts in outputs.items():
            for output in parts.values():
                self._remember(target, output)
                self._want(target, output)
        for target in list(self._missing):
            self._look_for(target)
        for target in self._own:
            self._look_at(target)

    def _remember(self, target: ObjectKey, output: Output) -> None:
        if output.part == "object" and output.value is None:
            self._last.pop(target, None)
            self._own.pop(target, None)
            self._sent.pop(target, None)
        elif output.kind != NODE.name:
            add_output(self._last.setdefault(target, {}), output)
            if output.part == "object":
                self._own.setdefault(target, None)

    def _want(self, target: ObjectKey, output: Output) -> None:
        add_output(self._wanted.setdefault(target, {}), output)
        self.queue.want(target)

    def invalid(self, target: ObjectKey, problem: str) -> None:
        """Set the Invalid condition of an object whose last change is not in force; "" removes it.

        Only statuses that Bursar alone writes get it, because a patch replaces a list of conditions whole. On other
        objects the event has to do.
        """
        if self._invalid.get(target, "") == problem or not status_is_ours(self._cache.kinds.find(target[0])):
            return
        if problem:
            self._invalid[target] = problem
        else:
            del self._invalid[target]
        status = self._last.get(target, {}).get("status", Output(*target, "status", {}))
        self._wanted.setdefault(target, {}).setdefault("status", status)
        self.queue.want(target)

    # Objects come and go

    def forget(self, target: ObjectKey) -> None:
        """The object is gone, although it may still be in force."""
        self._invalid.pop(target, None)
        if target in self._last:
            known = self._cache.find(*target)
            self._missing[target] = "" if known is None else known.uid

    def _look_for(self, target: ObjectKey) -> None:
        known, went = self._cache.find(*target), self._missing[target]
        if known is not None and known.uid != went:
            del self._missing[target]
            for output in self._last.get(target, {}).values():
                self._want(target, output)
        elif known is None and went is not None:
            self._lost(target)

    def _lost(self, target: ObjectKey) -> None:
        """The object is gone and no longer in force. Objects that policies own are created again."""
        own = self._last.get(target, {}).get("object")
        if own is None:
            del self._missing[target]
            self._last.pop(target, None)
            self._wanted.pop(target, None)
        else:
            self._missing[target] = None
            self._want(target, own)

    def _look_at(self, target: ObjectKey) -> None:
        """Repair an object that a policy owns; each form of it is compared once.

        An event reports what others changed: a form that is neither wanted, nor sent, nor what there was before.
        """
        known, before = self._cache.find(*target), self._own[target]
        if known is None or known is before:
            return
        self._own[target] = known
        own = self._last[target]["object"]
        found = self._cache.with_written(*target, known.given.body)
        note = repair_note(found, own.value or {})
        if not note:
            return
        self._want(target, own)
        expected = [*self._sent.get(target, []), *([] if before is None else [before.given.body])]
        if before is not None and all(repair_note(found, _like(form, own.value)) for form in expected):
            self._report(*target, REPAIRED, note)

    def _is_there(self, target: ObjectKey) -> bool:
        """Whether there is such an object, in force or refused."""
        return target in self._invalid or self._cache.find(*target) is not None

    # Statuses

    def _whole_status(self, output: Output) -> dict[str, object]:
        status = dict(output.value or {})
        given = status.get("conditions")
        conditions = list(given) if isinstance(given, list) else []
        problem = self._invalid.get((output.kind, output.key))
        if problem:
            invalid = condition(_INVALID, True, "Refused", problem) | {_SINCE: whole_seconds()}
            conditions = [*(one for one in conditions if one.get("type") != _INVALID), invalid]
        if conditions:
            status["conditions"] = [self._since_when(output, one) for one in conditions]
        return status

    def _since_when(self, output: Output, condition: dict[str, object]) -> dict[str, object]:
        """The condition with the time that the object has for it: the caller may not know earlier ones."""
        if _SINCE not in condition:
            return condition
        since = self._cache.since(output.kind, output.key, str(condition["type"]), str(condition["status"]))
        return condition if since is None else {**condition, _SINCE: since}

    # Writing

    async def _perform(self, target: ObjectKey) -> None:
        parts = self._wanted.pop(target, {})
        kind = self._cache.kinds.find(target[0])
        try:
            for part in ("object", "labels", "annotations", "status"):
                output = parts.get(part)
                if output is None:
                    continue
                if part != "object" and not self._is_there(target):
                    if target in self._last:
                        self._missing.setdefault(target, None)
                    return
                await self._write(kind, output)
                del parts[part]
        except BaseException:
            for newer in self._wanted.get(target, {}).values():
                add_output(parts, newer)
            self._wanted[target] = parts
            raise

    async def _write(self, kind: Kind, output: Output) -> None:
        resource, (namespace, name) = Resource.of(kind), self._place(kind, output.key)
        how = Writing(dry_run=self._dry_run)
        write: Awaitable[object]
        if output.part == "object" and output.value is None:
            write = self._api.delete(resource, name, namespace, how=how)
        elif output.part == "object":
            self._sent.setdefault((output.kind, output.key), deque(maxlen=_SENT)).append(output.value or {})
            write = self._api.apply(resource, name, namespace, output.value or {}, force=True, how=how)
        elif output.part == "status":
            how = Writing(field_manager=STATUS_MANAGER, dry_run=self._dry_run)
            whole: JsonPatch = [{"op": "add", "path": "/status", "value": self._whole_status(output)}]
            part = {"status": output.value or {}}
            form, patch = (PatchKind.JSON, whole) if status_is_ours(kind) else (PatchKind.MERGE, part)
            write = self._api.patch(resource, name, namespace, form, patch, subresource="status", how=how)
        else:
            # Noted before it is sent: when it is seen again, something else may be wanted.
            self._cache.note_written(output)
            marks = {"metadata": {output.part: output.value or {}}}
            write = self._api.patch(resource, name, namespace, PatchKind.MERGE, marks, how=how)
        why = f"{output.part} cannot be written"
        await sent(write, refused=lambda problem: self._report(output.kind, output.key, INVALID, f"{why}: {problem}"))

    def _place(self, kind: Kind, key: str) -> tuple[str, str]:
        known = self._cache.find(kind.name, key)
        if known is not None:
            return known.namespace, known.name
        namespace, _, name = key.rpartition("/")
        return namespace, name


def _like(found: object, wanted: object) -> Any:  # noqa: ANN401 of whatever form
    """The part of an object that is wanted."""
    if not (isinstance(found, dict) and isinstance(wanted, dict)):
        return found
    return {name: _like(found[name], value) for name, value in wanted.items() if name in found}


MANAGER = "bursar-namespaces"
LINGER = 5.0  # seconds for which a label stays after the last quota


class NamespaceKeeper:
    """Keeps the labels in step with the quotas."""

    def __init__(
        self, api: Api, selection: QuotaSelection, report: Report, never: tuple[str, ...], *, dry_run: bool
    ) -> None:
        self._api = api
        self._selection = selection
        self._report = report
        self._never = never
        self._how = Writing(field_manager=MANAGER, dry_run=dry_run)
        self._labelled: set[str] = set()  # namespaces seen with the label
        self._sent: set[str] = set()  # namespaces that were labelled, seen or not
        self._lingering: set[str] = set()  # namespaces whose label is about to go
        self.queue: KeyedWorkQueue[str] = KeyedWorkQueue(self._perform, 2)

    def named(self, namespaces: Iterable[str]) -> None:
        """Quotas name these now, or do so no longer."""
        for name in namespaces:
            if name in self._selection:
                self._lingering.discard(name)
            if name not in self._never:
                self.queue.want(name)

    def namespace_seen(self, name: str, labels: dict[str, str]) -> None:
        """A namespace came or changed: it may lack its label."""
        if labels.get(GOVERNED_LABEL) == ENFORCED:
            self._labelled.add(name)
        else:
            self._labelled.discard(name)
            if name in self._selection:
                self.named((name,))

    def namespace_gone(self, name: str) -> None:
        self._labelled.discard(name)
        self._sent.discard(name)
        self._lingering.discard(name)
        self.queue.forget(name)

    def take_over(self) -> None:
        """All namespaces were seen: complete what the previous leader labelled."""
        self.named(sorted(self._labelled.symmetric_difference(self._selection)))

    async def _perform(self, name: str) -> None:
        wanted = name in self._selection
        if wanted == (name in self._labelled) and (wanted or name not in self._sent):
            return
        if not wanted and name not in self._lingering:
            self._lingering.add(name)
            raise RetryLater("its last quota may be replaced", LINGER)
        found = await sent(self._api.find(NAMESPACES, name), refused=self._refused(name))
        if found is None or not (wanted or _is_ours(found)):  # applying would create it, or own what is another's
            return
        self._sent.add(name)
        labels = {GOVERNED_LABEL: ENFORCED} if wanted else {}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        write = self._api.apply(NAMESPACES, name, "", body, force=True, how=self._how)
        await sent(write, refused=self._refused(name))
        if not wanted:
            self._sent.discard(name)
            self._lingering.discard(name)

    def _refused(self, name: str) -> Refused:
        return lambda why: self._report("Namespace", name, INVALID, why)


def _is_ours(namespace: RawObject) -> bool:
    fields = namespace.plain()["metadata"].get("managedFields") or ()
    return any(entry.get("manager") == MANAGER for entry in fields)
