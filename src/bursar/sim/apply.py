"""Applied manifests as staged changes: they are completed, judged as a whole, and compared with what is there.

The caller takes or drops the stage as a whole. A pod that has ended may be applied again, as another pod of that name.

A manifest that was read from the cluster repeats what Bursar wrote: the node of a pod, status, labels, annotations and
metadata. Applying it again asks for none of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import msgspec

from bursar.control.admission import Admission, ObjectChange
from bursar.objects.core import Pod
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import NODE, POD, Kind, KindSet, TypedObject
from bursar.objects.manifests import Document
from bursar.objects.pods import node_needs
from bursar.objects.requests import check_whole
from bursar.objects.validation import time_ms
from bursar.sim.objects import Stage, Stored
from bursar.sim.pods import ENDED, PENDING, Clock, PodLife, SimPod, pod_times

_BOOKKEEPING = frozenset(
    {"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields", "selfLink"}
)


class ConflictError(ManifestError):
    """The object is not in the version that the change was made for."""


def requested(body: dict[str, Any], known: Stored | None) -> dict[str, Any]:
    """The manifest without what the cluster wrote."""
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        return body
    kept = {name: value for name, value in metadata.items() if name not in _BOOKKEEPING}
    if known is None:
        return {**body, "metadata": kept}
    asked = known.body.get("metadata") or {}
    for part in ("labels", "annotations"):
        _take_out(kept, part, known.written.get(part, {}), asked.get(part))
    whole = {**body, "metadata": kept}
    _take_out(whole, "status", known.written.get("status", {}), known.body.get("status"))
    if known.node:
        _take_node_out(whole, known)
    return whole


def _take_out(whole: dict[str, Any], part: str, written: dict[str, Any], asked: object) -> None:
    """Entries that repeat what was written, unless the user had asked for them before."""
    given = whole.get(part)
    if not isinstance(given, dict) or not written:
        return
    before = asked if isinstance(asked, dict) else {}
    kept = {name: value for name, value in given.items() if name in before or written.get(name) != value}
    if kept or isinstance(asked, dict):  # an empty part stays one
        whole[part] = kept
    else:
        del whole[part]


def _take_node_out(whole: dict[str, Any], known: Stored) -> None:
    spec = whole.get("spec")
    asked = (known.body.get("spec") or {}).get("nodeName")
    if isinstance(spec, dict) and not asked and spec.get("nodeName") == known.node:
        whole["spec"] = {name: value for name, value in spec.items() if name != "nodeName"}


def created_before(given: TypedObject, now: int) -> int:
    """The object's own creation time in milliseconds; now if it has none, or one in the future."""
    text = (given.body.get("metadata") or {}).get("creationTimestamp")
    try:
        created = time_ms(str(text))
    except ValueError:
        return now
    return min(created, now)


def check_version(given: TypedObject, known: Stored | None) -> None:
    """A manifest that names a version is refused for any other."""
    version = (given.body.get("metadata") or {}).get("resourceVersion")
    if not version:
        return
    subject = f"{given.kind.kind} {given.key}"
    if known is None:
        raise ConflictError("there is no such object any more", "metadata.resourceVersion", subject=subject)
    if str(version) != str(known.version):
        problem = f"the object has version {known.version} now, not {version!r:.40}: read it again"
        raise ConflictError(problem, "metadata.resourceVersion", subject=subject)


def _is_about(given: TypedObject, pod: SimPod) -> bool:
    """Whether a manifest was read from the cluster when this pod was there, and not written for another one."""
    return (given.body.get("metadata") or {}).get("uid") == pod.uid


def check_pod_update(known: Stored, given: TypedObject, pod: SimPod) -> None:
    """A pod that has its place cannot ask for another one, and one that has ended for nothing."""
    if pod.phase in ENDED:
        problem = "this pod has ended: take its uid away to create another one of its name"
        raise ManifestError(problem, "metadata.uid", subject=f"Pod {given.key}")
    before = node_needs(cast("Pod", known.applied.typed).spec)
    after = node_needs(cast("Pod", given.typed).spec)
    subject = f"Pod {given.key}"
    if after.node_name != before.node_name:
        raise ManifestError("a pod cannot be moved: delete it and create it again", "spec.nodeName", subject=subject)
    if pod.phase != PENDING and after.record() != before.record():
        problem = f"the pod is {pod.phase}: what it requires of its node can no longer change"
        raise ManifestError(problem, "spec", subject=subject)


@dataclass(frozen=True, slots=True)
class _Draft:
    """An object to apply, before it is admitted."""

    given: TypedObject  # without what the cluster wrote
    known: Stored | None  # the object that it changes; None: it is new
    old: dict[str, Any] | None  # what admission takes for its former state
    created: int


