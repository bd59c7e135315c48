"""Compute processes that belong to no job: who runs them, and which GPUs they keep from being handed out.

A process is described when it is first seen, because it may be gone a moment later. A GPU is held while such a process
is listed, and a little longer, so that a program that opens the GPU again and again does not make it flap. What an
ended job left on its GPUs is noted before the end is reported, in a file, and holds them whatever the options say.
"""

from __future__ import annotations

import contextlib
import json
import pwd
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from bursar.local.devices.api import GpuProcess, JobOfPid, Stray

LINGER: Final = 5.0
_CONTAINER: Final = re.compile(
    r"(?:docker|libpod|crio|cri-containerd|containerd|nerdctl|buildkit|lxc(?:\.payload)?|garden)[-/.:]+(?:conmon-)?"
    r"([0-9a-zA-Z_.-]+?)(?:\.scope|\.service)?(?:/|$)",
    re.ASCII | re.MULTILINE,
)
_LONG: Final = 12  # characters of a container's id that are shown


class StrayWatch:
    """The processes without a job, since when they are gone, and what is held for them."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._known: dict[tuple[str, int], Stray] = {}
        self._last: dict[tuple[str, int], float] = {}  # when it was listed last

    def update(
        self, now: float, processes: Iterable[GpuProcess], job_of_pid: JobOfPid, own: Collection[int]
    ) -> list[Stray]:
        """The processes that count as stray now; ``own``: those of Bursar itself."""
        for one in processes:
            if one.pid in own or job_of_pid(one.pid):
                continue
            key = one.uuid, one.pid
            if key not in self._known:
                self._known[key] = self._described(one)
            self._last[key] = now
        self._last = {key: seen for key, seen in self._last.items() if now - seen < LINGER}
        self._known = {key: stray for key, stray in self._known.items() if key in self._last}
        return [self._known[key] for key in sorted(self._known)]

    def _described(self, one: GpuProcess) -> Stray:
        folder = self._proc / str(one.pid)
        try:
            user = folder.stat().st_uid
        except OSError:
            return Stray(one.uuid, one.pid, "unknown", "it has ended, and the driver still lists it", one.memory)
        command = _read(folder / "comm").strip() or "unknown"
        return Stray(one.uuid, one.pid, user_name(user), command, one.memory, container_of(_read(folder / "cgroup")))


class Remnants:
    """Processes of ended jobs that are still on their GPUs, until the driver lists them no more."""

    def __init__(self, path: Path) -> None:
        """The file may be missing; it is read again after a restart."""
        self._path = path
        self._left: dict[str, dict[str, str]] = {}  # by GPU: pid -> team/name of its job
        with contextlib.suppress(FileNotFoundError, ValueError):
            self._left = json.loads(path.read_text(encoding="utf-8"))

    def add(self, job: str, processes: Iterable[GpuProcess]) -> None:
        for one in processes:
            self._left.setdefault(one.uuid, {})[str(one.pid)] = job
        self._write()

    def held(self, processes: Iterable[GpuProcess]) -> dict[str, str]:
        """Why their GPUs are not handed out; ``processes``: those that the driver lists now."""
        listed = {(one.uuid, str(one.pid)) for one in processes}
        left = {gpu: {pid: job for pid, job in of.items() if (gpu, pid) in listed} for gpu, of in self._left.items()}
        left = {gpu: of for gpu, of in left.items() if of}
        if left != self._left:
            self._left = left
            self._write()
        found = {gpu: next(iter(sorted(of.items()))) for gpu, of in left.items()}
        return {gpu: f"process {pid} of {job} is still on it after the end" for gpu, (pid, job) in found.items()}

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self._path.with_suffix(".new")
        scratch.write_text(json.dumps(self._left), encoding="utf-8")
        scratch.rename(self._path)


def held_gpus(strays: Iterable[Stray]) -> dict[str, str]:
    """Why each GPU with a stray process is not handed out; the first process of each is named."""
    found: dict[str, str] = {}
    for stray in strays:
        found.setdefault(stray.gpu, stray.sentence())
    return found


def container_of(cgroups: str) -> str:
    """The id of the container whose cgroup this is, shortened; "" if it is none."""
    found = _CONTAINER.search(cgroups)
    return found[1][:_LONG] if found else ""


def user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
