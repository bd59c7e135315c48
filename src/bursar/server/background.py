"""What a service does by itself: let time pass, check its own journal, keep snapshots. A thread each.

None of them may take the service down: what goes wrong is kept for the health check and the metrics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread

from bursar.audit.auditor import AuditError, Auditor
from bursar.server.hub import News
from bursar.server.service import Service
from bursar.store import snapshots
from bursar.store.errors import StoreError

LOG = logging.getLogger("bursar.server")
POLL_MS = 1000
SNAPSHOT_EVERY = 20_000
_UIDS_KEPT = 1_000_000


class Ticker:
    """Sleeps until something is due. Policies take back over-use after a delay of their own, so it looks often."""

    def __init__(self, service: Service, poll_ms: int = POLL_MS) -> None:
        self._service = service
        self._poll = poll_ms
        self._stopped = Event()
        self._thread = _thread("bursar-ticker", self._run)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                due = self._service.tick()
            except Exception:  # the service has noted it, and takes no changes any more
                LOG.exception("time does not pass any more")
                return
            wait = self._poll if due is None else min(self._poll, max(1, due - self._service.now()))
            self._stopped.wait(wait / 1000)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


class AuditWatch:
    """Feeds every durable journal line to the independent auditor: first those of before, then those to come."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._auditor = Auditor(_UIDS_KEPT)
        self.failures = 0
        self.problem = ""
        self._stopping = False
        self._stop_listening = service.hub.listen(self._hear)
        self._thread = _thread("bursar-audit", self._run)

    @property
    def audited(self) -> int:
        """The last record that was found to be right."""
        return self._auditor.seq

    def _hear(self, news: News) -> None:
        for line in news.lines:
            self._lines.put(line)

    def _run(self) -> None:
        try:
            self._catch_up()
            while (line := self._lines.get()) is not None:
                self._feed(line)
        except (AuditError, StoreError) as error:
            self._failed(str(error))
        except Exception as error:
            LOG.exception("the audit stopped")
            self._failed(f"{type(error).__name__}: {error}")

    def _catch_up(self) -> None:
        """The journal as it was when the thread began; what was heard meanwhile is passed over later."""
        store = self._service.store
        if store.pruned_to:
            found = store.rows("SELECT state FROM snapshots WHERE seq >= ? ORDER BY seq LIMIT 1", store.pruned_to)
            self._auditor.begin(bytes(found[0][0]))
        for line in store.load_journal(self._auditor.seq + 1):
            if self._stopping:
                return
            self._auditor.feed(line)

    def _feed(self, line: bytes) -> None:
        seq = int(line.split(b",", 2)[1])
        if seq > self._auditor.seq:
            self._auditor.feed(line)

    def _failed(self, problem: str) -> None:
        if not self._stopping:
            self.failures += 1
            self.problem = problem
            LOG.error("audit: %s", problem)

    def stop(self) -> None:
        """Audit what was heard so far, and end."""
        self._stop_listening()
        self._lines.put(None)
        self._thread.join(timeout=10)
        self._stopping = True
        self._thread.join()


class SnapshotKeeper:
    """Sums up the journal every so many records, so that a restart and a look at the past start near."""

    def __init__(self, service: Service, every: int = SNAPSHOT_EVERY) -> None:
        self._store = service.store
        self._every = every
        self._wake = Event()
        self._stopping = False
        self.taken = 0
        self._last = int(self._store.rows("SELECT coalesce(max(seq), 0) FROM snapshots")[0][0])
        self._stop_listening = service.hub.listen(self._hear)
        self._thread = _thread("bursar-snapshots", self._run)

    def _hear(self, news: News) -> None:
        if news.seq - self._last >= self._every:
            self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._stopping:
                return
            try:
                self._last = snapshots.take(self._store).seq
                self.taken += 1
            except Exception:
                LOG.exception("no snapshot could be taken")
                self._last = self._store.last_seq  # try again after as many records

    def stop(self) -> None:
        self._stop_listening()
        self._stopping = True
        self._wake.set()
        self._thread.join()


def _thread(name: str, run: Callable[[], None]) -> Thread:
    thread = Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
