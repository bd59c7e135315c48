"""The queue: claims that wait, the most urgent first, and what each of them waits for.

Urgency is priority (high first), then creation, then key, then uid. A claim is *ready* (to be decided) when it comes,
when it changes, and when something happened that may help it; otherwise it *waits*, indexed by the topics that its
refusals named. Best effort: one that waits does not block others. ``strict``: nobody passes the most urgent one,
unless that one can never be admitted as things are.

Claims of a group are one *unit*: held back until as many members exist as the group has, then decided together.
Members that were admitted before count as being here, so that one that is created anew can join them. A group that is
half-way in comes before everybody else: whoever decided before meant all of it, and half of a group helps nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from bursar.ledger.claims import Claim

Urgency = tuple[int, int, str, str]

_ANYTHING = ""  # the topic of a refusal that names none
_FIRST = -(1 << 63)  # before every priority
_SLACK = 64  # entries beyond two for each unit at which a line is cleared


def urgency(claim: Claim) -> Urgency:
    return (-claim.spec.priority, claim.created, claim.key, claim.uid)


@dataclass(slots=True)
class Unit:
    """What is decided together: one claim, or the waiting claims of a group."""

    name: str
    pending: dict[str, Claim] = field(default_factory=dict)
    admitted: set[str] = field(default_factory=set)  # members of the group that wait no longer
    topics: tuple[str, ...] = ()
    waits: bool = False  # was refused, and nothing happened since
    never: bool = False  # only a change of settings or of the claim helps

    @property
    def size(self) -> int:
        return max((claim.spec.group_size for claim in self.pending.values()), default=0)

    @property
    def here(self) -> int:
        return len(self.pending) + len(self.admitted)

    @property
    def complete(self) -> bool:
        return bool(self.pending) and self.here >= self.size

    @property
    def preempts(self) -> bool:
        return any(claim.spec.preempts for claim in self.pending.values())

    def claims(self) -> list[Claim]:
        return sorted(self.pending.values(), key=urgency)

    def urgency(self) -> Urgency:
        first = min(map(urgency, self.pending.values()))
        return (_FIRST, *first[1:]) if self.admitted else first


_Entry = tuple[Urgency, str]  # of a unit: its urgency and its name


class _Line:
    """Units by urgency, each entry once. Entries that no longer hold stay until somebody meets them, or ``keep``."""

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._entries: set[_Entry] = set()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, entry: _Entry) -> None:
        if entry not in self._entries:
            self._entries.add(entry)
            heappush(self._heap, entry)

    def head(self) -> _Entry | None:
        return self._heap[0] if self._heap else None

    def drop(self) -> None:
        self._entries.discard(heappop(self._heap))

    def keep(self, holds: Callable[[_Entry], bool]) -> None:
        """Only the entries that hold."""
        self._heap = [entry for entry in self._heap if holds(entry)]
        heapify(self._heap)
        self._entries = set(self._heap)


class Queue:
    """All claims that are not admitted, and who of them is to be decided."""

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self._units: dict[str, Unit] = {}
        self._unit_of: dict[str, Unit] = {}  # by uid: members that wait, and admitted members of groups
        self._ready = _Line()
        self._line = _Line()  # all units, for ``strict``; empty otherwise
        self._topics: dict[str, dict[str, None]] = {}

    @property
    def strict(self) -> bool:
        """Whether nobody passes the most urgent one."""
        return self._strict

    @strict.setter
    def strict(self, wanted: bool) -> None:
        self._strict = wanted
        self._line = _Line()
        for unit in self._units.values() if wanted else ():
            if unit.pending:
                self._line.add((unit.urgency(), unit.name))

    def __len__(self) -> int:
        """How many claims wait to be admitted."""
        return sum(len(unit.pending) for unit in self._units.values())

    def __contains__(self, uid: str) -> bool:
        unit = self._unit_of.get(uid)
        return unit is not None and uid in unit.pending

    # Coming and going

    def add(self, claim: Claim) -> None:
        """The claim waits to be admitted, for the first time or again; it is ready."""
        group = claim.spec.group
        name = f"group {group}" if group else f"claim {claim.uid}"
        self._leave_other_unit(claim.uid, name)
        unit = self._units.setdefault(name, Unit(name))
        unit.admitted.discard(claim.uid)
        unit.pending[claim.uid] = claim
        self._unit_of[claim.uid] = unit
        self._make_ready(unit)

    def _leave_other_unit(self, uid: str, name: str) -> None:
        known = self._unit_of.get(uid)
        if known is not None and known.name != name:
            self.remove(uid)

    def admitted(self, claim: Claim) -> None:
        """The claim waits no longer."""
        unit = self._unit_of.get(claim.uid)
        if unit is None or claim.uid not in unit.pending:
            return
        del unit.pending[claim.uid]
        if not unit.pending:
            self._unlist(unit)
        if claim.spec.group:
            unit.admitted.add(claim.uid)
            if unit.pending:
                self._make_ready(unit)  # it comes first now
        else:
            self._forget(claim.uid, unit)

    def remove(self, uid: str) -> None:
        """The claim is gone."""
        unit = self._unit_of.get(uid)
        if unit is not None:
            unit.pending.pop(uid, None)
            unit.admitted.discard(uid)
            self._forget(uid, unit)
            if unit.pending:
                self._make_ready(unit)  # a smaller group may fit, or have to wait for its members

    def _forget(self, uid: str, unit: Unit) -> None:
        del self._unit_of[uid]
        if not unit.pending and not unit.admitted:
            self._unlist(unit)
            del self._units[unit.name]

    # Waiting and waking

    def wait(self, claim: Claim, topics: Iterable[str], *, never: bool) -> None:
        """The unit of the claim was refused: it waits for a change of any of the topics."""
        unit = self._unit_of[claim.uid]
        self._unlist(unit)
        unit.waits = True
        unit.never = never
        unit.topics = () if never else tuple(dict.fromkeys(topics)) or (_ANYTHING,)
        for topic in unit.topics:
            self._topics.setdefault(topic, {})[unit.name] = None

    def wake(self, topics: Iterable[str]) -> None:
        """Something changed under these topics."""
        woken: dict[str, None] = {}
        for topic in (*topics, _ANYTHING):
            woken.update(self._topics.get(topic, {}))
        for name in woken:
            self._make_ready(self._units[name])

    def wake_preempting(self) -> None:
        """Something changed that decides who may be a victim: whoever looks for victims may find some."""
        for unit in list(self._units.values()):
            if unit.waits and not unit.never and unit.preempts:
                self._make_ready(unit)

    def wake_all(self) -> None:
        """Settings changed: everything may be different."""
        for unit in list(self._units.values()):
            if unit.pending:
                self._make_ready(unit)

    def _make_ready(self, unit: Unit) -> None:
        self._unlist(unit)
        unit.waits = False
        unit.never = False
        entry = (unit.urgency(), unit.name)
        self._enlist(self._ready, entry)
        if self._strict:
            self._enlist(self._line, entry)

    def _enlist(self, line: _Line, entry: _Entry) -> None:
        """Where somebody is never passed, nobody meets the entries behind: so they are cleared out now and then."""
        line.add(entry)
        if len(line) > 2 * len(self._units) + _SLACK:
            line.keep(lambda listed: self._valid(listed) is not None)

    def _unlist(self, unit: Unit) -> None:
        for topic in unit.topics:
            names = self._topics[topic]
            names.pop(unit.name, None)
            if not names:
                del self._topics[topic]
        unit.topics = ()

    # Deciding

    def next(self) -> list[Claim] | None:
        """The claims to decide now, together; they stay in the queue until it is told what became of them."""
        while (entry := self._ready.head()) is not None:
            unit = self._valid(entry)
            if unit is None or unit.waits or not unit.complete:
                self._ready.drop()
                continue
            if self._strict and self._head() is not unit:
                return None
            self._ready.drop()
            return unit.claims()
        return None

    def _valid(self, entry: _Entry) -> Unit | None:
        """The unit that an entry of a heap stands for, unless it is out of date."""
        unit = self._units.get(entry[1])
        return unit if unit is not None and unit.pending and unit.urgency() == entry[0] else None

    def _head(self) -> Unit | None:
        """The most urgent unit that is complete and not hopeless."""
        while (entry := self._line.head()) is not None:
            unit = self._valid(entry)
            if unit is not None and unit.complete and not unit.never:
                return unit
            self._line.drop()  # whatever makes it valid again lists it anew
        return None

    # Answers

    def waiting(self) -> list[Claim]:
        """All claims that wait to be admitted, the most urgent first."""
        return sorted((c for unit in self._units.values() for c in unit.pending.values()), key=urgency)

    def missing(self, uid: str) -> tuple[int, int] | None:
        """(members that are here, members wanted) when the claim waits for its group; else None."""
        unit = self._unit_of.get(uid)
        if unit is None or uid not in unit.pending or unit.complete:
            return None
        return unit.here, unit.size
