"""NVML without a GPU: the functions of ``pynvml`` that Bursar calls, over a machine that a JSON file describes.

Programs that stand in for CUDA work edit the same file (``edit``), so that processes of several programs see one
machine. The file is read at each call. A process that has ended is not listed any more, as with a driver. The answers
have the types and errors that a real driver gave (``tests/device/recordings``); a test compares them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

GIB = 2**30
MIB = 2**20
STATE = "BURSAR_FAKE_NVML"

INVALID, NOT_SUPPORTED, NOT_FOUND, NOT_LOADED, TIMEOUT, LOST = 2, 3, 6, 9, 10, 15
_TEXTS = {
    1: "Uninitialized", 2: "Invalid Argument", 3: "Not Supported", 6: "Not Found", 9: "Driver Not Loaded",
    10: "Timeout", 15: "GPU is lost", 18: "RM has detected an NVML/RM version mismatch.",
}  # fmt: skip


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(_TEXTS.get(value, "Unknown Error"))
        self.value = value


def h200(index: int = 0, **given: object) -> dict[str, Any]:
    """A card as the recording has it; ``given`` replaces some of it."""
    card: dict[str, Any] = {
        "uuid": f"GPU-{index:08x}-1c2d-4e5f-8a9b-0123456789ab",
        "name": "NVIDIA H200",
        "minor": index,
        "bus": f"00000000:{index + 1:02X}:00.0",
        "total": 143771 * MIB,
        "reserved": 644939776,
        "mig": None,  # a list of MIG devices
        "processes": [],
        "percent": 0,
        "rows": [0, 0, 0, 0],
        "recovery": 0,
        "links": [],  # of each active NVLink the bus at its other end; "" for a switch
        "error": 0,
        "missing": False,
    }
    return card | given


def mig(card: int, slot: int, slices: int = 1, memory: int = 16384) -> dict[str, Any]:
    """A MIG device with so many slices of compute, and memory in MiB."""
    uuid = f"MIG-{card:04x}{slot:04x}-5d6e-5f70-8a9b-0123456789ab"
    return {"uuid": uuid, "gi": slot + 7, "ci": 0, "slices": slices, "memory": memory, "processes": []}


def machine(*cards: dict[str, Any], **given: object) -> dict[str, Any]:
    """A machine as the file describes it."""
    return {"driver": "580.159.04", "error": 0, "gpus": list(cards), "xids": []} | given


@contextlib.contextmanager
def edit(path: Path) -> Iterator[dict[str, Any]]:
    """The machine, to be changed; other programs wait meanwhile."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = json.loads(path.read_text(encoding="utf-8"))
        yield state
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(state, indent=1), encoding="utf-8")
        fresh.rename(path)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


