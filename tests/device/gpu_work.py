"""What a job of the check does on its GPU: real work with PyTorch, or work that the fake machine is told of.

Called with steps, one after the other: ``sms`` prints the multiprocessors that it sees; ``alloc=N`` takes N GiB and
keeps them; ``try=N`` takes N GiB more if it is given them; ``busy`` multiplies matrices until it is ended; ``hold``
does nothing until it is ended; ``wait=FILE`` works until the file is there; ``exit=N`` ends. Each step prints a line.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Protocol

sys.path.append(str(Path(__file__).resolve().parents[2]))
GIB = 2**30


class Gpu(Protocol):
    """The first GPU that this process sees."""

    def processors(self) -> int: ...
    def take(self, amount: int) -> bool: ...
    def work(self) -> None:
        """A little, then return."""


class TorchGpu:
    def __init__(self) -> None:
        self._torch: Any = import_module("torch")  # it is there where there is a GPU
        torch = self._torch
        self._kept: list[Any] = []
        side = 8192
        self._left = torch.randn(side, side, device="cuda", dtype=torch.bfloat16)
        self._right = torch.randn(side, side, device="cuda", dtype=torch.bfloat16)

    def processors(self) -> int:
        return int(self._torch.cuda.get_device_properties(0).multi_processor_count)

    def take(self, amount: int) -> bool:
        try:
            self._kept.append(self._torch.empty(amount, dtype=self._torch.uint8, device="cuda"))
        except self._torch.OutOfMemoryError:
            return False
        return True

    def work(self) -> None:
        for _ in range(20):
            self._left @ self._right
        self._torch.cuda.synchronize()


class FakeGpu:
    def __init__(self) -> None:
        from tests.device.fake.fake_cuda import FakeCuda, OutOfMemoryError

        self._refused = OutOfMemoryError
        self._cuda = FakeCuda()
        self._works = False

    def processors(self) -> int:
        return self._cuda.processors

    def take(self, amount: int) -> bool:
        try:
            self._cuda.allocate(amount)
        except self._refused:
            return False
        return True

    def work(self) -> None:
        if not self._works:
            self._cuda.work(90)
            self._works = True
        time.sleep(0.05)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    say(f"signal {number}")
    os._exit(128 + number)


def main(steps: list[str]) -> None:
    signal.signal(signal.SIGTERM, _end)
    try:
        gpu: Gpu = FakeGpu() if os.environ.get("BURSAR_FAKE_NVML") else TorchGpu()
    except Exception as error:  # noqa: BLE001 each library has its own
        say(f"no gpu: {type(error).__name__}")
        sys.exit(9)
    for step in steps:
        name, _, text = step.partition("=")
        if name == "sms":
            say(f"sms {gpu.processors()}")
        elif name in {"alloc", "try"}:
            taken = gpu.take(int(text) * GIB)
            say(f"{'has' if taken else 'refused'} {text}")
            if not taken and name == "alloc":
                sys.exit(8)
        elif name == "wait":
            say("works")
            while not Path(text).exists():
                gpu.work()
        elif name == "busy":
            say("works")
            while True:
                gpu.work()
        elif name == "hold":
            say("holds")
            signal.pause()
        elif name == "exit":
            sys.exit(int(text))


if __name__ == "__main__":
    main(sys.argv[1:])
