"""The fakes answer as the real driver and the real MPS daemon did (``recordings``)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.device.fake import fake_mps
from tests.device.fake.fake_nvml import MIB, FakeNvml, NVMLError, h200, machine, smi

FOLDER = Path(__file__).parent / "recordings"
NVML: dict[str, Any] = json.loads((FOLDER / "h200.json").read_text(encoding="utf-8"))
MPS: dict[str, Any] = json.loads((FOLDER / "mps.json").read_text(encoding="utf-8"))
UUID = "GPU-7d3cbb57-d42a-558d-3a63-5d5ef0a65963"
BUS = "00000000:00:06.0"
PROCESSES: dict[str, list[dict[str, int]]] = {
    "static": [],
    "idle": [],
    "working": [{"pid": os.getpid(), "memory": 1147142144, "percent": 85}],
    "two_users": [{"pid": os.getpid(), "memory": 4936695808, "percent": 83}],
    "idle_holder": [{"pid": os.getpid(), "memory": 4936695808, "percent": 0}],
}
VARIES = {"pid", "timeStamp", "smUtil", "gpu", "memory"}  # between two looks at one machine


def calls() -> Iterator[Any]:
    for phase, rows in NVML["phases"].items():
        for number, row in enumerate(rows):
            if hasattr(FakeNvml, row["call"]):
                yield pytest.param(phase, row, id=f"{phase}-{number}-{row['call']}")


def recorded_machine(folder: Path, phase: str) -> FakeNvml:
    path = folder / "machine.json"
    card = h200(uuid=UUID, bus=BUS, processes=PROCESSES[phase])
    path.write_text(json.dumps(machine(card)), encoding="utf-8")
    fake = FakeNvml(path)
    fake.nvmlInit()
    return fake


def plain(answer: Any) -> Any:  # noqa: ANN401 whatever a function answers
    if isinstance(answer, SimpleNamespace):
        return {name: value for name, value in vars(answer).items() if name != "value"}
    if isinstance(answer, list | tuple):
        return [plain(one) for one in answer]
    return "handle" if answer == UUID else answer


@pytest.mark.parametrize(("phase", "row"), list(calls()))
def test_the_fake_driver_answers_as_recorded(tmp_path: Path, phase: str, row: dict[str, Any]) -> None:
    fake = recorded_machine(tmp_path, phase)
    words = {"gpu0": UUID, "v2": fake.nvmlMemory_v2}
    given = [words.get(one, one) if isinstance(one, str) else one for one in row["args"]]
    answer, error = None, None
    try:
        answer = plain(getattr(fake, row["call"])(*given))
    except NVMLError as caught:
        error = caught.value
    assert error == row.get("error")
    if error is not None:
        return
    if row["call"] == "nvmlDeviceGetSupportedEventTypes":
        assert answer & row["answer"] & 8
    elif row["call"] == "nvmlDeviceGetUUID":
        assert row["answer"] == UUID
    else:
        compare(answer, row["answer"], row["call"])


def compare(fake: Any, real: Any, where: str) -> None:  # noqa: ANN401 whatever a function answers
    """Equal, as far as the fake has it, and the same kind of value where that varies."""
    if isinstance(fake, dict):
        for name, value in fake.items():
            assert name in real, f"{where}: the driver has no {name}"
            if name in VARIES:
                assert type(value) is type(real[name]), f"{where}.{name}"
            elif name in {"free", "used"}:
                assert abs(value - real[name]) < 16 * MIB, f"{where}.{name}"  # the driver's own share of a context
            else:
                compare(value, real[name], f"{where}.{name}")
    elif isinstance(fake, list):
        assert len(fake) == len(real), where
        for one, other in zip(fake, real, strict=True):
            compare(one, other, where)
    else:
        assert fake == real, where


def test_the_fake_nvidia_smi_prints_what_was_recorded(tmp_path: Path) -> None:
    recorded_machine(tmp_path, "idle")
    fields = "index,uuid,name,memory.total,memory.reserved,pci.bus_id,driver_version,mig.mode.current"
    (line,) = smi(tmp_path / "machine.json", [f"--query-gpu={fields}", "--format=csv,noheader"])
    recorded = (FOLDER / "nvidia-smi.csv").read_text(encoding="utf-8").strip()
    assert recorded == f"{line}, Enabled"  # with ECC


# MPS

CONTROL = ("-ESm", "tests.device.fake.fake_mps")


def control(pipe: Path, line: str) -> list[Any]:
    done = subprocess.run(
        [sys.executable, *CONTROL], input=f"{line}\n", capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, fake_mps.PIPES: str(pipe)},
    )  # fmt: skip
    return [done.returncode, done.stdout.strip(), done.stderr.strip()]


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    """The folder of a daemon that runs."""
    folder = tmp_path / "pipe"
    folder.mkdir()
    environment = {**os.environ, fake_mps.PIPES: str(folder)}
    with subprocess.Popen([sys.executable, *CONTROL, "-f"], env=environment) as daemon:
        until = time.monotonic() + 60
        while not (folder / "control").exists() and time.monotonic() < until:
            time.sleep(0.01)
        yield folder
        control(folder, "quit")
        daemon.wait(timeout=60)


def test_without_a_daemon_the_control_program_fails_as_recorded(tmp_path: Path) -> None:
    for line, *answer in MPS["without a daemon"]:
        assert control(tmp_path, line) == answer


def test_the_fake_daemon_answers_as_recorded(pipe: Path) -> None:
    for line, *answer in MPS["with a daemon"]:
        assert (line, control(pipe, line)) == (line, answer)
    for _ in range(2):
        fake_mps.ask(str(pipe), f"connect {os.getpid()}")
    server = control(pipe, "get_server_list")[1]
    assert server.isdigit()
    assert len(control(pipe, f"get_client_list {server}")[1].split()) == 2


def test_clients_have_the_limits_that_were_recorded(pipe: Path) -> None:
    control(pipe, "set_default_device_pinned_mem_limit 0 20G")
    control(pipe, "set_default_active_thread_percentage 50")
    for row in MPS["clients under a default of 20G and 50"]:
        memory, percent, _ = fake_mps.limits_of({**row["environment"], fake_mps.PIPES: str(pipe)}, os.getpid())
        allowed = 139 * 2**30 if memory is None else memory
        assert row["GiB allocated"] * 2**30 < allowed <= row["GiB refused"] * 2**30, row
        assert abs(132 * percent // 100 - row["sms"]) <= 1, row


def test_a_client_without_the_pipe_folder_has_no_limits() -> None:
    assert fake_mps.limits_of({}, os.getpid()) == (None, 100, 0)