class Staging:
    """Turns manifests into changes, beside the pods that there are."""

    def __init__(self, kinds: KindSet, admission: Admission, clock: Clock, pods: PodLife) -> None:
        self.keeps_ages = False  # new objects keep their age: it is a copy of another cluster
        self._kinds = kinds
        self._admission = admission
        self._clock = clock
        self._pods = pods

    def changes(self, stage: Stage, given: Sequence[TypedObject]) -> list[ObjectChange | None]:
        """The change that each object means; None for what is there already as it was given.

        They are judged as a whole, pods when all others are in place. An object that is given twice is applied twice.
        """
        found: list[ObjectChange | None] = [None] * len(given)
        todo = list(range(len(given)))
        while todo:
            firsts = {(given[i].kind.name, given[i].key): i for i in reversed(todo)}
            others = [i for i in sorted(firsts.values()) if given[i].kind.name != POD.name]
            drafts = [self._draft(stage, given[i]) for i in others]
            for i, draft, admitted in zip(others, drafts, self._reviewed(stage, drafts), strict=True):
                found[i] = self._stage(stage, draft, admitted)
            for i in sorted({*firsts.values()} - {*others}):
                draft = self._draft(stage, given[i])
                found[i] = self._stage(stage, draft, self._admission.complete(stage, draft.old, draft.given))
            todo = sorted({*todo} - {*firsts.values()})
        return found

    def _reviewed(self, stage: Stage, drafts: Sequence[_Draft]) -> list[TypedObject]:
        """The objects to store. Policies that judge each object alone see those before it."""
        scratch = stage.stage()
        completed: list[tuple[dict[str, Any] | None, TypedObject]] = []
        for draft in drafts:
            completed.append((draft.old, self._admission.complete(scratch, draft.old, draft.given)))
            scratch.apply(completed[-1][1], draft.created)
        return self._admission.review(stage, completed)

    def check_removals(self, stage: Stage, gone: Sequence[Stored]) -> None:
        """Raises if not all of these objects may go. Pods always may, and hold nothing that goes with them."""
        left = stage.stage()
        others: list[tuple[Kind, str, dict[str, Any]]] = []
        for stored in gone:
            if stored.kind.name == POD.name:
                left.remove(POD.name, stored.key)
            else:
                others.append((stored.kind, stored.key, stored.manifest()))
        self._admission.review_removal(left, others)
        for kind, key, body in others:
            self._admission.check_removal(left, kind, key, body)
            left.remove(kind.name, key)

    def _draft(self, stage: Stage, given: TypedObject) -> _Draft:
        stored = stage.find(given.kind.name, given.key)
        pod = self._pods.by_key.get(given.key) if given.kind.name == POD.name else None
        ended = pod is not None and pod.phase in ENDED and not _is_about(given, pod)
        known = None if stored is None or ended else stored.fetched()
        check_version(given, stored)
        created = created_before(given, self._clock.now) if self.keeps_ages else self._clock.now
        body = requested(given.body, known)
        if body != given.body:
            given = self._kinds.read(Document("", 0, body))
        return _Draft(given, known, self._before(given) if known is None else known.manifest(), created)

    def _stage(self, stage: Stage, draft: _Draft, admitted: TypedObject) -> ObjectChange | None:
        known = draft.known
        if known is not None:
            if admitted.body == known.body:
                return None
            pod = self._pods.by_key.get(admitted.key) if admitted.kind.name == POD.name else None
            if pod is not None:
                check_pod_update(known, admitted, pod)
        stored = stage.apply(admitted, draft.created, anew=known is None)
        if admitted.kind.name != POD.name:
            return ObjectChange(admitted.kind, stored.key, admitted)
        typed = cast("Pod", admitted.typed)
        _check_devices(typed, stored.key)
        pod_times(typed)
        named = msgspec.structs.replace(typed.metadata, namespace=admitted.namespace, uid=stored.uid)
        whole = msgspec.structs.replace(typed, metadata=named, status=type(typed.status)())
        return ObjectChange(admitted.kind, stored.key, replace(admitted, typed=whole), stored.created)

    def _before(self, given: TypedObject) -> dict[str, Any] | None:
        """A new object has no former state; in a copy it is the object itself, which was admitted at its source."""
        return given.body if self.keeps_ages and given.kind.name != POD.name else None


def _check_devices(pod: Pod, key: str) -> None:
    """A device can only be requested as a whole."""
    try:
        check_whole(pod.spec)
    except ManifestError as error:
        raise error.located(subject=f"Pod {key}") from None


def check_node(stage: Stage, pod: Pod) -> None:
    """A pod that names its node needs that node."""
    node = pod.spec.node_name
    if node and stage.find(NODE.name, node) is None:
        subject = f"Pod {pod.metadata.namespace}/{pod.metadata.name}"
        raise ManifestError(f"there is no node {node!r:.80}", "spec.nodeName", subject=subject)
