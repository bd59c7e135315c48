"""`bursar top gpus` and `bursar top idle`, and the metrics with the same figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from bursar.cli.top_gpus import look
from bursar.local.devices.api import DeviceReport, GpuDevice, JobUsage, Stray
from bursar.local.usage import machine_use, out_of_service
from bursar.server.client import Client
from bursar.server.machines import MachineBoard, machine_figures
from bursar.server.service import Service
from bursar.server.types import MachineList

GB = 1 << 30
REPORT = DeviceReport(
    devices=[
        GpuDevice("GPU-B", 1, "NVIDIA H100 80GB HBM3", 80 * GB, "989", problem="XID 79"),
        GpuDevice("GPU-A", 0, "NVIDIA H100 80GB HBM3", 80 * GB, "989"),
    ],
    held={"GPU-A": "process 4711 belongs to no job"},
    usage=[
        JobUsage("u1", "a/train", "GPU-A", 20 * GB, 25, 5 * GB, 0, 700),
        JobUsage("u2", "b/whole", "GPU-A", 0, 100, 0, None, None),
    ],
    strays=[Stray("GPU-A", 4711, "eve", "python", GB, "abc")],
    busy={"GPU-A": 40},
)


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


class Reported:
    """A client whose server has one report."""

    def __init__(self, report: DeviceReport) -> None:
        self.now = 100.0
        self.board = MachineBoard(lambda: self.now)
        self.board.report(machine_use("box", 600_000, report, {"u1": "ann"}))

    def machines(self) -> MachineList:
        return MachineList(items=self.board.rows())


def shown(report: DeviceReport = REPORT, *, idle: bool = False, output: str = "table", limit: int = 0) -> list[str]:
    return look(cast("Client", Reported(report)), limit, output, idle=idle)


def words(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines[1:]]


def test_what_is_booked_stands_beside_what_is_used() -> None:
    train, whole, stray, failed = words(shown())
    out = ["process", "4711", "belongs", "to", "no", "job"]
    assert train == ["box", "0", "H100", "a/train", "ann", "5.0Gi", "20.0Gi", "0", "25", "11m40s", *out]
    assert whole == ["box", "0", "H100", "b/whole", "-", "0", "80.0Gi", "?", "100", "-", *out]
    assert " ".join(stray[3:]) == "(no job) eve 1.0Gi - - - - python, process 4711, container abc"
    assert failed == ["box", "1", "H100", "-", "-", "-", "-", "?", "-", "-", "XID", "79"]


def test_only_jobs_that_are_known_to_be_idle_are_named() -> None:
    (line,) = words(shown(idle=True))
    assert line[3] == "a/train"
    (machine,) = json.loads("\n".join(shown(idle=True, output="json")))
    assert [[job["job"] for job in gpu["jobs"]] for gpu in machine["gpus"]] == [["a/train"]]


def test_a_limit_says_how_many_more_there_are() -> None:
    assert shown(limit=1)[-1] == "and 3 more: --limit 0 shows all"


@pytest.mark.parametrize(("idle", "says"), [(True, "no job is idle"), (False, "the machines have no GPUs")])
def test_nothing_to_show(idle: bool, says: str) -> None:
    assert shown(DeviceReport(), idle=idle) == [says]


def test_an_old_report_says_so() -> None:
    client = Reported(REPORT)
    client.now += 60
    assert "reported 60 s ago" in look(cast("Client", client), 0, "table", idle=False)[1]


def test_who_waits_is_told_which_gpus_are_out() -> None:
    assert out_of_service(REPORT) == (
        "GPU 0 is not handed out: process 4711 belongs to no job; GPU 1 is not handed out: XID 79"
    )
    assert out_of_service(DeviceReport()) == ""


def test_metrics_leave_out_what_is_not_measured() -> None:
    found: dict[str, Any] = {one.name: one.values for one in machine_figures(Reported(REPORT).board.rows())}
    assert found["bursar_gpu_out_of_service"] == {("box", "gpu-a"): 1, ("box", "gpu-b"): 1}
    assert found["bursar_gpu_busy_ratio"] == {("box", "gpu-a"): 0.4}
    assert found["bursar_job_gpu_idle_seconds"] == {("box", "gpu-a", "a/train", "ann"): 700}
    assert found["bursar_job_gpu_memory_booked_bytes"]["box", "gpu-a", "b/whole", ""] == 80 * GB


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    found = Service.open(tmp_path / "bursar.db")
    yield found
    found.close()


def test_a_machine_that_is_gone_is_forgotten(service: Service) -> None:
    service.machines.report(machine_use("box", 0, REPORT, {}))
    assert [row.machine for row in service.machines.rows()] == ["box"]
    service.machines.forget("box")
    assert service.machines.rows() == []
