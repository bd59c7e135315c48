"""The processes of one job: who they are, signals to all of them, and their certain end. All of it may block.

In a cgroup the kernel knows them. Without one they are the descendants of the shim, which inherits orphans, and those
that still carry the job's mark in their environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from bursar.local import cgroups
from bursar.local.cgroups import Cgroups
from bursar.local.processes import (
    ProcessId,
    descendants,
    has_ended,
    marked,
    owner_of,
    parent_of,
    pid_behind,
    signal_all,
)

MARK = "BURSAR_JOB_UID"
_EMPTY_SECONDS = 20.0
_LOOK_SECONDS = 0.01


class HandOverError(Exception):
    """A shim handed over a process that cannot be its job: one line that says why."""


def check_handed_over(pidfd: int, shim: int, user: int) -> int:
    """The blocked process behind the pidfd: a live child of the shim, of the job's user."""
    pid = pid_behind(pidfd)
    if not pid or has_ended(pidfd):
        raise HandOverError("the process ended before it could begin")
    if parent_of(pid) != shim or owner_of(pid) != user:
        raise HandOverError(f"process {pid} is not a child of its shim")
    return pid


def confine(groups: Cgroups, path: str, pidfd: int, pid: int, shim: int) -> None:
    """Move process and shim out of the login session; ``HandOverError`` if the id was used again meanwhile."""
    if not path:
        return
    before = cgroups.group_of(pid)
    cgroups.attach(path, pid)
    if has_ended(pidfd):
        _take_back(groups, path, before)
        raise HandOverError("the process ended before it could begin")
    groups.adopt_shim(shim)


def _take_back(groups: Cgroups, path: str, before: str) -> None:
    """A stranger that got the id of the process that ended goes back to where it was."""
    if groups.root is not None and before:
        mount = cgroups.mount_point()
        for pid in cgroups.pids_in(path):
            with contextlib.suppress(OSError):
                cgroups.attach(f"{mount}{before}", pid)
    cgroups.remove(path)


class JobProcesses:
    """Those of one job, by its cgroup or by its shim."""

    def __init__(self, uid: str, cgroup: str, process: ProcessId, shim: ProcessId) -> None:
        self.uid = uid
        self.cgroup = cgroup
        self.process = process
        self.shim = shim

    def members(self) -> list[int]:
        if self.cgroup:
            return cgroups.pids_in(self.cgroup)
        found = set(descendants(self.shim.pid)) if self.shim.alive() else set[int]()
        if self.process.alive():
            found |= {self.process.pid, *descendants(self.process.pid)}
        found |= set(marked(f"{MARK}={self.uid}"))
        return sorted(found - {self.shim.pid, os.getpid()})

    def signal(self, number: int) -> None:
        signal_all(self.members(), number)

    def terminate(self) -> None:
        """Ask all of them to end; one that is stopped is continued to hear it."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """All of them, now. They may take a moment to be gone."""
        if self.cgroup:
            cgroups.kill(self.cgroup)
        else:
            self.signal(signal.SIGKILL)

    def clear(self) -> bool:
        """Kill until none is left; False: some do not go, which happens in a driver that hangs."""
        end = time.monotonic() + _EMPTY_SECONDS
        while not self.empty():
            self.kill()
            if time.monotonic() > end:
                return False
            time.sleep(_LOOK_SECONDS)
        if self.cgroup:
            cgroups.remove(self.cgroup)
        return True

    def empty(self) -> bool:
        return cgroups.is_empty(self.cgroup) if self.cgroup else not self.members()


class JobLookup:
    """Whose job a process is, for the devices: asked many times about few processes."""

    def __init__(self, jobs: list[JobProcesses]) -> None:
        self._by_group = {_relative(job.cgroup): job.uid for job in jobs if job.cgroup}
        self._without = [job for job in jobs if not job.cgroup]
        self._members: dict[int, str] | None = None

    def job_of(self, pid: int) -> str:
        """The uid of its job; empty if it belongs to none."""
        group = cgroups.group_of(pid)
        for part, uid in self._by_group.items():
            if group == part or group.startswith(f"{part}/"):
                return uid
        if self._members is None:
            self._members = {one: job.uid for job in self._without for one in job.members()}
        return self._members.get(pid, "")


def _relative(path: str) -> str:
    mount = str(cgroups.mount_point() or "")
    return path.removeprefix(mount)
