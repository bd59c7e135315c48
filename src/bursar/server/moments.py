"""Moments: states of the present and the past, and what people write to name one.

A moment is a place in the journal (``seq``) and in the history of the objects (``version``). Both only grow, and a
batch that is made durable moves both, so the two together name a state exactly.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bursar.objects.durations import duration_ms
from bursar.objects.errors import ManifestError
from bursar.server import answers
from bursar.sim.cluster import Cluster
from bursar.sim.store import timestamp
from bursar.store.store import Store

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = re.compile(r"[0-9]{1,15}")
Clock = Callable[[], int]


def wall_clock() -> int:
    """Milliseconds since 1970; may jump, so whoever uses it keeps time from going back."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Moment:
    seq: int
    version: int
    at: int


class MomentError(ValueError):
    """A text that names no moment, or one that is not known."""


def moment_of(cluster: Cluster) -> answers.Moment:
    """The moment that a cluster is at, as answers carry it."""
    return answers.Moment(
        seq=cluster.engine.version,
        resource_version=str(cluster.objects.version),
        time=timestamp(cluster.now()),
        digest=f"{cluster.engine.digest:016x}",
    )


def find(store: Store, text: str, now: int, latest: int, option: str) -> Moment:
    """The moment that a text names: a time, a time span ago (-5m) or the number of a journal record.

    ``latest`` is the time by the clock of who answers: what is after it is in the future, and nothing is known of it.
    It is ``now``, except of a file, whose now is its last moment. ``option`` is what the text was given for.
    """
    if _NUMBER.fullmatch(text):
        return at_record(store, int(text))
    moment = now - _span(text) if text.startswith("-") else _time(text)
    if moment < 0:
        raise MomentError(f"{text!r:.60} is before 1970")
    if moment > latest:
        raise MomentError(f"`{option}`: {text!r:.60} is in the future: the server's time is {timestamp(latest)}")
    return at_time(store, min(moment, now))


def at_record(store: Store, seq: int) -> Moment:
    if not store.pruned_to <= seq <= store.last_seq:
        raise MomentError(f"there is no record {seq}: the journal has {store.pruned_to} to {store.last_seq}")
    _, version, at = last_entry(store, "seq", seq)
    return Moment(seq, version, at)


def at_time(store: Store, at: int) -> Moment:
    _, version, _ = last_entry(store, "at", at)
    return Moment(store.line_at(at), version, at)


def entry_of(store: Store, version: int) -> int:
    """The number of the last entry in the history of objects that belongs to a version."""
    return last_entry(store, "version", version)[0]


def last_entry(store: Store, column: str, value: int) -> tuple[int, int, int]:
    """(id, version, at) of the last entry whose column is at most the value. All columns grow with the id."""
    low, high = 0, int(store.rows("SELECT coalesce(max(id), 0) FROM object_history")[0][0])
    found = (0, 0, 0)
    query = f"SELECT id, version, at, {column} FROM object_history WHERE id <= ? ORDER BY id DESC LIMIT 1"  # noqa: S608 one of three
    while low < high:
        middle = (low + high + 1) // 2
        rows = store.rows(query, middle)
        if not rows or rows[0][3] <= value:
            low = middle
            found = rows[0][:3] if rows else found
        else:
            high = rows[0][0] - 1
    return found


def _span(text: str) -> int:
    try:
        return duration_ms(text[1:])
    except ManifestError as error:
        raise MomentError(f"{text!r:.60} is no time span ago such as -90s or -1h30m: {error.problem}") from None


def _time(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        forms = "a time such as 2026-11-01T10:03:00Z, a time span ago such as -5m, or the number of a journal record"
        raise MomentError(f"{text!r:.60} is not {forms}") from None
