"""The surroundings of the check (``machine_check``): a server with its agent, clients, and what they say.

On a machine with a GPU everything is real. Elsewhere NVML, MPS and CUDA are those of ``tests/device/fake``, over a
machine that a file describes. All of it is in one folder and one slice, and ``close`` leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WORK = str(ROOT / "tests/device/gpu_work.py")
PATIENCE = 120.0


class CheckError(Exception):
    """Something is not as it must be: one line."""


def must(true: object, what: str) -> None:
    if not true:
        raise CheckError(what)


def until(what: str, seen: Callable[[], Any], limit: float = PATIENCE) -> Any:  # noqa: ANN401 what was seen
    """As soon as it is true; ``CheckError`` after the limit."""
    end = time.monotonic() + limit
    while not (found := seen()):
        must(time.monotonic() < end, f"not seen in {limit:.0f} s: {what}")
        time.sleep(0.1)
    return found


class Client:
    """A `bursar run` in the background; its outputs go to files."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self.process = process
        self._out = out
        self._err = err

    @property
    def out(self) -> str:
        return self._out.read_text(encoding="utf-8")

    @property
    def err(self) -> str:
        return self._err.read_text(encoding="utf-8")

    def says(self, text: str, limit: float = PATIENCE) -> None:
        def seen() -> bool:
            if text in self.out:
                return True
            must(self.process.poll() is None, f"the job ended ({self.process.poll()}) before {text!r}: {self.err}")
            return False

        until(f"{text!r} of a job", seen, limit)

    def code(self, limit: float = PATIENCE) -> int:
        return self.process.wait(timeout=limit)


