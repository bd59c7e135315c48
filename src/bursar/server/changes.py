"""The log of changes, their inverses, and the answers to requests with an idempotency key.

Log and answers live in the store's ``meta`` table and are written in the same batch as the change itself. A change is
kept for ever under its number; answers share a fixed number of slots.

The inverse of a change is made of the versions that its objects had before. It is a change like any other, and is
refused when an object was changed since. What pods lost by the change (their place, their work) does not come back; the
inverse lists it pod by pod.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from bursar.objects.decode import ManifestError
from bursar.objects.kinds import POD, Kind
from bursar.objects.manifests import Document
from bursar.server import types
from bursar.sim import persistence
from bursar.sim.apply import ConflictError
from bursar.sim.cluster import Applied, Cluster, Result
from bursar.sim.objects import ManifestReader
from bursar.sim.persistence import ObjectRecord
from bursar.sim.pods import EVICTED, RUNNING
from bursar.store.store import Store

CHANGE_PREFIX = "change/"
_AFTER_CHANGES = "change0"  # the next text after all that begin with the prefix
_ANSWER = "answer/"
_AFTER_ANSWERS = "answer0"
SLOTS = 4096
_AT_ONCE = 500  # changes dropped in one transaction


class LoggedObject(msgspec.Struct, frozen=True):
    """One object of a change, and the version it had after it: that of its entry in the history."""

    kind: str
    key: str
    result: Result
    version: int


class ChangeRecord(msgspec.Struct, frozen=True):
    change: types.Change
    objects: list[LoggedObject]
    evicted: list[str]

    def meta(self) -> dict[str, str]:
        return {f"{CHANGE_PREFIX}{self.change.id:016}": msgspec.json.encode(self).decode()}


class GivenAnswer(msgspec.Struct, frozen=True):
    """The answer to a request that carried a key."""

    key: str
    request: str  # what was asked, as a fingerprint
    change: types.Change


def load_change(store: Store, number: int) -> ChangeRecord | None:
    text = store.meta(f"{CHANGE_PREFIX}{number:016}")
    return None if text is None else msgspec.json.decode(text, type=ChangeRecord)


def load_changes(store: Store, before: int, limit: int) -> list[ChangeRecord]:
    """The newest first."""
    end = f"{CHANGE_PREFIX}{before:016}" if before else _AFTER_CHANGES
    query = "SELECT value FROM meta WHERE name > ? AND name < ? ORDER BY name DESC LIMIT ?"
    return [msgspec.json.decode(text, type=ChangeRecord) for (text,) in store.rows(query, CHANGE_PREFIX, end, limit)]


def change_of(store: Store, kind: str, key: str, version: int) -> types.Change | None:
    """The change that wrote an object in that version; None: Bursar itself did, or it was forgotten.

    Versions grow from change to change, so it is found by halving.
    """
    ends = (store.rows(f"SELECT {end}(name) FROM meta WHERE name > ? AND name < ?", CHANGE_PREFIX, _AFTER_CHANGES)[0][0]  # noqa: S608 one of two
            for end in ("min", "max"))  # fmt: skip
    low, high = (0 if name is None else int(name.removeprefix(CHANGE_PREFIX)) for name in ends)
    while low < high:
        middle = (low + high) // 2
        record = load_change(store, middle)
        if record is not None and int(record.change.moment.resource_version) >= version:
            high = middle
        else:
            low = middle + 1
    found = load_change(store, low)
    if found is None or not any((one.kind, one.key, one.version) == (kind, key, version) for one in found.objects):
        return None
    return found.change


def forget_changes(store: Store, upto: int) -> None:
    """Drop the changes up to a journal record: what they made of their objects was pruned."""
    while True:
        query = "SELECT name, value FROM meta WHERE name > ? AND name < ? ORDER BY name LIMIT ?"
        rows = store.rows(query, CHANGE_PREFIX, _AFTER_CHANGES, _AT_ONCE)
        old = [(name,) for name, text in rows if _seq(text) <= upto]
        if not old:
            return
        store.transact(partial(_drop, names=old))
        if len(old) < _AT_ONCE:
            return


def _drop(db: sqlite3.Connection, names: list[tuple[str]]) -> None:
    db.executemany("DELETE FROM meta WHERE name = ?", names)


def _seq(text: str) -> int:
    return msgspec.json.decode(text, type=ChangeRecord).change.moment.seq


class Answers:
    """The answers to requests with a key; the oldest are dropped first."""

    def __init__(self, store: Store) -> None:
        self._by_key: OrderedDict[str, GivenAnswer] = OrderedDict()
        self._next = 0
        query = "SELECT name, value FROM meta WHERE name > ? AND name < ?"
        found = [
            (name, msgspec.json.decode(text, type=GivenAnswer))
            for name, text in store.rows(query, _ANSWER, _AFTER_ANSWERS)
        ]
        found.sort(key=lambda pair: pair[1].change.moment.seq)
        for name, answer in found:
            self._by_key[answer.key] = answer
            self._next = (int(name.removeprefix(_ANSWER)) + 1) % SLOTS

    def find(self, key: str) -> GivenAnswer | None:
        return self._by_key.get(key)

    def keep(self, answer: GivenAnswer) -> dict[str, str]:
        """Remember it; returns what is to be written."""
        self._by_key[answer.key] = answer
        while len(self._by_key) > SLOTS:
            self._by_key.popitem(last=False)
        slot, self._next = self._next, (self._next + 1) % SLOTS
        return {f"{_ANSWER}{slot:04}": msgspec.json.encode(answer).decode()}


@dataclass(slots=True)
class Inverse:
    """What takes a change back: deletions first, then manifests."""

    number: int
    deletions: list[tuple[Kind, str]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def mixed(self) -> bool:
        return bool(self.deletions and self.bodies)

    def run(self, cluster: Cluster) -> list[Applied]:
        deleted = cluster.delete(self.deletions) if self.deletions else []
        documents = [Document("", number, body) for number, body in enumerate(self.bodies, 1)]
        return deleted + (cluster.apply(documents) if documents else [])


def inverse_of(record: ChangeRecord, cluster: Cluster, store: Store) -> Inverse:
    """The inverse of a change; ``ConflictError`` when an object of it is no longer what the change made it."""
    number = record.change.id
    if record.change.verb == "finish":
        raise ManifestError(f"change {number} ended pods, and what has ended does not run again")
    inverse = Inverse(number)
    for change in reversed(record.objects):
        _invert(inverse, change, cluster, store)
    for key in record.evicted:
        pod = cluster.doing(key)
        if pod is not None and pod.phase == EVICTED:
            inverse.lost.append(f"Pod {key} was evicted and stays so; apply it again to start it from the beginning")
        elif pod is None:
            inverse.lost.append(f"Pod {key} was evicted, and is gone")
    if not inverse.deletions and not inverse.bodies:
        raise ConflictError(f"nothing of change {number} is left to undo")
    return inverse


def _invert(inverse: Inverse, change: LoggedObject, cluster: Cluster, store: Store) -> None:
    kind = cluster.kinds.find(change.kind)
    before, after = _versions(store, change)
    manifests = ManifestReader(cluster.kinds, store.manifest)
    known = cluster.objects.find(change.kind, change.key)
    pod = cluster.doing(change.key) if kind.name == POD.name else None
    subject = f"{kind.kind} {change.key}"
    if change.result == "deleted":
        if known is not None:
            raise ConflictError("exists again", subject=subject)
        if before is None:
            raise ConflictError("what it was is no longer in the history", subject=subject)
        inverse.bodies.append(manifests.body(before.applied_as))
        if before.node:
            inverse.lost.append(f"{subject} ran on {before.node} and starts from the beginning")
        return
    if known is None:
        if change.result == "changed":
            raise ConflictError("was deleted since", subject=subject)
        return
    if after is None or known.uid != after.uid or known.body != manifests.body(after.applied_as):
        raise ConflictError("was changed since: undo that first", subject=subject)
    if before is None or before.uid != after.uid:
        inverse.deletions.append((kind, change.key))
        if before is not None:
            inverse.lost.append(f"{subject} had ended before it was created again, and that pod is not brought back")
        elif pod is not None and pod.phase == RUNNING:
            inverse.lost.append(f"{subject} runs on {known.node}, and what it has done is lost")
    else:
        inverse.bodies.append(manifests.body(before.applied_as))


def _versions(store: Store, change: LoggedObject) -> tuple[ObjectRecord | None, ObjectRecord | None]:
    """The object before and after the change; None: there was none."""
    before: ObjectRecord | None = None
    for entry in store.object_changes(change.kind, change.key):
        found = None if entry.body is None else persistence.read(entry.body)
        if entry.version == change.version:
            return before, found
        before = found
    return None, None
