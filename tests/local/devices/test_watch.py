"""The devices of a machine over time: what is handed out, what is taken out of service, what jobs are given."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from bursar.control.admission import known_kinds
from bursar.local.devices.api import (
    DeviceError,
    DeviceReport,
    DriverError,
    NoDriver,
    gpu_manifest,
    node_labels,
    object_name,
)
from bursar.local.devices.watch import LocalDevices, open_driver
from bursar.objects.manifests import Document
from bursar.policies.plugin import default_registry
from tests.device.fake.fake_nvml import h200, mig
from tests.local.devices.machines import FIRST, GIB, SECOND, FakeMachine, Options, Owners, job

ME = os.getpid()


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """Devices over a fake machine, and a clock that a test turns."""

    def __init__(self, folder: Path, *cards: dict[str, Any], **options: Any) -> None:  # noqa: ANN401
        self.machine = FakeMachine(folder, *cards)
        self.time = Time()
        self.devices = LocalDevices(self.machine.driver(), Options(**options), folder=folder / "mps", clock=self.time)

    def poll(self, *jobs: Any, owners: Owners | None = None, after: float = 10) -> DeviceReport:  # noqa: ANN401
        self.time.now += after
        return self.devices.poll(jobs, owners or Owners())


def told(report: DeviceReport) -> list[tuple[str, str, str]]:
    return [(event.gpu, event.reason, event.message) for event in report.events]


def test_the_first_look_is_no_news(tmp_path: Path) -> None:
    report = Watched(tmp_path, h200(), h200(1)).poll()
    assert [device.uuid for device in report.devices] == [FIRST, SECOND]
    assert (report.events, report.held, report.usage) == ([], {}, [])


FAILED = [
    pytest.param({"missing": True}, "the driver does not list it any more", id="gone"),
    pytest.param({"error": 15}, "the driver does not list it any more", id="lost"),
    pytest.param({"recovery": 1}, "the driver says that it needs a reset", id="needs a reset"),
]


@pytest.mark.parametrize(("change", "why"), FAILED)
def test_a_gpu_that_fails_is_taken_out_and_comes_back(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    watched = Watched(tmp_path, h200(), h200(1))
    watched.poll()
    watched.machine.change(1, **change)
    report = watched.poll()
    assert told(report) == [(SECOND, "gpu.failed", f"NVIDIA H200 is out of service: {why}")]
    assert {device.uuid: device.problem for device in report.devices} == {FIRST: "", SECOND: why}
    assert told(watched.poll()) == []
    watched.machine.change(1, missing=False, error=0, recovery=0)
    assert told(watched.poll()) == [(SECOND, "gpu.returned", "NVIDIA H200 is in service")]


@pytest.mark.parametrize(
    ("code", "problem", "reason"),
    [
        (79, "XID 79: the GPU has fallen off the bus", "gpu.failed"),
        (999, "XID 999: unknown error", "gpu.failed"),
        (31, "", "gpu.program-error"),
    ],
)
def test_an_xid_is_looked_at_at_once(tmp_path: Path, code: int, problem: str, reason: str) -> None:
    watched = Watched(tmp_path, h200())
    watched.poll()
    watched.machine.xid(FIRST, code)
    report = watched.poll(after=1)
    assert [event.reason for event in report.events] == [reason]
    assert [device.problem for device in report.devices] == [problem]
    assert [device.problem for device in watched.poll().devices] == [problem]


def test_a_fault_of_a_card_takes_out_its_mig_devices(tmp_path: Path) -> None:
    watched = Watched(tmp_path, h200(mig=[mig(0, 0), mig(0, 1)]))
    watched.poll()
    watched.machine.xid(FIRST, 95)
    assert [device.problem for device in watched.poll().devices] == ["XID 95: uncontained memory error"] * 2


def test_a_card_that_is_cut_into_mig_devices_is_none_any_more(tmp_path: Path) -> None:
    watched = Watched(tmp_path, h200())
    watched.poll()
    watched.machine.change(0, mig=[mig(0, 0)])
    report = watched.poll()
    assert [(device.parent, device.problem) for device in report.devices] == [(FIRST, "")]
    assert [event.reason for event in report.events] == ["gpu.found"]


def test_without_an_answer_of_the_driver_no_gpu_is_handed_out(tmp_path: Path) -> None:
    watched = Watched(tmp_path, h200())
    watched.poll()
    watched.machine.break_driver(18)
    why = "the NVIDIA driver does not answer: RM has detected an NVML/RM version mismatch."
    report = watched.poll()
    assert told(report) == [("", "gpu.driver", why)]
    assert [device.problem for device in report.devices] == [why]
    assert told(watched.poll()) == []
    watched.machine.break_driver(0)
    report = watched.poll(after=1)
    assert [event.reason for event in report.events] == ["gpu.returned", "gpu.driver"]
    assert [device.problem for device in report.devices] == [""]


# Strays


def test_a_gpu_with_a_process_of_no_job_is_held(tmp_path: Path) -> None:
    watched = Watched(tmp_path, h200(), h200(1))
    watched.machine.change(1, processes=[{"pid": ME, "memory": GIB}])
    report = watched.poll()
    assert list(report.held) == [SECOND]
    assert [(event.gpu, event.type, event.reason) for event in report.events] == [(SECOND, "Warning", "gpu.stray")]
    watched.machine.change(1, processes=[])
    report = watched.poll()
    assert (report.held, [event.reason for event in report.events]) == ({}, ["gpu.free"])


def test_strays_may_be_ignored(tmp_path: Path) -> None:
    watched = Watched(tmp_path, h200(processes=[{"pid": ME, "memory": GIB}]), strays="ignore")
    report = watched.poll()
    assert (report.held, report.events, len(report.strays)) == ({}, [], 1)


def test_processes_of_a_job_on_its_gpus(tmp_path: Path) -> None:
    watched = Watched(tmp_path, h200(processes=[{"pid": ME, "memory": GIB}]), h200(1))
    train, owners = job("train", FIRST), Owners(train=ME)
    report = watched.poll(train, owners=owners)
    assert (report.held, [one.used_memory for one in report.usage]) == ({}, [GIB])
    assert [one.pid for one in watched.devices.busy(train, owners)] == [ME]
    assert watched.devices.busy(job("train", SECOND), owners) == []
    assert watched.devices.busy(train, Owners()) == []


def test_an_idle_job_over_its_quota_is_warned_and_evicted(tmp_path: Path) -> None:
    watched = Watched(tmp_path, h200(), evict_idle_after_ms=60_000)
    idle = job("train", FIRST, over_quota=True)
    reports = [watched.poll(idle) for _ in range(8)]
    assert [len(report.warn) for report in reports] == [0, 0, 0, 1, 0, 0, 0, 0]
    assert [len(report.evict) for report in reports] == [0, 0, 0, 0, 0, 0, 1, 1]


# Jobs


def test_a_job_is_given_its_gpus(tmp_path: Path) -> None:
    watched = Watched(tmp_path, h200(), h200(1))
    watched.poll()
    prepared = watched.devices.prepare(job("train", FIRST, SECOND))
    assert prepared.environment == {"CUDA_VISIBLE_DEVICES": f"{FIRST},{SECOND}"}
    assert prepared.notes == ["GPU access is advisory: there is no cgroup v2 for jobs"]


def test_a_job_without_gpus_sees_none(tmp_path: Path) -> None:
    watched = Watched(tmp_path, h200())
    watched.poll()
    assert watched.devices.prepare(job()).environment == {"CUDA_VISIBLE_DEVICES": ""}


def test_without_gpus_there_is_nothing_to_confine(tmp_path: Path) -> None:
    devices = LocalDevices(NoDriver(), Options(), folder=tmp_path)
    devices.poll([], Owners())
    assert devices.prepare(job()).notes == []


@pytest.mark.parametrize(
    ("gpu", "change", "says"),
    [
        (FIRST, {"missing": True}, f"GPU {FIRST} is out of service: the driver does not list it any more"),
        ("GPU-x", {}, "GPU GPU-x is not on this machine"),
    ],
)
def test_a_gpu_that_cannot_be_given(tmp_path: Path, gpu: str, change: dict[str, Any], says: str) -> None:
    watched = Watched(tmp_path, h200())
    watched.poll()
    watched.machine.change(0, **change)
    watched.poll()
    with pytest.raises(DeviceError) as caught:
        watched.devices.prepare(job("train", gpu))
    assert str(caught.value) == says


@pytest.mark.parametrize(
    ("mps", "gpus", "why"),
    [
        (False, [FIRST], "MPS is not enabled"),
        (True, [FIRST, SECOND], "a program can use MPS on one GPU only"),
    ],
)
def test_fractions_without_mps_are_books_only(tmp_path: Path, mps: bool, gpus: list[str], why: str) -> None:
    watched = Watched(tmp_path, h200(), h200(1), mps=mps)
    watched.poll()
    prepared = watched.devices.prepare(job("train", *gpus, whole=False, vram=20 * GIB, percent=50))
    assert prepared.notes[-1] == f"fractions are books only: {why}"
    assert list(prepared.environment) == ["CUDA_VISIBLE_DEVICES"]


# Drivers and manifests


def test_a_machine_without_gpus_has_a_driver_that_lists_none() -> None:
    assert open_driver("none").inventory() == []
    with pytest.raises(DriverError, match="is none of auto, nvml, amdsmi, none"):
        open_driver("radeon")


def test_why_a_machine_has_no_gpus_is_told_once(tmp_path: Path) -> None:
    devices = LocalDevices(NoDriver("the driver is not loaded"), Options(), folder=tmp_path)
    assert told(devices.poll([], Owners())) == [("", "gpu.driver", "no GPUs are used: the driver is not loaded")]
    assert told(devices.poll([], Owners())) == []


@pytest.mark.parametrize(("problem", "held", "phase"), [("", "", "Running"), ("", "a", "Held"), ("b", "a", "Failed")])
def test_gpu_objects_are_valid(tmp_path: Path, problem: str, held: str, phase: str) -> None:
    from dataclasses import replace

    cards = FakeMachine(tmp_path, h200(links=[""] * 18), h200(1, links=[""] * 18)).driver().inventory()
    manifest = gpu_manifest(replace(cards[0], problem=problem), "box", held)
    read = known_kinds(default_registry()).read(Document("", 0, manifest))
    assert (read.key, read.body["status"]["phase"]) == (object_name(FIRST), phase)
    marks = read.body["metadata"]["annotations"]
    assert marks["local.bursar.dev/links"] == f"{SECOND}=NV18"
    assert marks.get("local.bursar.dev/out-of-service", "") == (problem or held)


def test_labels_of_the_node(tmp_path: Path) -> None:
    cards = FakeMachine(tmp_path, h200(mig=[mig(0, 0), mig(0, 1)]), h200(1)).driver().inventory()
    assert node_labels(cards) == {
        "nvidia.com/gpu.product": "NVIDIA-H200",
        "nvidia.com/gpu.memory": "143771",
        "nvidia.com/gpu.count": "2",
        "nvidia.com/cuda.driver-version.full": "580.159.04",
    }
    assert node_labels([]) == {}
