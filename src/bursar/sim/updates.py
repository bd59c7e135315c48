"""Applying again what was read: which parts of a manifest are wishes, and which wishes can still change.

A manifest that was read from the cluster repeats what Bursar wrote into it: the node that a pod got, status, labels,
annotations, and the bookkeeping of its metadata. None of that is a wish of whoever applies it again.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from bursar.objects.core import Pod
from bursar.objects.errors import ManifestError
from bursar.objects.kindset import TypedObject
from bursar.objects.needs import node_needs
from bursar.sim.pods import PENDING, SimPod
from bursar.sim.store import Stored

_BOOKKEEPING = frozenset(
    {"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields", "selfLink"}
)


class ConflictError(ManifestError):
    """The object is not in the version that the change was made for."""


def wishes(body: dict[str, Any], known: Stored | None) -> dict[str, Any]:
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
    """When the object says that it was created, in milliseconds; now, when it does not say or cannot be right."""
    text = (given.body.get("metadata") or {}).get("creationTimestamp")
    try:
        created = round(datetime.fromisoformat(str(text)).timestamp() * 1000)
    except ValueError:
        return now
    return min(created, now)


def check_version(given: TypedObject, known: Stored | None) -> None:
    """A manifest that names a version is meant for that one."""
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
        raise ManifestError("a pod cannot be moved: delete it and create it anew", "spec.nodeName", subject=subject)
    if pod.phase != PENDING and after.record() != before.record():
        problem = f"the pod is {pod.phase}: what it requires of its node can no longer change"
        raise ManifestError(problem, "spec", subject=subject)
