"""Confinement to devices: what the program says of each device, and what the kernel does with it."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bursar.local.devices.api import DeviceGuard, DeviceNumbers
from bursar.local.devices.confine import ConfinementError, confine, program
from tests.local.devices.bpf import kernel_allows, verdict

BLOCK, CHARACTER = 1, 2
GUARDS = [DeviceGuard(195, 0, 253), DeviceGuard(237, 0, 1_000_000)]
SECOND_GPU = [DeviceNumbers(195, 1), DeviceNumbers(237, 30), DeviceNumbers(237, 31)]


@pytest.mark.parametrize(
    ("given", "kind", "major", "minor", "allowed"),
    [
        pytest.param(SECOND_GPU, CHARACTER, 195, 1, True, id="its own GPU"),
        pytest.param(SECOND_GPU, CHARACTER, 195, 0, False, id="another GPU"),
        pytest.param(SECOND_GPU, CHARACTER, 195, 253, False, id="a GPU that comes later"),
        pytest.param(SECOND_GPU, CHARACTER, 195, 254, True, id="nvidia-modeset"),
        pytest.param(SECOND_GPU, CHARACTER, 195, 255, True, id="nvidiactl"),
        pytest.param(SECOND_GPU, CHARACTER, 237, 31, True, id="its MIG device"),
        pytest.param(SECOND_GPU, CHARACTER, 237, 1, False, id="MIG configuration"),
        pytest.param(SECOND_GPU, CHARACTER, 237, 32, False, id="another MIG device"),
        pytest.param(SECOND_GPU, CHARACTER, 1, 3, True, id="/dev/null"),
        pytest.param(SECOND_GPU, CHARACTER, 510, 0, True, id="nvidia-uvm"),
        pytest.param(SECOND_GPU, BLOCK, 195, 0, True, id="a disk with the same numbers"),
        pytest.param([], CHARACTER, 195, 0, False, id="a job without GPUs"),
        pytest.param([], CHARACTER, 195, 255, True, id="nvidiactl without GPUs"),
        pytest.param([DeviceNumbers(226, 128)], CHARACTER, 226, 128, True, id="not guarded"),
    ],
)
def test_the_program_allows_what_the_job_was_given(
    given: list[DeviceNumbers], kind: int, major: int, minor: int, allowed: bool
) -> None:
    assert verdict(program(GUARDS, given), kind, major, minor) == allowed


def test_a_program_without_guards_allows_everything() -> None:
    assert verdict(program([], []), CHARACTER, 195, 0)


def test_many_devices_of_one_job() -> None:
    code = program(GUARDS, [DeviceNumbers(195, minor) for minor in range(0, 128, 2)])
    assert [minor for minor in range(128) if verdict(code, CHARACTER, 195, minor)] == list(range(0, 128, 2))


@pytest.fixture
def cgroup() -> Iterator[str]:
    """A cgroup of version 2, or "" where none can be made."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    roots = [Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"]
    made = roots[0] / f"bursar-test-{os.getpid()}" if roots else Path()
    try:
        if roots:
            made.mkdir()
    except OSError:
        made = Path()
    yield "" if made == Path() else str(made)
    if made != Path():
        made.rmdir()


OPEN = """
import os, sys
with open(sys.argv[1] + "/cgroup.procs", "w") as procs:
    procs.write(str(os.getpid()))
for path in sys.argv[2:]:
    try:
        os.close(os.open(path, os.O_RDWR))
        print(0)
    except OSError as error:
        print(error.errno)
"""


def made(devices: dict[str, tuple[int, int]]) -> bool:
    """Device files with these numbers, where they can be made; there is no driver behind them."""
    try:
        for path, numbers in devices.items():
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(*numbers))
    except PermissionError:
        return False
    return True


def test_the_kernel_enforces_it_or_says_why_not(cgroup: str, tmp_path: Path) -> None:
    """Where the program is attached, another GPU cannot be opened. Where it cannot be, the error is one line."""
    paths = [str(tmp_path / name) for name in ("nvidia0", "nvidia1", "null")]
    problem = ""
    try:
        confine(cgroup, GUARDS, SECOND_GPU)
    except ConfinementError as error:
        problem = str(error)
    assert bool(problem) != kernel_allows(cgroup)
    assert len(problem.splitlines()) <= 1
    if problem or not made(dict(zip(paths, [(195, 0), (195, 1), (1, 3)], strict=True))):
        return
    done = subprocess.run(
        [sys.executable, "-c", OPEN, cgroup, *paths], check=True, capture_output=True, text=True, timeout=60
    )
    other, own, null = map(int, done.stdout.split())
    assert other == errno.EPERM
    assert own != errno.EPERM  # without a driver: no such device
    assert null in {0, errno.EACCES}  # a file system may be mounted without devices


@pytest.mark.parametrize(
    ("folder", "says"), [("", "there is no cgroup v2 for jobs"), ("/nonexistent/job", "/nonexistent/job: No such file")]
)
def test_without_a_cgroup_it_says_so(folder: str, says: str) -> None:
    with pytest.raises(ConfinementError) as caught:
        confine(folder, GUARDS, [])
    assert says in str(caught.value) or "BPF" in str(caught.value)
