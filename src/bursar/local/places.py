"""Where things are on a machine: the socket of its agent and who is behind it, the folder of its state, the token of
its admin.

An instance of root serves all users; one of another user is that user's own. Clients import this module, so it imports
little.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from pathlib import Path

SYSTEM_SOCKET = "/run/bursar/agent.sock"
SYSTEM_STATE = "/var/lib/bursar"
TOKENS = "tokens"
_CREDENTIALS = struct.Struct("3i")


class AgentUnreachable(Exception):  # noqa: N818 as above
    """No agent answers: one line that says where one was looked for."""


def own_socket() -> str:
    """That of the user's own instance; empty if the user has no runtime directory."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return f"{runtime}/bursar/agent.sock" if runtime else ""


def socket_candidates() -> list[str]:
    """Where a client looks for an agent, in that order."""
    named = os.environ.get("BURSAR_SOCKET", "")
    return [named] if named else [path for path in (own_socket(), SYSTEM_SOCKET) if path]


def default_socket() -> Path:
    """Where an agent listens; ``OSError`` for a user without a runtime directory."""
    if os.geteuid() == 0:
        return Path(SYSTEM_SOCKET)
    if not own_socket():
        raise OSError("there is no runtime directory (XDG_RUNTIME_DIR): name a socket with --socket")
    return Path(own_socket())


def state_folder() -> Path:
    """Made where it is missing; others may pass through it, because their logs are below."""
    if os.geteuid() == 0:
        folder = Path(SYSTEM_STATE)
    else:
        base = os.environ.get("XDG_STATE_HOME", "")
        folder = (Path(base) if base else Path.home() / ".local/state") / "bursar"
    folder.mkdir(parents=True, exist_ok=True, mode=0o711)
    return folder


def make_tokens(folder: Path) -> Path:
    """A file with a token for the admin, which only its owner may read; one that is there is kept."""
    import secrets  # noqa: PLC0415 clients do not need it

    path = folder / TOKENS
    with contextlib.suppress(FileExistsError):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(f"admin {secrets.token_urlsafe(32)}\n")
    return path


def usual_token() -> str:
    """The token of this machine's server, if the caller may read it; else empty."""
    homes = [Path(SYSTEM_STATE)]
    if os.geteuid() != 0:
        base = os.environ.get("XDG_STATE_HOME", "")
        homes.insert(0, (Path(base) if base else Path.home() / ".local/state") / "bursar")
    for home in homes:
        with contextlib.suppress(OSError, IndexError):
            return (home / TOKENS).read_text(encoding="utf-8").split()[1]
    return ""


def peer(connection: socket.socket) -> tuple[int, int, int]:
    """(pid, uid, gid) of the process that connected, as the kernel says."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    found: tuple[int, int, int] = _CREDENTIALS.unpack(data)
    return found


def connect(paths: list[str] | None = None) -> socket.socket:
    """A connection to the agent, which must run as root or as the same user; ``AgentUnreachable``."""
    tried = socket_candidates() if paths is None else paths
    problem = ""
    for path in tried:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(path)
        except OSError as error:
            connection.close()
            if not isinstance(error, FileNotFoundError) or not problem:
                problem = f"{path}: {error.strerror or error}"
            continue
        owner = peer(connection)[1]
        if owner in {0, os.geteuid()}:
            return connection
        connection.close()
        problem = f"{path}: is served by user {owner}, who is neither root nor you"
    raise AgentUnreachable(problem)
