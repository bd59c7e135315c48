"""The log of changes: what was applied, deleted or undone, so that it can be taken back; and answers to repeat.

Both live in the store's ``meta`` table and are written in the same batch as the change itself. A change is kept under
its number for ever; answers by idempotency key go round in a fixed number of slots.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal

import msgspec

from bursar.server import chronicle
from bursar.store.store import Store

_CHANGE = "change/"
_AFTER_CHANGES = "change0"  # the next text after all that begin with the prefix
_ANSWER = "answer/"
_AFTER_ANSWERS = "answer0"
SLOTS = 4096

Result = Literal["created", "changed", "unchanged", "deleted"]


class ObjectChange(msgspec.Struct, frozen=True):
    """One object of a change, and the version it had after it: that of its entry in the history."""

    kind: str
    key: str
    result: Result
    version: int


class ChangeRecord(msgspec.Struct, frozen=True):
    change: chronicle.Change
    objects: list[ObjectChange]
    evicted: list[str]

    def meta(self) -> dict[str, str]:
        return {f"{_CHANGE}{self.change.id:016}": msgspec.json.encode(self).decode()}


class GivenAnswer(msgspec.Struct, frozen=True):
    """The answer to a request that carried a key."""

    key: str
    request: str  # what was asked, as a fingerprint
    change: chronicle.Change


def load_change(store: Store, number: int) -> ChangeRecord | None:
    text = store.meta(f"{_CHANGE}{number:016}")
    return None if text is None else msgspec.json.decode(text, type=ChangeRecord)


def load_changes(store: Store, before: int, limit: int) -> list[ChangeRecord]:
    """The newest first."""
    end = f"{_CHANGE}{before:016}" if before else _AFTER_CHANGES
    query = "SELECT value FROM meta WHERE name > ? AND name < ? ORDER BY name DESC LIMIT ?"
    return [msgspec.json.decode(text, type=ChangeRecord) for (text,) in store.rows(query, _CHANGE, end, limit)]


class Answers:
    """The answers given to requests with a key, the oldest forgotten first."""

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
