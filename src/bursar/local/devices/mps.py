"""MPS daemons, one per GPU, under which jobs share it with limits of memory and threads.

A daemon is started for the first job with a fraction of its GPU, as the user of that job, and ended after the last one,
so that jobs with whole GPUs find no memory taken. One MPS server serves one user, so a GPU belongs to one user while
jobs have fractions of it. Daemons outlive a restart of Bursar, which adopts those that run in their folders, and ends
them if none of their jobs comes back within a minute.

Limits are set twice: in the environment of the job, and as the default of the daemon (the largest of its jobs), for
programs that drop the environment. They guard against mistakes, not against malice: the daemon obeys its user, and a
program that does not find the daemon runs beside it without limits.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bursar.local.devices.api import DeviceBusyError, DeviceError, DeviceEvent, JobDevices

CONTROL: Final = "nvidia-cuda-mps-control"
PIPES: Final = "CUDA_MPS_PIPE_DIRECTORY"
LOGS: Final = "CUDA_MPS_LOG_DIRECTORY"
MEMORY: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
THREADS: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_PATIENCE: Final = 10.0  # seconds until a daemon must answer
_COMMAND_NAME: Final = 15  # characters of a program's name that the kernel keeps
_ORPHANED: Final = 60.0  # seconds without a job, after a restart
_MIB: Final = 2**20


class MpsDaemon:
    """The control daemon of one GPU for one user, known by its folder."""

    def __init__(self, gpu: str, user: int, folder: Path, cgroup: str = "") -> None:
        self.gpu = gpu
        self.user = user
        self._folder = folder
        self._cgroup = cgroup
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs to find it."""
        return {PIPES: str(self._folder / "pipe"), LOGS: str(self._folder / "log")}

    def start(self) -> None:
        """Unless it answers; ``DeviceError`` if it cannot be started."""
        if self.answers():
            return
        self.kill()
        try:
            self._make_folders()
            with (self._folder / "daemon.log").open("ab") as log:
                self._process = subprocess.Popen(  # noqa: S603 a program of the driver
                    [CONTROL, "-f"], env={**os.environ, **self.environment, VISIBLE: self.gpu}, cwd="/",
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **self._identity(),
                )  # fmt: skip
            (self._folder / "gpu").write_text(self.gpu, encoding="ascii")
            (self._folder / "pid").write_text(str(self._process.pid), encoding="ascii")
        except OSError as error:
            raise DeviceError(f"MPS of GPU {self.gpu} cannot be started: {error}") from error
        self._settle(self._process.pid)
        self._await()

    def _settle(self, pid: int) -> None:
        """Into a cgroup of its own, where the end of the server does not end it."""
        if self._cgroup:
            with suppress(OSError):
                group = Path(self._cgroup, "mps")
                group.mkdir(exist_ok=True)
                (group / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def _make_folders(self) -> None:
        self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        for name in ("pipe", "log"):
            inner = self._folder / name
            inner.mkdir(mode=0o700, exist_ok=True)
            if os.geteuid() == 0:
                os.chown(inner, self.user, -1)

    def _identity(self) -> dict[str, Any]:
        """Root starts the daemon as the user of the jobs."""
        if os.geteuid() != 0 or self.user == 0:
            return {}
        try:
            group = pwd.getpwuid(self.user).pw_gid
        except KeyError:
            group = self.user
        return {"user": self.user, "group": group, "extra_groups": []}

    def _await(self) -> None:
        end = time.monotonic() + _PATIENCE
        while not self.answers():
            if not self.runs() or time.monotonic() > end:
                self.kill()
                said = (self._folder / "daemon.log").read_text(encoding="utf-8", errors="replace").split("\n")
                last = next((line.strip() for line in reversed(said) if line.strip()), "it says nothing")
                raise DeviceError(f"MPS of GPU {self.gpu} does not start: {last}")
            time.sleep(0.05)

    def command(self, *lines: str) -> str:
        """What the daemon answers; ``DeviceError`` if it does not, or does not know a command."""
        asked = "".join(f"{line}\n" for line in lines)
        try:
            done = subprocess.run(  # noqa: S603 a program of the driver
                [CONTROL], input=asked, env={**os.environ, **self.environment}, cwd="/", capture_output=True,
                encoding="utf-8", errors="replace", timeout=_PATIENCE, check=False, **self._identity(),
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DeviceError(f"MPS of GPU {self.gpu} does not answer: {error}") from error
        said = (done.stdout.strip() or done.stderr.strip()).replace("\n", " ")
        if done.returncode or "Unknown command" in said:
            raise DeviceError(f"MPS of GPU {self.gpu} refuses {'; '.join(lines)!r}: {said or done.returncode}")
        return str(done.stdout).strip()

    def runs(self) -> bool:
        """Whether its process is there: cheap, so it can be asked all the time."""
        if self._process is not None:
            return self._process.poll() is None
        return self._recorded() is not None

    def answers(self) -> bool:
        if not self.runs():
            return False
        try:
            self.command("get_server_list")
        except DeviceError:
            return False
        return True

    def servers(self) -> list[int]:
        """The processes that hold the GPU for the clients: its children."""
        pid = self._recorded()
        try:
            return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
        except OSError:
            return []

    def limit(self, memory: int, percent: int) -> None:
        """The limits of clients that name none, and of those that name more."""
        amount = f"{memory // _MIB}M"
        lines = [f"set_default_device_pinned_mem_limit 0 {amount}", f"set_default_active_thread_percentage {percent}"]
        for server in self.servers():
            lines += [f"set_device_pinned_mem_limit {server} 0 {amount}"]
            lines += [f"set_active_thread_percentage {server} {percent}"]
        self.command(*lines)

    def stop(self) -> None:
        """Its clients are gone."""
        with suppress(DeviceError):
            self.command("quit -t 5")
            end = time.monotonic() + _PATIENCE
            while self.runs() and time.monotonic() < end:
                time.sleep(0.02)
        self.kill()

    def kill(self) -> None:
        """End what is left of it, with the folder's files, so that another one can start there."""
        pid = self._recorded()
        for one in [*self.servers(), *([pid] if pid is not None else [])]:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(one, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._process = None
        shutil.rmtree(self._folder / "pipe", ignore_errors=True)
        (self._folder / "pid").unlink(missing_ok=True)

    def _recorded(self) -> int | None:
        """The process of the daemon, also of one that an earlier server started, if it is still one."""
        try:
            pid = int((self._folder / "pid").read_text(encoding="ascii"))
            name, _, rest = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")
        except (OSError, ValueError):
            return None
        return pid if name.endswith(f"({CONTROL[:_COMMAND_NAME]}") and rest.split()[0] != "Z" else None


class MpsDaemons:
    """The daemons of this machine, and whose GPU each is."""

    def __init__(self, folder: Path, cgroup: str = "") -> None:
        self._folder = folder
        self._cgroup = cgroup
        self._jobs: dict[str, dict[str, JobDevices]] = {}  # by GPU, by uid of the job
        self._daemons = {daemon.gpu: daemon for daemon in self._found()}  # by GPU
        self._orphans: dict[str, float] = {}  # GPUs whose daemon has no job, since when

    def _found(self) -> Iterator[MpsDaemon]:
        """Daemons that an earlier server started."""
        for folder in sorted(self._folder.glob("*-*")):
            with suppress(OSError, ValueError):
                gpu, user = (folder / "gpu").read_text(encoding="ascii"), int(folder.name.rpartition("-")[2])
                daemon = MpsDaemon(gpu, user, folder, self._cgroup)
                if daemon.runs():
                    yield daemon

    def prepare(self, job: JobDevices) -> dict[str, str]:
        """The environment of a job with a fraction of one GPU."""
        (gpu,) = job.gpus
        user = self.user_of(gpu)
        if user not in {None, job.user}:
            raise DeviceBusyError(f"GPU {gpu} is shared by jobs of another user: MPS serves one user at a time")
        self._enter(job)
        try:
            self._daemons[gpu].start()
            self._limit(gpu)
        except DeviceError:
            self.release(job)
            raise
        limits = {MEMORY: f"0={job.vram // _MIB}M"} if job.vram else {}
        return {**self._daemons[gpu].environment, **limits, THREADS: str(job.percent or 100)}

    def adopt(self, jobs: Iterable[JobDevices]) -> None:
        """Jobs that run since before this server started."""
        for job in jobs:
            if not job.whole and len(job.gpus) == 1 and self.user_of(job.gpus[0]) == job.user:
                self._enter(job)

    def release(self, job: JobDevices) -> None:
        for gpu in job.gpus:
            tenants = self._jobs.get(gpu, {})
            if tenants.pop(job.uid, None) is not None and not tenants:
                del self._jobs[gpu]
                self._daemons.pop(gpu).stop()

    def user_of(self, gpu: str) -> int | None:
        return self._daemons[gpu].user if gpu in self._daemons else None

    def watch(self, now: float) -> list[DeviceEvent]:
        """Start daemons again that ended under their jobs, and end those that no job needs."""
        self._end_orphans(now)
        events: list[DeviceEvent] = []
        for gpu, daemon in sorted(self._daemons.items()):
            if daemon.runs() or gpu not in self._jobs:
                continue
            message = "the MPS daemon ended and was started again; programs that used it have failed"
            try:
                daemon.start()
                self._limit(gpu)
            except DeviceError as error:
                message = str(error)
            events.append(DeviceEvent(gpu, "Warning", "gpu.mps", message))
        return events

    def _end_orphans(self, now: float) -> None:
        lonely = [gpu for gpu in self._daemons if gpu not in self._jobs]
        self._orphans = {gpu: self._orphans.get(gpu, now) for gpu in lonely}
        for gpu, since in self._orphans.items():
            if now - since >= _ORPHANED:
                self._daemons.pop(gpu).stop()

    def own_pids(self) -> set[int]:
        """The MPS servers, which the driver lists among the processes of their GPU."""
        return {pid for daemon in self._daemons.values() for pid in daemon.servers()}

    def _enter(self, job: JobDevices) -> None:
        (gpu,) = job.gpus
        if gpu not in self._daemons:
            self._daemons[gpu] = self._made(gpu, job.user)
        self._jobs.setdefault(gpu, {})[job.uid] = job

    def _made(self, gpu: str, user: int) -> MpsDaemon:
        return MpsDaemon(gpu, user, self._folder / f"{short(gpu)}-{user}", self._cgroup)

    def _limit(self, gpu: str) -> None:
        tenants = self._jobs[gpu].values()
        most = max(job.vram for job in tenants)
        if most:
            self._daemons[gpu].limit(most, max(job.percent or 100 for job in tenants))


def short(gpu: str) -> str:
    """A folder name: the path of a Unix socket has at most 107 bytes."""
    return gpu.replace("/", "-")[:21]
