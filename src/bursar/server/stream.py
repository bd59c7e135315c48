"""The live stream: journal records and changed objects as server-sent events.

A resumed stream first reads what it missed from the store. It listens before it reads, so that nothing is lost in
between, and skips duplicates by their number. Each stream has a bounded queue: a slow client is disconnected, and
resumes from the store when it comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import msgspec

from bursar.objects.validation import timestamp
from bursar.server import time_travel
from bursar.server.batches import DurableBatch
from bursar.server.requests import in_thread
from bursar.server.service import Service

HEARTBEAT = 15.0
WAITING_AT_MOST = 1000
_CHUNK = 500


class Stream:
    def __init__(self, service: Service, last: int | None, heartbeat: float = HEARTBEAT) -> None:
        self._service = service
        self._last = last
        self._heartbeat = heartbeat
        self._queue: asyncio.Queue[DurableBatch | None] = asyncio.Queue(WAITING_AT_MOST)
        self._loop = asyncio.get_running_loop()
        self._lost = False
        self._stop = service.hub.listen(self._hear)

    def _hear(self, batch: DurableBatch) -> None:
        """In the writing thread."""
        try:
            self._loop.call_soon_threadsafe(self._offer, batch)
        except RuntimeError:  # the loop has ended, and everybody with it
            self._stop()

    def _offer(self, batch: DurableBatch) -> None:
        if self._queue.full():
            self._lost = True
            self._stop()
        else:
            self._queue.put_nowait(batch)

    def end(self) -> None:
        """End the stream; the server shuts down."""
        self._lost = True
        if not self._queue.full():
            self._queue.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            yield b": welcome\nretry: 1000\n\n"
            sent = self._service.store.last_seq if self._last is None else self._last
            if self._last is not None:
                async for seq, text in self._missed(self._last):
                    sent = seq
                    yield text
            async for text in self._live(sent):
                yield text
        finally:
            self._stop()

    async def _missed(self, last: int) -> AsyncIterator[tuple[int, bytes]]:
        store = self._service.store
        entry = store.last_entry("seq", last - 1)[0]
        end = store.last_seq
        while last < end:
            upto = min(last + _CHUNK, end)
            lines = await in_thread(list, store.load_journal(last + 1, upto))
            for line in lines:
                yield upto, b"".join(_records([line]))
            last = upto
        rows = await in_thread(
            store.rows,
            "SELECT seq, kind, key, version, body IS NULL FROM object_history WHERE id > ? AND seq <= ? ORDER BY id",
            entry,
            end,
        )
        if rows:
            yield end, _objects(end, [(kind, key, version, bool(gone)) for _, kind, key, version, gone in rows])

    async def _live(self, sent: int) -> AsyncIterator[bytes]:
        while True:
            if self._lost and self._queue.empty():
                return
            try:
                batch = await asyncio.wait_for(self._queue.get(), self._heartbeat)
            except TimeoutError:
                yield b": alive\n\n"
                continue
            if batch is None:
                return
            fresh = [line for line in batch.lines if int(line.split(b",", 2)[1]) > sent]
            sent = max(sent, batch.seq)
            text = b"".join(_events_of(batch, fresh))
            if text:
                yield text


def _events_of(batch: DurableBatch, lines: Sequence[bytes]) -> Iterator[bytes]:
    yield from _records(lines)
    if batch.objects:
        yield _objects(batch.seq, [(o.kind, o.key, o.version, o.body is None) for o in batch.objects])
    for event in batch.events:
        data = {
            "time": timestamp(event.at),
            "kind": event.kind,
            "key": event.key,
            "type": event.type,
            "reason": event.reason,
            "message": event.message,
        }
        yield _event("notice", batch.seq, data)


def _records(lines: Sequence[bytes]) -> Iterator[bytes]:
    for line in lines:
        for row in time_travel.decision_rows(line):
            yield _event("record", row.seq, row)


def _objects(seq: int, rows: Sequence[tuple[str, str, int, bool]]) -> bytes:
    data = [
        {"kind": kind, "key": key, "resourceVersion": str(version), "deleted": gone}
        for kind, key, version, gone in rows
    ]
    return _event("objects", seq, data)


def _event(name: str, seq: int, data: Any) -> bytes:  # noqa: ANN401 whatever can be JSON
    return b"event: %s\nid: %d\ndata: %s\n\n" % (name.encode(), seq, msgspec.json.encode(data))
