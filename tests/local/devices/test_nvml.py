"""NVIDIA GPUs as NVML describes them: inventory, MIG, links, health, processes."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

import pynvml  # type: ignore[import-untyped]
import pytest

from bursar.local.devices.api import DeviceGuard, DeviceNumbers, DriverError, GpuDevice, GpuFault
from tests.device.fake.fake_nvml import MIB, FakeNvml, h200, mig
from tests.local.devices.machines import FIRST, SECOND, FakeMachine

ME = os.getpid()


def test_a_card_is_described(tmp_path: Path) -> None:
    (card,) = FakeMachine(tmp_path, h200()).driver().inventory()
    assert card == GpuDevice(
        FIRST,
        0,
        "NVIDIA H200",
        memory=143771 * MIB - 644939776,
        total_memory=143771 * MIB,
        tflops="989",
        driver="580.159.04",
        nodes=(DeviceNumbers(195, 0),),
        bus="00000000:01:00.0",
    )


@pytest.mark.parametrize(
    ("name", "tflops"), [("NVIDIA A100-SXM4-80GB", "312"), ("NVIDIA Zeta 9000", "66908m"), ("Tesla T4", "65")]
)
def test_compute_of_a_model_is_known_or_estimated(tmp_path: Path, name: str, tflops: str) -> None:
    (card,) = FakeMachine(tmp_path, h200(name=name)).driver().inventory()
    assert card.tflops == tflops


def test_without_a_driver_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="the NVIDIA driver does not answer: Driver Not Loaded"):
        FakeMachine(tmp_path, h200(), error=9).driver()


# Health


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param({}, "", id="well"),
        pytest.param({"rows": [3, 1, 1, 0]}, "", id="remapped rows"),
        pytest.param({"rows": [3, 1, 0, 1]}, "a row of its memory could not be remapped", id="remapping failed"),
        pytest.param({"recovery": 1}, "the driver says that it needs a reset", id="needs a reset"),
        pytest.param({"recovery": 2}, "the driver says that the machine needs a reboot", id="needs a reboot"),
        pytest.param({"recovery": 99}, "the driver says that it needs recovery action 99", id="unknown action"),
    ],
)
def test_health_of_a_card(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    (card,) = FakeMachine(tmp_path, h200(**change)).driver().inventory()
    assert card.problem == problem


def test_a_card_that_is_lost_meanwhile_is_not_listed(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, h200(), h200(1))
    driver = machine.driver()
    assert len(driver.inventory()) == 2
    machine.change(0, error=15)
    assert [card.uuid for card in driver.inventory()] == [SECOND]
    assert driver.processes() == []


def test_errors_are_told_once(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, h200(), h200(1))
    driver = machine.driver()
    assert driver.faults() == []
    machine.xid(SECOND, 79)
    machine.xid(FIRST, 31)
    assert sorted(driver.faults(), key=lambda fault: fault.code) == [GpuFault(FIRST, 31), GpuFault(SECOND, 79)]
    assert driver.faults() == []


# Links


@pytest.mark.parametrize(
    ("links", "between"),
    [
        pytest.param(([], [], []), ("NODE", "SYS", "SYS"), id="PCI only"),
        pytest.param(([""] * 18, [""] * 18, [""] * 18), ("NV18", "NV18", "NV18"), id="switch"),
        pytest.param(
            (["00000000:02:00.0"] * 4, ["00000000:01:00.0"] * 4, []), ("NV4", "SYS", "SYS"), id="a bridge for two"
        ),
    ],
)
def test_links_between_cards(tmp_path: Path, links: tuple[list[str], ...], between: tuple[str, ...]) -> None:
    cards = FakeMachine(tmp_path, *(h200(index, links=wired) for index, wired in enumerate(links))).driver().inventory()
    one, two, three = cards
    assert (one.links[two.uuid], one.links[three.uuid], two.links[three.uuid]) == between
    assert two.links[one.uuid] == one.links[two.uuid]


# MIG


def mig_machine(tmp_path: Path) -> FakeMachine:
    machine = FakeMachine(tmp_path, h200(mig=[mig(0, 0, 1, 16384), mig(0, 1, 3, 71680)]), h200(1))
    machine.write("devices", "Character devices:\n  1 mem\n195 nvidia\n237 nvidia-caps\n\nBlock devices:\n  8 sd\n")
    minors = ["config 1", "monitor 2", "gpu0/gi7/access 66", "gpu0/gi7/ci0/access 67", "gpu0/gi8/access 75"]
    machine.write("driver/nvidia-caps/mig-minors", "\n".join([*minors, "gpu0/gi8/ci0/access 76", ""]))
    return machine


def test_mig_devices_take_the_place_of_their_card(tmp_path: Path) -> None:
    small, large, card = mig_machine(tmp_path).driver().inventory()
    assert (small.model, small.memory, small.tflops, small.parent) == (
        "NVIDIA H200 MIG 1g.16gb", 16384 * MIB, "141285m", FIRST,
    )  # fmt: skip
    assert (large.model, large.memory, large.tflops) == ("NVIDIA H200 MIG 3g.70gb", 71680 * MIB, "423857m")
    assert small.nodes == (DeviceNumbers(195, 0), DeviceNumbers(237, 66), DeviceNumbers(237, 67))
    assert len({small.index, large.index, card.index}) == 3
    assert card.uuid == SECOND


def test_a_card_in_mig_mode_without_devices_offers_nothing(tmp_path: Path) -> None:
    assert FakeMachine(tmp_path, h200(mig=[])).driver().inventory() == []


def test_guards_leave_only_figures_of_mig_open(tmp_path: Path) -> None:
    assert mig_machine(tmp_path).driver().guards() == [
        DeviceGuard(195, 0, 253),
        DeviceGuard(237, 0, 1),
        DeviceGuard(237, 3, 1048575),
    ]
    assert FakeMachine(tmp_path, h200()).driver().guards()[0] == DeviceGuard(195, 0, 253)


def test_processes_of_mig_devices(tmp_path: Path) -> None:
    machine = mig_machine(tmp_path)
    parts = [mig(0, 0), mig(0, 1, 3) | {"processes": [{"pid": ME, "memory": 5}]}]
    machine.change(0, mig=parts)
    driver = machine.driver()
    assert [(one.uuid, one.pid) for one in driver.processes()] == [(parts[1]["uuid"], ME)]
    assert [(one.uuid, one.percent) for one in driver.sample()] == [
        (parts[0]["uuid"], None), (parts[1]["uuid"], None), (SECOND, 0),
    ]  # fmt: skip


# Processes and samples


def test_processes_and_what_they_do(tmp_path: Path) -> None:
    ended = 2**22 - 1
    working = [{"pid": ME, "memory": 7, "percent": 60, "mps": True}, {"pid": ended, "memory": 9}]
    driver = FakeMachine(tmp_path, h200(processes=working)).driver()
    assert [(one.pid, one.memory) for one in driver.processes()] == [(ME, 7)]
    (sample,) = driver.sample()
    assert (sample.percent, dict(sample.processes), sample.measured) == (60, {ME: 60}, True)


def test_a_process_that_did_nothing(tmp_path: Path) -> None:
    (sample,) = FakeMachine(tmp_path, h200(processes=[{"pid": ME, "memory": 7}])).driver().sample()
    assert (sample.percent, dict(sample.processes), sample.measured) == (0, {ME: 0}, True)


# The fake


def nvml_functions() -> list[str]:
    return sorted(name for name in vars(FakeNvml) if name.startswith("nvml") and callable(getattr(FakeNvml, name)))


@pytest.mark.parametrize("name", nvml_functions())
def test_the_fake_has_functions_of_the_real_module(name: str) -> None:
    real = inspect.signature(getattr(pynvml, name)).parameters.values()
    fake = list(inspect.signature(getattr(FakeNvml, name)).parameters.values())[1:]
    least = [len([one for one in side if one.default is one.empty]) for side in (list(real), fake)]
    assert len(fake) <= len(list(real))
    assert least[0] == least[1]


def test_the_fake_has_the_constants_of_the_real_module() -> None:
    assert FakeNvml.nvmlMemory_v2 == pynvml.nvmlMemory_v2
    assert pynvml.nvmlEventTypeXidCriticalError == 8
    assert pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION == 230
    codes = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_TIMEOUT)
    assert (*codes, pynvml.NVML_ERROR_GPU_IS_LOST) == (3, 6, 10, 15)
