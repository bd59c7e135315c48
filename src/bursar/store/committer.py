"""Group commit: many callers share one wait for the disk.

A thread writes all batches that were submitted meanwhile in one transaction, in the order of submission. So a caller
that takes journal lines from an engine submits them before it releases the engine's lock.

When a write fails, memory is ahead of the disk: all callers that wait get the error, and the committer takes no more
batches. The store stays open for readers, as it was after the last batch that was written.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from threading import Condition, Thread

from bursar.store.schema import StoreError
from bursar.store.store import Batch, Store

_WAITING_AT_MOST = 10_000
_TOGETHER_AT_MOST = 2_000


class GroupCommitter:
    """The writing thread of a store."""

    def __init__(self, store: Store, waiting_at_most: int = _WAITING_AT_MOST) -> None:
        self.store = store
        self.error: BaseException | None = None
        self._limit = waiting_at_most
        self._waiting: deque[tuple[Batch, Future[int]]] = deque()
        self._changed = Condition()
        self._closing = False
        self._thread = Thread(target=self._run, name="bursar-committer", daemon=True)
        self._thread.start()

    def submit(self, batch: Batch) -> Future[int]:
        """Hand a batch over; the future holds the number of the last record when it is durable.

        Blocks while too many batches wait, so that decisions do not outrun the disk.
        """
        future: Future[int] = Future()
        future.set_running_or_notify_cancel()  # a decision is written even if its caller has given up
        with self._changed:
            while len(self._waiting) >= self._limit and self.error is None and not self._closing:
                self._changed.wait()
            if self.error is not None:
                raise StoreError(self.store.path, f"takes no more batches: {self.error}") from self.error
            if self._closing:
                raise StoreError(self.store.path, "is being closed")
            self._waiting.append((batch, future))
            if len(self._waiting) == 1:
                self._changed.notify_all()
        return future

    def commit(self, batch: Batch) -> int:
        """Submit and wait."""
        return self.submit(batch).result()

    def stop(self) -> None:
        """Write what was submitted, and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def close(self) -> None:
        """Write what was submitted, then close the store."""
        self.stop()
        self.store.close()

    def _run(self) -> None:
        while True:
            work = self._next()
            if not work:
                return
            try:
                seq = self.store.commit_all([batch for batch, _ in work])
            except BaseException as error:  # noqa: BLE001 whatever it is, everybody who waits must hear of it
                self._fail(error, work)
                return
            for _, future in work:
                future.set_result(seq)

    def _next(self) -> list[tuple[Batch, Future[int]]]:
        """What is waiting, as soon as there is something; nothing when it is time to end."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            full = len(self._waiting) >= self._limit
            count = min(len(self._waiting), _TOGETHER_AT_MOST)
            work = [self._waiting.popleft() for _ in range(count)]
            if full:
                self._changed.notify_all()
            return work

    def _fail(self, error: BaseException, work: list[tuple[Batch, Future[int]]]) -> None:
        with self._changed:
            self.error = error
            lost = [*work, *self._waiting]
            self._waiting.clear()
            self._changed.notify_all()
        for _, future in lost:
            future.set_exception(error)


class TermJournal:
    """The journal of one leader term of a controller, in a store file that a thread writes."""

    def __init__(self, path: Path) -> None:
        self._committer = GroupCommitter(Store.create(path))

    def keep(self, lines: list[bytes], now: int) -> None:
        self._committer.submit(Batch(lines, (), now))

    def close(self) -> None:
        self._committer.close()


def journals_in(folder: Path, number: int) -> TermJournal:
    """Open a journal for a term that begins now. The name holds the time: a leader may rebuild its ledger in a term."""
    folder.mkdir(parents=True, exist_ok=True)
    begun = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
    return TermJournal(folder / f"term-{number}-{begun}.db")