class FakeNvml:
    """The functions, as a module has them. A handle is the uuid of its device."""

    NVMLError = NVMLError
    nvmlMemory_v2 = 0x02000028

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open = False
        self._registered: list[str] = []

    # The library

    def nvmlInit(self) -> None:
        self._open = True
        try:
            self._machine()
        except NVMLError:
            self._open = False
            raise

    def nvmlShutdown(self) -> None:
        self._open = False

    def nvmlSystemGetDriverVersion(self) -> str:
        return str(self._machine()["driver"])

    def nvmlDeviceGetCount(self) -> int:
        return len(self._cards())

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        cards = self._cards()
        if not 0 <= index < len(cards):
            raise NVMLError(INVALID)
        if cards[index]["error"]:
            raise NVMLError(cards[index]["error"])
        return str(cards[index]["uuid"])

    def _machine(self) -> dict[str, Any]:
        if not self._open:
            raise NVMLError(1)
        state: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
        if state["error"]:
            raise NVMLError(state["error"])
        return state

    def _cards(self) -> list[dict[str, Any]]:
        return [card for card in self._machine()["gpus"] if not card["missing"]]

    def _find(self, handle: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """(the card, the MIG device if the handle is of one)."""
        for card in self._cards():
            for part in [None, *(card["mig"] or [])]:
                if handle == (card if part is None else part)["uuid"]:
                    if card["error"]:
                        raise NVMLError(card["error"])
                    return card, part
        raise NVMLError(INVALID)

    def _card(self, handle: str) -> dict[str, Any]:
        """The card; a question that MIG devices do not answer."""
        card, part = self._find(handle)
        if part is not None:
            raise NVMLError(INVALID)
        return card

    # Cards

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        card, part = self._find(handle)
        return str((part or card)["uuid"])

    def nvmlDeviceGetName(self, handle: str) -> str:
        card, part = self._find(handle)
        profile = "" if part is None else f" MIG {part['slices']}g.{round(part['memory'] / 1024)}gb"
        return f"{card['name']}{profile}"

    def nvmlDeviceGetMinorNumber(self, handle: str) -> int:
        return int(self._card(handle)["minor"])

    def nvmlDeviceGetPciInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(busId=self._card(handle)["bus"])

    def nvmlDeviceGetMemoryInfo(self, handle: str, version: int | None = None) -> SimpleNamespace:
        card, part = self._find(handle)
        total = card["total"] if part is None else part["memory"] * MIB
        reserved = card["reserved"] if part is None else 0
        taken = sum(int(one["memory"]) for one in self._processes(handle))
        used = taken if version else taken + reserved
        found = SimpleNamespace(total=total, free=total - reserved - taken, used=used)
        if version:
            found.version, found.reserved = version, reserved
        return found

    def nvmlDeviceGetNumGpuCores(self, handle: str) -> int:
        self._card(handle)
        return 16896

    def nvmlDeviceGetMaxClockInfo(self, handle: str, kind: int) -> int:
        self._card(handle)
        return 1980

    def nvmlDeviceGetRemappedRows(self, handle: str) -> tuple[int, ...]:
        return tuple(self._card(handle)["rows"])

    def nvmlDeviceGetFieldValues(self, handle: str, fields: list[int]) -> list[SimpleNamespace]:
        card = self._card(handle)
        known = {230: card["recovery"]}
        return [
            SimpleNamespace(
                fieldId=field,
                nvmlReturn=0 if field in known else NOT_SUPPORTED,
                value=SimpleNamespace(uiVal=known.get(field, 0)),
            )
            for field in fields
        ]

    # Links

    def nvmlDeviceGetNvLinkState(self, handle: str, link: int) -> int:
        links = self._card(handle)["links"]
        if not links:
            raise NVMLError(NOT_SUPPORTED)
        return int(link < len(links))

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: str, link: int) -> int:
        return 0 if self._link(handle, link) else 2

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: str, link: int) -> SimpleNamespace:
        return SimpleNamespace(busId=self._link(handle, link))

    def _link(self, handle: str, link: int) -> str:
        links = self._card(handle)["links"]
        if link >= len(links):
            raise NVMLError(NOT_SUPPORTED)
        return str(links[link])

    def nvmlDeviceGetTopologyCommonAncestor(self, one: str, other: str) -> int:
        if one == other:
            raise NVMLError(NOT_SUPPORTED)
        return 40 if self._card(one)["minor"] // 2 == self._card(other)["minor"] // 2 else 50

    # MIG

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        mode = int(self._card(handle)["mig"] is not None)
        return [mode, mode]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:
        return 0 if self._card(handle)["mig"] is None else 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, slot: int) -> str:
        parts = self._card(handle)["mig"] or []
        if slot >= len(parts):
            raise NVMLError(NOT_FOUND)
        return str(parts[slot]["uuid"])

    def nvmlDeviceGetGpuInstanceId(self, handle: str) -> int:
        return int(self._part(handle)["gi"])

    def nvmlDeviceGetComputeInstanceId(self, handle: str) -> int:
        return int(self._part(handle)["ci"])

    def nvmlDeviceGetAttributes_v2(self, handle: str) -> SimpleNamespace:
        part = self._part(handle)
        slices = part["slices"]
        return SimpleNamespace(
            computeInstanceSliceCount=slices, gpuInstanceSliceCount=slices, memorySizeMB=part["memory"]
        )

    def _part(self, handle: str) -> dict[str, Any]:
        _, part = self._find(handle)
        if part is None:
            raise NVMLError(NOT_SUPPORTED)
        return part

    # Processes

    def _processes(self, handle: str) -> list[dict[str, Any]]:
        card, part = self._find(handle)
        return [one for one in (part or card)["processes"] if alive(one["pid"])]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=one["pid"], usedGpuMemory=one["memory"]) for one in self._processes(handle)]

    def nvmlDeviceGetMPSComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:
        running = [one for one in self._processes(handle) if one.get("mps")]
        return [SimpleNamespace(pid=one["pid"], usedGpuMemory=one["memory"]) for one in running]

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        _, part = self._find(handle)
        if part is not None:
            raise NVMLError(NOT_SUPPORTED)
        busy = sum(int(one.get("percent", 0)) for one in self._processes(handle))
        return SimpleNamespace(gpu=min(100, max(busy, int(self._card(handle)["percent"]))), memory=0)

    def nvmlDeviceGetProcessUtilization(self, handle: str, since: int) -> list[SimpleNamespace]:
        _, part = self._find(handle)
        if part is not None:
            raise NVMLError(NOT_SUPPORTED)
        listed = self._processes(handle)
        if not listed:
            raise NVMLError(NOT_FOUND)
        now = time.time_ns() // 1000
        return [SimpleNamespace(pid=one["pid"], timeStamp=now, smUtil=one.get("percent", 0)) for one in listed]

    # Events

    def nvmlDeviceGetSupportedEventTypes(self, handle: str) -> int:
        self._card(handle)
        return 0x18F

    def nvmlEventSetCreate(self) -> str:
        return "set"

    def nvmlDeviceRegisterEvents(self, handle: str, types: int, events: str) -> None:
        self._card(handle)
        if types & 8:
            self._registered.append(handle)

    def nvmlEventSetWait_v2(self, events: str, timeout: int) -> SimpleNamespace:
        """The file keeps an XID until it was fetched."""
        with edit(self._path) as state:
            for xid in state["xids"]:
                if xid["gpu"] in self._registered:
                    state["xids"].remove(xid)
                    return SimpleNamespace(device=xid["gpu"], eventType=8, eventData=xid["code"])
        raise NVMLError(TIMEOUT)


