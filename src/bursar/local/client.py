"""``bursar run``: queue a command, wait in the queue, fork its shim when the job may start, and watch it.

The client imports little and waits in plain system calls: a thousand of them may wait at once. It queues nothing that
it cannot run. While it waits, any signal that asks it to end takes the job out of the queue.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bursar.local import places, protocol
from bursar.local.view import PASSED_ON, Relay, noted_signals, report_lines, window_size

FAILED, BAD_INPUT, UNREACHABLE = 1, 2, 3
NOT_EXECUTABLE, NOT_FOUND = 126, 127
_RECONNECT_SECONDS = 0.5
_LEAVE_SECONDS = 2.0


class ClientError(Exception):
    """One line for the user, and the exit code."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code


@dataclass
class RunRequest:
    """What to run and what to ask for; ``fields`` are those of the message ``submit``."""

    command: list[str]
    fields: dict[str, Any]
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    directory: str = "."
    detach: bool = False
    quiet: bool = False

    @property
    def members(self) -> int:
        return max(int(self.fields.get("members", 0)), 1)


def check_command(request: RunRequest) -> None:
    """``ClientError`` for a command that could not be run, before anything is queued."""
    program = request.command[0]
    folder = Path(request.directory)
    if not folder.is_dir():
        raise ClientError(f"{folder}: no such folder", BAD_INPUT)
    path = folder / program if os.sep in program else Path(program)
    if shutil.which(path, path=request.environment.get("PATH")) is not None:
        return
    if os.sep in program and path.exists():
        raise ClientError(f"{program}: cannot be executed", NOT_EXECUTABLE)
    raise ClientError(f"{program}: no such command", NOT_FOUND)


