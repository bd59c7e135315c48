"""The agent of the server's own machine, in the server's process, and its link: calls of the service, without HTTP.

What the agent hears of pods is durable, because it comes from the hub; so is what it changed when its call returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from bursar.control.admission import CONFIGURATION
from bursar.engine.decision import Decision
from bursar.ledger.claims import Claim
from bursar.local.agent import AgentOptions, LocalAgent
from bursar.local.devices.api import DriverError
from bursar.local.devices.watch import LocalDevices, open_driver
from bursar.local.links import (
    GONE,
    GPU_IDS,
    Hear,
    JobEnd,
    LinkError,
    PodState,
    QueuePlace,
    RefusedByClusterError,
)
from bursar.local.peers import SocketTakenError
from bursar.local.usage import MachineUse
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import POD
from bursar.objects.local_options import MACHINE, LocalOptions, options_of
from bursar.objects.manifests import Document
from bursar.server.batches import DurableBatch
from bursar.server.rows import ClaimView
from bursar.server.service import Pending, Service, StoppedError
from bursar.sim.cluster import Cluster
from bursar.sim.objects import Stored
from bursar.sim.pods import ENDED, PodEnd, SimPod
from bursar.store.schema import StoreError


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """How the server runs real jobs on its own machine."""

    folder: Path
    socket: Path
    gpus: str = "auto"  # the driver: auto, nvml, amdsmi, none
    cgroups: str = "auto"
    slice: str = "bursar.slice"
    machine: str = ""


class AgentError(Exception):
    """The agent cannot start: one line that says why."""


@contextmanager
def running_agent(service: Service, options: MachineOptions | None) -> Iterator[LocalAgent | None]:
    """With options, an agent meanwhile. Its jobs go on when it ends."""
    if options is None:
        yield None
        return
    given = AgentOptions(options.folder, options.socket, options.machine, options.cgroups, options.slice)
    try:
        agent = LocalAgent(
            lambda machine: ServiceLink(service, machine),
            lambda slice_: LocalDevices(
                open_driver(options.gpus), LocalOptions(), folder=options.folder, cgroup=slice_
            ),
            given,
        )
        agent.start()
    except (DriverError, SocketTakenError, OSError) as error:
        raise AgentError(str(error)) from error
    try:
        yield agent
    finally:
        agent.stop()


_CONFIGURATION = f"{CONFIGURATION}.bursar.dev"


class _PodPart(msgspec.Struct):
    phase: str
    reason: str = ""
    message: str = ""
    evicted: bool = False
    deleted: bool = False
    machine: str = ""


class _Record(msgspec.Struct):
    """What an agent reads of a pod's record."""

    uid: str
    written: dict[str, dict[str, Any]] = {}
    pod: _PodPart | None = None


_DECODER = msgspec.json.Decoder(_Record)


