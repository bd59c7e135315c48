"""Processes as ``/proc`` shows them: who they are, who started them, and which of them belong to a job.

A process id alone is used again after a while. A process is identified by the boot of the machine, its id, and the time
of its start. A pidfd is opened first and compared after that, so that the comparison holds for what it refers to.
"""

from __future__ import annotations

import contextlib
import os
import select
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
_PARENT, _START = 1, 19  # fields of stat after the name of the program


@cache
def boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def _stat(pid: int) -> list[str]:
    """The fields after the name of the program; empty if there is no such process, or it is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    fields = text.rpartition(")")[2].split()
    return [] if not fields or fields[0] in {"Z", "X"} else fields


def start_time(pid: int) -> int:
    """Clock ticks from the boot to its start; 0 if there is no such process."""
    fields = _stat(pid)
    return int(fields[_START]) if fields else 0


def parent_of(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[_PARENT]) if fields else 0


def owner_of(pid: int) -> int:
    """The user id; -1 if there is no such process."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return -1


def program_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    return ""


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process, for ever."""

    boot: str
    pid: int
    start: int

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        return cls(boot_id(), pid, start_time(pid))

    def alive(self) -> bool:
        return bool(self.start) and self.boot == boot_id() and start_time(self.pid) == self.start

    def open(self) -> int | None:
        """A pidfd; None if the process is gone. The caller closes it."""
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:
            return None
        if self.alive():
            return fd
        os.close(fd)
        return None


def has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def pid_behind(pidfd: int) -> int:
    """The process that a pidfd refers to; 0 if it is none, or ended and was reaped."""
    try:
        lines = Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines()
    except OSError:
        return 0
    found = next((line.partition(":")[2] for line in lines if line.startswith("Pid:")), "0")
    return max(int(found), 0)


def all_pids() -> list[int]:
    return [int(entry.name) for entry in os.scandir(_PROC) if entry.name.isdigit()]


def descendants(pid: int) -> list[int]:
    """All processes below this one, children before theirs."""
    children: dict[int, list[int]] = {}
    for one in all_pids():
        children.setdefault(parent_of(one), []).append(one)
    found: list[int] = []
    ahead = list(children.get(pid, ()))
    while ahead:
        one = ahead.pop(0)
        found.append(one)
        ahead += children.get(one, ())
    return found


def marked(variable: str) -> list[int]:
    """Processes whose environment had this NAME=VALUE when their program began, as far as it can be read."""
    wanted = variable.encode()
    found: list[int] = []
    for pid in all_pids():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if wanted in environment.split(b"\0") and _stat(pid):
            found.append(pid)
    return found


def signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
