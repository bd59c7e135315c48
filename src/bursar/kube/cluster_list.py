"""Lists everything that decisions depend on from a live cluster, once, for read-only commands.

Of the pending pods it takes those that a controller would decide: gated ones, and governed ones where there is no
gate. Any other pod counts once it is bound. Pods that are not governed are never victims. Devices that DRA drivers
publish, and pods that claim them, are marked as a controller marks them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bursar.control.admission import CONFIGURATION, known_kinds
from bursar.kube.admission.predicate import ENFORCED, NAMESPACE_LABEL, AdmissionOptions, Governed, facts_of
from bursar.kube.client.api import RESOURCE_SLICES, Api, Resource
from bursar.kube.client.auth import ClusterConfig
from bursar.kube.client.errors import Forbidden, NotFound
from bursar.kube.client.http import Http
from bursar.kube.client.models import Meta, read_any
from bursar.kube.controller.informers import narrowed
from bursar.kube.controller.object_cache import Devices, read_slice
from bursar.kube.controller.object_sync import QuotaSelection
from bursar.kube.controller.patches import GATE, AdmissionRecord, admission_of, is_own_annotation
from bursar.kube.controller.pod_model import ENDED, wished_labels
from bursar.objects.kinds import NAMESPACE, NODE, POD, Kind
from bursar.objects.pods import CLAIMS_DEVICES, PREEMPTIBLE_LABEL
from bursar.policies.plugin import Registry, installed_marks

Body = dict[str, Any]
_BOOKKEEPING = ("resourceVersion", "uid", "managedFields", "selfLink")  # a copy has an identity of its own
_EMBEDDED = "sim.bursar.dev/"  # annotations by which pods of an embedded cluster would end
_RECORDS = frozenset(installed_marks().records)  # of a pod on its node: which GPUs are its own


@dataclass(slots=True)
class Listed:
    """The objects of a cluster, and the kinds that could not be read."""

    objects: list[tuple[Kind, Body]] = field(default_factory=list)
    pods: list[Body] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


async def list_cluster(config: ClusterConfig, registry: Registry) -> Listed:
    """All objects of known kinds. One that the server does not have is empty; one that may not be read is named."""
    async with Http(config) as http:
        api = Api(http)
        chosen = list(known_kinds(registry))
        found = await asyncio.gather(*(_list(api, kind) for kind in chosen))
        devices = await _devices(api)
    listed = Listed()
    pods: list[Body] = []
    for kind, bodies in zip(chosen, found, strict=True):
        if bodies is None:
            listed.unread.append(kind.plural)
        elif kind.name == POD.name:
            pods = [body for body in sorted(bodies, key=_order) if _is_there(body)]
        elif kind.name == NODE.name and devices is not None:
            listed.objects += [(kind, {**body, "metadata": devices.marked(body["metadata"])}) for body in bodies]
        else:
            listed.objects += [(kind, body) for body in bodies]
    governing = _Governing(registry, listed.objects)
    if devices is None and governing.everywhere:  # which is about GPU nodes
        listed.unread.append(RESOURCE_SLICES.plural)
    for pod in pods:
        ours = _is_gated(pod) or _record(pod) is not None or governing.holds(pod)
        if ours or pod["spec"].get("nodeName"):
            listed.pods.append(_as_wished(pod, spared=not ours))
    return listed


class _Governing:
    """Which pods a controller would decide over, by the quotas and namespaces that there are."""

    def __init__(self, registry: Registry, objects: Iterable[tuple[Kind, Body]]) -> None:
        self._naming = QuotaSelection(registry)
        quotas = {name for plugin in registry for name in plugin.namespaces}
        self._labels: dict[str, dict[str, str]] = {}
        exempt: tuple[str, ...] | None = None
        for kind, body in objects:
            if kind.name == NAMESPACE.name:
                self._labels[body["metadata"]["name"]] = body["metadata"].get("labels") or {}
            elif kind.kind == CONFIGURATION:
                exempt = _exempt(registry, body.get("spec") or {})
            elif kind.name in quotas:
                metadata = body["metadata"]
                self._naming.take(kind.name, f"{metadata['namespace']}/{metadata['name']}", body)
        self.everywhere = exempt is not None
        self._governed = Governed(AdmissionOptions(everywhere=self.everywhere, exempt_namespaces=exempt or ()))

    def holds(self, pod: Body) -> bool:
        namespace = pod["metadata"].get("namespace", "")
        named = {NAMESPACE_LABEL: ENFORCED} if namespace in self._naming else {}
        return self._governed.holds(namespace, {**self._labels.get(namespace, {}), **named}, facts_of(pod))


def _exempt(registry: Registry, sections: Body) -> tuple[str, ...] | None:
    """The namespaces that every policy that governs all namespaces exempts; None if there is no such policy."""
    chosen = [plugin.everywhere(sections.get(plugin.name)) for plugin in registry if plugin.everywhere is not None]
    governing = [exempt for exempt in chosen if exempt is not None]
    if not governing:
        return None
    return tuple(name for name in governing[0] if all(name in others for others in governing))


async def _list(api: Api, kind: Kind) -> list[Body] | None:
    """All objects of a kind, read page by page: of a large cluster what nobody reads is not even kept for a while."""
    narrow, head = narrowed(kind), {"apiVersion": kind.api_version, "kind": kind.kind}

    def read(raw: bytes) -> Body:
        body = msgspec.json.decode(narrow(Meta(), raw))
        kept = {name: value for name, value in body["metadata"].items() if name not in _BOOKKEEPING}
        return {**head, **body, "metadata": kept}

    found: list[Body] = []
    try:
        async for page in api.pages(Resource.of(kind)):
            found += [read_any(read, bytes(raw))[0] for raw in page.items or ()]
    except NotFound:
        return []
    except Forbidden:
        return None
    return found


async def _devices(api: Api) -> Devices | None:
    """What drivers publish; None if that may not be read."""
    found = Devices()
    try:
        for one in (await api.list(RESOURCE_SLICES)).items:
            found.seen(one.meta.name, read_slice(one.raw))
    except NotFound:
        return found
    except Forbidden:
        return None
    return found


def _is_there(pod: Body) -> bool:
    """It runs or may run: who is deleted before it is bound never does."""
    if (pod.get("status") or {}).get("phase") in ENDED:
        return False
    return bool(pod["spec"].get("nodeName")) or not pod["metadata"].get("deletionTimestamp")


def _order(pod: Body) -> tuple[int, int, int, str, str, str]:
    """As a controller takes them in: who is there, those who were admitted in that order, then who waits, by age."""
    metadata = pod["metadata"]
    record = _record(pod)
    rank = (0, 0, 0) if pod["spec"].get("nodeName") else (2, 0, 0)
    if record is not None:
        rank = (1, record.term, record.seq)
    return *rank, metadata.get("creationTimestamp") or "", metadata.get("namespace", ""), metadata["name"]


def _place(pod: Body) -> str:
    """Its node, or where it was let go to and is about to be bound; "" while it waits."""
    spec = pod["spec"]
    if spec.get("nodeName") or _is_gated(pod):
        return str(spec.get("nodeName") or "")
    record = _record(pod)
    return "" if record is None else record.place


def _is_gated(pod: Body) -> bool:
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ())


def _record(pod: Body) -> AdmissionRecord | None:
    return admission_of(pod["metadata"].get("annotations") or {})


def _as_wished(pod: Body, *, spared: bool) -> Body:
    """The pod without what Bursar wrote on it; what says which GPUs it has stays with a pod that has its node."""
    metadata, place = pod["metadata"], _place(pod)
    annotations = {
        name: value
        for name, value in (metadata.get("annotations") or {}).items()
        if not (is_own_annotation(name) or name.startswith(_EMBEDDED)) or (place and name in _RECORDS)
    }
    if pod["spec"].get("resourceClaims"):
        annotations[CLAIMS_DEVICES] = "true"
    labels = wished_labels(metadata.get("labels") or {})
    if spared:
        labels = labels | {PREEMPTIBLE_LABEL: "false"}
    spec = {**pod["spec"], "nodeName": place} if place else pod["spec"]
    return {**pod, "metadata": {**metadata, "labels": labels, "annotations": annotations}, "spec": spec}
