"""A machine for tests: a service and its agent in this process, GPUs made up, and real clients, shims and jobs.

With ``cgroups="auto"`` jobs are in cgroups where these can be written, else not; ``none`` does without everywhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bursar.local.agent import AgentOptions, LocalAgent
from bursar.local.devices.api import (
    DeviceBusyError,
    DeviceError,
    DeviceOptions,
    DeviceReport,
    GpuDevice,
    GpuProcess,
    JobDevices,
    JobOfPid,
    Prepared,
)
from bursar.objects.local_options import LocalOptions
from bursar.objects.manifests import Document
from bursar.server.local_agent import ServiceLink
from bursar.server.service import Service
from bursar.sim.pods import PodView

GB = 1 << 30
BURSAR = (sys.executable, "-m", "bursar")


def wait_for(what: str, seen: Callable[[], object], limit: float = 120) -> None:
    """Return as soon as it is seen; a busy machine may take its time."""
    end = time.monotonic() + limit
    while not seen():
        assert time.monotonic() < end, f"not seen: {what}"
        time.sleep(0.01)


class MadeUpDevices:
    """GPUs of 80 GiB; tests set what happens on them."""

    def __init__(self, count: int) -> None:
        self.options: DeviceOptions = LocalOptions()
        self.gpus = [
            GpuDevice(f"GPU-{index}", index, "NVIDIA H100 80GB HBM3", 80 * GB, "989") for index in range(count)
        ]
        self.held: dict[str, str] = {}
        self.lingering = 0  # looks for which a process of an ended job is still listed; -1: for ever
        self.refuses = ""
        self.shared_by = ""  # another user, by MPS
        self.prepared: list[JobDevices] = []
        self.released: list[JobDevices] = []
        self.now: dict[str, JobDevices] = {}
        self.given_twice: list[str] = []

    def poll(self, jobs: Sequence[JobDevices], job_of_pid: JobOfPid) -> DeviceReport:
        return DeviceReport(devices=list(self.gpus), held=dict(self.held))

    def busy(self, job: JobDevices, job_of_pid: JobOfPid) -> list[GpuProcess]:
        if not self.lingering:
            return []
        self.lingering -= self.lingering > 0
        return [GpuProcess(job.gpus[0], 1, GB)]

    def hold(self, job: JobDevices, processes: Sequence[GpuProcess]) -> None:
        self.held |= {one.uuid: "a process of an ended job" for one in processes}

    def prepare(self, job: JobDevices) -> Prepared:
        if self.shared_by:
            raise DeviceBusyError(f"{job.gpus[0]} is shared by jobs of {self.shared_by}")
        if self.refuses:
            raise DeviceError(self.refuses)
        self.prepared.append(job)
        taken = {gpu for one in self.now.values() if one.whole for gpu in one.gpus}
        self.given_twice += [gpu for gpu in job.gpus if gpu in taken]
        self.now[job.uid] = job
        return Prepared({"CUDA_VISIBLE_DEVICES": ",".join(job.gpus)}, ["made-up GPUs"] if job.gpus else [])

    def release(self, job: JobDevices) -> None:
        self.released.append(job)
        self.now.pop(job.uid, None)

    def close(self) -> None:
        """Nothing is open."""


class LocalBed:
    def __init__(self, folder: Path, *, gpus: int = 2, cgroups: str = "auto") -> None:
        self.folder = folder
        self.socket = folder / "agent.sock"
        self.devices = MadeUpDevices(gpus)
        self.clients: list[subprocess.Popen[bytes]] = []
        self._cgroups = cgroups
        self._slice = f"bursar-test-{os.getpid()}-{folder.name}.slice"
        self.start()

    def start(self) -> None:
        self.service = Service.open(self.folder / "bursar.db")
        options = AgentOptions(self.folder / "agent", self.socket, "box", self._cgroups, self._slice)
        self.agent = LocalAgent(lambda name: ServiceLink(self.service, name), lambda _: self.devices, options)
        self.agent.start()

    def stop(self) -> None:
        self.agent.stop()
        self.service.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """Ends whatever a test left running."""
        for pod in self.pods("Running", "Pending", "Terminating"):
            with suppress(subprocess.SubprocessError):
                self.bursar("stop", "--now", pod)
        wait_for("all jobs are gone", lambda: not self.pods("Running", "Pending", "Terminating"))
        self.stop()
        for client in self.clients:
            with suppress(ProcessLookupError):
                client.kill()
            client.wait()
            for stream in (client.stdout, client.stderr):
                if stream is not None:
                    stream.close()
        root = self.agent.slice
        if root is not None:
            for one in [root / "shims", root]:
                with suppress(OSError):
                    one.rmdir()

    # Clients

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "BURSAR_SOCKET": str(self.socket), "PYTHONPATH": os.pathsep.join(sys.path)}

    def bursar(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:  # noqa: ANN401 as subprocess
        """A command, until it has ended."""
        return subprocess.run(
            [*BURSAR, *arguments],
            env=self.environment, capture_output=True, text=True, check=False, cwd=self.folder, timeout=300,
            stdin=subprocess.DEVNULL, **more,
        )  # fmt: skip

    def run(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:  # noqa: ANN401 as subprocess
        return self.bursar("run", *arguments, **more)

    def client(self, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 as subprocess
        """A client in the background."""
        given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        client = subprocess.Popen([*BURSAR, "run", *arguments], env=self.environment, cwd=self.folder, **given)
        self.clients.append(client)
        return client

    def detach(self, *arguments: str) -> str:
        """The name of a job that runs."""
        done = self.run("--detach", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    # The cluster

    def give(self, *manifests: dict[str, Any]) -> None:
        pending = self.service.apply([Document("test", i, one) for i, one in enumerate(manifests, 1)])
        assert pending.durable is None or pending.durable.result() >= 0

    def pod(self, name: str) -> PodView:
        with self.service.lock:
            found = self.service.cluster.pod(name)
        assert found is not None, f"there is no pod {name}"
        return found

    def phase(self, name: str) -> str:
        with self.service.lock:
            found = self.service.cluster.doing(name)
            return "" if found is None else found.phase

    def pods(self, *phases: str) -> list[str]:
        with self.service.lock:
            return [key for key, pod in self.service.cluster.pod_states.items() if pod.phase in phases]

    def until(self, name: str, phase: str) -> None:
        wait_for(f"{name} is {phase or 'gone'}", lambda: self.phase(name) == phase)

    def records(self) -> list[Path]:
        return sorted((self.folder / "agent/jobs").glob("*.json"))


def local_configuration(**section: object) -> dict[str, Any]:
    return {
        "apiVersion": "bursar.dev/v1alpha1",
        "kind": "Configuration",
        "metadata": {"name": "default"},
        "spec": {"local": section},
    }


def quota(team: str, least: int, most: int | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {"min": {"bursar.dev/gpu": least}}
    if most is not None:
        spec["max"] = {"bursar.dev/gpu": most}
    return {
        "apiVersion": "n8s.nebuly.ai/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"namespace": team, "name": "quota"},
        "spec": spec,
    }


def teams(*names: str) -> dict[str, Any]:
    """A table in which the user of the tests is in these teams."""
    import pwd

    user = pwd.getpwuid(os.geteuid()).pw_name
    return local_configuration(teams={name: {"users": [user]} for name in names})


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=300)
    return process.returncode, out.decode(), err.decode()


@contextmanager
def bed_in(folder: Path, **options: Any) -> Iterator[LocalBed]:  # noqa: ANN401 as LocalBed
    found = LocalBed(folder, **options)
    try:
        yield found
    finally:
        found.close()
