"""Machines for tests: a fake NVML on a file, the driver over it, and jobs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bursar.local.devices.api import JobDevices
from bursar.local.devices.nvml import NvidiaDriver
from tests.device.fake.fake_nvml import FakeNvml, edit, h200, machine

GIB = 2**30
FIRST = h200()["uuid"]
SECOND = h200(1)["uuid"]


class FakeMachine:
    """A machine whose cards a test changes."""

    def __init__(self, folder: Path, *cards: dict[str, Any], **given: object) -> None:
        self.path = folder / "machine.json"
        self.proc = folder / "proc"
        self.path.write_text(json.dumps(machine(*cards, **given)), encoding="utf-8")

    def driver(self) -> NvidiaDriver:
        return NvidiaDriver(FakeNvml(self.path), self.proc)

    def change(self, number: int = 0, **given: object) -> None:
        """Set fields of a card."""
        with edit(self.path) as state:
            state["gpus"][number].update(given)

    def break_driver(self, code: int) -> None:
        with edit(self.path) as state:
            state["error"] = code

    def xid(self, gpu: str, code: int) -> None:
        with edit(self.path) as state:
            state["xids"].append({"gpu": gpu, "code": code})

    def write(self, name: str, text: str) -> None:
        """A file under /proc."""
        path = self.proc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@dataclass
class Options:
    """The section ``local``, as far as devices read it."""

    mps: bool = False
    strays: str = "hold"
    evict_idle_after_ms: int = 0


def job(name: str = "train", *gpus: str, **given: Any) -> JobDevices:  # noqa: ANN401
    fields: dict[str, Any] = {"user": 1000, "whole": True} | given
    return JobDevices(uid=f"uid-{name}", key=f"lab/{name}", gpus=gpus, **fields)


class Owners:
    """Which job each process belongs to."""

    def __init__(self, **owned: int) -> None:
        self.by_pid = {pid: f"uid-{name}" for name, pid in owned.items()}

    def __call__(self, pid: int) -> str:
        return self.by_pid.get(pid, "")
