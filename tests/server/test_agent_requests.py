"""What agents of other machines may ask of the server, and what becomes of a machine whose agent is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bursar.local.devices.api import GpuDevice, gpu_manifest
from bursar.local.node import node_manifest
from bursar.local.submission import Machine, SubmitRequest, pods_of
from bursar.objects.local_options import MACHINE
from bursar.server.access import OPEN, Identity
from bursar.server.agent_requests import SILENT_SECONDS, AgentRequests
from bursar.server.machines import MachineBoard
from bursar.server.problems import RefusedError
from bursar.server.service import Service

CARD = GpuDevice("GPU-1", 0, "NVIDIA H200", 140 << 30, "989")


class Asked:
    """A server, asked by the agents of machines box and bay."""

    def __init__(self, folder: Path) -> None:
        self.now = 100.0
        self.service = Service.open(folder / "bursar.db")
        self.service.machines = MachineBoard(lambda: self.now)
        self.requests = AgentRequests(self.service)

    def ask(self, request: str, *arguments: object, machine: str = "box", instance: str = "one") -> Any:  # noqa: ANN401
        body = json.dumps({"instance": instance, "arguments": arguments}).encode()
        return self.requests.answer(machine, request, body, Identity(machine, "agent"))

    def register(self, machine: str = "box") -> None:
        has = Machine(machine, 4, 8 << 30, (CARD,))
        self.ask("apply", [node_manifest(has), gpu_manifest(CARD, machine)], machine=machine, instance=machine)

    def submit(self, name: str, machine: str = "box", **more: Any) -> Any:  # noqa: ANN401
        request = SubmitRequest(["true"], team="a", name=name, gpus=1)
        pods = pods_of(request, "a", (0, "root"), Machine(machine, 4, 8 << 30, (CARD,)))
        return self.ask("submit", pods, machine=machine, **more)[0]

    def phases(self) -> dict[str, str]:
        return {key: pod.phase for key, pod in self.service.cluster.pod_states.items()}


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    found = Asked(tmp_path)
    yield found
    found.service.close()


def refused(status: int, text: str, work: Any, *arguments: object, **more: object) -> None:  # noqa: ANN401
    with pytest.raises(RefusedError) as caught:
        work(*arguments, **more)
    assert (caught.value.status, text in str(caught.value)) == (status, True), str(caught.value)


def test_an_agent_asks_for_its_own_machine_only(asked: Asked) -> None:
    body = b'{"instance": "one"}'
    refused(403, "agent of bay", asked.requests.answer, "box", "pods", body, Identity("bay", "agent"))
    assert asked.requests.answer("box", "pods", body, OPEN) == []


@pytest.mark.parametrize(
    ("request_", "arguments"),
    [
        ("submit", [[{"kind": "Pod", "metadata": {"annotations": {MACHINE: "bay"}}}]]),
        ("apply", [[{"kind": "Node", "metadata": {"name": "bay"}}]]),
        ("apply", [[{"kind": "GPU", "metadata": {"name": "gpu-1"}, "status": {"nodeSelector": {}}}]]),
        ("apply", [[{"kind": "Configuration", "metadata": {"name": "default"}}]]),
        ("remove", [[], ["Node/box"]]),
        ("event", [["Node", "bay"], "Normal", "gpu.found", "x"]),
    ],
)
def test_what_is_not_of_its_machine_is_refused(asked: Asked, request_: str, arguments: list[Any]) -> None:
    refused(403, "machine", asked.ask, request_, *arguments)


def test_a_gpu_of_another_machine_is_not_taken(asked: Asked) -> None:
    asked.register("bay")
    refused(403, "gpu-1: does not belong", asked.ask, "apply", [gpu_manifest(CARD, "box")])


def test_pods_of_other_machines_are_neither_removed_nor_reported(asked: Asked) -> None:
    asked.register("bay")
    state = asked.submit("train", "bay", instance="bay")
    assert state.phase == "Running"
    asked.ask("remove", [state.pod], [])
    asked.ask("report", [{"pod": state.pod, "uid": state.uid, "exit_code": 0}])
    assert asked.phases() == {"a/train": "Running"}


@pytest.mark.parametrize(("request_", "body"), [("pods", b"{"), ("submit", b'{"instance": "one", "arguments": [1]}')])
def test_a_body_that_is_not_understood(asked: Asked, request_: str, body: bytes) -> None:
    refused(400, "not understood", asked.requests.answer, "box", request_, body, OPEN)


def test_a_machine_has_one_agent(asked: Asked) -> None:
    asked.ask("pods")
    refused(409, "another agent serves box", asked.ask, "pods", instance="two")
    assert asked.ask("pods", instance="one") == []


def test_news_follow_each_other_and_a_gap_is_told(asked: Asked) -> None:
    asked.register()
    first = asked.ask("news", "", 0, instance="box")
    assert first.gap
    asked.submit("train", instance="box")
    after = asked.ask("news", first.epoch, first.last, instance="box")
    assert (after.gap, [one.phase for one in after.states][-1]) == (False, "Running")
    assert asked.ask("news", after.epoch, after.last, instance="box").states == []
    other = AgentRequests(asked.service)  # as after a restart
    body = json.dumps({"instance": "box", "arguments": [after.epoch, after.last]}).encode()
    assert other.answer("box", "news", body, OPEN).gap


def test_a_lost_machine_keeps_its_gpus_until_it_is_retired(asked: Asked) -> None:
    asked.register()
    asked.submit("train", instance="box")
    asked.submit("waits", instance="box")
    use = {"machine": "box", "idleAfter": 600}
    asked.ask("usage", use, instance="box")
    asked.now += 3
    refused(409, "box reported 3 s ago", asked.requests.retire, "box")
    asked.now += SILENT_SECONDS
    assert asked.phases() == {"a/train": "Running", "a/waits": "Pending"}
    assert asked.requests.retire("box") == ["a/train"]
    assert asked.phases() == {"a/train": "Failed"}
    assert asked.service.cluster.pod_states["a/train"].reason == "MachineLost"
    assert asked.ask("objects", "GPU", instance="two") == []
    refused(404, "there is no machine", asked.requests.retire, "box")
