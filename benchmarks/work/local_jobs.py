"""Real jobs of one machine: what `bursar run` costs, and how soon a grant is sent when a GPU is seen free.

Server and agent are in this process, the GPU is made up, and the queue has real clients and bare connections: each of
these sends what a client sends. Times are wall-clock.
"""

from __future__ import annotations

import select
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bursar.local import places, protocol
from bursar.local.devices.api import GpuProcess, JobDevices, JobOfPid
from tests.local.bed import BURSAR, LocalBed, MadeUpDevices, bed_in, wait_for


class TimedDevices(MadeUpDevices):
    """Notes when a GPU was seen free last."""

    free = 0.0

    def busy(self, job: JobDevices, job_of_pid: JobOfPid) -> list[GpuProcess]:
        found = super().busy(job, job_of_pid)
        if not found:
            self.free = time.perf_counter()
        return found


@contextmanager
def _bed(folder: Path) -> Iterator[tuple[LocalBed, TimedDevices]]:
    """With one GPU."""
    with bed_in(folder, gpus=1) as bed:
        bed.stop()
        devices = TimedDevices(1)
        bed.devices = devices
        bed.start()
        yield bed, devices


def starting(runs: int) -> dict[str, float]:
    """Milliseconds of `bursar run -- true` and of `bursar version`, in turns."""
    took: dict[str, list[float]] = {"run": [], "version": []}
    with TemporaryDirectory() as folder, _bed(Path(folder)) as (bed, _):
        for _ in range(runs):
            for name, arguments in (("version", ["version"]), ("run", ["run", "--", "true"])):
                begun = time.perf_counter()
                subprocess.run([*BURSAR, *arguments], env=bed.environment, check=True, capture_output=True)
                took[name].append((time.perf_counter() - begun) * 1000)
    more = [run - version for run, version in zip(took["run"], took["version"], strict=True)]
    return {"run": median(took["run"]), "version": median(took["version"]), "more": median(more), "worst": max(more)}


def queued(real: int, bare: int, grants: int) -> dict[str, float]:
    """A GPU is passed on through a queue: milliseconds until each grant, and the memory of the clients."""
    with TemporaryDirectory() as folder, _bed(Path(folder)) as (bed, devices):
        first = bed.detach("--gpus", "1", "--name", "holder", "--", "sleep", "3600")
        bed.until(first, "Running")
        wait_for("it has begun", bed.records)
        waiting = [_queue(bed, index) for index in range(bare)]
        clients = [bed.client("--gpus", "1", "--quiet", "--name", f"real-{i}", "--", "true") for i in range(real)]
        wait_for("all are queued", lambda: len(bed.pods("Pending")) == real + bare)
        time.sleep(2)
        memory = max(_resident(client.pid) for client in clients)
        took: list[float] = []
        bed.bursar("stop", "--now", first)
        for connection in waiting[:grants]:
            came = _granted(connection)
            took.append((came - devices.free) * 1000)
            devices.free = time.perf_counter()
            connection.close()  # its GPU is free again
        for connection in waiting[grants:]:
            connection.close()
        for client in clients:
            client.terminate()
        wait_for("all have left the queue", lambda: not bed.pods("Pending", "Running"), 300)
        return {"median": median(took), "worst": max(took), "memory": memory / 1e6, "queued": float(real + bare)}


def _queue(bed: LocalBed, index: int) -> socket.socket:
    connection = places.connect([str(bed.socket)])
    protocol.send(connection, "submit", command=["true"], gpus=1, name=f"bare-{index}")
    while protocol.receive(connection)[0]["kind"] != "queued":
        pass
    return connection


def _granted(connection: socket.socket) -> float:
    while True:
        select.select([connection], [], [])
        came = time.perf_counter()
        if protocol.receive(connection)[0]["kind"] == "grant":
            return came


def _resident(pid: int) -> int:
    """Bytes."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))
