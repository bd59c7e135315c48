"""Ports on loopback that nobody else takes.

Ports come from below the range that the kernel hands to outgoing connections, so that a component which is stopped and
started again finds its port free. A lock on a file per port, held until ``close`` or the end of the process, keeps
control planes of other processes off it.
"""

import fcntl
import random
import socket
import tempfile
from pathlib import Path
from typing import TextIO

FIRST, LAST = 20_000, 32_000


class Ports:
    """Hands out ports; all of them are given back by ``close``."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.gettempdir()) / "bursar-ports"
        self._folder.mkdir(exist_ok=True)
        self._held: list[TextIO] = []

    def take(self) -> int:
        """A port that is free now and ours until ``close``."""
        for port in random.sample(range(FIRST, LAST), LAST - FIRST):
            guard = (self._folder / str(port)).open("w")
            try:
                fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                guard.close()
                continue
            if is_free(port):
                self._held.append(guard)
                return port
            guard.close()
        raise RuntimeError(f"no free port between {FIRST} and {LAST}")

    def close(self) -> None:
        for guard in self._held:
            guard.close()
        self._held.clear()


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
