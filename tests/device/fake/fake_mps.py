"""MPS without a GPU: the control daemon with its commands, and the limits that it gives a client.

A daemon listens on a socket in its pipe folder. For the first client it starts a server, a process that only waits.
What is answered is as recorded of a real daemon (``tests/device/recordings/mps.json``).
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_NO_DAEMON = "Cannot find MPS control daemon process"
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def bytes_of(text: str) -> int | None:
    """As in 20G, 5120M; None for what the driver does not take for a limit."""
    found = re.fullmatch(r"(\d+)([KMG])", text)
    return int(found[1]) * _UNITS[found[2]] if found else None


class FakeDaemon:
    """What a daemon knows."""

    def __init__(self) -> None:
        self.memory: dict[str, str] = {}
        self.percent = "100.0"
        self.clients: list[int] = []
        self.server: subprocess.Popen[bytes] | None = None

    def answer(self, line: str) -> str:
        words = line.split() or [""]
        command, given = words[0], words[1:]
        handler = getattr(self, f"do_{command}", None)
        return f'Unknown command "{command}"' if handler is None else str(handler(*given))

    def do_get_server_list(self) -> str:
        return "" if self.server is None else str(self.server.pid)

    def do_get_client_list(self, server: str) -> str:
        return "\n".join(str(pid) for pid in self.clients if Path(f"/proc/{pid}").exists())

    def do_get_default_device_pinned_mem_limit(self, device: str) -> str:
        return self.memory.get(device, "")

    def do_set_default_device_pinned_mem_limit(self, device: str, limit: str) -> str:
        self.memory[device] = limit
        return ""

    def do_set_device_pinned_mem_limit(self, server: str, device: str, limit: str) -> str:
        return self.do_set_default_device_pinned_mem_limit(device, limit)

    def do_get_default_active_thread_percentage(self) -> str:
        return self.percent

    def do_set_default_active_thread_percentage(self, percent: str) -> str:
        self.percent = f"{float(percent):.1f}"
        return self.percent

    def do_set_active_thread_percentage(self, server: str, percent: str) -> str:
        return self.do_set_default_active_thread_percentage(percent)

    def do_connect(self, pid: str) -> str:
        """A client comes: not a command of the real daemon, whose clients speak another language."""
        if self.server is None:
            self.server = subprocess.Popen([sys.executable, "-ESc", "import time; time.sleep(3600)"])
        self.clients.append(int(pid))
        return f"{self.memory.get('0', '')} {self.percent} {self.server.pid}"

    def do_quit(self, *_options: str) -> str:
        if self.server is not None:
            self.server.kill()
            self.server.wait()
        raise SystemExit(0)


def serve(pipe: Path) -> None:
    """Until it is told to quit, or its parent's signal ends it."""
    control = pipe / "control"
    control.unlink(missing_ok=True)
    daemon = FakeDaemon()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(control))
        listener.listen()
        while True:
            connection, _ = listener.accept()
            with connection, connection.makefile("rw", encoding="utf-8") as stream:
                stream.write(daemon.answer(stream.readline()))


def ask(pipe: str, line: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"{pipe}/control")
        client.sendall(f"{line}\n".encode())
        client.shutdown(socket.SHUT_WR)
        with client.makefile(encoding="utf-8") as stream:
            return stream.read()


def main(arguments: list[str]) -> int:
    pipe = os.environ.get(PIPES, "/tmp/nvidia-mps")  # noqa: S108 as the real program has it
    if "-f" in arguments:
        Path("/proc/self/comm").write_text("nvidia-cuda-mps", encoding="ascii")  # not that of the interpreter
        serve(Path(pipe))
    for line in sys.stdin:
        try:
            said = ask(pipe, line.strip())
        except OSError:
            sys.stderr.write(f"{_NO_DAEMON}\n")
            return 1
        if said:
            sys.stdout.write(f"{said}\n")
    return 0


_PROGRAM = """#!{python} -ES
import sys
sys.path.insert(0, {root!r})
from tests.device.fake.{module} import main
sys.exit(main(sys.argv[1:]))
"""


def install(folder: Path) -> None:
    """Put the driver's programs into a folder that comes first in PATH."""
    root = str(Path(__file__).resolve().parents[3])
    for name, module in (("nvidia-cuda-mps-control", "fake_mps"), ("nvidia-smi", "fake_nvml")):
        program = folder / name
        program.write_text(_PROGRAM.format(python=sys.executable, root=root, module=module), encoding="utf-8")
        program.chmod(0o755)


class Limits(NamedTuple):
    """What a program may have of a GPU."""

    memory: int | None  # bytes; None: as much as there is
    percent: int  # of the threads
    server: int  # the process that holds the GPU for it; 0 without MPS


def limits_of(environment: Mapping[str, str], pid: int) -> Limits:
    """Of a program with this environment."""
    pipe = environment.get(PIPES, "")
    try:
        words = ask(pipe, f"connect {pid}").split(" ") if pipe else []
    except OSError:
        words = []
    if not words:
        return Limits(None, 100, 0)
    default = bytes_of(words[0])
    threads = min(int(float(words[1])), int(environment.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100")))
    given = environment.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "")
    memory = default
    if given and "=" not in given:
        memory = None  # seen: a value that cannot be read takes the daemon's limit away, too
    elif given:
        own = bytes_of(given.partition("=")[2])
        memory = min((amount for amount in (default, own) if amount is not None), default=None)
    return Limits(memory, threads, int(words[2]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
