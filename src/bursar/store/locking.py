"""One writer a store: a lock that dies with its process.

The lock is on a file beside the store, never on the store itself: closing any handle of a file drops all locks that
the process has on it, and SQLite relies on its own.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from bursar.store.errors import StoreBusyError, StoreError


class WriterLock:
    """Held from construction until ``release`` or the end of the process."""

    def __init__(self, store: Path) -> None:
        self.path = store.with_name(store.name + "-lock")
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(store, f"cannot be opened for writing: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._file, 20, 0).decode("ascii", "replace").strip()
            os.close(self._file)
            advice = "only one process may write a store; ask that one, or stop it first"
            raise StoreBusyError(store, f"in use by process {owner or 'unknown'}", advice) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Give it up. The file stays: removing it could take it from under another process's feet."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
