"""The agent of a machine whose server is elsewhere: ``ClusterLink`` by HTTP, and the process around the agent.

A server that cannot be reached now is a ``LinkError``: jobs go on, and their ends are reported when it is back. News of
pods are asked for five times a second. After a gap (``AgentRequests``) all pods are read; pods that the cluster has
forgotten meanwhile are told of as gone, and ``gaps`` says that the machine must be registered once more.
"""

from __future__ import annotations

import logging
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar, cast

import msgspec

from bursar.local.agent import AgentOptions, LocalAgent
from bursar.local.devices.watch import LocalDevices, open_driver
from bursar.local.links import GONE, Hear, JobEnd, LinkError, PodState, QueuePlace, RefusedByClusterError
from bursar.local.usage import MachineUse
from bursar.objects.local_options import LocalOptions
from bursar.server.agent_requests import AGENT_CALL, AgentCall, News
from bursar.server.client import Client, RequestFailedError
from bursar.server.local_agent import AgentError

LOG = logging.getLogger("bursar.local")
_EVERY_SECONDS = 0.2
_RETRY_SECONDS = 1.0
_PASSING = frozenset({0, 408, 429, 500, 502, 503, 504})  # statuses of answers that may be others the next time
T = TypeVar("T")


class RemoteLink:
    """The cluster of a server, for the agent of one machine."""

    def __init__(self, client: Client, machine: str, instance: str) -> None:
        self._client = client
        self._machine = machine
        self._instance = instance
        self._gaps = 0

    def _ask(self, type_: type[T], request: str, *arguments: object) -> T:
        body = msgspec.json.encode(AgentCall(self._instance, list(arguments)))
        try:
            found = self._client.call(AGENT_CALL, self._machine, request, body)
        except RequestFailedError as error:
            if error.status in _PASSING:
                raise LinkError(str(error)) from error
            raise RefusedByClusterError(str(error)) from error
        return msgspec.json.decode(found, type=type_)

    def submit(self, manifests: Sequence[Mapping[str, Any]]) -> list[PodState]:
        return self._ask(list[PodState], "submit", manifests)

    def apply(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        self._ask(object, "apply", manifests)

    def remove(self, pods: Sequence[str], objects: Sequence[str] = ()) -> None:
        self._ask(object, "remove", pods, objects)

    def report(self, ends: Sequence[JobEnd]) -> list[PodState]:
        return self._ask(list[PodState], "report", ends)

    def event(self, reference: tuple[str, str], kind: str, reason: str, message: str) -> None:
        self._ask(object, "event", reference, kind, reason, message)

    def pods(self) -> list[PodState]:
        return self._ask(list[PodState], "pods")

    def objects(self, kind: str) -> list[str]:
        return self._ask(list[str], "objects", kind)

    def queue(self) -> list[QueuePlace]:
        return self._ask(list[QueuePlace], "queue")

    def options(self) -> LocalOptions:
        return self._ask(LocalOptions, "options")

    def borrowing(self, uids: Sequence[str]) -> set[str]:
        return self._ask(set[str], "borrowing", uids)

    def usage(self, use: MachineUse) -> None:
        self._ask(object, "usage", use)

    def gaps(self) -> int:
        return self._gaps

    def follow(self, hear: Hear) -> Callable[[], None]:
        ending = Event()
        thread = Thread(target=self._follow, args=(hear, ending), name="bursar-news", daemon=True)
        thread.start()

        def end() -> None:
            ending.set()
            thread.join()

        return end

    def _follow(self, hear: Hear, ending: Event) -> None:
        news = News("", 0, gap=False)
        active: dict[str, PodState] = {}
        while not ending.wait(_EVERY_SECONDS):
            try:
                found = self._ask(News, "news", news.epoch, news.last)
                states = self._all_of(active) if found.gap else found.states
            except (LinkError, RefusedByClusterError) as error:
                LOG.warning("no news of jobs now: %s", error)
                ending.wait(_RETRY_SECONDS)
                continue
            active |= {state.uid: state for state in states}
            active = {uid: state for uid, state in active.items() if not state.ended}
            if states:
                hear(states)
            self._gaps += found.gap and bool(news.epoch)
            news = found

    def _all_of(self, active: Mapping[str, PodState]) -> list[PodState]:
        """All pods, and those of ``active`` that the cluster has no more."""
        states = self.pods()
        there = {state.uid for state in states}
        lost = [one for uid, one in active.items() if uid not in there]
        return [*states, *(PodState(one.pod, one.uid, GONE, deleted=True) for one in lost)]


def agent_instance(folder: Path) -> str:
    """What tells the agent of this folder from others that use the name of its machine."""
    path = folder / "instance"
    folder.mkdir(parents=True, exist_ok=True, mode=0o711)
    with suppress(FileExistsError), path.open("x", encoding="ascii") as file:
        file.write(secrets.token_hex(16))
    return path.read_text(encoding="ascii")


def run_agent(client: Client, options: AgentOptions, gpus: str, ready: Callable[[LocalAgent], None]) -> None:
    """Until a signal asks it to end; jobs go on. What keeps it from starting is raised."""
    instance = agent_instance(options.folder)
    agent = LocalAgent(
        lambda machine: cast("Any", RemoteLink(client, machine, instance)),
        lambda slice_: LocalDevices(open_driver(gpus), LocalOptions(), folder=options.folder, cgroup=slice_),
        options,
    )
    ending = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ending.set())
    agent.start()
    ready(agent)
    while agent.alive and not ending.wait(1):
        pass
    if not agent.alive:
        raise AgentError("the agent ended; its log says why")
    agent.stop()
