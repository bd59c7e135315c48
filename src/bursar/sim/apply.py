"""Applied manifests as staged changes: each is checked, completed and compared with what is there.

The caller takes or drops the stage as a whole. A pod that has ended may be applied again, as another pod of that name.

A manifest that was read from the cluster repeats what Bursar wrote: the node of a pod, status, labels, annotations and
metadata. Applying it again asks for none of that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import msgspec

from bursar.control.admission import Admission, ObjectChange
from bursar.objects.core import Pod
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import NODE, POD, KindSet, TypedObject
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
    if kept:
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


def check_pod_update(known: Stored, given: TypedObject, pod: SimPod) -> None:
    """A pod that has its place cannot ask for another one."""
    before = node_needs(cast("Pod", known.applied.typed).spec)
    after = node_needs(cast("Pod", given.typed).spec)
    subject = f"Pod {given.key}"
    if after.node_name != before.node_name:
        raise ManifestError("a pod cannot be moved: delete it and create it again", "spec.nodeName", subject=subject)
    if pod.phase != PENDING and after.record() != before.record():
        problem = f"the pod is {pod.phase}: what it requires of its node can no longer change"
        raise ManifestError(problem, "spec", subject=subject)


class Staging:
    """Turns manifests into changes, beside the pods that there are."""

    def __init__(self, kinds: KindSet, admission: Admission, clock: Clock, pods: PodLife) -> None:
        self.keeps_ages = False  # new objects keep their age: it is a copy of another cluster
        self._kinds = kinds
        self._admission = admission
        self._clock = clock
        self._pods = pods

    def changes(self, stage: Stage, given: Iterable[TypedObject]) -> list[ObjectChange]:
        """The changes that all of them mean, one after the other."""
        return [change for change in (self.change(stage, one) for one in given) if change is not None]

    def check_removal(self, stage: Stage, stored: Stored) -> None:
        """Raises if the object must not go."""
        self._admission.check_removal(stage, stored.kind, stored.key, stored.manifest)

    def change(self, stage: Stage, given: TypedObject) -> ObjectChange | None:
        """The change that the object means; None when it is there already as it was given."""
        found = stage.find(given.kind.name, given.key)
        known = None if found is None else found.fetched()
        pod = self._pods.by_key.get(given.key) if given.kind.name == POD.name else None
        anew = pod is not None and pod.phase in ENDED
        check_version(given, known)
        created = created_before(given, self._clock.now) if self.keeps_ages else self._clock.now
        body = requested(given.body, None if anew else known)
        if body != given.body:
            given = self._kinds.read(Document("", 0, body))
        old = self._before(given) if known is None or anew else known.manifest()
        admitted = self._admission.admit(stage, old, given)
        if known is not None and not anew:
            if admitted.body == known.body:
                return None
            if pod is not None:
                check_pod_update(known, admitted, pod)
        stored = stage.apply(admitted, created, anew=anew)
        if given.kind.name != POD.name:
            return ObjectChange(given.kind, stored.key, admitted)
        typed = cast("Pod", admitted.typed)
        _check_devices(typed, stored.key)
        pod_times(typed)
        named = msgspec.structs.replace(typed.metadata, namespace=admitted.namespace, uid=stored.uid)
        whole = msgspec.structs.replace(typed, metadata=named, status=type(typed.status)())
        return ObjectChange(given.kind, stored.key, replace(admitted, typed=whole), stored.created)

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
