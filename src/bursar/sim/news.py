"""What an embedded cluster tells: events about objects, and one line for each thing that happened to a pod."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """Something people were told about an object."""

    at: int
    kind: str
    key: str
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Happening:
    """One line of what happened to pods."""

    at: int
    pod: str
    what: str  # started, held, waits, evicted, left, finished
    node: str
    reason: str
