"""What a comparison of one instance says, and the sums over many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain, islice

SAME = "same"
MISSED = "plan missed"
ILLEGAL = "illegal plan"
OTHER = "other set chosen"
TRACE = "trace left behind"
FAULTS = (MISSED, ILLEGAL, OTHER, TRACE)


@dataclass(frozen=True)
class Verdict:
    """The comparison of one decision. ``story`` is enough to repeat it by hand."""

    seed: int
    fault: str
    admitted: bool
    victims: int
    room: bool  # refused although some set of victims would make room
    story: str = ""
    mark: str = ""  # a part of the rules that the difference touches, to count apart


@dataclass
class Tally:
    """The sums over many verdicts, and those that are differences."""

    counts: Counter[str] = field(default_factory=Counter)
    differences: list[Verdict] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        self.counts["decisions"] += 1
        self.counts["admitted" if verdict.admitted else "refused"] += 1
        self.counts["with victims"] += verdict.admitted and verdict.victims > 0
        self.counts["refused, room by some set"] += not verdict.admitted and verdict.room
        if verdict.fault != SAME:
            self.counts[verdict.fault] += 1
            self.counts[verdict.mark] += 1
            self.differences.append(verdict)

    def lines(self) -> list[str]:
        names = ("decisions", "admitted", "with victims", "refused", "refused, room by some set", *FAULTS)
        marks = sorted({one.mark for one in self.differences if one.mark})
        lines = [f"  {name:26} {self.counts[name]:8}" for name in names]
        return lines + [f"  of the differences {self.counts[mark]} touch {mark}" for mark in marks]


Play = Callable[[int], Iterable[Verdict]]


def tally_first(
    play: Play, seeds: Iterable[int], decisions: int, report: Callable[[Verdict], None] = lambda _: None
) -> Tally:
    """Play seeds until so many decisions were compared; ``report`` gets each difference as it is found."""
    sums = Tally()
    for verdict in islice(chain.from_iterable(map(play, seeds)), decisions):
        sums.add(verdict)
        if verdict.fault != SAME:
            report(verdict)
    return sums
