"""Stands in front of the real module: ``PYTHONPATH=tests/device/fake`` and ``BURSAR_FAKE_NVML=machine.json``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[3]))

from tests.device.fake.fake_nvml import STATE, FakeNvml

_FAKE = FakeNvml(Path(os.environ[STATE]))


def __getattr__(name: str) -> Any:  # noqa: ANN401 as the fake has it
    return getattr(_FAKE, name)
