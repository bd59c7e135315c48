"""The agent's side of its Unix socket: a listener, and connections that never make the event loop wait.

Lines about the place in the queue may be dropped for a client that does not read; every other message is kept for it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from pathlib import Path

from bursar.local import places, protocol
from bursar.local.protocol import Message

_BEHIND_MOST = 256  # messages that a peer may be behind before it is cut off
_ONCE = 32  # connections accepted before others get their turn


class SocketTakenError(Exception):
    """The agent cannot listen: one line that says why."""


class Peer:
    """A connection of a client or shim."""

    def __init__(self, connection: socket.socket, heard: Callable[[Peer, Message, list[int]], None]) -> None:
        self.pid, self.uid, self.gid = places.peer(connection)
        self.closed: Callable[[Peer], None] | None = None  # called once when the other side has gone
        self._heard = heard
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._behind: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._open = True
        connection.setblocking(False)
        self._loop.add_reader(connection, self._read)

    @property
    def open(self) -> bool:
        return self._open

    def send(self, kind: str, *, fds: tuple[int, ...] = (), **fields: object) -> None:
        """Descriptors are sent as copies: the caller may close its own."""
        if not self._open:
            return
        if self._behind:
            if kind != "wait":
                self._behind.append((protocol.encode(kind, fields), tuple(map(os.dup, fds))))
            if len(self._behind) > _BEHIND_MOST:
                self.close()
            return
        data = protocol.encode(kind, fields)
        if not self._send(data, fds) and kind != "wait":
            self._behind.append((data, tuple(map(os.dup, fds))))
            self._loop.add_writer(self._connection, self._catch_up)

    def _send(self, data: bytes, fds: tuple[int, ...]) -> bool:
        """False: not now."""
        try:
            socket.send_fds(self._connection, [data], list(fds))
        except BlockingIOError:
            return False
        except OSError:
            self._loop.call_soon(self.close)
        return True

    def _catch_up(self) -> None:
        while self._behind:
            data, fds = self._behind[0]
            if not self._send(data, fds):
                return
            self._behind.popleft()
            for fd in fds:
                os.close(fd)
        self._loop.remove_writer(self._connection)

    def _read(self) -> None:
        try:
            message, fds = protocol.receive(self._connection)
        except BlockingIOError:
            return
        except (protocol.PeerGone, ValueError, OSError):
            self.close()
            return
        self._heard(self, message, fds)

    def release(self) -> socket.socket:
        """Give the connection away; nothing is read or sent here any more."""
        self._detach()
        return self._connection

    def close(self) -> None:
        if not self._open:
            return
        self._detach()
        self._connection.close()
        if self.closed is not None:
            self.closed(self)

    def _detach(self) -> None:
        self._open = False
        self._loop.remove_reader(self._connection)
        self._loop.remove_writer(self._connection)
        for _, fds in self._behind:
            for fd in fds:
                os.close(fd)
        self._behind.clear()


def bind(path: Path) -> socket.socket:
    """Listen at a path. A socket that a dead agent left there is replaced; ``SocketTakenError`` if one is alive."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        probe.connect(str(path))
    except (ConnectionRefusedError, FileNotFoundError):
        path.unlink(missing_ok=True)
    except OSError as error:
        raise SocketTakenError(f"{path}: {error.strerror or error}") from error
    else:
        raise SocketTakenError(f"{path}: another agent serves it")
    finally:
        probe.close()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(str(path))
        path.chmod(0o666)  # who may do what follows from the user that the kernel names
        listener.listen(4096)
    except OSError as error:
        listener.close()
        raise SocketTakenError(f"{path}: {error.strerror or error}") from error
    listener.setblocking(False)
    return listener


def accept(listener: socket.socket, met: Callable[[socket.socket], None]) -> None:
    """Take the connections that wait now."""
    for _ in range(_ONCE):
        try:
            connection, _ = listener.accept()
        except OSError:  # nobody waits any more, or there are no descriptors left for now
            return
        met(connection)
