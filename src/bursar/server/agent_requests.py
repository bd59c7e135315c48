"""What agents of other machines ask of the server: the calls of ``ClusterLink``, by HTTP, one POST each.

A token of the role ``agent`` carries the name of its machine and may ask for that machine only. Each call is checked:
an agent changes its own Node, its own GPUs and pods of its own machine, and nothing else. An agent follows its pods by
asking for the news after the last one that it has. When the server was started again, or an admin said that the
machine is dead, the news have another epoch, and the agent reads its pods once more. One machine has one agent: a
second one is refused while the first is there.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Final

import msgspec

from bursar.local.devices.api import HOSTNAME
from bursar.local.links import JobEnd, LinkError, PodState, QueuePlace, RefusedByClusterError
from bursar.local.usage import MachineUse
from bursar.objects.local_options import MACHINE
from bursar.server.access import AGENT_ROLE, Identity
from bursar.server.local_agent import ServiceLink
from bursar.server.operations import AGENT, Operation, Parameter
from bursar.server.problems import RefusedError
from bursar.server.service import Service

SILENT_SECONDS: Final = 15.0  # after which an agent may be replaced by another one, and its machine called dead
_NEWS_MOST = 10_000

AGENT_CALL: Operation[msgspec.Raw] = Operation(
    "/agents/{machine}/{request}",
    "A call of the agent of a machine.",
    msgspec.Raw,
    Parameter("machine", "the machine of the agent", where="path"),
    Parameter("request", "what it asks for", where="path"),
    accepts="call",
    role=AGENT,
)
AGENT_CALL.name = "agent"


class AgentCall(msgspec.Struct):
    """The body of a call."""

    instance: str  # of the agent: the same one after a restart
    arguments: list[Any] = []


class News(msgspec.Struct):
    """What has happened to pods of a machine."""

    epoch: str
    last: int
    gap: bool  # some may be missing: read all pods
    states: list[PodState] = []


class _Followed:
    """One machine: its link, and the newest states of its pods."""

    def __init__(self, service: Service, machine: str, instance: str) -> None:
        self.link = ServiceLink(service, machine)
        self.instance = instance
        self.heard = time.monotonic()
        self._epoch = secrets.token_hex(8)
        self._lock = Lock()
        self._states: deque[PodState] = deque(maxlen=_NEWS_MOST)
        self._count = 0
        self.close = self.link.follow(self._hear)

    def _hear(self, states: Sequence[PodState]) -> None:
        with self._lock:
            self._states.extend(states)
            self._count += len(states)

    def news(self, epoch: str, last: int) -> News:
        with self._lock:
            missing = self._count - last
            gap = epoch != self._epoch or not 0 <= missing <= len(self._states)
            states = [] if gap or not missing else list(self._states)[-missing:]
            return News(self._epoch, self._count, gap, states)


class AgentRequests:
    """Answers the calls of all agents; safe to use in any thread."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = Lock()
        self._machines: dict[str, _Followed] = {}
        self._calls: dict[str, tuple[Callable[..., Any], Any]] = {
            "submit": (self._submit, tuple[list[dict[str, Any]]]),
            "apply": (self._apply, tuple[list[dict[str, Any]]]),
            "remove": (self._remove, tuple[list[str], list[str]]),
            "report": (self._report, tuple[list[JobEnd]]),
            "event": (self._event, tuple[tuple[str, str], str, str, str]),
            "pods": (lambda _, machine: machine.link.pods(), tuple[()]),
            "objects": (lambda _, machine, kind: machine.link.objects(kind), tuple[str]),
            "queue": (self._queue, tuple[()]),
            "options": (lambda _, machine: machine.link.options(), tuple[()]),
            "borrowing": (lambda _, machine, uids: sorted(machine.link.borrowing(uids)), tuple[list[str]]),
            "usage": (self._usage, tuple[MachineUse]),
            "news": (lambda _, machine, epoch, last: machine.news(epoch, last), tuple[str, int]),
        }

    def answer(self, name: str, request: str, body: bytes, identity: Identity) -> Any:  # noqa: ANN401 each its own
        if identity.role == AGENT_ROLE and identity.name != name:
            raise RefusedError(403, f"this token is that of the agent of {identity.name}, not of {name:.60}")
        if request not in self._calls:
            raise RefusedError(404, f"{request!r:.40} is no request of agents")
        work, types = self._calls[request]
        try:
            call = msgspec.json.decode(body, type=AgentCall)
            arguments = msgspec.convert(call.arguments, types)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise RefusedError(400, f"{request}: the body is not understood: {error}") from None
        try:
            return work(name, self._followed(name, call.instance), *arguments)
        except RefusedByClusterError as error:
            raise RefusedError(422, str(error)) from error
        except LinkError as error:
            raise RefusedError(503, str(error)) from error

    def _followed(self, name: str, instance: str) -> _Followed:
        with self._lock:
            known = self._machines.get(name)
            now = time.monotonic()
            if known is not None and known.instance != instance:
                if now - known.heard < SILENT_SECONDS:
                    raise RefusedError(409, f"another agent serves {name}: machines need names of their own")
                known.close()
                known = None
            if known is None:
                known = self._machines[name] = _Followed(self._service, name, instance)
            known.heard = now
            return known

    def retire(self, name: str) -> list[str]:
        """The machine is dead: its jobs have failed, and its objects go. Returns the pods of the jobs."""
        ages = {row.machine: row.age for row in self._service.machines.rows()}
        if name in ages and ages[name] < SILENT_SECONDS:
            raise RefusedError(409, f"{name} reported {ages[name]} s ago: stop its agent first")
        link = ServiceLink(self._service, name)
        try:
            states, gpus, nodes = link.pods(), link.objects("GPU"), link.objects("Node")
            if not (states or gpus or nodes):
                raise RefusedError(404, f"there is no machine {name!r:.60}")
            link.remove([state.pod for state in states if not state.active])
            ended = [JobEnd(one.pod, one.uid, 1, "MachineLost", f"{name} is dead") for one in states if one.active]
            link.report(ended)
            link.remove((), [*(f"GPU/{one}" for one in gpus), *(f"Node/{one}" for one in nodes)])
        except (RefusedByClusterError, LinkError) as error:
            raise RefusedError(409, str(error)) from error
        self._service.machines.forget(name)
        with self._lock:
            known = self._machines.pop(name, None)
        if known is not None:
            known.close()
        return [one.pod for one in ended]

    # Calls that are checked

    def _submit(self, name: str, machine: _Followed, manifests: list[dict[str, Any]]) -> list[PodState]:
        for one in manifests:
            metadata = one.get("metadata") or {}
            if one.get("kind") != "Pod" or (metadata.get("annotations") or {}).get(MACHINE) != name:
                raise RefusedError(403, f"{metadata.get('name')}: is no pod of machine {name}")
            if not metadata.get("namespace") or not metadata.get("name"):
                raise RefusedError(400, "a pod needs a namespace and a name")
        return machine.link.submit(manifests)

    def _apply(self, name: str, machine: _Followed, manifests: list[dict[str, Any]]) -> None:
        taken = {key for kind in ("Node", "GPU") for key in self._others(kind, machine)}
        for one in manifests:
            kind, key = one.get("kind"), str((one.get("metadata") or {}).get("name"))
            selector = (one.get("status") or {}).get("nodeSelector") or {}
            own = (kind == "Node" and key == name) or (kind == "GPU" and selector == {HOSTNAME: name})
            if not own or key in taken:
                raise RefusedError(403, f"{kind} {key}: does not belong to machine {name}")
        machine.link.apply(manifests)

    def _others(self, kind: str, machine: _Followed) -> set[str]:
        """The names of objects of this kind that belong to other machines, or to none."""
        with self._service.lock:
            cluster = self._service.cluster
            keys = {one.key for one in cluster.objects.all(cluster.kinds.find(kind).name)}
        return keys - set(machine.link.objects(kind))

    def _remove(self, name: str, machine: _Followed, pods: list[str], objects: list[str]) -> None:
        own = {f"GPU/{key}" for key in machine.link.objects("GPU")}
        foreign = [one for one in objects if one not in own]
        if foreign:
            raise RefusedError(403, f"{foreign[0]}: does not belong to machine {name}")
        machine.link.remove([pod for pod in pods if self._is_of(pod, name)], objects)

    def _is_of(self, pod: str, name: str) -> bool:
        with self._service.lock:
            found = self._service.cluster.pod_states.get(pod)
            return found is not None and found.machine == name

    def _report(self, name: str, machine: _Followed, ends: list[JobEnd]) -> list[PodState]:
        return machine.link.report([end for end in ends if self._is_of(end.pod, name)])

    def _event(self, name: str, machine: _Followed, about: tuple[str, str], *said: str) -> None:
        kind, key = about
        if about != ("Node", name) and (kind != "GPU" or key not in machine.link.objects("GPU")):
            raise RefusedError(403, f"{kind} {key}: does not belong to machine {name}")
        machine.link.event(about, *said)

    def _queue(self, name: str, machine: _Followed) -> list[QueuePlace]:
        return [place for place in machine.link.queue() if self._is_of(place.pod, name)]

    def _usage(self, name: str, machine: _Followed, use: MachineUse) -> None:
        if use.machine != name:
            raise RefusedError(403, f"{use.machine}: is not machine {name}")
        machine.link.usage(use)
