"""MPS daemons: when they are started and ended, for whom, and with which limits. The control program is a fake."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bursar.local.devices.api import DeviceBusyError, DeviceError, JobDevices
from bursar.local.devices.mps import MpsDaemon, MpsDaemons, short
from tests.device.fake.fake_mps import ask, install, limits_of
from tests.local.devices.machines import FIRST, GIB, SECOND, job

ME = os.getuid()


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A short one: the names of sockets have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="mps-") as folder:
        yield Path(folder)


@pytest.fixture
def daemons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MpsDaemons]:
    """Over the fake control program; what a test leaves running is ended."""
    install(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    made = MpsDaemons(tmp_path)
    yield made
    for daemon in made._daemons.values():
        daemon.kill()


def share(name: str, gpu: str = FIRST, user: int = ME, vram: int = 20 * GIB, percent: int = 50) -> JobDevices:
    return job(name, gpu, whole=False, user=user, vram=vram, percent=percent)


def defaults(environment: dict[str, str]) -> tuple[str, str]:
    pipe = environment["CUDA_MPS_PIPE_DIRECTORY"]
    memory = ask(pipe, "get_default_device_pinned_mem_limit 0")
    return memory, ask(pipe, "get_default_active_thread_percentage")


def folder_of(environment: dict[str, str]) -> Path:
    return Path(environment["CUDA_MPS_PIPE_DIRECTORY"]).parent


def daemon_pid(environment: dict[str, str]) -> int:
    return int((folder_of(environment) / "pid").read_text())


def test_a_job_is_told_its_daemon_and_its_limits(daemons: MpsDaemons, tmp_path: Path) -> None:
    environment = daemons.prepare(share("train"))
    folder = tmp_path / f"{FIRST[:21]}-{ME}"
    assert environment == {
        "CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"),
        "CUDA_MPS_LOG_DIRECTORY": str(folder / "log"),
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=20480M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50",
    }
    assert limits_of(environment, os.getpid())[:2] == (20 * GIB, 50)


def test_the_default_of_the_daemon_is_the_largest_of_its_jobs(daemons: MpsDaemons) -> None:
    environment = daemons.prepare(share("train"))
    assert defaults(environment) == ("20480M", "50.0")
    daemons.prepare(share("infer", vram=60 * GIB, percent=25))
    assert defaults(environment) == ("61440M", "50.0")


def test_the_daemon_ends_with_the_last_job(daemons: MpsDaemons) -> None:
    first, second = share("train"), share("infer")
    environment = daemons.prepare(first)
    daemons.prepare(second)
    ask(environment["CUDA_MPS_PIPE_DIRECTORY"], f"connect {os.getpid()}")
    pid = daemon_pid(environment)
    (server,) = daemons.own_pids()
    daemons.release(first)
    assert (Path(f"/proc/{pid}").exists(), daemons.user_of(FIRST)) == (True, ME)
    daemons.release(second)
    assert [Path(f"/proc/{one}").exists() for one in (pid, server)] == [False, False]
    assert (daemons.user_of(FIRST), daemons.own_pids()) == (None, set())


def test_each_gpu_has_a_daemon(daemons: MpsDaemons) -> None:
    pipes = {daemons.prepare(share(f"on-{gpu}", gpu))["CUDA_MPS_PIPE_DIRECTORY"] for gpu in (FIRST, SECOND)}
    assert len(pipes) == 2


def test_a_gpu_belongs_to_one_user_at_a_time(daemons: MpsDaemons) -> None:
    mine = share("train")
    daemons.prepare(mine)
    with pytest.raises(DeviceBusyError, match="MPS serves one user at a time"):
        daemons.prepare(share("other", user=ME + 1))
    daemons.release(mine)
    assert daemons.user_of(FIRST) is None


def test_a_daemon_that_ends_is_started_again(daemons: MpsDaemons) -> None:
    environment = daemons.prepare(share("train"))
    assert daemons.watch(0) == []
    os.kill(daemon_pid(environment), signal.SIGKILL)
    until = time.monotonic() + 60
    while not (events := daemons.watch(0)) and time.monotonic() < until:
        time.sleep(0.01)
    assert [(event.gpu, event.reason) for event in events] == [(FIRST, "gpu.mps")]
    assert defaults(environment) == ("20480M", "50.0")


def test_after_a_restart_the_daemon_is_adopted(daemons: MpsDaemons, tmp_path: Path) -> None:
    train = share("train")
    environment = daemons.prepare(train)
    pid = daemon_pid(environment)
    again = MpsDaemons(tmp_path)
    again.adopt([train, share("books-only", SECOND), job("whole", SECOND)])
    assert (again.user_of(FIRST), again.user_of(SECOND), again.watch(0)) == (ME, None, [])
    again.prepare(share("infer", vram=30 * GIB))
    assert (daemon_pid(environment), defaults(environment)[0]) == (pid, "30720M")
    again.release(share("infer"))
    again.release(train)
    assert not (folder_of(environment) / "pid").exists()


def test_a_daemon_whose_jobs_do_not_come_back_is_ended(daemons: MpsDaemons, tmp_path: Path) -> None:
    environment = daemons.prepare(share("train"))
    ask(environment["CUDA_MPS_PIPE_DIRECTORY"], f"connect {os.getpid()}")
    again = MpsDaemons(tmp_path)
    assert again.own_pids() == daemons.own_pids() != set()
    again.watch(0)
    again.watch(59)
    assert again.user_of(FIRST) == ME
    again.watch(60)
    assert (again.user_of(FIRST), again.own_pids()) == (None, set())


def test_files_of_a_daemon_that_died_are_in_nobodys_way(daemons: MpsDaemons, tmp_path: Path) -> None:
    folder = tmp_path / f"{short(FIRST)}-{ME}"
    (folder / "pipe").mkdir(parents=True)
    (folder / "pipe" / "control").write_text("left over")
    (folder / "pid").write_text(str(os.getpid()))  # another process has its number now
    assert defaults(daemons.prepare(share("train"))) == ("20480M", "50.0")


@pytest.mark.parametrize(
    ("program", "says"),
    [
        pytest.param("", "cannot be started", id="not installed"),
        pytest.param("#!/bin/sh\necho no GPU here; exit 1\n", "does not start: no GPU here", id="ends at once"),
    ],
)
def test_a_daemon_that_cannot_be_started(
    daemons: MpsDaemons, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, says: str
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    if program:
        (programs / "nvidia-cuda-mps-control").write_text(program)
        (programs / "nvidia-cuda-mps-control").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(DeviceError, match=says):
        daemons.prepare(share("train"))
    assert daemons.user_of(FIRST) is None


def test_a_command_that_the_daemon_does_not_know_is_an_error(daemons: MpsDaemons) -> None:
    environment = daemons.prepare(share("train"))
    with pytest.raises(DeviceError, match="refuses 'nonsense': Unknown command"):
        MpsDaemon(FIRST, ME, folder_of(environment)).command("nonsense")


def test_folder_names_are_short() -> None:
    assert short("MIG-GPU-7d3cbb57-d42a-558d-3a63-5d5ef0a65963/1/0") == "MIG-GPU-7d3cbb57-d42a"
