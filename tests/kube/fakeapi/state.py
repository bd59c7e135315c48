"""The objects of the server in memory, their versions, and the history that watches read."""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from bursar.kube.client.api import Resource
from tests.kube.fakeapi import patches
from tests.kube.fakeapi.refusals import Refusal

Object = dict[str, Any]
Key = tuple[Resource, str, str]


@dataclass(frozen=True, slots=True)
class Change:
    version: int
    type: str
    resource: Resource
    before: Object | None
    after: Object  # of a deletion: the last form, with the version of the deletion


@dataclass(slots=True)
class State:
    """Everything there is. Objects handed out are never changed afterwards."""

    objects: dict[Key, Object] = field(default_factory=dict)
    owners: dict[Key, dict[str, set[patches.Path]]] = field(default_factory=dict)
    history: list[Change] = field(default_factory=list)
    version: int = 100
    compacted: int = 50  # watches from before this version are too old
    judge: Callable[[Resource, Object, Object], None] | None = None  # of changes: raises to refuse one
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        """Let every watch look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        await self._changed.wait()

    def of(self, resource: Resource, namespace: str = "") -> Iterator[Object]:
        for key in sorted(self.objects, key=lambda key: (key[1], key[2])):
            if key[0] == resource and namespace in {"", key[1]}:
                yield self.objects[key]

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        found = self.objects.get((resource, namespace, name))
        if found is None:
            raise Refusal(404, f'{resource.plural} "{name}" not found')
        return found

    def create(self, resource: Resource, namespace: str, body: Object) -> Object:
        made = copy.deepcopy(body)
        meta = made.setdefault("metadata", {})
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + uuid.uuid4().hex[:5]
        name = meta.get("name") or ""
        if not name:
            raise Refusal(422, "name or generateName is required")
        key = (resource, namespace, name)
        if key in self.objects:
            raise Refusal(409, f'{resource.plural} "{name}" already exists', reason="AlreadyExists")
        made.setdefault("apiVersion", resource.api_version)
        made.setdefault("kind", resource.kind)
        if resource.namespaced:
            meta["namespace"] = namespace
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        meta.update(uid=str(uuid.uuid4()), creationTimestamp=now, generation=1)
        self._store("ADDED", key, None, made)
        return made

    def replace(
        self, resource: Resource, namespace: str, name: str, wanted: Object, *, status: bool, keep: bool = True
    ) -> Object:
        """Store a changed form of an object (unless it is only tried): only its status, or everything else."""
        before = self.get(resource, namespace, name)
        meta = wanted.get("metadata", {})
        if meta.get("uid", before["metadata"]["uid"]) != before["metadata"]["uid"]:
            problem = f"Invalid value: {meta['uid']!r}: field is immutable"
            causes = [{"reason": "FieldValueInvalid", "message": problem, "field": "metadata.uid"}]
            raise Refusal(422, f'{resource.kind} "{name}" is invalid: metadata.uid: {problem}', causes=causes)
        self._check_preconditions(before, "", meta.get("resourceVersion", ""), resource, name)
        after = copy.deepcopy(wanted)
        kept, other = (before, wanted) if status else (wanted, before)
        if status or resource.plural not in WITHOUT_STATUS:
            after = {field: value for field, value in copy.deepcopy(kept).items() if field != "status"}
            if "status" in other:
                after["status"] = copy.deepcopy(other["status"])
        self._fix_identity(before, after)
        if self.judge is not None:
            self.judge(resource, before, after)
        if after == before or not keep:
            return after
        if after.get("spec") != before.get("spec"):
            after["metadata"]["generation"] += 1
        key = (resource, namespace, name)
        if after["metadata"].get("deletionTimestamp") and not after["metadata"].get("finalizers"):
            return self._drop(key, after)
        self._store("MODIFIED", key, before, after)
        return after

    @staticmethod
    def _fix_identity(before: Object, after: Object) -> None:
        kept = ("name", "namespace", "uid", "creationTimestamp", "generation", "resourceVersion", "deletionTimestamp")
        for name in kept:
            if name in before["metadata"]:
                after["metadata"][name] = before["metadata"][name]

    @staticmethod
    def _check_preconditions(found: Object, uid: str, version: str, resource: Resource, name: str) -> None:
        meta = found["metadata"]
        if uid and uid != meta["uid"]:
            raise Refusal(409, f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta['uid']}")
        if version and version != meta["resourceVersion"]:
            message = f'Operation cannot be fulfilled on {resource.plural} "{name}": the object has been modified'
            raise Refusal(409, message)

    def delete(
        self, resource: Resource, namespace: str, name: str, uid: str = "", version: str = "", *, keep: bool = True
    ) -> Object:
        found = self.get(resource, namespace, name)
        self._check_preconditions(found, uid, version, resource, name)
        if not keep:
            return found
        key = (resource, namespace, name)
        if found["metadata"].get("finalizers"):
            marked = copy.deepcopy(found)
            marked["metadata"].setdefault("deletionTimestamp", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
            if marked != found:
                self._store("MODIFIED", key, found, marked)
            return marked
        return self._drop(key, found)

    def _drop(self, key: Key, last: Object) -> Object:
        del self.objects[key]
        self.owners.pop(key, None)
        self.version += 1
        gone = copy.deepcopy(last)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self.history.append(Change(self.version, "DELETED", key[0], last, gone))
        self.wake()
        return gone

    def _store(self, type_: str, key: Key, before: Object | None, after: Object) -> None:
        self.version += 1
        after["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = after
        self.history.append(Change(self.version, type_, key[0], before, after))
        self.wake()


WITHOUT_STATUS = frozenset(
    {"leases", "events", "priorityclasses", "configmaps", "secrets", "resourceslices", "deviceclasses"}
)
"""Plurals of kinds whose status, if there is one, is written with the rest."""
