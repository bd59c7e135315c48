"""MPS daemons, one per GPU, under which jobs share it with limits of memory and threads.

A daemon is started for the first job with a fraction of its GPU and ended after the last one, so that jobs with whole
GPUs find no memory taken. It outlives a restart of Bursar, which adopts the daemon that runs in its folder. One MPS
server serves one user, so a GPU belongs to one user while jobs have fractions of it.

Limits are set twice: in the environment of the job, and as the default of the daemon (the largest of its jobs), for
programs that drop the environment. They guard against mistakes, not against malice.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from bursar.local.devices.api import DeviceBusyError, DeviceError, DeviceEvent, JobDevices

CONTROL: Final = "nvidia-cuda-mps-control"
PIPES: Final = "CUDA_MPS_PIPE_DIRECTORY"
LOGS: Final = "CUDA_MPS_LOG_DIRECTORY"
MEMORY: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
THREADS: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_PATIENCE: Final = 10.0  # seconds until a daemon must answer
_MIB: Final = 2**20


class MpsDaemon:
    """The control daemon of one GPU, known by its folder."""

    def __init__(self, gpu: str, folder: Path, cgroup: str = "") -> None:
        self.gpu = gpu
        self._folder = folder
        self._cgroup = cgroup
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs to find it."""
        return {PIPES: str(self._folder / "pipe"), LOGS: str(self._folder / "log")}

    def start(self) -> None:
        """Unless it runs; ``DeviceError`` if it cannot be started."""
        if self.answers():
            return
        self.kill()
        for name in ("", "pipe", "log"):
            (self._folder / name).mkdir(mode=0o755, parents=True, exist_ok=True)
        output = self._folder / "log" / "daemon.log"
        try:
            with output.open("ab") as log:
                self._process = subprocess.Popen(  # noqa: S603 a program of the driver
                    [CONTROL, "-f"],
                    env={**os.environ, **self.environment, VISIBLE: self.gpu},
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/",
                )  # fmt: skip
        except OSError as error:
            raise DeviceError(f"MPS cannot be started: {CONTROL}: {error.strerror}") from error
        (self._folder / "pid").write_text(str(self._process.pid), encoding="ascii")
        if self._cgroup:
            with suppress(OSError):
                Path(self._cgroup, "cgroup.procs").write_text(str(self._process.pid), encoding="ascii")
        self._await(output)

    def _await(self, output: Path) -> None:
        end = time.monotonic() + _PATIENCE
        while not self.answers():
            ended = self._process is not None and self._process.poll() is not None
            if ended or time.monotonic() > end:
                self.kill()
                said = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
                raise DeviceError(f"MPS of GPU {self.gpu} does not start: {said[-1] if said else 'it says nothing'}")
            time.sleep(0.05)

    def command(self, line: str) -> str:
        """What the daemon answers; ``DeviceError`` if it does not."""
        try:
            done = subprocess.run(  # noqa: S603 a program of the driver
                [CONTROL], input=f"{line}\n", env={**os.environ, **self.environment}, cwd="/",
                capture_output=True, text=True, timeout=_PATIENCE, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DeviceError(f"MPS of GPU {self.gpu} does not answer: {error}") from error
        if done.returncode:
            said = (done.stderr or done.stdout).strip()
            raise DeviceError(f"MPS of GPU {self.gpu} refuses {line!r}: {said or done.returncode}")
        return done.stdout.strip()

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
        self.command(f"set_default_device_pinned_mem_limit 0 {memory // _MIB}M")
        self.command(f"set_default_active_thread_percentage {percent}")
        for server in self.servers():
            self.command(f"set_device_pinned_mem_limit {server} 0 {memory // _MIB}M")
            self.command(f"set_active_thread_percentage {server} {percent}")

    def stop(self) -> None:
        """Its clients are gone."""
        with suppress(DeviceError):
            self.command("quit -t 5")
            end = time.monotonic() + _PATIENCE
            while self.runs() and time.monotonic() < end:
                time.sleep(0.05)
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

    def _recorded(self) -> int | None:
        """The daemon that an earlier server started here, if that process is still one."""
        try:
            pid = int((self._folder / "pid").read_text(encoding="ascii"))
            return pid if CONTROL[:15] in Path(f"/proc/{pid}/comm").read_text(encoding="utf-8") else None
        except (OSError, ValueError):
            return None


class MpsDaemons:
    """The daemons of this machine, and whose GPU each is."""

    def __init__(self, folder: Path, cgroup: str = "") -> None:
        self._folder = folder
        self._cgroup = cgroup
        self._daemons: dict[str, MpsDaemon] = {}
        self._jobs: dict[str, dict[str, JobDevices]] = {}  # by GPU, by uid of the job

    def prepare(self, job: JobDevices) -> dict[str, str]:
        """The environment of a job with a fraction of one GPU."""
        (gpu,) = job.gpus
        user = self.user_of(gpu)
        if user not in {None, job.user}:
            raise DeviceBusyError(f"MPS gives fractions of GPU {gpu} to one user at a time")
        daemon = self._daemon(gpu)
        daemon.start()
        self._jobs.setdefault(gpu, {})[job.uid] = job
        try:
            self._limit(gpu)
        except DeviceError:
            self.release(job)
            raise
        limits = {MEMORY: f"0={job.vram // _MIB}M"} if job.vram else {}
        return {**daemon.environment, **limits, THREADS: str(job.percent or 100)}

    def adopt(self, jobs: Iterable[JobDevices]) -> None:
        """Jobs that run since before this server started."""
        for job in jobs:
            if not job.whole and len(job.gpus) == 1:
                self._jobs.setdefault(job.gpus[0], {})[job.uid] = job

    def release(self, job: JobDevices) -> None:
        for gpu in job.gpus:
            tenants = self._jobs.get(gpu, {})
            if tenants.pop(job.uid, None) is not None and not tenants:
                del self._jobs[gpu]
                self._daemon(gpu).stop()

    def user_of(self, gpu: str) -> int | None:
        return next((job.user for job in self._jobs.get(gpu, {}).values()), None)

    def watch(self) -> list[DeviceEvent]:
        """Start daemons again that ended under their jobs."""
        events: list[DeviceEvent] = []
        for gpu in sorted(self._jobs):
            if self._daemon(gpu).runs():
                continue
            message = "the MPS daemon ended and was started again; programs that used it have failed"
            try:
                self._daemon(gpu).start()
                self._limit(gpu)
            except DeviceError as error:
                message = str(error)
            events.append(DeviceEvent(gpu, "Warning", "gpu.mps", message))
        return events

    def own_pids(self) -> set[int]:
        """The MPS servers, which the driver lists among the processes of their GPU."""
        return {pid for gpu in self._jobs for pid in self._daemon(gpu).servers()}

    def _daemon(self, gpu: str) -> MpsDaemon:
        if gpu not in self._daemons:
            self._daemons[gpu] = MpsDaemon(gpu, self._folder / short(gpu), self._cgroup)
        return self._daemons[gpu]

    def _limit(self, gpu: str) -> None:
        tenants: Mapping[str, JobDevices] = self._jobs[gpu]
        most = max(job.vram for job in tenants.values())
        if most:
            self._daemon(gpu).limit(most, max(job.percent or 100 for job in tenants.values()))


def short(gpu: str) -> str:
    """A folder name: the path of a Unix socket has at most 107 bytes."""
    return gpu.replace("/", "-")[:21]
