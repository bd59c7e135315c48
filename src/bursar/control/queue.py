"""The queue: pending claims, the most urgent first, and the topics that they wait for.

Urgency is priority (high first), then creation, then key, then uid. An entry is *ready* (to be decided) when it is new,
when it changes, and when a change may help it; otherwise it *waits*. By default a waiting entry does not block others.
With ``strict`` no entry passes the most urgent one, unless that one can never be admitted as things are.

Entries wait in equivalence classes: claims of the same spec and namespace, and with the same preemption history, are
refused alike, and a more urgent one is never refused for less. So a class waits for the topics of its last refusal as a
whole, and when it is woken, only its most urgent entry is decided; the next one follows once that one is admitted. A
thousand waiting pods of one job cost one decision. A claim that was never refused as it is now is always decided.

The claims of a gang are one entry (see ``gangs``): held back until the gang is complete, decided together, and started
together. Started members count as present, so that a member that is created again can join them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from bursar.control.gangs import SLACK, Entry, Gang, QueueEntry, QueueOrder, forked, urgency
from bursar.engine.decision import Decision
from bursar.ledger.claims import PENDING, TERMINATING, Claim

_ANYTHING = ""  # the topic of a refusal that names none

ClassKey = tuple[int, str, object] | str
"""Spec, namespace and preemption history; or the name of a gang, which is a class of its own."""


class EquivalenceClass:
    """Entries that wait and are refused alike."""

    __slots__ = ("_line", "asleep", "entries", "key", "never", "topics")

    def __init__(self, key: ClassKey) -> None:
        self.key = key
        self.entries: dict[str, QueueEntry] = {}  # by name
        self.topics: tuple[str, ...] = ()
        self.asleep = False  # was refused, and nothing that may help it happened since
        self.never = False  # only a change of settings or of the claim helps
        self._line = QueueOrder()

    def add(self, entry: QueueEntry) -> None:
        self.entries[entry.name] = entry
        self._line.add((entry.urgency(), entry.name))
        if len(self._line) > 2 * len(self.entries) + SLACK:
            self._line.keep(lambda listed: self._valid(listed) is not None)

    def fork(self, entries: Mapping[str, QueueEntry]) -> EquivalenceClass:
        """A copy of it, with these copies of its entries."""
        return forked(self, entries={name: entries[name] for name in self.entries}, _line=self._line.fork())

    def head(self) -> QueueEntry | None:
        """The most urgent entry."""
        while (listed := self._line.head()) is not None:
            entry = self._valid(listed)
            if entry is not None:
                return entry
            self._line.drop()
        return None

    def _valid(self, listed: Entry) -> QueueEntry | None:
        entry = self.entries.get(listed[1])
        return entry if entry is not None and entry.urgency() == listed[0] else None


class Queue:
    """All claims that are not admitted, in entries that are ready or wait."""

    def __init__(self, history: Callable[[Claim], object] = lambda _: None, *, strict: bool = False) -> None:
        """``history``: what bars the claim from displacing others, as a plain value."""
        self._history = history
        self._strict = strict
        self._units: dict[str, QueueEntry] = {}
        self._unit_of: dict[str, QueueEntry] = {}  # by uid: claims that wait, and members of groups
        self._ready = QueueOrder()
        self._line = QueueOrder()  # all units, for ``strict``; empty otherwise
        self._classes: dict[ClassKey, EquivalenceClass] = {}
        self._class_of: dict[str, EquivalenceClass] = {}  # by the name of an entry that waits
        self._topics: dict[str, dict[ClassKey, None]] = {}

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

    def fork(self) -> Queue:
        """A copy to go on with; the claims are the same."""
        units = {name: unit.fork() for name, unit in self._units.items()}
        classes = {key: one.fork(units) for key, one in self._classes.items()}
        return forked(
            self,
            _units=units,
            _unit_of={uid: unit for unit in units.values() for uid in unit.uids()},
            _ready=self._ready.fork(),
            _line=self._line.fork(),
            _classes=classes,
            _class_of={name: one for one in classes.values() for name in one.entries},
            _topics={topic: dict(keys) for topic, keys in self._topics.items()},
        )

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
                self._changed(uid, group)  # pods that wait for the gang can join it now

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
        self._leave_class(unit)
        if unit.empty:
            del self._units[unit.name]

    # Waiting and waking

    def wait(self, claim: Claim, topics: Iterable[str], *, never: bool) -> None:
        """Park the entry of a refused claim, and its class, until one of the topics changes."""
        unit = self._unit_of[claim.uid]
        key = self._key(unit)
        found = self._class_of.get(unit.name)
        if found is None or found.key != key:
            self._leave_class(unit)
            found = self._classes.get(key)
            if found is None:
                found = self._classes[key] = EquivalenceClass(key)
            self._join_class(unit, found)
        found.asleep = True
        self._set_never(found, never=never)
        self._listen(found, () if never else tuple(dict.fromkeys(topics)) or (_ANYTHING,))

    def _listen(self, found: EquivalenceClass, topics: tuple[str, ...]) -> None:
        """List the class under these topics. It stays listed while it is awake: mostly it is refused for the same."""
        if topics != found.topics:
            self._unlist(found)
            found.topics = topics
            for topic in topics:
                self._topics.setdefault(topic, {})[found.key] = None

    def wake(self, topics: Iterable[str], helps: Callable[[QueueEntry], bool] | None = None) -> None:
        """Something changed under these topics; it helps only the entries that ``helps`` names, if it is given."""
        woken: dict[ClassKey, None] = {}
        for topic in (*topics, _ANYTHING):
            woken.update(self._topics.get(topic, {}))
        for key in woken:
            found = self._classes[key]
            if found.asleep and (helps is None or ((head := found.head()) is not None and helps(head))):
                self._wake(found)

    def wake_preempting(self) -> None:
        """The set of possible victims changed: entries that may preempt are ready."""
        for found in list(self._classes.values()):
            head = found.head()
            if head is not None and head.preempts and not found.never:
                self._wake(found)

    def wake_all(self) -> None:
        """Settings changed: every entry is ready."""
        for found in list(self._classes.values()):
            self._wake(found)

    def _wake(self, found: EquivalenceClass) -> None:
        found.asleep = False
        self._set_never(found, never=False)
        self._ready_head(found)

    def _set_never(self, found: EquivalenceClass, *, never: bool) -> None:
        if found.never and not never and self._strict:  # entries that can never be admitted were dropped from the line
            for unit in found.entries.values():
                self._enlist(self._line, (unit.urgency(), unit.name))
        found.never = never

    def _ready_head(self, found: EquivalenceClass) -> None:
        head = found.head()
        if head is not None:
            self._enlist(self._ready, (head.urgency(), head.name))

    def _make_ready(self, unit: QueueEntry) -> None:
        self._leave_class(unit)
        entry = (unit.urgency(), unit.name)
        self._enlist(self._ready, entry)
        if self._strict:
            self._enlist(self._line, entry)

    # Equivalence classes

    def _key(self, unit: QueueEntry) -> ClassKey:
        if isinstance(unit, Gang):
            return unit.name
        claim = next(iter(unit.pending.values()))
        return int(claim.spec.mark), claim.namespace, self._history(claim)

    def _join_class(self, unit: QueueEntry, found: EquivalenceClass) -> None:
        found.add(unit)
        self._class_of[unit.name] = found

    def _leave_class(self, unit: QueueEntry) -> None:
        """The entry does not wait any more. If its class is awake, the next one of it is ready."""
        found = self._class_of.pop(unit.name, None)
        if found is None:
            return
        del found.entries[unit.name]
        if not found.entries:
            self._unlist(found)
            del self._classes[found.key]
        elif not found.asleep:
            self._ready_head(found)

    def _refused_already(self, unit: QueueEntry) -> bool:
        """Whether the entry, or its class since the entry was refused itself, was refused and nothing helps since."""
        found = self._class_of.get(unit.name)
        if found is not None:
            return found.asleep
        if isinstance(unit, Gang) or not all(map(_was_refused, unit.pending.values())):
            return False
        known = self._classes.get(self._key(unit))
        if known is None or not known.asleep:
            return False
        self._join_class(unit, known)
        return True

    def _enlist(self, line: QueueOrder, entry: Entry) -> None:
        """Add an entry; outdated ones are cleared when there are too many, as a strict queue may never reach them."""
        line.add(entry)
        if len(line) > 2 * len(self._units) + SLACK:
            line.keep(lambda listed: self._valid(listed) is not None)

    def _unlist(self, found: EquivalenceClass) -> None:
        for topic in found.topics:
            keys = self._topics[topic]
            keys.pop(found.key, None)
            if not keys:
                del self._topics[topic]
        found.topics = ()

    # Deciding

    def next(self) -> list[Claim] | None:
        """The claims to decide now, together; they stay in the queue until their state changes or they wait."""
        while (entry := self._ready.head()) is not None:
            unit = self._valid(entry)
            if unit is None or not unit.complete or self._refused_already(unit):
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
            if unit is not None and unit.complete and not self._never(unit):
                return unit
            self._line.drop()  # whatever makes it valid again lists it again
        return None

    def _never(self, unit: QueueEntry) -> bool:
        found = self._class_of.get(unit.name)
        return found is not None and found.never

    # Answers

    def waiting(self) -> list[Claim]:
        """All pending claims, the most urgent first."""
        return sorted((c for unit in self._units.values() for c in unit.pending.values()), key=urgency)

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


def _was_refused(claim: Claim) -> bool:
    decision = claim.decision
    return isinstance(decision, Decision) and bool(decision.refusals) and not decision.outdated
