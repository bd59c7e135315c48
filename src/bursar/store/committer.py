"""Group commit: many callers, one wait for the disk.

``submit`` hands a batch over and returns a future; a thread writes all that has come in meanwhile in one transaction
and wakes every caller when it is on the disk. Batches are written in the order of their submission, so whoever takes
journal lines from an engine submits them before letting go of the engine's lock.

When a write fails, memory is ahead of the disk and nothing can be promised any more: everybody who waits or comes
later gets the error, and the store is closed. A restart continues from what is on the disk.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from threading import Condition, Thread

from bursar.store.batches import Batch
from bursar.store.errors import StoreError
from bursar.store.store import Store

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

        Waits while too much is waiting already: whoever decides must not run away from the disk.
        """
        future: Future[int] = Future()
        future.set_running_or_notify_cancel()  # what was decided is written, whether somebody still waits or not
        with self._changed:
            while len(self._waiting) >= self._limit and self.error is None and not self._closing:
                self._changed.wait()
            if self.error is not None:
                raise StoreError(self.store.path, f"was closed after a failure: {self.error}") from self.error
            if self._closing:
                raise StoreError(self.store.path, "is being closed")
            self._waiting.append((batch, future))
            if len(self._waiting) == 1:
                self._changed.notify_all()
        return future

    def commit(self, batch: Batch) -> int:
        """Submit and wait."""
        return self.submit(batch).result()

    def close(self) -> None:
        """Write what was submitted, then close the store."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
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
        self.store.close()
