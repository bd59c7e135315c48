"""Decisions: what was decided about a claim, small enough to keep for every claim.

Outcomes:

* ``admitted``: it holds its quota (and its place, where it needs one) and may start;
* ``held``: the same, but it must wait until its victims have left;
* ``waiting``: refused for now; a release or a change of settings may help;
* ``never``: refused, and only a change of the claim or of the settings can help;
* ``evicted``: it gave its place to another claim, or a policy took it back;
* ``released``: it ended.
"""

from __future__ import annotations

from typing import Final, cast, final

from mypy_extensions import mypyc_attr

from bursar.ledger.journal import Recordable
from bursar.policies.checks import Refusal

ADMITTED: Final = 0
HOLDING: Final = 1
WAITING: Final = 2
NEVER: Final = 3
EVICTED: Final = 4
RELEASED: Final = 5
OUTCOMES: Final = ("admitted", "held", "waiting", "never", "evicted", "released")


@final
@mypyc_attr(acyclic=True)
class Decision(Recordable):
    """The outcome for one claim, with what led to it."""

    __slots__ = ("at", "by", "outcome", "place", "refusals", "seq", "uid", "victims", "waits")

    def __init__(
        self,
        uid: str,
        outcome: int,
        at: int,
        place: str = "",
        refusals: tuple[Refusal, ...] = (),
        victims: tuple[str, ...] = (),
        waits: tuple[str, ...] = (),
        by: str = "",
    ) -> None:
        self.uid: Final = uid
        self.outcome: Final = outcome
        self.at: Final = at
        self.place: Final = place
        self.refusals: Final = refusals  # the first one is the binding one
        self.victims: Final = victims  # whom it displaces
        self.waits: Final = waits  # who must have left before it may start
        self.by: Final = by  # whose victim it is, if it is another claim's
        self.seq: int = 0  # the journal record that proves it; 0: nothing changed, so there is none

    def __repr__(self) -> str:
        return f"Decision({self.uid}, {self.name}, {self.reason or self.place or '-'})"

    @property
    def name(self) -> str:
        return OUTCOMES[self.outcome]

    @property
    def admitted(self) -> bool:
        """Whether the claim holds what it asked for (it may still have to wait for victims)."""
        return self.outcome <= HOLDING

    @property
    def reason(self) -> str:
        """The stable code of the binding check; empty when nothing refused."""
        if self.refusals:
            return self.refusals[0].reason
        if self.outcome == EVICTED:
            return "engine.preempted"
        return ""

    def sentence(self) -> str:
        """One sentence for people."""
        if self.refusals:
            return self.refusals[0].sentence()
        if self.outcome == EVICTED:
            return f"gave its place to {self.by}"
        if self.outcome == HOLDING:
            return f"waits for {len(self.waits)} to leave: {', '.join(self.waits)}"
        return f"{self.name} on {self.place}" if self.place else self.name

    def same_as(self, other: object) -> bool:
        """Whether it says nothing that the other did not say: then it is not worth a record."""
        return (
            isinstance(other, Decision)
            and self.outcome == other.outcome
            and self.reason == other.reason
            and self.place == other.place
        )

    def record(self) -> list[object]:
        refusals = [r.record() for r in self.refusals]
        who = [list(self.victims), list(self.waits), self.by]
        return [self.uid, self.name, self.at, self.place, refusals, who]


@final
@mypyc_attr(acyclic=True)
class DecisionList(Recordable):
    """The decisions of a group, as one journal record holds them."""

    __slots__ = ("decisions",)

    def __init__(self, decisions: list[Decision]) -> None:
        self.decisions: Final = decisions

    def record(self) -> list[object]:
        return [decision.record() for decision in self.decisions]


def decision_from_record(record: list[object], seq: int) -> Decision:
    """The inverse of ``Decision.record``."""
    uid, name, at, place, refusals, who = record
    victims, waits, by = cast("list[object]", who)
    decision = Decision(
        cast("str", uid),
        OUTCOMES.index(cast("str", name)),
        cast("int", at),
        cast("str", place),
        tuple([_refusal(r) for r in cast("list[list[object]]", refusals)]),
        tuple([str(v) for v in cast("list[object]", victims)]),
        tuple([str(v) for v in cast("list[object]", waits)]),
        cast("str", by),
    )
    decision.seq = seq
    return decision


def _refusal(record: list[object]) -> Refusal:
    policy, reason, note, account, numbers, permanent, topics, place = record
    resource, requested, used, limit = cast("list[str]", numbers)
    return Refusal(
        cast("str", policy),
        cast("str", reason),
        cast("str", note),
        cast("str", account),
        resource,
        requested,
        used,
        limit,
        bool(permanent),
        tuple([str(t) for t in cast("list[object]", topics)]),
        cast("str", place),
    )
