"""The command of a job as a child of its shim: forked and blocked, let go with its environment, and waited for.

It has a session of its own, with a terminal of its own if the caller has one. Standard input that is no terminal is the
caller's own, so that nothing is read but what the command reads. The kernel kills the child when its shim dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import termios
from typing import NoReturn

from bursar.local.view import LARGEST

_DEATH_SIGNAL = 1  # of prctl
_NOT_FOUND, _CANNOT_RUN = 127, 126  # as shells say it


class Child:
    """The command, blocked until ``start``."""

    def __init__(self, command: list[str], directory: str, window: bytes, stdin: int) -> None:
        """``window``: the size of the terminal that it gets; empty for none."""
        self._master = -1
        self.outputs: dict[int, bytes] = {}  # descriptor -> letter
        if window:
            self._master, slave = os.openpty()
            fcntl.ioctl(slave, termios.TIOCSWINSZ, window)
            self.outputs[self._master] = b"o"
            stdio = (slave, slave, slave)
        else:
            out, err = os.pipe(), os.pipe()
            self.outputs = {out[0]: b"o", err[0]: b"e"}
            stdio = (stdin, out[1], err[1])
        gate = os.pipe()
        self._gate = gate[1]
        libc = ctypes.CDLL(None)
        self.pid = os.fork()
        if self.pid == 0:
            os.close(gate[1])
            libc.prctl(_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
            _become(command, directory, gate[0], stdio, controlling=bool(window))
        os.close(gate[0])
        for fd in {*stdio} - {stdin}:
            os.close(fd)
        self.pidfd = os.pidfd_open(self.pid)
        for fd in self.outputs:
            os.set_blocking(fd, False)

    def start(self, environment: dict[str, str]) -> None:
        with contextlib.suppress(BrokenPipeError):
            data = memoryview(json.dumps(environment).encode("utf-8", "surrogateescape"))
            while data:
                data = data[os.write(self._gate, data) :]
        os.close(self._gate)

    def read(self, fd: int) -> bytes:
        """What it wrote there; empty if nothing is there now. An output that has ended is forgotten."""
        try:
            data = os.read(fd, LARGEST)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""  # a terminal that no process has open any more
        if not data:
            del self.outputs[fd]
            os.close(fd)
        return data

    def given(self, letter: bytes, data: bytes) -> None:
        """Something that a viewer typed or signalled."""
        if letter == b"s" and data.isdigit():
            with contextlib.suppress(ProcessLookupError, PermissionError, OSError):
                os.killpg(self.pid, int(data))
        elif self._master in self.outputs:
            with contextlib.suppress(OSError, ValueError):
                if letter == b"i":
                    os.write(self._master, data)
                elif letter == b"z":
                    os.write(self._master, b"\x04")
                elif letter == b"w" and len(data) == 8:
                    fcntl.ioctl(self._master, termios.TIOCSWINSZ, data)

    def drop(self) -> None:
        """It will not run: the end of the pipe lets it exit."""
        os.close(self._gate)
        self.wait()

    def wait(self) -> int:
        """Its exit code, or the negative number of the signal that ended it."""
        _, status = os.waitpid(self.pid, 0)
        for fd in (*self.outputs, self.pidfd):
            os.close(fd)
        self.outputs = {}
        return os.waitstatus_to_exitcode(status)


def _become(
    command: list[str], directory: str, gate: int, stdio: tuple[int, int, int], *, controlling: bool
) -> NoReturn:
    """In the child: wait for the environment, then be the command."""
    try:
        os.setsid()
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python; what the caller ignores stays ignored
            signal.signal(ignored, signal.SIG_DFL)
        data = b""
        while part := os.read(gate, 65_536):
            data += part
        if not data:
            os._exit(0)
        environment = json.loads(data.decode("utf-8", "surrogateescape"))
        for number, fd in enumerate(stdio):
            os.dup2(fd, number)
        if controlling:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.chdir(directory)
        os.execvpe(command[0], command, environment)  # noqa: S606 it is what the user asked for
    except OSError as error:
        text = f"bursar: {command[0]}: {error.strerror}\n"
        os.write(2, text.encode("utf-8", "surrogateescape"))
        os._exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_RUN)
    except BaseException:  # noqa: BLE001 a child must never go on as its parent
        os._exit(_CANNOT_RUN)
