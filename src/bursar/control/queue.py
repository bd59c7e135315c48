"""The queue: pending claims, the most urgent first, and the topics that each entry waits for.

Urgency is priority (high first), then creation, then key, then uid. An entry is *ready* (to be decided) when it is new,
when it changes, and when a change may help it; otherwise it *waits*, indexed by the topics of its refusals. By default
a waiting entry does not block others. With ``strict`` no entry passes the most urgent one, unless that one can never be
admitted as things are.

The claims of a gang are one entry (see ``gangs``): held back until the gang is complete, decided together, and started
together. Started members count as present, so that a member that is created again can join them.
"""

from __future__ import annotations

from collections.abc import Iterable

from bursar.control.gangs import SLACK, Entry, Gang, QueueEntry, QueueOrder, urgency
from bursar.ledger.claims import PENDING, TERMINATING, Claim

_ANYTHING = ""  # the topic of a refusal that names none


class Queue:
    """All claims that are not admitted, in entries that are ready or wait."""

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self._units: dict[str, QueueEntry] = {}
        self._unit_of: dict[str, QueueEntry] = {}  # by uid: claims that wait, and members of groups
        self._ready = QueueOrder()
        self._line = QueueOrder()  # all units, for ``strict``; empty otherwise
        self._topics: dict[str, dict[str, None]] = {}

    @property
    def strict(self) -> bool:
        """Whether no entry passes the most urgent one."""
        return self._strict

    @strict.setter
    def strict(self, wanted: bool) -> None:
        self._strict = wanted
        self._line = QueueOrder()
        for unit in self._units.values() if wanted else ():
            if unit.pending:
                self._line.add((unit.urgency(), unit.name))

    def __len__(self) -> int:
        """The number of pending claims."""
        return sum(len(unit.pending) for unit in self._units.values())

    def __contains__(self, uid: str) -> bool:
        unit = self._unit_of.get(uid)
        return unit is not None and uid in unit.pending

    # Coming and going

    def follow(self, claim: Claim, *, revoked: bool = False) -> None:
        """The claim is new, or its state changed. ``revoked``: it counts until it is gone, and is being evicted."""
        if claim.state == PENDING:
            self.add(claim)
        else:
            self.admitted(claim, leaves=claim.leaving or claim.state == TERMINATING or revoked)

    def add(self, claim: Claim) -> None:
        """The claim is pending, for the first time or again; its entry is ready."""
        unit = self._join(claim)
        unit.wait(claim)
        self._make_ready(unit)

    def _join(self, claim: Claim) -> QueueEntry:
        group, uid = claim.spec.group, claim.uid
        name = _name(group) if group else f"claim {uid}"
        unit = self._unit_of.get(uid)
        if unit is not None and unit.name != name:
            self.remove(uid)
        unit = self._units.get(name)
        if unit is None:
            unit = self._units[name] = Gang(name) if group else QueueEntry(name)
        self._unit_of[uid] = unit
        return unit

    def admitted(self, claim: Claim, *, leaves: bool = False) -> None:
        """The claim is not pending any more: it has a place, or (``leaves``) is being evicted."""
        if not claim.spec.group:
            self.remove(claim.uid)
            return
        group = self._join(claim)
        if isinstance(group, Gang) and group.move(claim, leaves=leaves):
            self._changed(claim.uid, group)

    def started(self, uid: str) -> None:
        """The claim was started."""
        group = self._unit_of.get(uid)
        if isinstance(group, Gang):
            joins = bool(group.started)
            group.start(uid)
            if not joins:
                self._changed(uid, group)  # whoever waits for the group can join it now

    def finished(self, uid: str, group: str, owner: str) -> None:
        """A pod of the gang has succeeded, and counts as present until it is removed."""
        name = _name(group)
        unit = self._units.setdefault(name, Gang(name))
        if isinstance(unit, Gang) and uid not in unit:
            self._unit_of[uid] = unit
            unit.finish(uid, owner)
            self._changed(uid, unit)

    def leaves(self, uid: str) -> None:
        """The claim is being evicted, and counts until it is gone."""
        group = self._unit_of.get(uid)
        if isinstance(group, Gang) and group.leaves(uid):
            self._changed(uid, group)

    def remove(self, uid: str) -> None:
        """The claim is gone."""
        unit = self._unit_of.get(uid)
        if unit is not None:
            unit.discard(uid)
            self._changed(uid, unit)

    def _changed(self, uid: str, unit: QueueEntry) -> None:
        """A claim moved or is gone: a smaller entry may fit, come first, or be incomplete."""
        if uid not in unit:
            del self._unit_of[uid]
        if unit.pending:
            self._make_ready(unit)
            return
        self._unlist(unit)
        if unit.empty:
            del self._units[unit.name]

    # Waiting and waking

    def wait(self, claim: Claim, topics: Iterable[str], *, never: bool) -> None:
        """Park the entry of a refused claim until one of the topics changes."""
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
        """The set of possible victims changed: entries that may preempt are ready."""
        for unit in list(self._units.values()):
            if unit.waits and not unit.never and unit.preempts:
                self._make_ready(unit)

    def wake_all(self) -> None:
        """Settings changed: every entry is ready."""
        for unit in list(self._units.values()):
            if unit.pending:
                self._make_ready(unit)

    def _make_ready(self, unit: QueueEntry) -> None:
        self._unlist(unit)
        unit.waits = False
        unit.never = False
        entry = (unit.urgency(), unit.name)
        self._enlist(self._ready, entry)
        if self._strict:
            self._enlist(self._line, entry)

    def _enlist(self, line: QueueOrder, entry: Entry) -> None:
        """Add an entry; outdated ones are cleared when there are too many, as a strict queue may never reach them."""
        line.add(entry)
        if len(line) > 2 * len(self._units) + SLACK:
            line.keep(lambda listed: self._valid(listed) is not None)

    def _unlist(self, unit: QueueEntry) -> None:
        for topic in unit.topics:
            names = self._topics[topic]
            names.pop(unit.name, None)
            if not names:
                del self._topics[topic]
        unit.topics = ()

    # Deciding

    def next(self) -> list[Claim] | None:
        """The claims to decide now, together; they stay in the queue until their state changes or they wait."""
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

    def _valid(self, entry: Entry) -> QueueEntry | None:
        """The entry of a heap item, unless the item is outdated."""
        unit = self._units.get(entry[1])
        return unit if unit is not None and unit.pending and unit.urgency() == entry[0] else None

    def _head(self) -> QueueEntry | None:
        """The most urgent entry that is complete and can be admitted at some time."""
        while (entry := self._line.head()) is not None:
            unit = self._valid(entry)
            if unit is not None and unit.complete and not unit.never:
                return unit
            self._line.drop()  # whatever makes it valid again lists it anew
        return None

    # Answers

    def waiting(self) -> list[Claim]:
        """All pending claims, the most urgent first."""
        return sorted((c for unit in self._units.values() for c in unit.pending.values()), key=urgency)

    def decidable(self) -> list[list[Claim]]:
        """The claims of each entry that may be decided, together, the most urgent first; ``strict``: of the first."""
        units = sorted((unit.urgency(), unit.name) for unit in self._units.values() if unit.complete)
        if self._strict:
            units = [entry for entry in units if not self._units[entry[1]].never][:1]
        return [self._units[name].claims() for _, name in units]

    def missing(self, uid: str) -> tuple[int, int] | None:
        """(members present, members wanted) if the claim waits for its gang; else None."""
        unit = self._unit_of.get(uid)
        if not isinstance(unit, Gang) or uid not in unit.pending or unit.complete:
            return None
        return unit.here, unit.size

    def placed(self) -> list[Claim]:
        """Members of gangs that have their place and were not started."""
        return [c for unit in self._units.values() if isinstance(unit, Gang) for c in unit.placed.values()]

    def group(self, name: str) -> Gang | None:
        """The gang of that name, as claims name it, if any member is present."""
        unit = self._units.get(_name(name))
        return unit if isinstance(unit, Gang) else None


def _name(group: str) -> str:
    return f"group {group}"
