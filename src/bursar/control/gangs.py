"""Queue entries: a single claim, or the pending members of a gang.

A member of a gang is *pending*, then *placed* (decided; it may be held until its victims have left), then *started*
(told to start, or observed on a node), and at last it may be *leaving*. All or none:

* a gang without a started member is decided only when it is complete, as many members as its size says, and starts as a
  whole, when no member is pending or held any more;
* once one member has started, the gang is in: new members join it, whatever the size says. Leaving members do not
  count: a gang that is created again while its old members leave is all or none once more;
* a *finished* (succeeded) member needs no place, and counts for members that its controller creates again. For another
  controller it does not: that is the next run of a gang of the same name.

Asking an entry costs the same for any number of members, except for the members themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from copy import copy
from heapq import heapify, heappop, heappush
from typing import TypeVar

from bursar.ledger.claims import BOUND, HELD, Claim

_T = TypeVar("_T")
_Key = TypeVar("_Key")
Urgency = tuple[int, int, str, str]
Entry = tuple[Urgency, str]
"""A unit or a claim in line: its urgency, and its name or uid."""

FIRST = -(1 << 63)  # before every priority
SLACK = 64  # entries beyond two for each unit or claim at which a line is cleared


def urgency(claim: Claim) -> Urgency:
    return (-claim.spec.priority, claim.created, claim.key, claim.uid)


def forked(original: _T, **parts: object) -> _T:
    """A copy to go on with, with parts of its own."""
    found = copy(original)
    if hasattr(original, "__dict__"):
        found.__dict__.update(original.__dict__)  # ``copy`` leaves it out where the base class is compiled
    for name, part in parts.items():
        setattr(found, name, part)
    return found


class QueueOrder:
    """Entries by urgency, each once. Outdated entries stay until they reach the head, or until ``keep``."""

    __slots__ = ("_entries", "_heap")

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._entries: set[Entry] = set()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, entry: Entry) -> None:
        if entry not in self._entries:
            self._entries.add(entry)
            heappush(self._heap, entry)

    def head(self) -> Entry | None:
        return self._heap[0] if self._heap else None

    def drop(self) -> None:
        self._entries.discard(heappop(self._heap))

    def fork(self) -> QueueOrder:
        return forked(self, _heap=list(self._heap), _entries=set(self._entries))

    def keep(self, holds: Callable[[Entry], bool]) -> None:
        """Drop the outdated entries."""
        self._heap = [entry for entry in self._heap if holds(entry)]
        heapify(self._heap)
        self._entries = set(self._heap)


class QueueEntry:
    """A single claim."""

    __slots__ = ("_urgency", "name", "pending")

    def __init__(self, name: str) -> None:
        self.name = name
        self.pending: dict[str, Claim] = {}  # by uid: those that wait to be admitted
        self._urgency: Urgency | None = None  # computed once: a claim that changes is added again

    def fork(self) -> QueueEntry:
        """A copy to go on with; the claims are the same."""
        found = QueueEntry(self.name)
        found.pending = dict(self.pending)
        return found

    def uids(self) -> Iterable[str]:
        """All claims that it knows."""
        return self.pending

    def wait(self, claim: Claim) -> None:
        self.pending[claim.uid] = claim
        self._urgency = None

    def discard(self, uid: str) -> None:
        self.pending.pop(uid, None)
        self._urgency = None

    def __contains__(self, uid: str) -> bool:
        return uid in self.pending

    @property
    def empty(self) -> bool:
        return not self.pending

    @property
    def complete(self) -> bool:
        """Whether it can be decided."""
        return bool(self.pending)

    @property
    def preempts(self) -> bool:
        return any(claim.spec.preempts for claim in self.pending.values())

    @property
    def mixed(self) -> bool:
        """Whether it is decided as several claims that differ in more than their names."""
        return len(self.pending) > 1 and len({claim.spec.mark for claim in self.pending.values()}) > 1

    def claims(self) -> list[Claim]:
        """The pending claims, the most urgent first."""
        return sorted(self.pending.values(), key=urgency)

    def urgency(self) -> Urgency:
        if self._urgency is None:
            self._urgency = min(map(urgency, self.pending.values()))
        return self._urgency


class Gang(QueueEntry):
    """The members of a gang that are present."""

    __slots__ = ("_done", "_finished", "_leaving", "_line", "_owners", "_says", "_sizes", "held", "placed", "started")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.placed: dict[str, Claim] = {}  # by uid: they have their place, and were not told to start
        self.held: dict[str, None] = {}  # uids of those of them that wait for others to leave
        self.started: set[str] = set()  # uids of those that stay
        self._leaving: set[str] = set()  # uids of those that had started
        self._line = QueueOrder()  # of those that wait
        self._sizes: Counter[int] = Counter()  # as those that have not started say
        self._owners: Counter[str] = Counter()  # and who created them
        self._says: dict[str, tuple[int, str]] = {}  # by uid: what it says of both
        self._finished: dict[str, str] = {}  # by uid: the owner
        self._done: Counter[str] = Counter()  # how many of each owner have finished

    def fork(self) -> Gang:
        return forked(
            self,
            pending=dict(self.pending),
            placed=dict(self.placed),
            held=dict(self.held),
            started=set(self.started),
            _leaving=set(self._leaving),
            _line=self._line.fork(),
            _sizes=Counter(self._sizes),
            _owners=Counter(self._owners),
            _says=dict(self._says),
            _finished=dict(self._finished),
            _done=Counter(self._done),
        )

    def uids(self) -> Iterable[str]:
        return (*self._says, *self.started, *self._leaving, *self._finished)

    # Coming, moving and going

    def wait(self, claim: Claim) -> None:
        self.discard(claim.uid)
        self._list(claim)
        self.pending[claim.uid] = claim
        self._line.add((urgency(claim), claim.uid))
        if len(self._line) > 2 * len(self.pending) + SLACK:
            self._line.keep(self._holds)

    def move(self, claim: Claim, *, leaves: bool) -> bool:
        """A member that is not pending, as it is now; returns whether its stage changed."""
        uid = claim.uid
        if leaves:
            return self.leaves(uid)
        if uid in self.started:
            return False
        if uid in self._leaving or claim.state >= BOUND:
            return self.start(uid)
        if claim.state == HELD:
            self.held[uid] = None
        else:
            self.held.pop(uid, None)
        if uid in self.placed:
            return False
        self.pending.pop(uid, None)
        self._unlist(uid)
        self._list(claim)
        self.placed[uid] = claim
        return True

    def start(self, uid: str) -> bool:
        self.discard(uid)
        self.started.add(uid)
        return True

    def finish(self, uid: str, owner: str) -> None:
        self.discard(uid)
        self._finished[uid] = owner
        self._done[owner] += 1

    def leaves(self, uid: str) -> bool:
        """A started member may stay after all; any other is no member any more."""
        if uid in self._leaving:
            return False
        had_started = uid in self.started
        self.discard(uid)
        if had_started:
            self._leaving.add(uid)
        return True

    def discard(self, uid: str) -> None:
        self._unlist(uid)
        self.pending.pop(uid, None)
        self.placed.pop(uid, None)
        self.held.pop(uid, None)
        self.started.discard(uid)
        self._leaving.discard(uid)
        if uid in self._finished:
            _take(self._done, self._finished.pop(uid))

    def _list(self, claim: Claim) -> None:
        self._says[claim.uid] = claim.spec.group_size, claim.spec.owner
        self._sizes[claim.spec.group_size] += 1
        self._owners[claim.spec.owner] += 1

    def _unlist(self, uid: str) -> None:
        if uid in self._says:
            size, owner = self._says.pop(uid)
            _take(self._sizes, size)
            _take(self._owners, owner)

    # Answers

    def __contains__(self, uid: str) -> bool:
        return any(uid in stage for stage in (self._says, self.started, self._leaving, self._finished))

    @property
    def empty(self) -> bool:
        return not (self.pending or self.placed or self.started or self._leaving or self._finished)

    @property
    def size(self) -> int:
        return max(self._sizes, default=0)

    @property
    def here(self) -> int:
        finished = sum(count for owner, count in self._done.items() if owner and owner in self._owners)
        return len(self.pending) + len(self.placed) + len(self.started) + finished

    @property
    def whole(self) -> bool:
        """Whether it has started, or is complete."""
        return bool(self.started) or self.here >= self.size

    @property
    def complete(self) -> bool:
        return bool(self.pending) and self.whole

    def ready(self) -> list[Claim]:
        """Members that may start now: all together, or to join those that have started."""
        if not self.started and (self.pending or self.held or not self.whole):
            return []
        return [claim for uid, claim in self.placed.items() if uid not in self.held]

    def urgency(self) -> Urgency:
        """A gang that is partly placed or started comes before all other entries."""
        first = self._first()
        return (FIRST, *first[1:]) if self.started or self.placed else first

    def _first(self) -> Urgency:
        while (entry := self._line.head()) is not None:
            if self._holds(entry):
                return entry[0]
            self._line.drop()
        raise RuntimeError(f"no pod of gang {self.name} waits")

    def _holds(self, entry: Entry) -> bool:
        claim = self.pending.get(entry[1])
        return claim is not None and urgency(claim) == entry[0]


def _take(counts: Counter[_Key], key: _Key) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
