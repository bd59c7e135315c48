"""Pods that were started and are not bound: their places are recovered, and people are told why they do not run.

A started pod can be bound at any moment and can be neither gated nor pinned again. So it keeps its quota, and a pinned
one its place, while it exists. After a while (the *patience*)

* the node that was kept for a pod without a pin is given back;
* a pod that Bursar bound to its decision, by pin or fence, is evicted if its owner recreates it at no cost
  (``control.takeBack``): a ReplicaSet, a StatefulSet, or a Job whose podFailurePolicy ignores the disruption;
* the node is remembered as refused for the pod's class, if the scheduler said that no node fits;
* an event names the obstacle, in the scheduler's words if it has spoken.

A pod that quota alone admitted (``bursar.dev/place: scheduler``) has no node to give back, and a deadline of its own:
an autoscaler may be at work for it.

A scheduler that works otherwise may be away for long, so its silence is no obstacle. One by which no pod was ever bound
does not exist, as far as one can tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from bursar.kube.client.api import JOBS, Api
from bursar.kube.controller.eviction import Evictor
from bursar.kube.controller.mirror import Mirror
from bursar.kube.controller.patches import UNSCHEDULED
from bursar.kube.controller.pod_model import other_gates
from bursar.kube.controller.pod_sync import PodSync, TrackedPod
from bursar.kube.controller.pod_writer import PodWriter
from bursar.kube.controller.work_queue import KeyedWorkQueue, sent
from bursar.objects.core import OwnerReference
from bursar.objects.kinds import POD

PATIENCE: Final = 60_000  # milliseconds
PLACE_LOST: Final = "control.place-lost"
_REFUSED_FOR: Final = 5  # times the patience, at first
_LEAST_REFUSED_FOR: Final = 60_000  # milliseconds: until the owner has made another pod
_WIDTH: Final = 4
_RECREATING: Final = frozenset({("apps", "ReplicaSet"), ("apps", "StatefulSet"), ("", "ReplicationController")})

REFUSED: Final = "refused"  # the scheduler found no node
GATED: Final = "gated"  # others hold it back
SILENT: Final = "silent"  # its scheduler has never bound a pod


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a started pod is not bound."""

    kind: str
    words: str


class UnboundWatch:
    """Finds started pods that are not bound in time."""

    def __init__(
        self, pods: PodSync, now: Callable[[], int], patience: int, *schedulers: str, deadline: Callable[[], int]
    ) -> None:
        """``schedulers``: those that are known to run; ``deadline``: of pods that quota alone admitted."""
        self._deadline = deadline
        self._pods = pods
        self._now = now
        self._patience = patience
        self._known_schedulers = {"", *schedulers}
        self._since: dict[tuple[str, str], int] = {}  # by uid and kind of obstacle: when it was seen first

    def overdue(self) -> Iterator[tuple[TrackedPod, Obstacle]]:
        """Pods whose time is up. Only the time counts in which they have that obstacle. Call it periodically."""
        now = self._now()
        found = [(tracked, self._obstacle(tracked)) for tracked in self._pods.unbound.values()]
        keys = {(tracked.uid, obstacle.kind) for tracked, obstacle in found if obstacle is not None}
        self._since = {key: self._since.get(key, now) for key in keys}
        for tracked, obstacle in found:
            if obstacle is None or tracked.record is None or tracked.seen.leaving:
                continue
            patience = self._deadline() if tracked.record.scheduled else self._patience
            if now - self._since[tracked.uid, obstacle.kind] >= patience:
                yield tracked, obstacle

    def _obstacle(self, tracked: TrackedPod) -> Obstacle | None:
        pod = tracked.seen
        if pod.foreign_gates:
            return Obstacle(GATED, other_gates(pod, ()))
        if pod.unschedulable:
            return Obstacle(REFUSED, f"the scheduler finds no node: {pod.unschedulable}")
        name = pod.spec.scheduler_name
        if name in self._known_schedulers or name in self._pods.schedulers:
            return None
        return Obstacle(SILENT, f"no pod was ever bound by its scheduler {name!r}; does it run here?")


