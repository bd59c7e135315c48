"""One component of the control plane as a child process, with a log file.

A component is started, stopped (gently, then by force), killed, frozen and woken. Each runs in a session of its own, so
that Ctrl-C reaches only the parent, which stops them in order; the guard ends them when the parent was killed.
"""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.cluster.controlplane.guard import Guard

STOP_SECONDS = 60.0
START_SECONDS = 120.0
POLL_SECONDS = 0.05


class ComponentError(Exception):
    """A component died or did not get ready; the message has the end of its log."""


class Component:
    def __init__(self, name: str, command: list[str], log: Path, guard: Guard) -> None:
        self.name = name
        self.command = command
        self.log = log
        self._guard = guard
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ComponentError(f"{self.name} is not running")
        return self._process.pid

    def start(self) -> None:
        if self.running:
            raise ComponentError(f"{self.name} is already running")
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self._guard.running(self._process.pid)

    def ask_to_stop(self) -> None:
        """The first half of ``stop``, for several components at once."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()

    def stop(self) -> None:
        """SIGTERM, then SIGKILL when that was not heeded; returns when the process is gone."""
        self.ask_to_stop()
        self._reap(STOP_SECONDS)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._reap(STOP_SECONDS)

    def freeze(self) -> None:
        """Stop it from running without its noticing, as a suspended machine would."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def wait_until(self, ready: Callable[[], bool], timeout: float = START_SECONDS) -> None:
        """Poll until it is ready; a component that dies meanwhile is an error at once."""
        deadline = time.monotonic() + timeout
        while not ready():
            if not self.running:
                raise self._error(f"ended{self._exit_code()}")
            if time.monotonic() > deadline:
                raise self._error(f"was not ready in {timeout:.0f} s")
            time.sleep(POLL_SECONDS)

    def tail(self, lines: int = 15) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def _error(self, what: str) -> ComponentError:
        return ComponentError(f"{self.name} {what}; the end of {self.log}:\n{self.tail()}")

    def _signal(self, number: signal.Signals) -> None:
        if not self.running or self._process is None:
            raise ComponentError(f"{self.name} is not running")
        self._process.send_signal(number)

    def _exit_code(self) -> str:
        return "" if self._process is None else f" with exit code {self._process.returncode}"

    def _reap(self, timeout: float) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._guard.stopped(self._process.pid)
        self._process = None
