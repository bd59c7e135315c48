"""Answers about why and what if: the checks of a claim, what would let it in, trials of pods, plans of changes.

Giving them changes nothing: they come from transactions that are not committed and from copies of the cluster. Field
names and amounts are as in all ``answers``.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import field

from bursar.server.answers import Answer, ClaimRow, Moment
from bursar.server.chronicle import ObjectOutcome, PodNews


class CheckNode(Answer, frozen=True):
    """A node of the explain tree."""

    title: str
    passed: bool
    note: str = ""
    reason: str = ""
    binding: bool = False  # the first that fails: the one to fix
    checks: list[CheckNode] = field(default_factory=list)


class FixEdit(Answer, frozen=True):
    """One field of one manifest gets another value."""

    kind: str
    key: str
    field: str
    before: Any = None
    after: Any = None
    anew: bool = False  # the object must be deleted and created anew


class Fix(Answer, frozen=True):
    """Something that would let the claim in now, verified by simulation."""

    code: str  # ask-less, other-nodes, preemptible, wait, raise-quota, priority
    sentence: str
    edits: list[FixEdit] = field(default_factory=list)
    waits_for: list[str] = field(default_factory=list)
    ends_at: str = ""  # when those it waits for have ended, if that is known
    evicts: list[str] = field(default_factory=list)
    node: str = ""


class Explanation(Answer, frozen=True):
    claim: ClaimRow
    tree: CheckNode
    text: str
    moment: Moment
    fixes: list[Fix] = field(default_factory=list)  # only if they were asked for
    fixes_complete: bool = True  # whether the search for fixes came to its end


class TrialRow(Answer, frozen=True):
    """What would become of one pod."""

    pod: str
    verdict: Literal["now", "after-evictions", "queued", "never"]
    node: str = ""
    reason: str = ""
    message: str = ""
    victims: list[str] = field(default_factory=list)
    ahead: int = 0  # claims that wait and come before it


class WhatIf(Answer, frozen=True):
    pods: list[TrialRow]
    evicted: list[str]
    moment: Moment


class BorrowingChange(Answer, frozen=True):
    quota: str
    resource: str
    before: str
    after: str


class Plan(Answer, frozen=True):
    """What a set of changes would do. Nothing was changed."""

    objects: list[ObjectOutcome]
    starts: list[str]
    evicted: list[PodNews]
    waits: list[PodNews]
    gone: list[str]
    stranded: list[PodNews]  # they run, but their node is deleted
    borrowing: list[BorrowingChange]
    horizon: str
    moment: Moment

    @property
    def harmless(self) -> bool:
        """Whether nobody is evicted or loses the node it runs on."""
        return not self.evicted and not self.stranded
