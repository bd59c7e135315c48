"""Everything that decisions rest on, listed once from a live cluster, for those who only look."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from bursar.kube.admission.governed import EXEMPT
from bursar.kube.admission.options import Options
from bursar.kube.admission.terms import PodFacts
from bursar.kube.client.api import Api
from bursar.kube.client.config import ClusterConfig
from bursar.kube.client.errors import Forbidden, NotFound
from bursar.kube.client.http import Http
from bursar.kube.client.resources import Resource
from bursar.kube.controller.names import GATE, is_own_annotation
from bursar.kube.controller.records import admission_of
from bursar.kube.controller.sight import ENDED, wished_labels
from bursar.objects.corekinds import POD
from bursar.objects.kinds import Kind
from bursar.objects.pods import PREEMPTIBLE_LABEL
from bursar.policies.tensorfusion.worker import CONTAINER_GPUS, GPU_IDS

Body = dict[str, Any]
_BOOKKEEPING = ("resourceVersion", "uid", "managedFields", "selfLink")
_EMBEDDED = "sim.bursar.dev/"  # annotations by which pods of an embedded cluster would end
_RECORDS = (GPU_IDS, CONTAINER_GPUS)  # of a pod on its node: which GPUs are its own


@dataclass(slots=True)
class Listed:
    """The objects of a cluster, and the kinds that could not be read."""

    objects: list[tuple[Kind, Body]] = field(default_factory=list)
    pods: list[Body] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


async def list_cluster(config: ClusterConfig, kinds: Iterable[Kind]) -> Listed:
    """All objects of these kinds. A kind that the server does not have is empty; one that may not be read is named."""
    async with Http(config) as http:
        api = Api(http)
        chosen = list(kinds)
        found = await asyncio.gather(*(_list(api, kind) for kind in chosen))
    listed = Listed()
    for kind, bodies in zip(chosen, found, strict=True):
        if bodies is None:
            listed.unread.append(kind.plural)
        elif kind.name == POD.name:
            listed.pods = [_as_wished(body) for body in sorted(bodies, key=_order) if _is_there(body)]
        else:
            listed.objects += [(kind, body) for body in bodies]
    return listed


async def _list(api: Api, kind: Kind) -> list[Body] | None:
    try:
        listing = await api.list(Resource.of(kind))
    except NotFound:
        return []
    except Forbidden:
        return None
    head = {"apiVersion": kind.api_version, "kind": kind.kind}
    return [head | _unversioned(body.plain()) for body in listing.items]


def _unversioned(body: Body) -> Body:
    """A copy belongs to no version, and has an identity of its own."""
    kept = {name: value for name, value in body["metadata"].items() if name not in _BOOKKEEPING}
    return {**body, "metadata": kept}


def _is_there(pod: Body) -> bool:
    """It runs or may run: who is deleted before it is bound never does."""
    if (pod.get("status") or {}).get("phase") in ENDED:
        return False
    return bool(pod["spec"].get("nodeName")) or not pod["metadata"].get("deletionTimestamp")


def _order(pod: Body) -> tuple[int, int, int, str, str, str]:
    """As a controller takes them in: who is there, those who were admitted in that order, then who waits, by age."""
    metadata = pod["metadata"]
    record = admission_of(metadata.get("annotations") or {})
    rank = (0, 0, 0) if pod["spec"].get("nodeName") else (2, 0, 0)
    if record is not None:
        rank = (1, record.term, record.seq)
    return *rank, metadata.get("creationTimestamp") or "", metadata.get("namespace", ""), metadata["name"]


def _place(pod: Body) -> str:
    """Its node, or where it was let go to and is about to be bound; "" while it waits."""
    spec = pod["spec"]
    if spec.get("nodeName") or any(gate["name"] == GATE for gate in spec.get("schedulingGates") or ()):
        return str(spec.get("nodeName") or "")
    record = admission_of(pod["metadata"].get("annotations") or {})
    return "" if record is None else record.place


def _as_wished(pod: Body) -> Body:
    """The pod without what Bursar wrote on it; what says which GPUs it has stays with a pod that has its node."""
    metadata, place = pod["metadata"], _place(pod)
    annotations = {
        name: value
        for name, value in (metadata.get("annotations") or {}).items()
        if not (is_own_annotation(name) or name.startswith(_EMBEDDED)) or (place and name in _RECORDS)
    }
    labels = wished_labels(metadata.get("labels") or {})
    if _is_nobodys_victim(pod):
        labels = labels | {PREEMPTIBLE_LABEL: "false"}
    spec = {**pod["spec"], "nodeName": place} if place else pod["spec"]
    return {**pod, "metadata": {**metadata, "labels": labels, "annotations": annotations}, "spec": spec}


def _is_nobodys_victim(pod: Body) -> bool:
    """Pods that Bursar never governs, whatever quotas there are."""
    metadata = pod["metadata"]
    if metadata.get("namespace", "") in Options().never:
        return True
    owners = tuple(
        (owner.get("apiVersion", ""), owner.get("kind", ""))
        for owner in metadata.get("ownerReferences") or ()
        if owner.get("controller")
    )
    return EXEMPT.holds(PodFacts(metadata.get("labels") or {}, metadata.get("annotations") or {}, (), owners))
