"""AMD GPUs by the package ``amdsmi``, which comes with ROCm.

A GPU is known by the uuid that HIP uses (``ROCR_VISIBLE_DEVICES``). There are no XIDs: a GPU is out of service while
the driver does not answer for it. The driver measures GPUs and not processes.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

from bursar.local.devices.api import (
    DeviceGuard,
    DeviceNumbers,
    DriverError,
    GpuDevice,
    GpuFault,
    GpuProcess,
    GpuSample,
    known_tflops,
)

_DRM: Final = 226  # the major number of cards and render nodes
_LAST_MINOR: Final = 255
_MIB: Final = 2**20


class AmdDriver:
    """All GPUs of AMD. ``library`` has the functions of the module amdsmi."""

    name = "amdsmi"

    def __init__(self, library: Any = None) -> None:  # noqa: ANN401 a module or its fake
        self._smi = _library() if library is None else library
        self._error: type[Exception] = self._smi.AmdSmiException
        self._known: dict[int, GpuDevice] = {}  # by position
        try:
            self._smi.amdsmi_init()
            self._handles = list(self._smi.amdsmi_get_processor_handles())
        except self._error as error:
            raise DriverError(f"the AMD driver does not answer: {error}") from error
        if not self._handles:
            self.close()
            raise DriverError("the AMD driver lists no GPU")

    def close(self) -> None:
        with contextlib.suppress(self._error):
            self._smi.amdsmi_shut_down()

    def inventory(self) -> list[GpuDevice]:
        found = [self._gpu(index, handle) for index, handle in enumerate(self._handles)]
        return [one for one in found if one is not None]

    def _gpu(self, index: int, handle: Any) -> GpuDevice | None:  # noqa: ANN401
        """The GPU; None if it was never readable."""
        try:
            if index not in self._known:
                self._known[index] = self._described(index, handle)
            self._smi.amdsmi_get_gpu_activity(handle)
        except self._error as error:
            known = self._known.get(index)
            return None if known is None else replace(known, problem=f"the driver says: {error}")
        return self._known[index]

    def _described(self, index: int, handle: Any) -> GpuDevice:  # noqa: ANN401
        model = str(self._smi.amdsmi_get_gpu_asic_info(handle)["market_name"])
        numbers = self._smi.amdsmi_get_gpu_enumeration_info(handle)
        memory = int(self._smi.amdsmi_get_gpu_vram_info(handle)["vram_size"]) * _MIB
        minors = [numbers[name] for name in ("drm_card", "drm_render") if isinstance(numbers[name], int)]
        return GpuDevice(
            str(numbers["hip_uuid"] or self._smi.amdsmi_get_gpu_device_uuid(handle)),
            index,
            model,
            memory,
            known_tflops(model) or "1",
            vendor="AMD",
            driver=str(self._smi.amdsmi_get_gpu_driver_info(handle)["driver_version"]),
            nodes=tuple(DeviceNumbers(_DRM, minor) for minor in minors),
            total_memory=memory,
            bus=str(self._smi.amdsmi_get_gpu_device_bdf(handle)),
        )

    def processes(self) -> list[GpuProcess]:
        found: list[GpuProcess] = []
        for index, gpu in self._known.items():
            with contextlib.suppress(self._error):
                listed = self._smi.amdsmi_get_gpu_process_list(self._handles[index])
                memory = [(int(one["pid"]), int(one["memory_usage"]["vram_mem"])) for one in listed]
                found.extend(GpuProcess(gpu.uuid, pid, taken) for pid, taken in memory)
        return found

    def sample(self) -> list[GpuSample]:
        return [GpuSample(gpu.uuid, self._percent(index)) for index, gpu in self._known.items()]

    def _percent(self, index: int) -> int | None:
        try:
            busy = self._smi.amdsmi_get_gpu_activity(self._handles[index])["gfx_activity"]
        except self._error:
            return None
        return busy if isinstance(busy, int) else None  # the text N/A where it is not measured

    def faults(self) -> list[GpuFault]:
        """The driver reports no errors by number."""
        return []

    def guards(self) -> list[DeviceGuard]:
        """/dev/kfd stays open: without a render node it gives no GPU."""
        return [DeviceGuard(_DRM, 0, _LAST_MINOR)]


def _library() -> Any:  # noqa: ANN401 a module without types
    try:
        return import_module("amdsmi")
    except Exception as error:  # it raises what it likes where ROCm is not installed
        raise DriverError(f"the package amdsmi cannot be used: {error}") from error
