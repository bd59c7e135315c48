"""CUDA without a GPU: memory and work of a process, entered into the fake machine.

As with the real thing, ``CUDA_VISIBLE_DEVICES`` chooses the devices, MPS limits memory and threads, and what a process
had is gone when it ends, however it ends.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.device.fake.fake_mps import limits_of
from tests.device.fake.fake_nvml import MIB, STATE, alive, edit

SMS = 132
_CONTEXT = 522 * MIB  # what a process has before it allocates anything
_SERVER = 66 * MIB  # what an MPS server has


class OutOfMemoryError(Exception):
    """As PyTorch calls it."""


class FakeCuda:
    """The first visible device of this process."""

    def __init__(self) -> None:
        self._path = Path(os.environ[STATE])
        self._limits = limits_of(os.environ, os.getpid())
        self._taken = _CONTEXT
        self._percent = 0
        with edit(self._path) as state:
            self._uuid = self._visible(state)
            self._enter(state)

    @property
    def processors(self) -> int:
        return SMS * self._limits.percent // 100

    def allocate(self, amount: int) -> None:
        """Bytes; ``OutOfMemoryError`` if there are not so many."""
        if self._limits.memory is not None and self._taken + amount > self._limits.memory:
            raise OutOfMemoryError("the limit of MPS")
        with edit(self._path) as state:
            card = _card(state, self._uuid)
            others = sum(one["memory"] for one in card["processes"] if one["pid"] != os.getpid() and alive(one["pid"]))
            if others + self._taken + amount > card["total"] - card["reserved"]:
                raise OutOfMemoryError("the memory of the card")
            self._taken += amount
            self._enter(state)

    def work(self, percent: int) -> None:
        """From now on it keeps the GPU so busy."""
        self._percent = min(percent, self._limits.percent)
        with edit(self._path) as state:
            self._enter(state)

    @staticmethod
    def _visible(state: dict[str, Any]) -> str:
        there = [part["uuid"] for card in state["gpus"] for part in (card["mig"] or [card]) if not card["missing"]]
        wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
        visible = there if wanted is None else [uuid for uuid in wanted.split(",") if uuid in there]
        if not visible:
            raise RuntimeError("No CUDA GPUs are available")
        return str(visible[0])

    def _enter(self, state: dict[str, Any]) -> None:
        card = _card(state, self._uuid)
        mine: dict[str, Any] = {"pid": os.getpid(), "memory": self._taken, "percent": self._percent}
        server = self._limits.server
        rows = [one for one in card["processes"] if one["pid"] not in {os.getpid(), server} and alive(one["pid"])]
        if server:
            mine["mps"] = True
            rows.append({"pid": server, "memory": _SERVER, "percent": 0})
        card["processes"] = [*rows, mine]


def _card(state: dict[str, Any], uuid: str) -> dict[str, Any]:
    parts = [part for card in state["gpus"] for part in [card, *(card["mig"] or [])]]
    found: dict[str, Any] = next(one for one in parts if one["uuid"] == uuid)
    if "total" not in found:
        found |= {"total": found["memory"] * MIB, "reserved": 0}
    return found
