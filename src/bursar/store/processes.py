"""Processes beside this one, with the same package, that work on the same store and end when nobody listens."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

_PATIENCE = 5.0  # seconds until a process that was told to end is ended


class ApartError(RuntimeError):
    """The other process ended before it had answered."""


def start(module: str, *arguments: object) -> subprocess.Popen[bytes]:
    """The module as a process with two pipes, told these arguments."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)  # noqa: S603 this interpreter


def unheard(work: Callable[[], None]) -> None:
    """Do the work of such a process; when nobody listens any more, end without a word."""
    try:
        work()
    except BrokenPipeError:
        os._exit(0)  # not by an exception: there is nothing to tell, and nobody to tell it to


def end(process: subprocess.Popen[bytes]) -> None:
    """Let it end by itself, and see that it does."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # it has gone without reading what was written
                continue
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