def asked(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The answer to a request; ``ClientError`` if it is an error."""
    try:
        message, fds = protocol.receive(connection)
    except protocol.PeerGone:
        raise ClientError("the agent went away", UNREACHABLE) from None
    if message["kind"] == "error":
        raise ClientError(str(message["text"]), int(message["code"]))
    return message, fds


def connect() -> socket.socket:
    try:
        return places.connect()
    except places.AgentUnreachable as error:
        text = f"no agent answers on this machine ({error}); start one with `bursar serve --local`"
        raise ClientError(text, UNREACHABLE) from None


class WaitingLine:
    """Where waiting is shown: one line that is rewritten on a terminal, else a line for each change."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self.live = not quiet and sys.stderr.isatty()
        self._shown = False
        self._text = ""
        self._since = 0.0

    def show(self, text: str, since: float) -> None:
        """``since``: seconds from 1970."""
        self._text, self._since = text, since
        if self.live:
            self.refresh()
        elif not self._quiet:
            report_lines(f"waiting: {text}")

    def refresh(self) -> None:
        """On a terminal: the line with the time that has passed by now."""
        if not self.live or not self._text:
            return
        width = os.get_terminal_size(2).columns - 1
        line = f"waiting {_span(int(time.time() - self._since))}: {self._text}"
        sys.stderr.write(f"\r\x1b[K{line[:width]}")
        sys.stderr.flush()
        self._shown = True

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False


def _span(seconds: int) -> str:
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{seconds % 60:02}s" if minutes else f"{max(seconds, 0)}s"


class LeftQueueError(Exception):
    """A signal asked the client to end while it waited."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Waiter:
    """One client in the queue, with one pod, or those of a gang."""

    def __init__(self, request: RunRequest, connection: socket.socket) -> None:
        self._request = request
        self._connection: socket.socket | None = connection
        self._line = WaitingLine(quiet=request.quiet)
        self.pods: list[str] = []
        self.uids: list[str] = []
        self.socket = str(connection.getpeername())

    def submit(self) -> None:
        assert self._connection is not None  # noqa: S101 as it was given
        try:
            protocol.send(self._connection, "submit", command=self._request.command, **self._request.fields)
        except (protocol.PeerGone, ValueError) as error:
            raise ClientError(f"the request cannot be sent: {error}") from None
        message, _ = asked(self._connection)
        self.pods, self.uids = list(message["pods"]), list(message["uids"])

    def grants(self, reading: int, came: list[int]) -> list[dict[str, Any]]:
        """Wait until all pods may start; ``LeftQueueError`` if a signal came first."""
        found: dict[str, dict[str, Any]] = {}
        try:
            while len(found) < len(self.pods):
                message: dict[str, Any] = {"kind": ""} if came else self._message(reading)
                if came:
                    raise LeftQueueError(came[0])
                if message["kind"] == "grant":
                    found[str(message["uid"])] = message
                elif message["kind"] == "wait":
                    self._line.show(str(message["text"]), message["since"] / 1000)
                elif message["kind"] in {"withdrawn", "no"}:
                    raise ClientError(f"{message.get('pod', self.pods[0])}: {message['text']}")
        finally:
            self._line.clear()
        return [found[uid] for uid in self.uids]

    def _message(self, reading: int) -> dict[str, Any]:
        """The next message; one of no kind after a signal. An agent that restarts is waited for."""
        poll = select.poll()
        poll.register(reading, select.POLLIN)
        if self._connection is None:
            self._reconnect()
        if self._connection is None:
            poll.poll(int(_RECONNECT_SECONDS * 1000))
            return {"kind": ""}
        poll.register(self._connection, select.POLLIN)
        if self._connection.fileno() not in dict(poll.poll(1000 if self._line.live else None)):
            self._line.refresh()
            return {"kind": ""}
        try:
            return protocol.receive(self._connection)[0]
        except protocol.PeerGone:
            self._line.show("the agent is away", time.time())
            self._connection.close()
            self._connection = None
        return {"kind": ""}

    def _reconnect(self) -> None:
        with contextlib.suppress(places.AgentUnreachable, protocol.PeerGone):
            self._connection = places.connect([self.socket])
            protocol.send(self._connection, "again", pods=self.pods, uids=self.uids)

    def leave(self) -> None:
        """Out of the queue: the agent takes the jobs of a closed connection out."""
        if self._connection is not None:
            self._connection.close()


def run(request: RunRequest) -> int:
    """The exit code of the command, or of Bursar if it did not begin."""
    check_command(request)
    waiter = Waiter(request, connect())
    with noted_signals((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)) as (reading, came):
        waiter.submit()
        if request.detach:
            sys.stdout.write("".join(f"{pod}\n" for pod in waiter.pods))
            sys.stdout.flush()
            if os.fork():
                return 0
            _leave_terminal()
        try:
            grants = waiter.grants(reading, came)
        except LeftQueueError as left:
            waiter.leave()
            return 128 + left.number
    if request.detach and len(grants) == 1:
        _be_shim(request, waiter, grants[0], None, window=b"")
    return _watched(request, waiter, grants)


def _leave_terminal() -> None:
    """A session of its own, without the terminal."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    os.close(null)


def _watched(request: RunRequest, waiter: Waiter, grants: list[dict[str, Any]]) -> int:
    """Fork the shims and watch until all have ended."""
    terminal = not request.detach and len(grants) == 1 and os.isatty(0) and os.isatty(1)
    window = window_size(0) if terminal else b""
    sides: list[socket.socket] = []
    shims: list[int] = []
    for grant in grants:
        own, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            own.close()
            _be_shim(request, waiter, grant, theirs, window=window)
        theirs.close()
        sides.append(own)
        shims.append(pid)
    ends = Relay(sides, terminal=terminal).run()
    waiter.leave()
    for pid in shims if not request.fields.get("requeue") else ():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    for end in ends:
        if end.get("text"):
            report_lines(str(end["text"]))
    return max((int(end["code"]) for end in ends), default=0)


def _be_shim(
    request: RunRequest, waiter: Waiter, grant: dict[str, Any], side: socket.socket | None, *, window: bytes
) -> None:
    """In the forked process: be the shim, and end."""
    code = 1
    try:
        if side is not None:
            os.setsid()
        signal.set_wakeup_fd(-1)
        for number in PASSED_ON:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        from bursar.local.shim import Shim, Task  # noqa: PLC0415 a waiting client does not need it

        task = Task(
            str(grant["pod"]), str(grant["uid"]), request.command, dict(request.environment), request.directory,
            str(grant["log"]), str(grant["status"]), waiter.socket, window, bool(request.fields.get("requeue")),
        )  # fmt: skip
        Shim(task, side).run()
        code = 0
    except BaseException:  # noqa: BLE001 it is in the log of the job
        import traceback  # noqa: PLC0415 as above

        with open(str(grant["log"]), "a", encoding="utf-8") as log:  # noqa: PTH123 in a process that must stay small
            traceback.print_exc(file=log)
    finally:
        os._exit(code)


# Other requests


def request_of(kind: str, **fields: Any) -> tuple[socket.socket, dict[str, Any], list[int]]:  # noqa: ANN401
    """Ask the agent one thing: (the connection, the answer, its descriptors)."""
    connection = connect()
    try:
        protocol.send(connection, kind, **fields)
    except protocol.PeerGone:
        raise ClientError("the agent went away", UNREACHABLE) from None
    message, fds = asked(connection)
    return connection, message, fds


def attach(pod: str) -> int:
    """Watch a job that runs; Ctrl-C ends the watching, not the job, where the job has no terminal of its own."""
    connection, _, _ = request_of("attach", pod=pod)
    terminal = os.isatty(0) and os.isatty(1)
    try:
        ends = Relay([connection], terminal=terminal, signals=False).run()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    for end in ends:
        if end.get("text"):
            report_lines(str(end["text"]))
    return int(ends[0]["code"])


def logs(pod: str, *, follow: bool) -> int:
    """Write the log of a job to standard output; with ``follow`` until the job has ended."""
    connection, message, fds = request_of("logs", pod=pod)
    running = bool(message["running"])
    with os.fdopen(fds[0], "rb", buffering=0) as log:
        while True:
            ended = not running or not follow or bool(_closed(connection))
            shutil.copyfileobj(log, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            if ended:
                return 0
            time.sleep(0.2)


def _closed(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))
