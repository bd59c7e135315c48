"""Processes beside the server that read its store: the auditor, and whoever sums the journal up.

Both go through every record with books of their own. In processes of their own they take neither memory nor turns of
the interpreter from the server, which goes on deciding meanwhile. They only read; what they find comes back by pipe,
and they end when the server does, however it ends.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO, cast

import msgspec

from bursar.store import snapshots
from bursar.store.processes import ApartError, end, start
from bursar.store.snapshots import Label
from bursar.store.store import Store

_PART = 65_536  # bytes of a snapshot at a time


class Verdict(msgspec.Struct, frozen=True):
    """How far the auditor came, and what is wrong with the record after that, if something is."""

    audited: int
    problem: str = ""


class AuditProcess:
    """Asks the auditor; one question at a time."""

    def __init__(self, path: Path) -> None:
        self._process = start("bursar.server.auditchild", path)
        self.pid = self._process.pid

    def audit(self, upto: int) -> Verdict:
        """Go on towards a record; it may take several questions to get there."""
        try:
            self._in.write(b"%d\n" % upto)
            self._in.flush()
            answer = cast("IO[bytes]", self._process.stdout).readline()
        except (OSError, ValueError) as error:
            raise ApartError(f"the auditor's process cannot be asked: {error}") from error
        if not answer:
            raise ApartError(f"the auditor's process ended with code {self._process.wait()}")
        return msgspec.json.decode(answer, type=Verdict)

    @property
    def _in(self) -> IO[bytes]:
        return cast("IO[bytes]", self._process.stdin)

    def close(self) -> None:
        end(self._process)


class SumProcess:
    """Sums a store's journal up to its last record."""

    def __init__(self, path: Path) -> None:
        self._process = start("bursar.server.snapshotchild", path)

    def keep(self, store: Store) -> int:
        """Wait for the snapshot and write it; the number of its record. It is never whole in this process."""
        output = cast("IO[bytes]", self._process.stdout)
        try:
            first = output.readline()
            label = msgspec.json.decode(first, type=Label) if first else None
            if label is not None:
                snapshots.keep(store, label, iter(lambda: output.read(_PART), b""))
        finally:
            end(self._process)
        if label is None or self._process.returncode:
            raise ApartError(f"the process that sums the journal up ended with code {self._process.returncode}")
        return label.seq

    def cancel(self) -> None:
        """Nobody wants it any more."""
        self._process.kill()
