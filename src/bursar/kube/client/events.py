"""Events of events.k8s.io/v1, as shown by ``kubectl describe``.

Recording never waits and never fails: the event goes into a bounded queue, from which a task writes. Repeats within a
period become a series of the first event. Each object has a token bucket. Events that are not written are counted,
with the reason.

``latest_events`` reads the latest event of each object back: the one with the highest resource version, because clocks
of different writers are not compared. The server drops events after a while (an hour by default). Times are wall-clock
times for people; no decision depends on them.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from bursar.kube.client.api import EVENTS, Api, PatchKind, Resource, Select
from bursar.kube.client.errors import Fenced, KubeError, Malformed, NotFound
from bursar.kube.client.models import Meta, Wire

NOTE_BYTES = 1024
REASON_LENGTH = 128

Known = Callable[[str, str], bool]
"""Whether the object of that kind and uid is still there."""


class EventText(NamedTuple):
    reason: str
    message: str


def event_text(reason: str, message: str) -> EventText:
    """Reason and message as an event holds them, cut to the limits of the API."""
    return EventText(reason[:REASON_LENGTH], _shortened(message))


async def latest_events(api: Api, controller: str, known: Known) -> dict[str, EventText]:
    """The latest event of the controller about each known object, by uid."""
    found: dict[str, EventText] = {}
    versions: dict[str, int] = {}
    async for page in api.pages(EVENTS, select=Select(fields=f"reportingController={controller}")):
        for raw in page.items or ():
            event, version = _read(raw)
            about = event.regarding
            if version > versions.get(about.uid, -1) and known(about.kind, about.uid):
                versions[about.uid] = version
                found[about.uid] = EventText(event.reason, event.note)
    return found


class _About(Wire, frozen=True):
    kind: str = ""
    uid: str = ""


class _Event(Wire, frozen=True):
    """An event, as far as it is read."""

    metadata: Meta = Meta()
    regarding: _About = _About()
    reason: str = ""
    note: str = ""


_decode = msgspec.json.Decoder(_Event).decode


def _read(raw: msgspec.Raw) -> tuple[_Event, int]:
    """An event and its version: a number that grows with each write of any event."""
    try:
        event = _decode(raw)
        return event, int(event.metadata.resource_version)
    except ValueError as error:  # no JSON of that form, or no number
        raise Malformed(f"event: {error}") from None


def _shortened(message: str) -> str:
    encoded = message.encode()
    if len(encoded) <= NOTE_BYTES:
        return message
    return encoded[: NOTE_BYTES - 3].decode(errors="ignore") + "…"


def micro_time() -> str:
    """Now, of the type MicroTime: in events and leases."""
    return _now("microseconds")


def whole_seconds() -> str:
    """Now, of the type Time: everywhere else."""
    return _now("seconds")


def _now(precision: str) -> str:
    return datetime.now(UTC).isoformat(timespec=precision).replace("+00:00", "Z")


log = logging.getLogger(__name__)

NAME_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an event is about."""

    resource: Resource
    name: str
    namespace: str = ""
    uid: str = ""

    def reference(self) -> dict[str, str]:
        found = {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "name": self.name,
            "namespace": self.namespace,
            "uid": self.uid,
        }
        return {key: value for key, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class Note:
    """One event. ``type`` is Normal or Warning; ``action`` is what was done or tried, in CamelCase."""

    regarding: Regarding
    type: str
    reason: str
    message: str
    action: str


@dataclass(frozen=True, slots=True)
class EventLimits:
    """Seconds and numbers: how much is written, and how long things are remembered."""

    queue: int = 10_000
    writers: int = 4
    burst: int = 25  # events about one object
    refill: float = 30.0  # seconds until it gets one more
    series_period: float = 10.0  # between two writes of one series
    series_end: float = 360.0  # without a repetition: the next one is a new event
    remembered: int = 4096  # series and buckets


@dataclass(slots=True)
class _Series:
    last: float  # on the recorder's clock
    count: int = 1
    name: str = ""  # of the event on the server; "" until it is there


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class Recorder:
    """Writes events for one controller. ``run`` it in a task; ``record`` from anywhere in the same loop."""

    def __init__(
        self,
        api: Api,
        controller: str,
        instance: str,
        limits: EventLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.dropped: Counter[str] = Counter()  # by why: full, limited, fenced, failed
        self.written = 0
        self._api = api
        self._controller = controller
        self._instance = instance[:REASON_LENGTH]
        self._limits = limits or EventLimits()
        self._clock = clock
        self._queue: asyncio.Queue[Note] = asyncio.Queue(self._limits.queue)
        self._series: OrderedDict[Note, _Series] = OrderedDict()
        self._repeated: dict[Note, None] = {}  # series that the server does not have in full
        self._buckets: OrderedDict[Regarding, _Bucket] = OrderedDict()

    def record(self, regarding: Regarding, type: str, reason: str, message: str, action: str = "") -> None:  # noqa: A002 as Kubernetes says
        """Record an event about an object. Returns at once and never fails."""
        note = Note(regarding, type, *event_text(reason, message), (action or reason)[:REASON_LENGTH])
        now = self._clock()
        series = self._series.get(note)
        if series is not None and now - series.last < self._limits.series_end:
            series.count += 1
            series.last = now
            self._repeated[note] = None
            return
        if not self._may_speak(regarding, now):
            self.dropped["limited"] += 1
            return
        try:
            self._queue.put_nowait(note)
        except asyncio.QueueFull:
            self.dropped["full"] += 1
            return
        self._series[note] = _Series(now)
        self._series.move_to_end(note)
        while len(self._series) > self._limits.remembered:
            self._series.popitem(last=False)

    def _may_speak(self, regarding: Regarding, now: float) -> bool:
        limits = self._limits
        bucket = self._buckets.setdefault(regarding, _Bucket(limits.burst, now))
        self._buckets.move_to_end(regarding)
        while len(self._buckets) > limits.remembered:
            self._buckets.popitem(last=False)
        bucket.tokens = min(limits.burst, bucket.tokens + (now - bucket.at) / limits.refill)
        bucket.at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    async def run(self) -> None:
        """Write what is recorded, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat())
            for _ in range(self._limits.writers):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            await self._write_next(await self._queue.get())

    async def _write_next(self, note: Note) -> None:
        try:
            await self._write(note)
        except Exception:  # a fault of one event must not stop the others
            log.exception("event %s about %s not written", note.reason, note.regarding.name)
            self.dropped["failed"] += 1
        finally:
            self._queue.task_done()

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(self._limits.series_period)
            await self._write_series()

    async def flush(self) -> None:
        """Write all queued events now, and wait for those being written, before the process ends."""
        while not self._queue.empty():
            await self._write_next(self._queue.get_nowait())
        await self._queue.join()
        await self._write_series()

    async def latest_events(self, known: Known) -> dict[str, EventText]:
        """The latest event of this controller about each known object, once all queued ones are written."""
        await self._queue.join()
        return await latest_events(self._api, self._controller, known)

    async def _write(self, note: Note) -> None:
        name = f"{note.regarding.name[:NAME_LENGTH].rstrip('.-')}.{secrets.token_hex(8)}"
        try:
            await self._api.create(EVENTS, self._event(note, name), _space(note))
        except KubeError as error:
            self._series.pop(note, None)
            self._lost(note, error)
            return
        self.written += 1
        series = self._series.get(note)
        if series is not None:
            series.name = name

    async def _write_series(self) -> None:
        for note in list(self._repeated):
            series = self._series.get(note)
            if series is None or not series.name or note not in self._repeated:  # another writer has it
                continue
            count = series.count
            patch = {"series": {"count": count, "lastObservedTime": micro_time()}}
            del self._repeated[note]
            try:
                await self._api.patch(EVENTS, series.name, _space(note), PatchKind.MERGE, patch)
            except NotFound:  # the server forgets events after an hour
                self._series.pop(note, None)
            except KubeError as error:
                self._lost(note, error)
        self._repeated = {note: None for note in self._repeated if note in self._series}

    def _lost(self, note: Note, error: KubeError) -> None:
        self.dropped["fenced" if isinstance(error, Fenced) else "failed"] += 1
        log.info("event %s about %s not written: %s", note.reason, note.regarding.name, error)

    def _event(self, note: Note, name: str) -> dict[str, object]:
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": _space(note)},
            "eventTime": micro_time(),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "type": note.type,
            "reason": note.reason,
            "action": note.action,
            "note": note.message,
            "regarding": note.regarding.reference(),
        }


def _space(note: Note) -> str:
    return note.regarding.namespace or "default"