class PlaceRecovery:
    """Acts on what the watch finds, once for each pod and obstacle."""

    def __init__(
        self, api: Api, mirror: Mirror, writer: PodWriter, evictor: Evictor, watch: UnboundWatch, patience: int
    ) -> None:
        self._api = api
        self._mirror = mirror
        self._writer = writer
        self._evictor = evictor
        self._watch = watch
        self._refused_for = max(_REFUSED_FOR * patience, _LEAST_REFUSED_FOR)
        self._met: dict[str, Obstacle] = {}  # by uid: what was acted on
        self.queue: KeyedWorkQueue[str] = KeyedWorkQueue(self._perform, _WIDTH)
        self.overdue: Counter[str] = Counter()  # pods that are not bound in time, by kind of obstacle
        self.recovered: Counter[str] = Counter()  # what was done in this term

    def tidy(self) -> None:
        """Call it periodically."""
        self._mirror.end_refusals()
        found = list(self._watch.overdue())
        self.overdue = Counter(obstacle.kind for _, obstacle in found)
        self._met = {tracked.uid: self._met[tracked.uid] for tracked, _ in found if tracked.uid in self._met}
        for tracked, obstacle in found:
            met = self._met.get(tracked.uid)
            if met is None or met.kind != obstacle.kind:
                self._met[tracked.uid] = obstacle
                self._recover(tracked, obstacle)

    def _recover(self, tracked: TrackedPod, obstacle: Obstacle) -> None:
        record = tracked.record
        if record is None:
            return
        refused = obstacle.kind == REFUSED
        if refused and record.place:
            self._mirror.refuse(record.place, tracked.seen, tracked.seen.unschedulable, self._refused_for)
        takes = self._mirror.controller.options.take_back != "never"
        if refused and takes and (record.pinned or record.fenced or record.scheduled):
            self.queue.want(tracked.uid)  # which asks about its owner
        else:
            self._keep(tracked, obstacle)

    def _keep(self, tracked: TrackedPod, obstacle: Obstacle) -> None:
        """The pod stays, and keeps its quota."""
        record = tracked.record
        kept = "it keeps its quota"
        if record is not None and record.place and not record.pinned:
            kept += f", and others may have the node {record.place}"
            self._mirror.pods.unplace(tracked)
            self._writer.unplace(tracked)
            self.recovered["node-given-back"] += 1
        elif record is not None and record.place:
            kept += f" and its place on {record.place}"
        self._mirror.report(POD.name, tracked.key, UNSCHEDULED, f"is admitted, but {obstacle.words}; {kept}")

    async def _perform(self, uid: str) -> None:
        tracked, obstacle = self._mirror.pods.unbound.get(uid), self._met.get(uid)
        if tracked is None or obstacle is None or tracked.record is None:
            return
        free = self._mirror.controller.options.take_back == "all" or await self._is_recreated(tracked)
        if uid not in self._mirror.pods.unbound:
            return
        if not free:
            self._keep(tracked, obstacle)
        elif self._evictor.take_back(uid):
            place = tracked.record.place
            where = f"on {place}, which was chosen for it" if tracked.record.pinned else "outside the GPU nodes"
            where = "anywhere, until its deadline" if tracked.record.scheduled else where
            why = f"the scheduler cannot place it {where}: {tracked.seen.unschedulable}"
            self._mirror.report(POD.name, tracked.key, PLACE_LOST, why)
            self.recovered["taken-back"] += 1

    async def _is_recreated(self, tracked: TrackedPod) -> bool:
        """Whether its owner recreates the pod, and an eviction counts against nothing."""
        owner = next((one for one in tracked.seen.metadata.owner_references if one.controller), None)
        if owner is None:
            return False
        group = owner.api_version.rpartition("/")[0]
        if (group, owner.kind) == ("batch", "Job"):
            return await self._job_ignores(owner, tracked)
        return (group, owner.kind) in _RECREATING

    async def _job_ignores(self, owner: OwnerReference, tracked: TrackedPod) -> bool:
        def refused(why: str) -> None:
            self._mirror.report(POD.name, tracked.key, UNSCHEDULED, f"its Job cannot be read: {why}")

        found = await sent(self._api.find(JOBS, owner.name, tracked.seen.metadata.namespace), refused=refused)
        return found is not None and found.meta.uid == owner.uid and ignores_disruptions(found.plain())


def ignores_disruptions(job: dict[str, object]) -> bool:
    """Whether the first rule of a Job's podFailurePolicy about evictions says that they do not count."""
    spec = job.get("spec")
    policy = spec.get("podFailurePolicy") if isinstance(spec, dict) else None
    for rule in (policy.get("rules") or ()) if isinstance(policy, dict) else ():
        for condition in rule.get("onPodConditions") or ():
            if condition.get("type") == "DisruptionTarget" and condition.get("status", "True") == "True":
                return bool(rule.get("action") == "Ignore")
    return False
