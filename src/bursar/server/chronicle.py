"""Answers about what happened: changes of objects, decisions, the versions of an object, what differs between moments.

What is told here is on the disk, and later changes do not alter it; only the outcomes of a plan or a dry run, which
read the same, never came to pass. Field names and amounts are as in all ``answers``.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import field

from bursar.server.answers import Answer, Moment


class ObjectOutcome(Answer, frozen=True):
    """What became of one object of a change."""

    kind: str
    key: str
    result: Literal["created", "changed", "unchanged", "deleted"]
    resource_version: str


class PodNews(Answer, frozen=True):
    """Something that happened to a pod: started, held, waits, evicted, left, finished."""

    time: str
    pod: str
    what: str
    node: str = ""
    reason: str = ""


class Change(Answer, frozen=True):
    """A change as it was taken: durable when this is read. ``id`` names it for an undo; 0: nothing changed."""

    id: int
    moment: Moment
    verb: str
    objects: list[ObjectOutcome]
    pods: list[PodNews]
    dry_run: bool = False
    undoes: int = 0  # the change that this one takes back
    lost: list[str] = field(default_factory=list)  # what an undo cannot bring back, a sentence each


class ChangeList(Answer, frozen=True):
    items: list[Change]
    moment: Moment


class DecisionRow(Answer, frozen=True):
    """A journal record, in short."""

    seq: int
    time: str
    cause: str
    subjects: list[str]  # claims or settings it is about
    claim: str = ""
    outcome: str = ""
    node: str = ""
    reason: str = ""
    message: str = ""
    victims: list[str] = field(default_factory=list)
    by: str = ""
    digest: str = ""


class DecisionList(Answer, frozen=True):
    items: list[DecisionRow]
    moment: Moment
    next: int = 0  # ask for what is before this record; 0: there is no more


class FieldChange(Answer, frozen=True):
    path: str
    before: Any = None
    after: Any = None


class ObjectVersion(Answer, frozen=True):
    """One entry of an object's history: what changed against the entry before."""

    seq: int
    time: str
    resource_version: str
    result: Literal["created", "changed", "deleted"]
    fields: list[FieldChange] = field(default_factory=list)


class ObjectHistory(Answer, frozen=True):
    kind: str
    key: str
    items: list[ObjectVersion]
    decisions: list[DecisionRow]
    moment: Moment


class ObjectDifference(Answer, frozen=True):
    kind: str
    key: str
    result: Literal["created", "changed", "deleted"]
    fields: list[FieldChange] = field(default_factory=list)


class Difference(Answer, frozen=True):
    """What differs between two moments."""

    start: Moment
    end: Moment
    objects: list[ObjectDifference]
    pods: dict[str, int]  # how many of the pods came, went, started, were evicted, finished
