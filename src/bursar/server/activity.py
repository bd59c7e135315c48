"""What was used and what waited over time, by team, and what happened: summed up from the journal.

The sums are exact: for each team and resource, amount times milliseconds, in whole numbers. They are kept in spans of
three lengths (ten seconds, five minutes, six hours), each for as long as its spans are of use, so memory does not grow
with the journal. Each question first reads what the journal has new, for a bounded time; ``complete`` says whether it
came to its end.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Lock

import msgspec

from bursar.engine.decision import EVICTED as EVICTION
from bursar.engine.decision import OUTCOMES
from bursar.ledger.claims import GONE, HELD, PENDING, RESERVED
from bursar.ledger.journal_lines import LINES, Dropped, Entered, Stated
from bursar.objects.validation import timestamp
from bursar.policies.plugin import Registry
from bursar.resources import dimension
from bursar.server import total_types, types
from bursar.server.rows import shown_requests
from bursar.store.store import Store

_WAITS = (PENDING, HELD)
_SLICE = 0.25  # seconds of reading for one question
_POINTS = 720  # of an answer, at most
STARTED, EVICTED, FINISHED, SUBMITTED = range(4)
_EVICTION = OUTCOMES[EVICTION]
Key = tuple[str, str]  # namespace, resource


class _Spec(msgspec.Struct, frozen=True):
    """What a claim asks for, of all that its record holds."""

    requests: dict[str, int] = {}
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


@dataclass(slots=True)
class Span:
    """What happened in one span of time."""

    used: dict[Key, int] = field(default_factory=dict)  # amount times milliseconds
    waited: dict[Key, int] = field(default_factory=dict)
    counts: list[int] = field(default_factory=lambda: [0, 0, 0, 0])


class Level:
    """Spans of one length; the oldest are dropped."""

    def __init__(self, width: int, kept: int) -> None:
        self.width = width
        self.kept = kept
        self.spans: dict[int, Span] = {}

    def at(self, number: int) -> Span:
        found = self.spans.get(number)
        if found is None:
            found = self.spans[number] = Span()
            while len(self.spans) > self.kept:
                del self.spans[min(self.spans)]
        return found

    def add(self, waited: bool, key: Key, amount: int, start: int, end: int) -> None:
        """An amount from a time to another one."""
        number = max(start // self.width, end // self.width - self.kept)
        while number * self.width < end:
            begun, ended = max(start, number * self.width), min(end, (number + 1) * self.width)
            span = self.at(number)
            sums = span.waited if waited else span.used
            sums[key] = sums.get(key, 0) + amount * (ended - begun)
            number += 1


@dataclass(slots=True)
class _KnownClaim:
    """A claim that is not gone."""

    namespace: str
    amounts: dict[str, int]
    state: int = PENDING


@dataclass(slots=True)
class _Running:
    """An amount that holds since a time."""

    amount: int = 0
    since: int = 0


class ActivityIndex:
    """The sums of one journal."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._lock = Lock()
        self._seq = store.pruned_to
        self._now = 0
        self._begins = 0
        self._claims: dict[str, _KnownClaim] = {}
        self._running: defaultdict[tuple[bool, Key], _Running] = defaultdict(_Running)
        self._levels = (Level(10_000, 720), Level(300_000, 2016), Level(6 * 3_600_000, 4096))

    def answer(self, moment: types.Moment, start: int, end: int, namespace: str) -> total_types.Activity:
        """The time from ``start`` to ``end``, of one team or, with "", of all."""
        with self._lock:
            complete = self._follow(moment.seq)
            if complete:
                self._pass_to(max(end, self._now))
            return self._summed(moment, max(start, self._begins), end, namespace, complete=complete)

    # Reading

    def _follow(self, upto: int) -> bool:
        stop = time.monotonic() + _SLICE
        while self._seq < upto:
            for line in self._store.load_journal(self._seq + 1, min(self._seq + 500, upto)):
                self._read(line)
            if time.monotonic() > stop:
                break
        return self._seq >= upto

    def _read(self, text: bytes) -> None:
        line = LINES.decode(text)
        self._seq, self._now = line.seq, line.at
        self._begins = self._begins or line.at
        uid = ""
        for effect in line.changes:
            uid = getattr(effect, "uid", "") or uid  # none: the one before
            if isinstance(effect, Entered):
                self._enter(effect)
            elif isinstance(effect, Stated):
                self._state(uid, effect.state)
            elif isinstance(effect, Dropped):
                self._drop(uid)
        decided = line.decision
        if decided is not None:
            records = decided if line.cause[0] == "group" else [decided]
            self._count(EVICTED, sum(record[1] == _EVICTION for record in records))

    def _enter(self, effect: Entered) -> None:
        spec = msgspec.json.decode(effect.spec, type=_Spec)
        amounts = dict(spec.requests)
        for name, text in shown_requests(self._registry, spec.labels, spec.annotations).items():
            amounts[name] = dimension(name).parse(text)
        self._claims[effect.uid] = known = _KnownClaim(effect.namespace, amounts)
        self._change(known, 1)
        self._count(SUBMITTED)

    def _state(self, uid: str, state: int) -> None:
        known = self._claims.get(uid)
        if known is None:  # it came before the journal begins
            return
        if known.state in _WAITS and RESERVED <= state < GONE:
            self._count(STARTED)
        self._change(known, -1)
        known.state = state
        if state == GONE:
            self._forget(uid)
        else:
            self._change(known, 1)

    def _drop(self, uid: str) -> None:
        known = self._claims.get(uid)
        if known is not None:
            self._change(known, -1)
            self._forget(uid)

    def _forget(self, uid: str) -> None:
        del self._claims[uid]
        self._count(FINISHED)

    def _count(self, what: int, times: int = 1) -> None:
        for level in self._levels if times else ():
            level.at(self._now // level.width).counts[what] += times

    def _change(self, known: _KnownClaim, sign: int) -> None:
        waits = known.state in _WAITS
        for name, amount in known.amounts.items():
            running = self._settled(waits, (known.namespace, name))
            running.amount += sign * amount

    def _settled(self, waits: bool, key: Key) -> _Running:
        running = self._running[waits, key]
        if running.amount and running.since < self._now:
            for level in self._levels:
                level.add(waits, key, running.amount, running.since, self._now)
        running.since = self._now
        return running

    def _pass_to(self, now: int) -> None:
        """Let time pass without a record."""
        self._now = now
        for waits, key in list(self._running):
            self._settled(waits, key)
            if not self._running[waits, key].amount:
                del self._running[waits, key]

    # Answering

    def _summed(
        self, moment: types.Moment, start: int, end: int, namespace: str, *, complete: bool
    ) -> total_types.Activity:
        level = next((one for one in self._levels if self._serves(one, start, end)), self._levels[-1])
        first, last = start // level.width, max(end - 1, start) // level.width
        count = last - first + 1
        used: defaultdict[str, list[int]] = defaultdict(lambda: [0] * count)
        waited: defaultdict[str, list[int]] = defaultdict(lambda: [0] * count)
        teams: defaultdict[Key, list[int]] = defaultdict(lambda: [0, 0])
        counts = [[0] * count for _ in range(4)]
        for index in range(count):
            span = level.spans.get(first + index)
            if span is None:
                continue
            for what in range(4):
                counts[what][index] = span.counts[what]
            for place, sums, series in ((0, span.used, used), (1, span.waited, waited)):
                for key, amount in sums.items():
                    teams[key][place] += amount
                    if not namespace or key[0] == namespace:
                        series[key[1]][index] += amount
        edges = [max(self._begins, min(end, (first + index) * level.width)) for index in range(count + 1)]
        widths = [max(1, after - before) for before, after in pairwise(edges)]
        return total_types.Activity(
            moment=moment,
            complete=complete,
            begins=timestamp(self._begins),
            start=timestamp(first * level.width),
            step_seconds=level.width // 1000,
            points=count,
            series=[
                total_types.ActivitySeries(
                    resource=name,
                    used=_averages(name, used[name], widths),
                    waited=_averages(name, waited[name], widths),
                )
                for name in sorted({*used, *waited})
            ],
            teams=[
                total_types.TeamHours(
                    namespace=key[0], resource=key[1], used=_hours(key[1], sums[0]), waited=_hours(key[1], sums[1])
                )
                for key, sums in sorted(teams.items())
            ],
            started=counts[STARTED],
            evicted=counts[EVICTED],
            finished=counts[FINISHED],
            submitted=counts[SUBMITTED],
        )

    @staticmethod
    def _serves(level: Level, start: int, end: int) -> bool:
        return (end - start) // level.width <= min(level.kept, _POINTS)


def _averages(name: str, sums: list[int], widths: list[int]) -> list[str]:
    """The average amount of each span: bytes are rounded down, all else to thousandths."""
    kind = dimension(name)
    if kind.binary or kind.resolution != 1:
        return [kind.show(amount // width) for amount, width in zip(sums, widths, strict=True)]
    return [_thousandths(amount * 1000 // width) for amount, width in zip(sums, widths, strict=True)]


def _thousandths(amount: int) -> str:
    return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"


def _hours(name: str, sums: int) -> str:
    """Amount times hours."""
    return _averages(name, [sums], [3_600_000])[0]
