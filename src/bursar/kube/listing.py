"""Everything that decisions rest on, listed once from a live cluster, for those who only look."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from bursar.kube.client.api import Api
from bursar.kube.client.config import ClusterConfig
from bursar.kube.client.errors import Forbidden, NotFound
from bursar.kube.client.http import Http
from bursar.kube.client.resources import Resource
from bursar.kube.controller.names import is_own_annotation
from bursar.kube.controller.sight import ENDED, wished_labels
from bursar.objects.corekinds import POD
from bursar.objects.kinds import Kind
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
            listed.pods = [_as_wished(body) for body in bodies if _is_there(body)]
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
    return (pod.get("status") or {}).get("phase") not in ENDED


def _as_wished(pod: Body) -> Body:
    """The pod without what Bursar wrote on it; what says which GPUs it has stays with a pod that has its node."""
    metadata, spec = pod["metadata"], pod["spec"]
    bound = bool(spec.get("nodeName"))
    annotations = {
        name: value
        for name, value in (metadata.get("annotations") or {}).items()
        if not (is_own_annotation(name) or name.startswith(_EMBEDDED)) or (bound and name in _RECORDS)
    }
    labels = wished_labels(metadata.get("labels") or {})
    return {**pod, "metadata": {**metadata, "labels": labels, "annotations": annotations}}
