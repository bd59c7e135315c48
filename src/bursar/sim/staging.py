"""What applied manifests mean for the objects that are there: each is checked, completed and staged as a change.

Nothing is kept: the stage is taken or dropped by the caller, as a whole. A pod that has ended may be applied anew, as
another pod under the same name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import msgspec

from bursar.control.admission import Admission
from bursar.control.translation import ObjectChange
from bursar.objects.core import Pod
from bursar.objects.corekinds import NODE, POD
from bursar.objects.errors import ManifestError
from bursar.objects.kindset import KindSet, TypedObject
from bursar.objects.manifests import Document
from bursar.objects.requests import check_whole
from bursar.sim import updates
from bursar.sim.clock import Clock
from bursar.sim.podlife import PodLife
from bursar.sim.pods import ENDED, pod_times
from bursar.sim.store import Stage, Stored


class Staging:
    """Turns manifests into changes, beside the pods that there are."""

    def __init__(self, kinds: KindSet, admission: Admission, clock: Clock, pods: PodLife) -> None:
        self.keeps_ages = False  # new objects are as old as they say: it is a copy of another cluster
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
        updates.check_version(given, known)
        created = updates.created_before(given, self._clock.now) if self.keeps_ages else self._clock.now
        body = updates.wishes(given.body, None if anew else known)
        if body != given.body:
            given = self._kinds.read(Document("", 0, body))
        old = self._before(given) if known is None or anew else known.manifest()
        admitted = self._admission.admit(stage, old, given)
        if known is not None and not anew:
            if admitted.body == known.body:
                return None
            if pod is not None:
                updates.check_pod_update(known, admitted, pod)
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
        """What a new object was before: nothing, or in a copy the same, since it was admitted where it comes from."""
        return given.body if self.keeps_ages and given.kind.name != POD.name else None


def _check_devices(pod: Pod, key: str) -> None:
    """Nobody can ask for a part of a device by its resource."""
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
