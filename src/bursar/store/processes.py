"""Processes beside this one, with the same package, that work on the same store and end when nobody listens.

Signals that ask to end often go to a whole group of processes (from a shell, from systemd). They mean the one that
others are beside of: it ends the others in its own time. So these are deaf to such signals, from their first moment on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

_NOT_FOR_THEM = (signal.SIGINT, signal.SIGTERM)
_PATIENCE = 30.0  # seconds until a process that was told to end is ended; a busy machine needs some to end one


class ApartError(RuntimeError):
    """The other process ended before it had answered."""


def start(module: str, *arguments: object) -> subprocess.Popen[bytes]:
    """The module as a process with two pipes, told these arguments. Closing its pipes ends it, or killing it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    command = [sys.executable, "-m", module, *map(str, arguments)]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_THEM)  # which a new process inherits, for good
    try:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)  # noqa: S603 this interpreter
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
