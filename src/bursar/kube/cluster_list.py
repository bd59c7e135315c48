"""Lists everything that decisions depend on from a live cluster, once, for read-only commands.

Of the pending pods it takes those that a controller would decide: gated ones, and governed ones where there is no
gate. Any other pod counts once it is bound. Pods that are not governed are never victims. Devices that DRA drivers
publish, and pods that claim them, are marked as a controller marks them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bursar.control.admission import CONFIGURATION, SECTION, known_kinds
from bursar.kube.admission.predicate import ENFORCED, NAMESPACE_LABEL, AdmissionOptions, Governed, facts_of
from bursar.kube.client.api import Api, Resource
from bursar.kube.client.auth import ClusterConfig
from bursar.kube.client.errors import Forbidden, NotFound
from bursar.kube.client.http import Http
from bursar.kube.client.models import Meta, read_any
from bursar.kube.controller.informers import narrowed
from bursar.kube.controller.object_cache import Devices, published
from bursar.kube.controller.object_sync import QuotaSelection
from bursar.kube.controller.patches import admission_of, is_own_annotation
from bursar.kube.controller.pod_model import SeenPod, other_gates, read_pod, user_labels
from bursar.kube.controller.pod_sync import entering
from bursar.objects.devices import ResourceSlice
from bursar.objects.kinds import DEVICE_KINDS, NAMESPACE, NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE, Kind
from bursar.objects.pods import PREEMPTIBLE_LABEL
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
    gated: dict[str, str] = field(default_factory=dict)  # by pod: which gates of others hold it back
    unscheduled: dict[str, str] = field(default_factory=dict)  # by pod that was started: the scheduler's words


async def list_cluster(config: ClusterConfig, registry: Registry) -> Listed:
    """All objects of known kinds. One that the server does not have is empty; one that may not be read is named."""
    async with Http(config) as http:
        api = Api(http)
        chosen = list(known_kinds(registry))
        found = await asyncio.gather(*(_list(api, kind) for kind in chosen))
    devices = _devices(dict(zip((kind.name for kind in chosen), found, strict=True)).get(RESOURCE_SLICE.name))
    listed = Listed()
    pods: list[tuple[SeenPod, Body]] = []
    for kind, bodies in zip(chosen, found, strict=True):
        if bodies is None:
            if kind not in DEVICE_KINDS:
                listed.unread.append(kind.plural)
        elif kind.name == POD.name:
            pods = [(read_pod(msgspec.json.encode(body)), body) for body in bodies]
        elif kind.name == NODE.name:
            listed.objects += [(kind, {**body, "metadata": devices.marked(body["metadata"])}) for body in bodies]
        else:
            listed.objects += [(kind, body) for body in bodies]
    governing = _Governing(registry, listed.objects)
    claims = any(pod.spec.resource_claims for pod, _ in pods)
    for kind, bodies in zip(chosen, found, strict=True):
        about_gpu_nodes = kind.name == RESOURCE_SLICE.name and governing.everywhere
        if bodies is None and kind in DEVICE_KINDS and (claims or about_gpu_nodes):
            listed.unread.append(kind.plural)
    ignored = _ignored_gates(listed.objects)
    for pod, body in sorted(pods, key=lambda pair: entering(pair[0])):
        runs = pod.spec.node_name or not pod.leaving  # who is deleted before it is bound never does
        ours = pod.gated or admission_of(pod.metadata.annotations) is not None or governing.holds(body)
        if runs and not pod.ended and (ours or pod.spec.node_name):
            listed.pods.append(_with_place(body, _place(pod), spared=not ours))
            _note_obstacle(listed, pod, ignored)
    return listed


def _note_obstacle(listed: Listed, pod: SeenPod, ignored: tuple[str, ...]) -> None:
    """What keeps a pod from running beside its quotas."""
    if pod.gated and other_gates(pod, ignored):
        listed.gated[pod.key] = other_gates(pod, ignored)
    elif not pod.gated and not pod.spec.node_name and pod.unschedulable:
        listed.unscheduled[pod.key] = pod.unschedulable


def _ignored_gates(objects: Iterable[tuple[Kind, Body]]) -> tuple[str, ...]:
    sections = [(body.get("spec") or {}).get(SECTION) or {} for kind, body in objects if kind.kind == CONFIGURATION]
    return tuple(name for section in sections for name in section.get("ignoredGates") or ())


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
    """All objects of a kind, read page by page, so that unread fields of a large cluster take no memory."""
    narrow, head = narrowed(kind), {"apiVersion": kind.api_version, "kind": kind.kind}

    def read(raw: bytes) -> Body:
        body = msgspec.json.decode(narrow(Meta(), raw))
        kept = {name: value for name, value in body["metadata"].items() if name not in _BOOKKEEPING}
        if kind.name == RESOURCE_CLAIM.name:
            for owner in kept.get("ownerReferences") or ():
                owner.pop("uid", None)  # pods of a copy have others
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


def _devices(slices: list[Body] | None) -> Devices:
    """What drivers publish, as far as it may be read."""
    found = Devices()
    for body in slices or ():
        with suppress(msgspec.ValidationError):
            found.seen(body["metadata"]["name"], published(msgspec.convert(body, ResourceSlice)))
    return found


def _place(pod: SeenPod) -> str:
    """The node of a pod, also of an ungated one that is about to be bound; empty while it waits."""
    record = None if pod.gated else admission_of(pod.metadata.annotations)
    return pod.spec.node_name or ("" if record is None else record.place)


def _with_place(pod: Body, place: str, *, spared: bool) -> Body:
    """The pod without what Bursar wrote on it; what says which GPUs it has stays with a pod that has its node."""
    metadata = pod["metadata"]
    annotations = {
        name: value
        for name, value in (metadata.get("annotations") or {}).items()
        if not (is_own_annotation(name) or name.startswith(_EMBEDDED)) or (place and name in _RECORDS)
    }
    labels = user_labels(metadata.get("labels") or {})
    if spared:
        labels = labels | {PREEMPTIBLE_LABEL: "false"}
    spec = {**pod["spec"], "nodeName": place} if place else pod["spec"]
    return {**pod, "metadata": {**metadata, "labels": labels, "annotations": annotations}, "spec": spec}
