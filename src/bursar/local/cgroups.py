"""Control groups (v2) of jobs, in a slice of their own: limits, signals to all processes of a job, and a sure kill.

The slice is beside the units of the server and the sessions of users, so a restart or a logout does not touch jobs.
Where cgroup v2 is not writable there is no slice, and ``missing_for`` says what is then not enforced.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from bursar.local.processes import signal_all

SLICE = "bursar.slice"
SHIMS = "shims"
_CONTROLLERS = ("cpu", "memory", "pids")
_PERIOD = 100_000  # microseconds


def mount_point() -> Path | None:
    """Where cgroup v2 is mounted."""
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ", 1)[0] == "cgroup2":
            return Path(before.split(" ")[4].replace("\\040", " "))
    return None


def own_group() -> str:
    """The cgroup of this process, below the mount point."""
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        if line.startswith("0::"):
            return line[3:]
    return "/"


class Cgroups:
    """The slice of jobs."""

    def __init__(self, root: Path | None, why_not: str = "") -> None:
        self.root = root
        self.why_not = why_not
        self.controllers: frozenset[str] = frozenset()
        if root is not None:
            self.controllers = frozenset((root / "cgroup.controllers").read_text(encoding="utf-8").split())

    @property
    def enforced(self) -> bool:
        return self.root is not None

    def missing_for(self, cpu_milli: int, memory: int) -> list[str]:
        """What is not enforced for a job with these limits, in sentences."""
        found: list[str] = []
        if self.root is None:
            found.append(f"without cgroups ({self.why_not}) a process that leaves its family may outlive the job")
        lacking = [
            name for name, limit in (("cpu", cpu_milli), ("memory", memory)) if limit and name not in self.controllers
        ]
        if lacking:
            found.append(f"the limit of {' and '.join(lacking)} is not enforced: cgroup v2 cannot do it here")
        return found

    def create(self, name: str, cpu_milli: int, memory: int) -> str:
        """A cgroup for a job, with its limits (0: none); empty without a slice."""
        if self.root is None:
            return ""
        path = self.root / name
        path.mkdir(exist_ok=True)
        if cpu_milli and "cpu" in self.controllers:
            _write(path / "cpu.max", f"{cpu_milli * _PERIOD // 1000} {_PERIOD}")
        if memory and "memory" in self.controllers:
            _write(path / "memory.max", str(memory))
            with contextlib.suppress(OSError):
                _write(path / "memory.oom.group", "1")
        return str(path)

    def adopt_shim(self, pid: int) -> None:
        """Take a shim out of the login session, which may be killed as a whole."""
        if self.root is not None:
            (self.root / SHIMS).mkdir(exist_ok=True)
            attach(str(self.root / SHIMS), pid)


def open_slice(choice: str = "auto", slice_name: str = SLICE) -> Cgroups:
    """``none`` does without. As root the slice is at the top, else in what the user's systemd may write."""
    if choice == "none":
        return Cgroups(None, "switched off")
    mount = mount_point()
    if mount is None:
        return Cgroups(None, "cgroup v2 is not mounted")
    parents = [mount]
    if os.geteuid() != 0:
        unit = Path(own_group()).parts
        at = next((i for i, part in enumerate(unit) if part.startswith("user@")), None)
        parents = [] if at is None else [mount.joinpath(*unit[1 : at + 1])]
    for parent in parents:
        with contextlib.suppress(OSError):
            root = parent / slice_name
            _delegate(parent)
            root.mkdir(exist_ok=True)
            _delegate(root)
            return Cgroups(root)
    return Cgroups(None, "it cannot be written")


def _delegate(path: Path) -> None:
    """Let children have the controllers that there are; one that is in use elsewhere (cgroup v1) is not there."""
    there = (path / "cgroup.controllers").read_text(encoding="utf-8").split()
    for name in _CONTROLLERS:
        if name in there:
            with contextlib.suppress(OSError):
                _write(path / "cgroup.subtree_control", f"+{name}")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="ascii")


def attach(path: str, pid: int) -> None:
    _write(Path(path) / "cgroup.procs", str(pid))


def group_of(pid: int) -> str:
    """The path of a process's cgroup below the mount point; empty if it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("0::"):
                return line[3:]
    return ""


def pids_in(path: str) -> list[int]:
    """The processes in a cgroup and below it."""
    found: list[int] = []
    for folder, _, _ in os.walk(path):
        with contextlib.suppress(OSError):
            found += map(int, Path(folder, "cgroup.procs").read_text(encoding="ascii").split())
    return found


def is_empty(path: str) -> bool:
    try:
        text = Path(path, "cgroup.events").read_text(encoding="ascii")
    except OSError:
        return True
    return "populated 0" in text


def kill(path: str) -> None:
    """End all processes of a cgroup for certain; an older kernel without ``cgroup.kill`` is asked again and again."""
    try:
        _write(Path(path) / "cgroup.kill", "1")
    except OSError:
        signal_all(pids_in(path), signal.SIGKILL)


def remove(path: str) -> bool:
    """Remove an empty cgroup with those inside it; whether it is gone."""
    for folder, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()
    return not Path(path).exists()
