"""What a shim and those who watch its job send each other: packets of one letter and data.

o output, e error output, t a line of Bursar for the terminal, x the end (JSON); i input, z end of input, w size of the
window, s a signal. ``Relay`` is the watching side: it puts the terminal into raw mode where the job has one, passes
input and signals on, and returns how the job ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import termios
import tty
from collections import deque
from collections.abc import Iterator
from types import FrameType
from typing import Any

LARGEST = 32 * 1024
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
LOST = 255  # exit code when the shim is gone


def window_size(fd: int) -> bytes:
    try:
        return fcntl.ioctl(fd, termios.TIOCGWINSZ, b"\0" * 8)
    except OSError:
        return struct.pack("4H", 24, 80, 0, 0)


@contextlib.contextmanager
def raw_terminal(fd: int) -> Iterator[None]:
    """Keys go to the job as they are, and the terminal is as before in the end."""
    before = termios.tcgetattr(fd)
    try:
        tty.setraw(fd)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


@contextlib.contextmanager
def noted_signals(numbers: tuple[signal.Signals, ...]) -> Iterator[tuple[int, list[int]]]:
    """(a descriptor that can be read when a signal came, the signals that came)."""
    reading, writing = os.pipe()
    for fd in (reading, writing):
        os.set_blocking(fd, False)
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    taken = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in taken}
    waking = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading, came
    finally:
        signal.set_wakeup_fd(waking)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)


_BEHIND_MOST = 64  # packets


class Viewer:
    """The shim's side of one that watches. The job waits for the one that started it; others lose what they miss."""

    def __init__(self, connection: socket.socket, *, waited_for: bool) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.waited_for = waited_for
        self._queue: deque[bytes] = deque()

    @property
    def full(self) -> bool:
        return self.waited_for and len(self._queue) >= _BEHIND_MOST

    @property
    def behind(self) -> bool:
        return bool(self._queue)

    def give(self, packet: bytes) -> None:
        if self.waited_for or len(self._queue) < _BEHIND_MOST or packet[:1] not in b"oe":
            self._queue.append(packet)

    def flush(self) -> bool:
        """False: it is gone."""
        try:
            while self._queue:
                self.connection.send(self._queue[0])
                self._queue.popleft()
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True


class Relay:
    """One side that watches a job, or several of a gang."""

    def __init__(self, shims: list[socket.socket], *, terminal: bool, signals: bool = True) -> None:
        self._shims = {shim.fileno(): shim for shim in shims}
        self._terminal = terminal
        self._signals = signals
        self.ends: list[dict[str, Any]] = []
        self._input = 0 if terminal else -1

    def run(self) -> list[dict[str, Any]]:
        """Until all shims have said how their jobs ended, or are gone."""
        numbers = (*PASSED_ON, signal.SIGWINCH) if self._terminal else PASSED_ON
        with contextlib.ExitStack() as stack:
            reading, came = stack.enter_context(noted_signals(numbers if self._signals else ()))
            if self._terminal:
                stack.enter_context(raw_terminal(0))
                self._send(b"w" + window_size(0))
            poll = select.poll()
            poll.register(reading, select.POLLIN)
            if self._input >= 0:
                poll.register(self._input, select.POLLIN)
            for fd in self._shims:
                poll.register(fd, select.POLLIN)
            while self._shims:
                for fd, _ in poll.poll():
                    if fd == reading:
                        os.read(reading, 512)
                        self._pass_on(came)
                    elif fd in self._shims:
                        if not self._heard(self._shims[fd]):
                            poll.unregister(fd)
                            self._shims.pop(fd).close()
                    elif fd == self._input and not self._typed():
                        poll.unregister(fd)
        return self.ends

    def _pass_on(self, came: list[int]) -> None:
        while came:
            number = came.pop(0)
            if number == signal.SIGWINCH:
                self._send(b"w" + window_size(0))
            else:
                self._send(b"s" + str(int(number)).encode())

    def _typed(self) -> bool:
        try:
            data = os.read(self._input, LARGEST)
        except OSError:
            data = b""
        self._send(b"i" + data if data else b"z")
        return bool(data)

    def _send(self, packet: bytes) -> None:
        for shim in self._shims.values():
            with contextlib.suppress(OSError):
                shim.send(packet)

    def _heard(self, shim: socket.socket) -> bool:
        """False: it has nothing more to say."""
        try:
            packet = shim.recv(LARGEST + 1)
        except OSError:
            packet = b""
        if not packet:
            self.ends.append({"code": LOST, "text": "its shim is gone"})
            return False
        letter, data = packet[:1], packet[1:]
        if letter == b"x":
            self.ends.append(json.loads(data))
            return False
        if letter == b"t":
            self._line(data)
        elif letter in b"oe":
            _write_all(1 if letter == b"o" else 2, data)
        return True

    def _line(self, data: bytes) -> None:
        end = b"\r\n" if self._terminal else b"\n"
        _write_all(2, b"bursar: " + data + end)


def _write_all(fd: int, data: bytes) -> None:
    """A reader that went away is the end of output, as for any program in a pipe."""
    try:
        while data:
            data = data[os.write(fd, data) :]
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), fd)


def report_lines(text: str) -> None:
    """One line of Bursar for people, beside the output of the command."""
    sys.stderr.write(f"bursar: {text}\n")
    sys.stderr.flush()
