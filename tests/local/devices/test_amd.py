"""AMD GPUs as amdsmi describes them."""

from __future__ import annotations

from typing import Any

import pytest

from bursar.local.devices.amd import AmdDriver
from bursar.local.devices.api import (
    DeviceGuard,
    DeviceNumbers,
    DriverError,
    GpuDevice,
    GpuProcess,
    GpuSample,
    node_labels,
)


class AmdSmiException(Exception):  # noqa: N818 as the module calls it
    pass


class FakeAmdSmi:
    """As many MI300X as asked for; a handle is a number."""

    AmdSmiException = AmdSmiException

    def __init__(self, count: int = 2) -> None:
        self.count = count
        self.broken: set[int] = set()
        self.busy: Any = 40

    def amdsmi_init(self) -> None:
        if self.count < 0:
            raise AmdSmiException("driver not loaded")

    def amdsmi_shut_down(self) -> None:
        """Nothing is open."""

    def amdsmi_get_processor_handles(self) -> list[int]:
        return list(range(self.count))

    def _answer(self, handle: int, answer: Any) -> Any:  # noqa: ANN401
        if handle in self.broken:
            raise AmdSmiException("device busy")
        return answer

    def amdsmi_get_gpu_asic_info(self, handle: int) -> Any:  # noqa: ANN401
        return self._answer(handle, {"market_name": "AMD Instinct MI300X"})

    def amdsmi_get_gpu_enumeration_info(self, handle: int) -> Any:  # noqa: ANN401
        return self._answer(handle, {"drm_card": handle, "drm_render": 128 + handle, "hip_uuid": f"GPU-{handle:016x}"})

    def amdsmi_get_gpu_vram_info(self, handle: int) -> Any:  # noqa: ANN401
        return self._answer(handle, {"vram_size": 196592})

    def amdsmi_get_gpu_driver_info(self, handle: int) -> Any:  # noqa: ANN401
        return self._answer(handle, {"driver_version": "6.12.12"})

    def amdsmi_get_gpu_device_bdf(self, handle: int) -> Any:  # noqa: ANN401
        return self._answer(handle, f"0000:0{handle}:00.0")

    def amdsmi_get_gpu_activity(self, handle: int) -> Any:  # noqa: ANN401
        return self._answer(handle, {"gfx_activity": self.busy})

    def amdsmi_get_gpu_process_list(self, handle: int) -> Any:  # noqa: ANN401
        return self._answer(handle, [{"pid": 7 + handle, "memory_usage": {"vram_mem": 5}}])


def test_gpus_are_described() -> None:
    _, second = AmdDriver(FakeAmdSmi()).inventory()
    assert second == GpuDevice(
        "GPU-0000000000000001",
        1,
        "AMD Instinct MI300X",
        memory=196592 * 2**20,
        total_memory=196592 * 2**20,
        tflops="1307400m",
        vendor="AMD",
        driver="6.12.12",
        nodes=(DeviceNumbers(226, 1), DeviceNumbers(226, 129)),
        bus="0000:01:00.0",
    )
    assert node_labels([second]) == {
        "amd.com/gpu.product-name": "AMD-Instinct-MI300X",
        "amd.com/gpu.vram": "196592M",
        "amd.com/gpu.driver-version": "6.12.12",
    }


def test_a_gpu_that_does_not_answer_is_out_of_service() -> None:
    smi = FakeAmdSmi()
    driver = AmdDriver(smi)
    driver.inventory()
    smi.broken = {1}
    assert [one.problem for one in driver.inventory()] == ["", "the driver says: device busy"]
    assert driver.processes() == [GpuProcess("GPU-0000000000000000", 7, 5)]
    assert [one.percent for one in driver.sample()] == [40, None]


@pytest.mark.parametrize(("busy", "percent"), [(0, 0), (100, 100), ("N/A", None)])
def test_samples(busy: int | str, percent: int | None) -> None:
    smi = FakeAmdSmi(1)
    driver = AmdDriver(smi)
    driver.inventory()
    smi.busy = busy
    assert driver.sample() == [GpuSample("GPU-0000000000000000", percent)]


def test_what_is_guarded() -> None:
    driver = AmdDriver(FakeAmdSmi())
    assert (driver.guards(), driver.faults()) == ([DeviceGuard(226, 0, 255)], [])


@pytest.mark.parametrize(("count", "says"), [(0, "lists no GPU"), (-1, "does not answer: driver not loaded")])
def test_without_gpus_it_says_so(count: int, says: str) -> None:
    with pytest.raises(DriverError, match=says):
        AmdDriver(FakeAmdSmi(count))
