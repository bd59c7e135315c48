"""The shim of one job: a small process of the same user that starts the command, holds its terminal and its log, and
writes down how it ended.

It runs in a session of its own, so it outlives client and terminal. The command runs in a child that is blocked until
the agent has put it into its cgroup and made it durable: ``go`` carries the environment, and the end of the pipe
without it means exit. If the shim dies the kernel kills the child. The exit status is in its file before anything else
reports it. A job that may be queued again waits here for its next turn.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bursar.local import places, protocol
from bursar.local.shim_child import Child
from bursar.local.view import LARGEST, Viewer

_SUBREAPER = 36  # of prctl
_LOG_MOST = 64 * 1024 * 1024
RECONNECT_SECONDS = 0.5
PATIENCE_SECONDS = 30.0  # for an agent that must say go


@dataclass
class Task:
    """What a shim is to run, and where it writes."""

    pod: str  # team/name
    uid: str
    command: list[str]
    environment: dict[str, str]
    directory: str
    log: str  # file
    status: str  # file
    socket: str  # the agent's
    window: bytes = b""  # the size of the terminal, for a job that gets one
    requeues: bool = False

    @property
    def terminal(self) -> bool:
        return bool(self.window)


class LogFile:
    """What the job wrote. A long one is begun again, and the part before it is kept."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._fd).st_size

    def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk must not stop the job
            self._size += os.write(self._fd, data)
            if self._size > _LOG_MOST:
                Path(self._path).rename(f"{self._path}.1")
                os.close(self._fd)
                self._open()


