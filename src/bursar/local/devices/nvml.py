"""NVIDIA GPUs by NVML: cards and MIG devices, processes, utilisation, errors.

What a card is (name, memory, place on the bus) is read once; what may change (MIG devices, health) at every inventory.
A question that a card does not support has no answer, which is never taken for zero. A card that the driver has lost
stays in the inventory with that problem while the driver still counts it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
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
from bursar.local.devices.health import card_problem
from bursar.resources import dimension

_MAJOR: Final = 195
_LAST_CARD: Final = 253  # the minors above are the control devices
_LAST_MINOR: Final = (1 << 20) - 1
_MONITOR: Final = 2  # the capability to read figures of MIG devices, which is open to everybody
_XID_EVENT: Final = 0x8
_RECOVERY_ACTION: Final = 230
_SM_CLOCK: Final = 1
_MOST_LINKS: Final = 18
_LINK_TO_CARD: Final = 0
_LINK_TO_SWITCH: Final = 2
_LEVELS: Final = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_ABSENT: Final = (3, 6, 13, 21)  # not supported, not found, no such function in this driver, no data
_LOST: Final = (15, 16, 28)  # lost, reset required, not found


class NvidiaDriver:
    """All cards of the machine. ``library`` has the functions of the module pynvml."""

    name = "nvml"

    def __init__(self, library: Any = None, proc: Path = Path("/proc")) -> None:  # noqa: ANN401 a module or its fake
        self._nvml = _library() if library is None else library
        self.error: type[Exception] = self._nvml.NVMLError
        self._proc = proc
        self._cards: dict[str, GpuDevice] = {}  # what never changes, by uuid
        self._seen: dict[str, int] = {}  # by device: the time stamp of the last sample of processes
        self._events: Any = None
        self._listening: set[str] = set()
        self._caps: dict[str, int] | None = None
        try:
            self._nvml.nvmlInit()
            self.version = str(self._nvml.nvmlSystemGetDriverVersion())
        except self._nvml.NVMLError as error:
            raise DriverError(f"the NVIDIA driver does not answer: {error}") from error

    def close(self) -> None:
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    # Inventory

    def inventory(self) -> list[GpuDevice]:
        found: list[GpuDevice] = []
        handles: dict[str, Any] = {}
        for index in range(self._count()):
            try:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = str(self._nvml.nvmlDeviceGetUUID(handle))
            except self._nvml.NVMLError:
                continue  # whoever knew this card sees that it is missing
            handles[uuid] = handle
            found.append(self._card(index, uuid, handle))
        links = _Links(self, handles)
        cards = [replace(card, links=links.of(card.uuid)) for card in found]
        return [device for card in cards for device in self._parts(card, handles[card.uuid])]

    def _count(self) -> int:
        try:
            return int(self._nvml.nvmlDeviceGetCount())
        except self._nvml.NVMLError as error:
            raise DriverError(f"the NVIDIA driver does not answer: {error}") from error

    def ask(self, name: str, *given: Any) -> Any:  # noqa: ANN401 as the library answers
        """The answer; None if the card has none to this question."""
        try:
            return getattr(self._nvml, name)(*given)
        except self._nvml.NVMLError as error:
            if error.value in _ABSENT:
                return None
            raise

    def _card(self, index: int, uuid: str, handle: Any) -> GpuDevice:  # noqa: ANN401
        try:
            known = self._cards.get(uuid)
            if known is None or known.index != index:
                known = self._cards[uuid] = self._described(index, uuid, handle)
            return replace(known, problem=self._problem(handle))
        except self._nvml.NVMLError as error:
            known = self._cards.get(uuid) or GpuDevice(uuid, index, "", 0, "0", driver=self.version)
            return replace(known, problem=f"the driver says: {error}")

    def _described(self, index: int, uuid: str, handle: Any) -> GpuDevice:  # noqa: ANN401
        model = str(self._nvml.nvmlDeviceGetName(handle))
        total, usable = self._memory(handle)
        minor = int(self._nvml.nvmlDeviceGetMinorNumber(handle))
        bus = str(self._nvml.nvmlDeviceGetPciInfo(handle).busId)
        tflops = known_tflops(model) or self._estimate(handle)
        nodes = (DeviceNumbers(_MAJOR, minor),)
        return GpuDevice(
            uuid, index, model, usable, tflops, driver=self.version, nodes=nodes, total_memory=total, bus=bus
        )

    def _memory(self, handle: Any) -> tuple[int, int]:  # noqa: ANN401
        """(bytes in all, bytes less what the driver keeps for itself)."""
        detailed = self.ask("nvmlDeviceGetMemoryInfo", handle, self._nvml.nvmlMemory_v2)
        if detailed is not None:
            return int(detailed.total), int(detailed.total - detailed.reserved)
        total = int(self._nvml.nvmlDeviceGetMemoryInfo(handle).total)
        return total, total

    def _estimate(self, handle: Any) -> str:  # noqa: ANN401
        """Tflops of a model that the table does not have: its cores in single precision, two operations a cycle."""
        cores = self.ask("nvmlDeviceGetNumGpuCores", handle)
        clock = self.ask("nvmlDeviceGetMaxClockInfo", handle, _SM_CLOCK)
        return f"{max(cores * clock * 2 // 1000, 1)}m" if cores and clock else "1"

    def _problem(self, handle: Any) -> str:  # noqa: ANN401
        rows = self.ask("nvmlDeviceGetRemappedRows", handle)
        fields = self.ask("nvmlDeviceGetFieldValues", handle, [_RECOVERY_ACTION])
        readable = fields is not None and fields[0].nvmlReturn == 0
        action = int(fields[0].value.uiVal) if readable else 0
        return card_problem(action, rows is not None and bool(rows[3]))

    # MIG

    def _parts(self, card: GpuDevice, handle: Any) -> list[GpuDevice]:  # noqa: ANN401
        """The MIG devices of the card, or else the card itself. A card in MIG mode without devices offers nothing."""
        try:
            mode = self.ask("nvmlDeviceGetMigMode", handle)
            if mode is None or not mode[0]:
                return [card]
            most = int(self._nvml.nvmlDeviceGetMaxMigDeviceCount(handle))
            found = [self._mig(card, handle, slot, most) for slot in range(most)]
        except self._nvml.NVMLError as error:
            return [replace(card, problem=card.problem or f"the driver says: {error}")]
        return [device for device in found if device is not None]

    def _mig(self, card: GpuDevice, handle: Any, slot: int, slices: int) -> GpuDevice | None:  # noqa: ANN401
        mig = self.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot)
        if mig is None:
            return None
        attributes = self._nvml.nvmlDeviceGetAttributes_v2(mig)
        instance, part = self._nvml.nvmlDeviceGetGpuInstanceId(mig), self._nvml.nvmlDeviceGetComputeInstanceId(mig)
        name = str(self._nvml.nvmlDeviceGetName(mig))
        total, usable = self._memory(mig)
        given = attributes.computeInstanceSliceCount
        return replace(
            card,
            uuid=str(self._nvml.nvmlDeviceGetUUID(mig)),
            index=(card.index + 1) * 100 + slot,
            model=name if " MIG " in name else f"{name} MIG {_profile(attributes)}",
            memory=usable,
            total_memory=total,
            tflops=f"{_milli(card.tflops) * given // slices}m",
            parent=card.uuid,
            nodes=(*card.nodes, *self._capabilities(card.nodes[0].minor, instance, part)),
            links={},
        )

    def _capabilities(self, minor: int, instance: int, part: int) -> list[DeviceNumbers]:
        """The devices by which the driver lets a process use a MIG device."""
        names = [f"gpu{minor}/gi{instance}/access", f"gpu{minor}/gi{instance}/ci{part}/access"]
        major = self._caps_major()
        return [DeviceNumbers(major, self._caps_minors()[name]) for name in names if name in self._caps_minors()]

    def _caps_minors(self) -> Mapping[str, int]:
        if self._caps is None:
            lines = _lines(self._proc / "driver/nvidia-caps/mig-minors")
            pairs = [line.split() for line in lines]
            self._caps = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}
        return self._caps

    def _caps_major(self) -> int:
        found = [line.split() for line in _lines(self._proc / "devices")]
        return next((int(pair[0]) for pair in found if pair[1:] == ["nvidia-caps"]), -1)

    def guards(self) -> list[DeviceGuard]:
        """All cards, and all capabilities of MIG but the one to read figures."""
        found = [DeviceGuard(_MAJOR, 0, _LAST_CARD)]
        major = self._caps_major()
        if major >= 0:
            found += [DeviceGuard(major, 0, _MONITOR - 1), DeviceGuard(major, _MONITOR + 1, _LAST_MINOR)]
        return found

    # Processes and utilisation

    def processes(self) -> list[GpuProcess]:
        found: dict[tuple[str, int], GpuProcess] = {}
        for uuid, handle in self._handles():
            for name in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses"):
                for one in self._listed(name, handle):
                    found.setdefault((uuid, one.pid), GpuProcess(uuid, int(one.pid), int(one.usedGpuMemory or 0)))
        return list(found.values())

    def _listed(self, name: str, handle: Any) -> list[Any]:  # noqa: ANN401
        try:
            return list(self.ask(name, handle) or ())
        except self._nvml.NVMLError as error:
            if error.value in _LOST:
                return []  # the card is out of service; nothing can be said of its processes
            raise DriverError(f"the NVIDIA driver cannot list processes: {error}") from error

    def sample(self) -> list[GpuSample]:
        return [self._sampled(uuid, handle) for uuid, handle in self._handles()]

    def _sampled(self, uuid: str, handle: Any) -> GpuSample:  # noqa: ANN401
        try:
            rates = self.ask("nvmlDeviceGetUtilizationRates", handle)
            since = self._seen.get(uuid, 0)
            rows = self.ask("nvmlDeviceGetProcessUtilization", handle, since)
        except self._nvml.NVMLError:
            return GpuSample(uuid, None)
        percents: dict[int, int] = {}
        for row in rows or ():
            if row.timeStamp > since:
                percents[int(row.pid)] = max(percents.get(int(row.pid), 0), int(row.smUtil))
                self._seen[uuid] = max(self._seen.get(uuid, 0), int(row.timeStamp))
        return GpuSample(uuid, None if rates is None else int(rates.gpu), percents, bool(percents))

    def _handles(self) -> list[tuple[str, Any]]:
        """Each device that can be used, with its handle."""
        found: list[tuple[str, Any]] = []
        for index in range(self._count()):
            with contextlib.suppress(self._nvml.NVMLError):
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                mode = self.ask("nvmlDeviceGetMigMode", handle)
                usable = self._migs(handle) if mode is not None and mode[0] else [handle]
                found.extend((str(self._nvml.nvmlDeviceGetUUID(one)), one) for one in usable)
        return found

    def _migs(self, handle: Any) -> list[Any]:  # noqa: ANN401
        slots = range(int(self._nvml.nvmlDeviceGetMaxMigDeviceCount(handle)))
        found = [self.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot) for slot in slots]
        return [mig for mig in found if mig is not None]

    # Errors

    def faults(self) -> list[GpuFault]:
        """The XIDs since the last call; it does not wait for any."""
        self._listen()
        found: list[GpuFault] = []
        while self._events is not None:
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
                uuid = str(self._nvml.nvmlDeviceGetUUID(event.device))
            except self._nvml.NVMLError:
                break  # none is waiting, or the card is lost, which the inventory tells
            if event.eventType == _XID_EVENT:
                found.append(GpuFault(uuid, int(event.eventData)))
        return found

    def _listen(self) -> None:
        """Also to cards that came later."""
        with contextlib.suppress(self._nvml.NVMLError):
            for index in range(int(self._nvml.nvmlDeviceGetCount())):
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = str(self._nvml.nvmlDeviceGetUUID(handle))
                if uuid in self._listening:
                    continue
                self._listening.add(uuid)
                if int(self.ask("nvmlDeviceGetSupportedEventTypes", handle) or 0) & _XID_EVENT:
                    self._events = self._events or self._nvml.nvmlEventSetCreate()
                    self._nvml.nvmlDeviceRegisterEvents(handle, _XID_EVENT, self._events)


class _Links:
    """How the cards are connected: by NVLink, or else by what of PCI is between them, in the words of nvidia-smi."""

    def __init__(self, driver: NvidiaDriver, handles: Mapping[str, Any]) -> None:
        self._ask: Callable[..., Any] = driver.ask
        self._error = driver.error
        self._handles = handles
        self._wires = {uuid: self._wired(handle) for uuid, handle in handles.items()} if len(handles) > 1 else {}
        self._buses = {uuid: self._bus(handle) for uuid, handle in handles.items()} if len(handles) > 1 else {}

    def of(self, uuid: str) -> dict[str, str]:
        if uuid not in self._wires:
            return {}
        return {peer: self._between(uuid, peer) for peer in sorted(self._handles) if peer != uuid}

    def _between(self, one: str, other: str) -> str:
        direct = self._wires[one].count(self._buses[other])
        switched = min(self._wires[one].count(""), self._wires[other].count(""))
        if direct or switched:
            return f"NV{direct or switched}"
        try:
            level = self._ask("nvmlDeviceGetTopologyCommonAncestor", self._handles[one], self._handles[other])
        except self._error:
            level = None
        return _LEVELS.get(level, "SYS")

    def _wired(self, handle: Any) -> list[str]:  # noqa: ANN401
        """Of each active NVLink the bus of the card at its other end; "" for a switch."""
        found: list[str] = []
        for link in range(_MOST_LINKS):
            try:
                if not self._ask("nvmlDeviceGetNvLinkState", handle, link):
                    continue
                kind = self._ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
                if kind == _LINK_TO_SWITCH:
                    found.append("")
                elif kind == _LINK_TO_CARD:
                    found.append(str(self._ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link).busId))
            except self._error:
                break  # the card has no more links
        return found

    def _bus(self, handle: Any) -> str:  # noqa: ANN401
        try:
            return str(self._ask("nvmlDeviceGetPciInfo", handle).busId)
        except self._error:
            return "lost"


def _library() -> Any:  # noqa: ANN401 a module without types
    try:
        return import_module("pynvml")
    except ImportError as error:
        raise DriverError("the package nvidia-ml-py is not installed: pip install 'bursar[local]'") from error


def _profile(attributes: Any) -> str:  # noqa: ANN401
    return f"{attributes.gpuInstanceSliceCount}g.{round(attributes.memorySizeMB / 1024)}gb"


def _milli(tflops: str) -> int:
    return dimension("tflops").parse(tflops)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