def smi(path: Path, arguments: list[str]) -> list[str]:
    """The lines of ``nvidia-smi --query-gpu=... --format=csv,noheader``; MiB are cut up as the real one does."""
    fake = FakeNvml(path)
    fake.nvmlInit()
    fields = next(one for one in arguments if one.startswith("--query-gpu=")).partition("=")[2].split(",")
    lines = []
    for index in range(fake.nvmlDeviceGetCount()):
        handle = fake.nvmlDeviceGetHandleByIndex(index)
        memory = fake.nvmlDeviceGetMemoryInfo(handle, fake.nvmlMemory_v2)
        known = {
            "index": str(index),
            "uuid": handle,
            "name": fake.nvmlDeviceGetName(handle),
            "memory.total": f"{memory.total // MIB} MiB",
            "memory.reserved": f"{-(-memory.reserved // MIB)} MiB",
            "driver_version": fake.nvmlSystemGetDriverVersion(),
            "pci.bus_id": fake.nvmlDeviceGetPciInfo(handle).busId,
            "mig.mode.current": "Enabled" if fake.nvmlDeviceGetMigMode(handle)[0] else "Disabled",
        }
        lines.append(", ".join(known[field] for field in fields))
    return lines


def main(arguments: list[str]) -> int:
    """As the program ``nvidia-smi``."""
    sys.stdout.writelines(f"{line}\n" for line in smi(Path(os.environ[STATE]), arguments))
    return 0