class Shim:
    """Runs one attempt of a task after the other, until the agent says that it is over."""

    def __init__(self, task: Task, first: socket.socket | None) -> None:
        """``first``: who started the job and watches it."""
        self._task = task
        self._viewers = [] if first is None else [Viewer(first, waited_for=True)]
        self._log = LogFile(task.log)
        self._agent: socket.socket | None = None
        self._signalled = 0  # by the one that started the job, while no command runs
        self._stdin = os.open(os.devnull, os.O_RDONLY) if task.terminal else os.dup(0)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):  # whoever reads what the client wrote must see its end
            os.dup2(null, fd)
        os.close(null)
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)

    def run(self) -> None:
        while True:
            found = self._attempt()
            turn = self._over(found) if found["began"] or self._task.requeues else None
            if turn is None or not self._next_turn(turn):
                self._end(found)
                return

    # The agent

    def _connect(self, kind: str, *fds: int) -> bool:
        """Say who this is; False: no agent is there now."""
        with contextlib.suppress(places.AgentUnreachable, protocol.PeerGone):
            self._agent = places.connect([self._task.socket])
            protocol.send(self._agent, kind, fds=fds, pods=[self._task.pod], uids=[self._task.uid])
            return True
        self._lose()
        return False

    def _lose(self) -> None:
        if self._agent is not None:
            self._agent.close()
            self._agent = None

    def _heard(self) -> tuple[dict[str, Any], list[int]]:
        """A message of the agent; of no kind when it went away."""
        if self._agent is not None:
            with contextlib.suppress(protocol.PeerGone, ValueError):
                return protocol.receive(self._agent)
        self._lose()
        return {"kind": ""}, []

    # One attempt

    def _attempt(self) -> dict[str, Any]:
        """How the command ended, or why it did not begin."""
        child = Child(self._task.command, self._task.directory, self._task.window, self._stdin)
        self._lose()
        message = self._allowed(child)
        if message["kind"] != "go":
            child.drop()
            text = str(message.get("text", "")) or "the agent went away before the command began"
            return {"code": 128 + self._signalled if self._signalled else 1, "text": text, "began": False}
        for note in message.get("notes", ()):
            self._tell(str(note))
        child.start({**self._task.environment, **message["environment"]})
        self._follow(child)
        return self._ended(child)

    def _allowed(self, child: Child) -> dict[str, Any]:
        """What the agent says about the blocked command: go, or anything else. One that restarts is asked again."""
        message: dict[str, Any] = {"kind": ""}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while message["kind"] in {"", "wait", "say"} and time.monotonic() < deadline:
            if self._agent is None and not self._connect("hold", child.pidfd):
                time.sleep(RECONNECT_SECONDS)
                continue
            events = self._idle()
            if self._signalled:
                return {"kind": "left", "text": "it was asked to end before the command began"}
            if self._agent is not None and self._agent.fileno() in events:
                message = self._ordered()
                deadline = time.monotonic() + PATIENCE_SECONDS
                if not message["kind"]:
                    time.sleep(RECONNECT_SECONDS)
        return message

    def _idle(self) -> dict[int, int]:
        """Wait for the agent while no command runs, or for a signal that the client passes on."""
        poll = select.poll()
        for one in (self._agent, *(viewer.connection for viewer in self._viewers)):
            if one is not None:
                poll.register(one, select.POLLIN)
        events = dict(poll.poll())
        for viewer in list(self._viewers):
            if viewer.connection.fileno() in events:
                self._watched(None, viewer)
        return events

    def _follow(self, child: Child) -> None:
        """Until the command has ended."""
        retry = 0.0
        while True:
            if self._agent is None and time.monotonic() >= retry:
                retry = time.monotonic() + RECONNECT_SECONDS
                self._connect("again", child.pidfd)
            wait = None if self._agent is not None else int(RECONNECT_SECONDS * 1000)
            events = dict(self._poll(child).poll(wait))
            for fd in [fd for fd in child.outputs if fd in events]:
                self._read(child, fd)
            if self._agent is not None and self._agent.fileno() in events:
                self._ordered()
            for viewer in list(self._viewers):
                if events.get(viewer.connection.fileno(), 0) & ~select.POLLOUT:
                    self._watched(child, viewer)
            self._flush()
            if child.pidfd in events:
                return

    def _poll(self, child: Child) -> select.poll:
        poll = select.poll()
        poll.register(child.pidfd, select.POLLIN)
        if not any(viewer.full for viewer in self._viewers):
            for fd in child.outputs:
                poll.register(fd, select.POLLIN)
        for viewer in self._viewers:
            poll.register(viewer.connection, select.POLLIN | (select.POLLOUT if viewer.behind else 0))
        if self._agent is not None:
            poll.register(self._agent, select.POLLIN)
        return poll

    def _read(self, child: Child, fd: int) -> bool:
        """Take what the command wrote; False: nothing is there now."""
        letter = child.outputs[fd]
        data = child.read(fd)
        if data:
            self._log.write(data)
            for viewer in self._viewers:
                viewer.give(letter + data)
        return bool(data)

    def _tell(self, text: str) -> None:
        data = text.encode("utf-8", "surrogateescape")
        self._log.write(b"bursar: " + data + b"\n")
        self._show(b"t" + data)

    def _show(self, packet: bytes) -> None:
        for viewer in self._viewers:
            viewer.give(packet)
        self._flush()

    def _flush(self) -> None:
        for viewer in list(self._viewers):
            if not viewer.flush():
                self._drop(viewer)

    def _drop(self, viewer: Viewer) -> None:
        if viewer in self._viewers:
            self._viewers.remove(viewer)
            viewer.connection.close()

    def _ordered(self) -> dict[str, Any]:
        """Do what a message of the agent says."""
        message, fds = self._heard()
        if message["kind"] == "say":
            self._tell(str(message["text"]))
        elif message["kind"] == "wait":
            self._show(b"t" + str(message["text"]).encode("utf-8", "surrogateescape"))
        elif message["kind"] == "view" and fds:
            self._viewers.append(Viewer(socket.socket(fileno=fds.pop()), waited_for=False))
        for fd in fds:
            os.close(fd)
        return message

    def _watched(self, child: Child | None, viewer: Viewer) -> None:
        """What a viewer typed or signalled. Without a command, a signal of the one that started the job ends it."""
        try:
            packet = viewer.connection.recv(LARGEST + 1)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            self._drop(viewer)
        elif child is not None:
            child.given(packet[:1], packet[1:])
        elif viewer.waited_for and packet[:1] == b"s" and packet[1:].isdigit():
            self._signalled = int(packet[1:])

    # The end

    def _ended(self, child: Child) -> dict[str, Any]:
        while any(self._read(child, fd) for fd in list(child.outputs)):
            self._wait_for_viewers()
        code = child.wait()
        found = {"code": code if code >= 0 else 128 - code, "signal": max(-code, 0), "began": True}
        write_status(self._task.status, {**found, "uid": self._task.uid})
        return found

    def _wait_for_viewers(self) -> None:
        """Until those for which the job waits have read; one that does not read for ten seconds is gone."""
        self._flush()
        while slow := [viewer for viewer in self._viewers if viewer.full]:
            poll = select.poll()
            for viewer in slow:
                poll.register(viewer.connection, select.POLLOUT)
            if not poll.poll(10_000):
                for viewer in slow:
                    self._drop(viewer)
            self._flush()

    def _over(self, found: dict[str, Any]) -> dict[str, Any] | None:
        """Tell the agent; its answer, where the job may be queued again."""
        if self._agent is not None:
            with contextlib.suppress(protocol.PeerGone, ValueError, OSError):
                protocol.send(self._agent, "exited", status=found)
        if not self._task.requeues:
            return None
        while True:
            while self._agent is None and not self._connect("again"):
                time.sleep(RECONNECT_SECONDS)
            message = self._ordered()
            if message["kind"] in {"done", "no"}:
                return message if message.get("again") else None

    def _next_turn(self, turn: dict[str, Any]) -> bool:
        """Wait in the queue once more; False: it was taken out."""
        self._task.uid, self._task.status = str(turn["uid"]), str(turn["status"])
        while True:
            while self._agent is None and not self._connect("again"):
                time.sleep(RECONNECT_SECONDS)
            if self._agent is None:
                continue
            events = self._idle()
            if self._signalled:
                return False
            if self._agent.fileno() in events:
                kind = str(self._ordered()["kind"])
                if kind in {"grant", "withdrawn"}:
                    return kind == "grant"

    def _end(self, found: dict[str, Any]) -> None:
        for viewer in self._viewers:
            viewer.waited_for = True
        self._show(b"x" + json.dumps(found).encode())
        while any(viewer.behind for viewer in self._viewers):
            poll = select.poll()
            for viewer in self._viewers:
                poll.register(viewer.connection, select.POLLOUT)
            if not poll.poll(10_000):
                return
            self._flush()


def write_status(path: str, found: dict[str, Any]) -> None:
    """In one step: it is there whole, or not at all."""
    scratch = Path(f"{path}.new")
    scratch.unlink(missing_ok=True)
    fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as file:
        json.dump(found, file)
        file.flush()
        os.fsync(file.fileno())
    scratch.rename(path)
