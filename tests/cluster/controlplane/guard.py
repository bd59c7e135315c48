"""The process that outlives a killed test run and ends its control plane.

It reads lines from a pipe: ``+12`` a component with that process id runs, ``-12`` it was stopped. When the pipe ends
while components run, their parent is gone: they are killed, newest first, and the folder named on the command line is
removed. A pipe instead of the kernel's death signal, because that signal fires when the *thread* that started a
component ends, and test runners start things from threads that come and go.
"""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path


class Guard:
    """The parent's end of the pipe."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(folder)], stdin=subprocess.PIPE, text=True, start_new_session=True
        )

    def running(self, pid: int) -> None:
        self._tell(f"+{pid}")

    def stopped(self, pid: int) -> None:
        self._tell(f"-{pid}")

    def close(self) -> None:
        """Call it when nothing runs any more: the guard then leaves the folder alone."""
        self._tell("done")
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


def watch(folder: Path) -> None:
    """The guard's side: follow the lines, act when they end without ``done``."""
    running: list[int] = []
    for line in sys.stdin:
        order = line.strip()
        if order == "done":
            return
        pid = int(order[1:])
        if order[0] == "+":
            running.append(pid)
        else:
            running.remove(pid)
    for pid in reversed(running):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