class ServiceLink:
    """The cluster of this process, for the agent of one machine."""

    def __init__(self, service: Service, machine: str) -> None:
        self._service = service
        self._machine = machine
        self._queue: tuple[int, list[QueuePlace]] = (-1, [])

    # Changes

    def submit(self, manifests: Sequence[Mapping[str, Any]]) -> list[PodState]:
        keys = [f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in manifests]
        documents = [Document("bursar run", index, dict(one)) for index, one in enumerate(manifests, 1)]

        def add() -> Pending:
            for key in keys:
                pod = self._service.cluster.doing(key)
                if pod is not None and pod.phase not in ENDED:
                    raise RefusedByClusterError(f"a job {key} waits or runs already: give another name")
            return self._service.apply(documents)

        with self._service.lock:
            pending = self._asked(add)
            cluster = self._service.cluster
            states = [self._state(cluster, cluster.pod_states[key]) for key in keys]
        _wait(pending)
        return states

    def apply(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        documents = [Document("the agent", index, dict(one)) for index, one in enumerate(manifests, 1)]
        _wait(self._asked(lambda: self._service.apply(documents)))

    def remove(self, pods: Sequence[str], objects: Sequence[str] = ()) -> None:
        def there() -> Pending | None:
            cluster = self._service.cluster
            names = [f"Pod/{key}" for key in pods if cluster.doing(key) is not None]
            names += [one for one in objects if cluster.find(*cluster.reference(one)) is not None]
            return self._service.delete(names) if names else None

        with self._service.lock:
            pending = self._asked(there)
        _wait(pending)

    def report(self, ends: Sequence[JobEnd]) -> list[PodState]:
        given = [PodEnd(one.pod, one.uid, one.exit_code, one.reason, one.message, one.again) for one in ends]
        with self._service.lock:
            pending = self._asked(lambda: self._service.report(given))
            cluster = self._service.cluster
            after = [(end, cluster.doing(end.pod)) for end in ends if end.again]
            again = [self._state(cluster, pod) for end, pod in after if pod is not None and pod.uid != end.uid]
        _wait(pending)
        return again

    def event(self, reference: tuple[str, str], kind: str, reason: str, message: str) -> None:
        cluster = self._service.cluster
        name = cluster.kind_of(reference[0], reference[1]).name
        self._asked(lambda: self._service.event(name, reference[1], kind, reason, message))

    def _asked(self, work: Callable[[], Any]) -> Any:  # noqa: ANN401 whatever the work returns
        try:
            return work()
        except ManifestError as error:
            raise RefusedByClusterError(str(error)) from error
        except (StoppedError, StoreError) as error:
            raise LinkError(str(error)) from error

    # State

    def pods(self) -> list[PodState]:
        with self._service.lock:
            cluster = self._service.cluster
            own = [pod for pod in cluster.pod_states.values() if pod.machine == self._machine]
            return [self._state(cluster, pod, whole=True) for pod in own if pod.phase not in ENDED]

    def _state(self, cluster: Cluster, pod: SimPod, *, whole: bool = False) -> PodState:
        stored = cast("Stored", cluster.objects.find(POD.name, pod.key))
        annotations = (stored.body["metadata"].get("annotations") or {}) if whole else {}
        gpus = _gpus(stored.written)
        return PodState(
            pod.key, pod.uid, pod.phase, gpus, pod.evicted, pod.deleted, pod.reason, pod.message, annotations
        )

    def objects(self, kind: str) -> list[str]:
        with self._service.lock:
            cluster = self._service.cluster
            stored = cluster.objects.all(cluster.kinds.find(kind).name)
            return [one.key for one in stored if self._machine in _machines(one.body)]

    def queue(self) -> list[QueuePlace]:
        """The claims are noted under the lock, and put into words after it."""
        with self._service.lock:
            cluster = self._service.cluster
            version = cluster.engine.version
            if version == self._queue[0]:
                return self._queue[1]
            waiting = cluster.controller.queue.waiting()
            of_gangs = {one.uid: cluster.controller.reason(one.uid)[1] for one in waiting if one.spec.group}
        length = len(waiting)
        keys = ["", *(claim.key for claim in waiting)]
        found = [
            QueuePlace(claim.key, at, length, claim.created, of_gangs.get(claim.uid) or _reason(claim), keys[at - 1])
            for at, claim in enumerate(waiting, 1)
        ]
        self._queue = (version, found)
        return found

    def options(self) -> LocalOptions:
        with self._service.lock:
            stored = next(iter(self._service.cluster.objects.all(_CONFIGURATION)), None)
            return options_of(None if stored is None else stored.body)

    def borrowing(self, uids: Sequence[str]) -> set[str]:
        with self._service.lock:
            view = ClaimView(self._service.cluster)
            claims = map(self._service.cluster.engine.state.claims.get, uids)
            return {claim.uid for claim in claims if claim is not None and view.borrows(claim)}

    def usage(self, use: MachineUse) -> None:
        self._service.machines.report(use)

    def gaps(self) -> int:
        return 0

    def follow(self, hear: Hear) -> Callable[[], None]:
        uids: dict[str, str] = {}  # of the machine's pods, by key: a deletion does not say whose it was

        def listen(batch: DurableBatch) -> None:
            found: list[PodState] = []
            for one in batch.objects:
                if one.kind != POD.name:
                    continue
                if one.body is None:
                    if one.key in uids:
                        found.append(PodState(one.key, uids.pop(one.key), GONE, deleted=True))
                    continue
                record = _DECODER.decode(one.body)
                pod = record.pod
                if pod is not None and pod.machine == self._machine:
                    uids[one.key] = record.uid
                    state = PodState(
                        one.key, record.uid, pod.phase, _gpus(record.written), pod.evicted, pod.deleted, pod.reason,
                        pod.message,
                    )  # fmt: skip
                    found.append(state)
            if found:
                hear(found)

        with self._service.lock:
            uids.update((state.pod, state.uid) for state in self.pods())
            return self._service.hub.listen(listen)


def _gpus(written: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    ids = written.get("annotations", {}).get(GPU_IDS) or ""
    return tuple(str(ids).split(",")) if ids else ()


def _machines(body: Mapping[str, Any]) -> tuple[str, ...]:
    """The machine that an object says it belongs to."""
    marks = (body.get("metadata") or {}).get("annotations") or {}
    selector = (body.get("status") or {}).get("nodeSelector") or {}
    return (str(marks.get(MACHINE, "")), *map(str, selector.values()))


def _reason(claim: Claim) -> str:
    return claim.decision.sentence() if isinstance(claim.decision, Decision) else ""


def _wait(pending: Pending | None) -> None:
    """Until it is on the disk."""
    if pending is None or pending.durable is None:
        return
    try:
        pending.durable.result()
    except Exception as error:  # whatever kept the disk from it
        raise LinkError(f"not durable: {error}") from error
