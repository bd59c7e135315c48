"""Threads of a service: let time pass, audit the journal, keep snapshots.

Auditing and summing up run in child processes, each with a ledger of its own, so that they take neither memory nor
interpreter time from the server. They only read the store, answer by pipe, and end when the server does.

A failure here does not stop the service: the health check and the metrics report it.
"""

from __future__ import annotations

import logging
from pathlib import Path
from threading import Event, Thread
from typing import IO, cast

import msgspec

from bursar.server.audit_child import AuditVerdict
from bursar.server.batches import DurableBatch
from bursar.server.logs import fields
from bursar.server.retention import Retention
from bursar.server.service import Service
from bursar.server.time_travel import trim_memory
from bursar.store import snapshots, verify
from bursar.store.snapshots import Label
from bursar.store.store import Store
from bursar.store.verify import ChildFailedError, end_child, start_child

_PART = 65_536  # bytes of a snapshot at a time


class AuditProcess:
    """Asks the auditor; one question at a time."""

    def __init__(self, path: Path) -> None:
        self._process = start_child("bursar.server.audit_child", path)
        self.pid = self._process.pid

    def audit(self, upto: int) -> AuditVerdict:
        """Go on towards a record; it may take several questions to get there."""
        try:
            self._in.write(b"%d\n" % upto)
            self._in.flush()
            answer = cast("IO[bytes]", self._process.stdout).readline()
        except (OSError, ValueError) as error:
            raise ChildFailedError(f"the auditor's process cannot be asked: {error}") from error
        if not answer:
            raise ChildFailedError(f"the auditor's process ended with code {self._process.wait()}")
        return msgspec.json.decode(answer, type=AuditVerdict)

    @property
    def _in(self) -> IO[bytes]:
        return cast("IO[bytes]", self._process.stdin)

    def close(self) -> None:
        end_child(self._process)


class SumProcess:
    """Sums a store's journal up to its last record."""

    def __init__(self, path: Path) -> None:
        self._process = start_child("bursar.server.snapshot_child", path)

    def keep(self, store: Store) -> int:
        """Wait for the snapshot and write it; the number of its record. It is never whole in this process."""
        output = cast("IO[bytes]", self._process.stdout)
        try:
            first = output.readline()
            label = msgspec.json.decode(first, type=Label) if first else None
            if label is not None:
                snapshots.keep(store, label, iter(lambda: output.read(_PART), b""))
        finally:
            end_child(self._process)
        if label is None or self._process.returncode:
            raise ChildFailedError(f"the process that sums the journal up ended with code {self._process.returncode}")
        return label.seq

    def cancel(self) -> None:
        """Kill the process; its snapshot is not needed."""
        self._process.kill()


LOG = logging.getLogger("bursar.server")
POLL_MS = 1000
SNAPSHOT_EVERY = 20_000


class BackgroundThread:
    """A thread that runs until it is stopped, and sleeps until it is woken."""

    def __init__(self, name: str, wake: Event | None = None) -> None:
        self._wake = Event() if wake is None else wake
        self._stopping = False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        self._thread.join()


class Ticker(BackgroundThread):
    """Sleeps until something is due. Policies revoke over-use after delays of their own, so it polls as well."""

    def __init__(self, service: Service, poll_ms: int = POLL_MS) -> None:
        self._service = service
        self._poll = poll_ms
        super().__init__("bursar-ticker", service.alarm.ring)

    def _run(self) -> None:
        while True:
            self._wake.clear()
            if self._stopping:  # read after the clearing, which would undo the wake-up of a stop
                return
            with self._service.lock:  # no change comes between reading what is due and setting the alarm
                try:
                    due = self._service.tick()
                    self._service.store.fold()
                except Exception:  # the service has noted it, and goes back to what is on the disk
                    LOG.exception("time could not pass")
                    due = None
                now = self._service.now()
                wait = self._poll if due is None else min(self._poll, max(1, due - now))
                self._service.alarm.at = now + wait
            self._service.say_offset()
            self._wake.wait(wait / 1000)


class AuditWatch(BackgroundThread):
    """Has every durable journal line checked by the independent auditor, from the first one on."""

    def __init__(self, service: Service) -> None:
        self._store = service.store
        self.audited = 0  # the last record that was found to be right
        self.failures = 0
        self.problem = ""
        self._process = AuditProcess(self._store.path)
        super().__init__("bursar-audit")
        self._stop_listening = service.hub.listen(lambda _: self._wake.set())
        self._wake.set()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _run(self) -> None:
        try:
            while not self._stopping and not self.failures:
                self._wake.wait()
                self._wake.clear()
                self._catch_up()
        except Exception as error:  # noqa: BLE001 the health check and the metrics tell of it
            self._failed(f"{type(error).__name__}: {error}")

    def _catch_up(self) -> None:
        last = self._store.last_seq
        while self.audited < last and not self._stopping and not self.failures:
            verdict = self._process.audit(last)
            self.audited = verdict.audited
            if verdict.problem:
                self._failed(verdict.problem)

    def _failed(self, problem: str) -> None:
        if not self._stopping:
            self.failures += 1
            self.problem = problem
            LOG.error("audit: %s", problem)

    def stop(self) -> None:
        self._stop_listening()
        super().stop()
        self._process.close()


class SnapshotKeeper(BackgroundThread):
    """Makes the past quick to read: sums the journal up every so many records, and extends the index of claims."""

    def __init__(self, service: Service, every: int = SNAPSHOT_EVERY, kept: int | None = None) -> None:
        """``kept``: for how long history is kept, in milliseconds; None: for ever."""
        self._service = service
        self._store = service.store
        self._every = every
        self._retention = None if kept is None else Retention(service.store, kept)
        self._indexed = 0
        self.taken = 0
        self._process: SumProcess | None = None
        self._last = int(self._store.rows("SELECT coalesce(max(seq), 0) FROM snapshots")[0][0])
        super().__init__("bursar-snapshots")
        self._stop_listening = service.hub.listen(self._hear)

    def _hear(self, batch: DurableBatch) -> None:
        if batch.seq - self._last >= self._every or batch.seq - self._indexed >= verify.BLOCK:
            self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.wait(None if self._retention is None else self._retention.every / 4000)
            self._wake.clear()
            if self._stopping:
                return
            last = self._store.last_seq
            try:
                self.keep(last)
            except Exception:
                if not self._stopping:
                    LOG.exception("no snapshot could be taken")
                self._last = last  # try again after as many records

    def keep(self, last: int) -> None:
        """What is due at a record: index, snapshot, pruning."""
        self._indexed = last
        verify.extend(self._store)
        now, retention = self._service.now(), self._retention
        if last - self._last >= self._every or (retention is not None and retention.wants_snapshot(now)):
            self._take()
        if retention is not None and (gone := retention.prune(now)):
            LOG.info("pruned history", extra=fields(records=gone, begins=self._store.pruned_to + 1))

    def _take(self) -> None:
        self._process = SumProcess(self._store.path)
        self._last = self._process.keep(self._store)
        self.taken += 1
        trim_memory()

    def stop(self) -> None:
        self._stop_listening()
        self._stopping = True  # before the process ends: its end is no failure
        if self._process is not None:
            self._process.cancel()
        super().stop()
