"""Watches all pods as they change, and checks after each change that no quota is exceeded and no pod admitted twice.

It knows nothing of Bursar's ledger: only pods as the API server shows them, and the limits that the test set.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from anyio.from_thread import start_blocking_portal

from bursar.kube.client.api import PODS, Api
from bursar.kube.client.http import Http
from bursar.kube.client.kubeconfig import load
from bursar.kube.client.models import Meta
from bursar.kube.client.reflector import Reflector
from bursar.kube.client.watch import Decode, Following
from tests.cluster.controlplane import ControlPlane

Body = dict[str, Any]
GATE = "bursar.dev/quota"
ADMISSION = "bursar.dev/admission"
HOLD = "bursar.dev/hold"
GPU = "nvidia.com/gpu"


@dataclass(frozen=True)
class Limits:
    """What must hold at every moment: GPUs by namespace, of all of these, by group of a tree; and what nodes have."""

    by_namespace: dict[str, int]
    together: int
    by_group: dict[str, int] = field(default_factory=dict)
    tree_label: str = ""
    by_node: dict[str, int] = field(default_factory=dict)  # what any node has of each resource


@dataclass
class SeenPod:
    namespace: str
    asks: Counter[str]  # whole numbers only
    group: str
    counts: bool
    record: str
    node: str

    @property
    def gpus(self) -> int:
        return self.asks[GPU]


class Observer:
    """The handler of a reflector over pods."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.pods: dict[str, SeenPod] = {}  # by uid
        self.used: Counter[str] = Counter()
        self.groups: Counter[str] = Counter()
        self.nodes: Counter[tuple[str, str]] = Counter()  # by node and resource
        self.faults: list[str] = []
        self.admitted: set[str] = set()
        self.held: set[str] = set()  # pods that once waited for others to leave
        self.most = 0
        self.changes = 0

    @property
    def decode(self) -> Decode[Body]:
        return lambda _meta, raw: msgspec.json.decode(raw)

    def added(self, meta: Meta, item: Body) -> None:
        self._seen(meta, item)

    def modified(self, meta: Meta, item: Body, before: Body) -> None:
        self._seen(meta, item)

    def deleted(self, meta: Meta, item: Body) -> None:
        self._set(meta.uid, None)

    def undecodable(self, meta: Meta, problem: str) -> None:
        self.faults.append(f"{meta.key}: {problem}")

    def synced(self) -> None:
        pass

    def _seen(self, meta: Meta, item: Body) -> None:
        self.changes += 1
        pod = self._read(item)
        before = self.pods.get(meta.uid)
        if before is not None and before.record and pod.record != before.record:
            self.faults.append(f"{meta.key} was admitted twice: {before.record} and {pod.record}")
        if pod.record:
            self.admitted.add(meta.uid)
        if HOLD in (item["metadata"].get("annotations") or {}):
            self.held.add(meta.uid)
        self._set(meta.uid, pod)
        if pod.counts:
            self._check(meta.key, pod)

    def _read(self, item: Body) -> SeenPod:
        spec, metadata = item["spec"], item["metadata"]
        asks: Counter[str] = Counter()
        for container in spec["containers"]:
            requests = container.get("resources", {}).get("requests", {})
            asks.update({name: int(requests.get(name, 0)) for name in (GPU, *self._limits.by_node)})
        gated = any(gate["name"] == GATE for gate in spec.get("schedulingGates") or ())
        ended = item.get("status", {}).get("phase") in {"Succeeded", "Failed"}
        group = (metadata.get("labels") or {}).get(self._limits.tree_label, "")
        record = (metadata.get("annotations") or {}).get(ADMISSION, "")
        return SeenPod(metadata["namespace"], asks, group, not gated and not ended, record, spec.get("nodeName", ""))

    def _set(self, uid: str, pod: SeenPod | None) -> None:
        for sign, one in ((-1, self.pods.pop(uid, None)), (1, pod)):
            if one is not None and one.counts:
                self.used[one.namespace] += sign * one.gpus
                self.groups[one.group] += sign * one.gpus
                for name in self._limits.by_node:
                    self.nodes[one.node, name] += sign * one.asks[name]
        if pod is not None:
            self.pods[uid] = pod

    def _check(self, key: str, pod: SeenPod) -> None:
        limits = self._limits
        most = limits.by_namespace.get(pod.namespace)
        if most is not None and self.used[pod.namespace] > most:
            self.faults.append(f"{key}: {pod.namespace} uses {self.used[pod.namespace]} of {most} GPUs")
        together = sum(self.used[name] for name in limits.by_namespace)
        self.most = max(self.most, together)
        if together > limits.together:
            self.faults.append(f"{key}: {together} of {limits.together} GPUs are used together")
        for name, most in limits.by_node.items():
            if pod.node and self.nodes[pod.node, name] > most:
                self.faults.append(f"{key}: {self.nodes[pod.node, name]} of {most} {name} of {pod.node} are taken")
        allowed = limits.by_group.get(pod.group)
        if allowed is not None and self.groups[pod.group] > allowed:
            self.faults.append(f"{key}: group {pod.group} uses {self.groups[pod.group]} of {allowed} GPUs")


@contextmanager
def observed(plane: ControlPlane, limits: Limits) -> Iterator[Observer]:
    """All changes of pods are checked, in a thread, while this holds; at the end nothing may have been wrong."""
    observer = Observer(limits)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(_following(plane, observer)):
        yield observer
    assert not observer.faults, observer.faults[:10]


@asynccontextmanager
async def _following(plane: ControlPlane, observer: Observer) -> AsyncIterator[None]:
    async with Http(load(str(plane.kubeconfig))) as http:
        how = Following(longest_pause=1.0)  # the server may be away, and nothing is to be missed for long
        reflector: Reflector[Body] = Reflector(Api(http), PODS, observer.decode, observer, how)
        watching = asyncio.create_task(reflector.run())
        await reflector.wait_synced()
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
    await asyncio.sleep(0.25)  # until the connection has ended: TLS says goodbye, and the loop ends with this
