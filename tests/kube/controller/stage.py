"""A whole term of the controller on a server in memory: with a scheduler that binds, and faults to order.

The server is ``tests.kube.fakeapi``; what binds pods and lets them end looks at its state directly, as it is nobody's
business here how they talk to it. What is checked is what the server holds, at every single change.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from bursar.kube.admission.predicate import GATE
from bursar.kube.client.api import DISRUPTION_BUDGETS, NAMESPACES, NODES, PODS, Api, Resource
from bursar.kube.client.http import Http, Retry
from bursar.kube.controller.eviction import Evictor
from bursar.kube.controller.leader_term import LeaderTerm, TermOptions
from bursar.kube.controller.mirror import Mirror, MirrorOptions
from bursar.kube.controller.patches import TERM, admission_of
from bursar.kube.controller.pod_model import read_pod
from bursar.kube.controller.replica import ProcessOptions, Replica
from bursar.kube.controller.work_queue import Notice
from bursar.ledger.claims import Claim
from bursar.policies.plugin import default_registry
from tests.kube.fakeapi import FakeApi
from tests.kube.fakeapi.refusals import Refusal
from tests.kube.waiting import eventually

GPU = "nvidia.com/gpu"
OWN = "bursar-system"
ELASTIC = Resource("n8s.nebuly.ai", "v1alpha1", "elasticquotas", "ElasticQuota", namespaced=True)
QUICK = Retry(attempts=3, base=0.01, cap=0.05)
Body = dict[str, Any]


class Stage:
    """A server, and terms on it, one after the other."""

    def __init__(self, fake: FakeApi, http: Http) -> None:
        self.fake = fake
        self.api = Api(http)
        self.registry = default_registry()
        self.terms = 0
        self.told: list[Notice] = []
        self.leavers: set[str] = set()  # uids of pods that were told to leave for others
        self.term: LeaderTerm | None = None
        self.options = TermOptions(compared_every=0.5)
        self._running: asyncio.Task[None] | None = None
        fake.state.create(NAMESPACES, "", {"metadata": {"name": OWN}})
        fake.state.judge = self._fence

    # The controller

    @property
    def present(self) -> str | None:
        """The term whose patches get through; None: nobody's."""
        found: str | None = self.fake.state.get(NAMESPACES, "", OWN)["metadata"].get("annotations", {}).get(TERM)
        return found

    def announce(self, term: int) -> None:
        """As a leader does before its term."""
        self.write_on_namespace({TERM: str(term)})

    def write_on_namespace(self, annotations: dict[str, str]) -> None:
        """Bursar's own namespace has these annotations now, and no other."""
        own = copy.deepcopy(self.fake.state.get(NAMESPACES, "", OWN))
        own["metadata"]["annotations"] = annotations
        self.fake.state.replace(NAMESPACES, "", OWN, own, status=False)

    async def lead(self, options: TermOptions | None = None) -> LeaderTerm:
        """A term begins; returns when it is ready."""
        term = LeaderTerm(self.api, self.registry, self.terms, self._tell, options or self.options)
        self.announce(term.number)
        self.terms += 1
        self.term = term
        self._note_leavers(term.evictor)
        self._running = asyncio.create_task(term.run())
        await eventually(lambda: term.ready or self._ended())
        self.check_running()
        return term

    def _fence(self, resource: Resource, before: Body, after: Body) -> None:
        """As the policy that knows the namespace: only who leads lets pods go."""
        if resource != PODS or not is_gated(before) or is_gated(after):
            return
        if self.present is None or after["metadata"]["annotations"].get(TERM) != self.present:
            raise Refusal(403, f"the annotation {TERM} is not that of the namespace {OWN}, {self.present}")

    def _note_leavers(self, evictor: Evictor) -> None:
        evict = evictor.evict

        def noted(claim: Claim) -> None:
            self.leavers.add(claim.uid)
            evict(claim)

        evictor.evict = noted  # type: ignore[method-assign]

    def _tell(self, told: Notice, _uid: str) -> None:
        self.told.append(told)

    def _ended(self) -> bool:
        return self._running is not None and self._running.done()

    def check_running(self) -> None:
        """The term goes on, and no fault ended it."""
        if self._running is not None and self._running.done():
            self._running.result()
            raise AssertionError("the term is over")

    async def depose(self) -> None:
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
        self._running = self.term = None

    async def until(self, true: Callable[[], object], within: float = 60.0) -> None:
        def held() -> object:
            self.check_running()
            return true()

        await eventually(held, within)

    # The cluster

    def node(self, name: str, gpus: int) -> None:
        body = {"metadata": {"name": name}, "status": {"allocatable": {GPU: str(gpus), "cpu": "64", "pods": "200"}}}
        self.fake.state.create(NODES, "", body)

    def namespace(self, name: str, labels: dict[str, str] | None = None) -> None:
        self.fake.state.create(NAMESPACES, "", {"metadata": {"name": name, "labels": labels or {}}})

    def change_namespace(self, name: str, annotations: dict[str, str]) -> None:
        body = copy.deepcopy(self.fake.state.get(NAMESPACES, "", name))
        body["metadata"]["annotations"] = annotations
        self.fake.state.replace(NAMESPACES, "", name, body, status=False)

    def quota(self, namespace: str, most: int, least: int | None = None) -> None:
        spec = {"min": {GPU: most if least is None else least}, "max": {GPU: most}}
        self.fake.state.create(ELASTIC, namespace, {"metadata": {"name": "quota"}, "spec": spec})

    def budget(self, namespace: str, labels: dict[str, str]) -> None:
        """A disruption budget over the pods with these labels, which lets none of them go."""
        spec = {"selector": {"matchLabels": labels}}
        body = {"metadata": {"name": "b"}, "spec": spec, "status": {"disruptionsAllowed": 0}}
        self.fake.state.create(DISRUPTION_BUDGETS, namespace, body)

    def pod(self, namespace: str, name: str, gpus: int = 1, *, gated: bool = True, **more: Any) -> Body:  # noqa: ANN401
        """Create a pod as the API server and the gate make it; labels, finalizers and owners are its metadata's."""
        parts: Body = {"labels": {}, "finalizers": [], "ownerReferences": []}
        metadata: Body = {"name": name, **{part: more.pop(part, empty) for part, empty in parts.items()}}
        resources = {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
        spec: Body = {"containers": [{"name": "c", "image": "i", "resources": resources}], "priority": 0, **more}
        if gated:
            spec["schedulingGates"] = [{"name": GATE}]
        body = {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
        return self.fake.state.create(PODS, namespace, body)

    def namespaces(self) -> list[Body]:
        return list(self.fake.state.of(NAMESPACES))

    def pods(self) -> list[Body]:
        return list(self.fake.state.of(PODS))

    def find(self, namespace: str, name: str) -> Body | None:
        return self.fake.state.objects.get((PODS, namespace, name))

    def change(self, pod: Body, edit: Callable[[Body], None]) -> None:
        """Somebody changes a pod, status and all, past everybody."""
        metadata = pod["metadata"]
        key = (PODS, metadata["namespace"], metadata["name"])
        before = self.fake.state.objects.get(key)
        if before is not None and before["metadata"]["uid"] == metadata["uid"]:
            after = copy.deepcopy(before)
            edit(after)
            self.fake.state._store("MODIFIED", key, before, after)

    def delete(self, pod: Body) -> None:
        metadata = pod["metadata"]
        self.fake.state.delete(PODS, metadata["namespace"], metadata["name"])

    def bind(self, pod: Body, node: str) -> None:
        def edit(body: Body) -> None:
            body["spec"]["nodeName"] = node
            body["status"] = {"phase": "Running"}

        self.change(pod, edit)

    def gated(self, pod: Body) -> bool:
        found = self.find(pod["metadata"]["namespace"], pod["metadata"]["name"])
        return found is not None and is_gated(found)

    def started(self, pod: Body) -> bool:
        metadata = pod["metadata"]
        found = self.find(metadata["namespace"], metadata["name"])
        return found is not None and found["metadata"]["uid"] == metadata["uid"] and not is_gated(found)

    def patched(self, name: str) -> int:
        """How many patches of a pod of that name came in."""
        return sum(seen.method == "PATCH" and seen.path.endswith(f"/pods/{name}") for seen in self.fake.seen)

    def schedule(self) -> None:
        """Bind every pod that may be bound: on its node if it is pinned, else on the first with room."""
        for pod in self.pods():
            bound_or_over = pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp") or has_ended(pod)
            if is_gated(pod) or bound_or_over:
                continue
            node = next((node for node in self._nodes(pod) if self.free(node) >= gpus_of(pod)), None)
            if node is not None:
                self.bind(pod, node)

    def _nodes(self, pod: Body) -> list[str]:
        affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
        terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
        pins = [field["values"][0] for term in terms for field in term.get("matchFields", [])]
        return pins or [node["metadata"]["name"] for node in self.fake.state.of(NODES)]

    def free(self, node: str) -> int:
        total = next((body for body in self.fake.state.of(NODES) if body["metadata"]["name"] == node), None)
        if total is None:
            return 0
        there = [pod for pod in self.pods() if pod["spec"].get("nodeName") == node and not has_ended(pod)]
        return int(total["status"]["allocatable"][GPU]) - sum(map(gpus_of, there))

    # A ledger built anew

    def rebuilt(self) -> Mirror:
        mirror = Mirror(default_registry(), MirrorOptions())
        by_plural = {(kind.group, kind.plural): kind for kind in mirror.kinds}
        objects = [
            (by_plural[resource.group, resource.plural], msgspec.json.encode(body))
            for (resource, _, _), body in self.fake.state.objects.items()
            if (resource.group, resource.plural) in by_plural
        ]
        list(mirror.building(objects, [read_pod(msgspec.json.encode(pod)) for pod in self.pods()]))
        return mirror


def is_gated(pod: Body) -> bool:
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ())


def has_ended(pod: Body) -> bool:
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def gpus_of(pod: Body) -> int:
    return sum(int(one["resources"]["requests"].get(GPU, 0)) for one in pod["spec"]["containers"])


def is_admitted(pod: Body) -> bool:
    return admission_of(pod["metadata"].get("annotations") or {}) is not None


@asynccontextmanager
async def stage(patience: float = 2.0, more: tuple[Resource, ...] = ()) -> AsyncIterator[Stage]:
    async with FakeApi(ELASTIC, *more) as fake, Http(fake.config(), timeout=patience, retry=QUICK) as http:
        made = Stage(fake, http)
        try:
            yield made
        finally:
            await made.depose()


@asynccontextmanager
async def replica(cluster: Stage, options: TermOptions, settle: float = 0.0) -> AsyncIterator[Replica]:
    """A process of the controller whose first term is ready; at its end it gives back a lease that it holds."""
    made = Replica(cluster.api, default_registry(), ProcessOptions(options, settle=settle))
    running = asyncio.create_task(made.run())
    try:
        await eventually(lambda: made.term is not None and made.term.ready)
        yield made
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
