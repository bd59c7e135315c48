"""Messages between ``bursar run``, its shims and the agent: one JSON object in one packet of a Unix socket.

The sockets keep the bounds of packets (SOCK_SEQPACKET), and a packet may carry file descriptors. Every message has a
``kind``. Client and shim import this module, so it imports little.

kind      from      to        what it says
submit    client    agent     queue these jobs (``SubmitRequest``); ``resume`` names pods that were queued already
queued    agent     client    they are queued: pods
wait      agent     client    one line about the place in the queue
grant     agent     client    the pod may start: fork its shim
withdrawn agent     client    the pod is not queued any more: text
hold      shim      agent     here is the blocked process of the pod (pidfd)
go        agent     shim      run it, with this environment; notes for the terminal
no        agent     shim      do not run it: text
again     shim      agent     after a restart of the agent: the shim of this pod is here
exited    shim      agent     the process ended: status
done      agent     shim      the pod's end is durable; ``again``: it is queued once more
say       agent     shim      a line for the terminal
view      agent     shim      a viewer joins (its socket)
stop, logs, attach, jobs     requests of other clients; each is answered by ``ok`` or by
error     agent     anyone    text, code: one line and an exit code
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

LARGEST = 128 * 1024

Message = dict[str, Any]


class PeerGone(Exception):  # noqa: N818 the other side went away, which is no error of ours
    """The other side closed the connection."""


def encode(kind: str, fields: Message) -> bytes:
    data = json.dumps({"kind": kind, **fields}).encode("utf-8", "surrogateescape")
    if len(data) > LARGEST:
        raise ValueError(f"a message of {len(data)} bytes is larger than {LARGEST}")
    return data


def send(connection: socket.socket, kind: str, *, fds: tuple[int, ...] = (), **fields: Any) -> None:  # noqa: ANN401
    """Send one message; ``PeerGone`` if nobody is there to read it."""
    try:
        if fds:
            socket.send_fds(connection, [encode(kind, fields)], list(fds))
        else:
            connection.send(encode(kind, fields))
    except (BrokenPipeError, ConnectionResetError) as error:
        raise PeerGone from error


def receive(connection: socket.socket) -> tuple[Message, list[int]]:
    """The next message and the descriptors that came with it; ``PeerGone`` at the end."""
    try:
        data, fds, _, _ = socket.recv_fds(connection, LARGEST, 4, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError as error:
        raise PeerGone from error
    if not data:
        for fd in fds:
            os.close(fd)
        raise PeerGone
    return decode(data, fds), fds


def decode(data: bytes, fds: list[int]) -> Message:
    """``ValueError`` for anything that is no message; its descriptors are closed."""
    try:
        message = json.loads(data.decode("utf-8", "surrogateescape"))
    except ValueError:
        message = None
    if isinstance(message, dict) and isinstance(message.get("kind"), str):
        return message
    for fd in fds:
        os.close(fd)
    raise ValueError("no message")