class Bed:
    """One machine with its server."""

    def __init__(self, machine: Mapping[str, Any] | None, deps: Path | None, *, apart: bool = False) -> None:
        """``machine``: a fake one; None: the real one. ``apart``: the agent is a process of its own."""
        self.fake = machine is not None
        self._apart = apart
        self.agent: subprocess.Popen[bytes] | None = None
        self._port = "0"
        self.folder = Path(tempfile.mkdtemp(prefix="bursar-check-"))
        self.folder.chmod(0o711)
        self.state = self.folder / "machine.json"
        self.slice = f"{self.folder.name}.slice"
        path = [str(ROOT / "src"), *([str(deps)] if deps else []), str(ROOT)]
        given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        self.environment = {**os.environ, "BURSAR_SOCKET": str(self.folder / "agent.sock"), "PYTHONUNBUFFERED": "1"}
        if machine is not None:
            from tests.device.fake import fake_mps

            self.state.write_text(json.dumps(machine), encoding="utf-8")
            (self.folder / "bin").mkdir()
            fake_mps.install(self.folder / "bin")
            path.insert(0, str(ROOT / "tests/device/fake"))
            self.environment["BURSAR_FAKE_NVML"] = str(self.state)
            self.environment["PATH"] = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        else:
            self.environment.pop("BURSAR_FAKE_NVML", None)
        self.environment["PYTHONPATH"] = os.pathsep.join([*path, *filter(None, given)])
        self.smi = shutil.which("nvidia-smi", path=self.environment["PATH"])
        self.clients: list[Client] = []
        self.server: subprocess.Popen[bytes] | None = None
        self._count = 0

    # The server

    def start(self) -> float:
        """Seconds until it serves, and its agent, too."""
        before = time.monotonic()
        data = ["--data", str(self.folder / "bursar.db"), "--port", self._port]
        local = ["--gpus", "nvml", "--machine", "box", "--slice", self.slice]
        if self._apart:
            self._write_tokens()
            data += ["--tokens", str(self.folder / "tokens")]
        if self.server is None or self.server.poll() is not None:
            arguments = ["serve", *data, *([] if self._apart else ["--local", *local])]
            self.server, line = self._started("server", "Bursar serves ", arguments)
            self.environment["BURSAR_SERVER"] = line.split()[2]
            self._port = line.split()[2].rpartition(":")[2]
        self.environment["BURSAR_TOKEN"] = (self.folder / "tokens").read_text(encoding="utf-8").split()[1]
        if self._apart and (self.agent is None or self.agent.poll() is not None):
            known = ["--server", self.environment["BURSAR_SERVER"], "--token-file", str(self.folder / "agent-token")]
            arguments = ["agent", *known, "--state", str(self.folder / "agent"), *local]
            self.agent, _ = self._started("agent", "Bursar runs jobs on box ", arguments)
        return time.monotonic() - before

    def _write_tokens(self) -> None:
        tokens = {"tokens": "admin admin-of-the-check\nagent agent-of-the-check box\n"}
        for name, text in (tokens | {"agent-token": "agent-of-the-check\n"}).items():
            path = self.folder / name
            path.touch(mode=0o600)
            path.write_text(text, encoding="utf-8")

    def _started(self, name: str, begins: str, arguments: Sequence[str]) -> tuple[subprocess.Popen[bytes], str]:
        """The process, and the line by which it says that it serves."""
        log = self.folder / f"{name}.log"
        with log.open("ab") as file:
            start = file.tell()
            process = subprocess.Popen(
                [sys.executable, "-m", "bursar", *arguments], env=self.environment, cwd=self.folder, stdout=file,
                stderr=file, start_new_session=True,
            )  # fmt: skip

        def serves() -> str:
            must(process.poll() is None, f"the {name} ended: {log.read_text()[-600:]}")
            lines = log.read_bytes()[start:].decode().splitlines()
            return next((line for line in lines if line.startswith(begins)), "")

        return process, until(f"the {name} serves", serves)

    def end_server(self, number: int) -> None:
        assert self.server is not None
        self.server.send_signal(number)
        self.server.wait(timeout=PATIENCE)

    def end_agent(self, number: int) -> None:
        assert self.agent is not None
        self.agent.send_signal(number)
        self.agent.wait(timeout=PATIENCE)

    def mend(self) -> None:
        """After something that must not be: say how it stands, and end all jobs and clients."""
        sys.stderr.write((self.folder / "server.log").read_text(encoding="utf-8")[-4000:])
        for client in self.clients:
            if client.process.poll() is None:
                sys.stderr.write(f"{client.process.args!r}: {client.out[-500:]} {client.err[-500:]}\n")
                client.process.terminate()
        with suppress(CheckError, subprocess.SubprocessError):
            if self.server is None or self.server.poll() is not None:
                self.start()
            sys.stderr.write(self.bursar("top", "gpus", "-o", "json", code=None))
            for one in self.claims():
                if one["phase"] in {"Running", "Pending", "Terminating"}:
                    self.bursar("stop", "--now", f"{one['namespace']}/{one['name']}", code=None)
            until("the jobs are gone", lambda: not self.running(), 20)

    def close(self) -> None:
        """End all that is left, whatever state it is in."""
        if self.server is not None and self.server.poll() is None:
            if any(client.process.poll() is None for client in self.clients):
                self.mend()
            self.end_server(signal.SIGTERM)
        if self.agent is not None and self.agent.poll() is None:
            self.end_agent(signal.SIGTERM)
        for client in self.clients:
            with suppress(subprocess.TimeoutExpired):
                client.process.wait(timeout=5)
            client.process.kill()
            client.process.wait()
        for leftover in self.left():
            with suppress(ProcessLookupError):
                os.kill(leftover, signal.SIGKILL)
        shutil.rmtree(self.folder)

    def left(self) -> list[int]:
        """Processes that have to do with this bed and are not its server or clients."""
        mine = {os.getpid(), *(client.process.pid for client in self.clients)}
        mine |= {one.pid for one in (self.server, self.agent) if one is not None}
        return [pid for pid in self.every() if pid not in mine]

    def every(self) -> list[int]:
        """All processes that have to do with this bed, by their environment."""
        mark = f"BURSAR_SOCKET={self.environment['BURSAR_SOCKET']}".encode()
        found = []
        for one in Path("/proc").iterdir():
            if one.name.isdigit():
                with suppress(OSError):
                    state = (one / "stat").read_text().rpartition(")")[2].split()[0]
                    if mark in (one / "environ").read_bytes().split(b"\0") and state not in {"Z", "X"}:
                        found.append(int(one.name))
        return found

    # Clients

    def bursar(self, *arguments: str, code: int | None = 0) -> str:
        """What a command prints; ``CheckError`` unless it ends with this code (None: any)."""
        done = subprocess.run(
            [sys.executable, "-m", "bursar", *arguments], env=self.environment, cwd=self.folder, capture_output=True,
            text=True, check=False, stdin=subprocess.DEVNULL, timeout=PATIENCE,
        )  # fmt: skip
        said = f"{done.stdout}{done.stderr}"
        must(code is None or done.returncode == code, f"bursar {' '.join(arguments)}: {done.returncode}: {said}")
        return said if code is None else done.stdout

    def client(self, *arguments: str, command: Sequence[str]) -> Client:
        self._count += 1
        out, err = self.folder / f"{self._count}.out", self.folder / f"{self._count}.err"
        with out.open("wb") as to_out, err.open("wb") as to_err:
            process = subprocess.Popen(
                [sys.executable, "-m", "bursar", "run", *arguments, "--", *command], env=self.environment,
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=to_out, stderr=to_err, start_new_session=True,
            )  # fmt: skip
        found = Client(process, out, err)
        self.clients.append(found)
        return found

    def job(self, *arguments: str, steps: Sequence[str]) -> Client:
        """A job with GPU work."""
        return self.client(*arguments, command=[sys.executable, WORK, *steps])

    def outside(self, *steps: str) -> Client:
        """GPU work that is no job of Bursar."""
        out, err = self.folder / "outside.out", self.folder / "outside.err"
        with out.open("wb") as to_out, err.open("wb") as to_err:
            process = subprocess.Popen(
                [sys.executable, WORK, *steps], env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL,
                stdout=to_out, stderr=to_err, start_new_session=True,
            )  # fmt: skip
        found = Client(process, out, err)
        self.clients.append(found)
        return found

    # What there is

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        path = self.folder / "manifests.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)}), encoding="utf-8")
        self.bursar("apply", "-f", str(path))

    def claims(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.bursar("get", "claims", "-o", "json"))["items"]
        return found

    def claim(self, name: str) -> dict[str, Any]:
        return next((one for one in self.claims() if f"{one['namespace']}/{one['name']}" == name), {"phase": ""})

    def running(self) -> list[str]:
        return [one["name"] for one in self.claims() if one["phase"] in {"Running", "Terminating"}]

    def objects(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.bursar("get", kind, "-o", "json"))["items"]
        return found

    def object(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.bursar("get", kind, name, "-o", "json"))
        return found

    def gpus(self) -> list[dict[str, Any]]:
        """As `bursar top gpus` has them."""
        found: list[dict[str, Any]] = json.loads(self.bursar("top", "gpus", "-o", "json"))
        return found[0]["gpus"] if found else []

    def jobs(self) -> dict[str, dict[str, Any]]:
        """What the running jobs use of their GPUs, by name."""
        return {job["job"]: job for gpu in self.gpus() for job in gpu["jobs"]}
