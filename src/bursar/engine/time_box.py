"""The time that one decision may take, and the end of a decision that takes longer.

Some searches for victims are long: a quota tree is asked by trial, disruption budgets forbid one set after the other, a
gang has thousands of members. While one decision is made nothing else is, so its caller may give it a time box. The
engine reads no clock: it counts its steps, and asks the box after every few of them. By default the box is never over.

A decision that is cut leaves no trace but a refusal with the code ``engine.put-off``. The control loop tries it again
later, with a longer box. Only decisions are cut, between two attempts to charge the claim. What was observed is
recorded in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import mypyc_attr

from bursar.policies.results import Refusal

PUT_OFF: Final = "engine.put-off"
_STEPS: Final = 16
_NOTE: Final = "the search for its place takes long, and was put off so that other pods are decided"


class DecisionCut(Exception):  # noqa: N818 no error: the decision is made later
    """The time box is over."""


@mypyc_attr(allow_interpreted_subclasses=True)
class TimeBox:
    """Whether the time for the decision under way is over; the caller's, who has a clock."""

    def __init__(self, every: int = _STEPS) -> None:
        self.every: Final = every  # steps between two questions: attempts to charge, contenders or sets of victims

    def over(self) -> bool:
        return False

    def close(self) -> None:
        """The decision has ended: the box is good for no other one."""


@final
class ClockBox(TimeBox):
    """A box of some milliseconds on a clock of the caller. It is over only while it is open: for one decision."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__()
        self.clock: Final = clock
        self.until: int | None = None

    def begin(self, limit: int) -> None:
        self.until = self.clock() + limit

    def over(self) -> bool:
        return self.until is not None and self.clock() >= self.until

    def close(self) -> None:
        self.until = None


@final
class DecisionTime:
    """The time box of an engine, and the steps of the decision under way."""

    __slots__ = ("box", "running", "steps")

    def __init__(self) -> None:
        self.box: TimeBox = TimeBox()
        self.running: bool = False
        self.steps: int = 0

    def begin(self) -> None:
        """A decision begins, which may be cut."""
        self.running = True
        self.steps = 0

    def end(self) -> None:
        """Nothing is cut any more."""
        self.running = False
        self.box.close()

    def step(self) -> None:
        """The decision is about to do something that takes time; raises ``DecisionCut`` when the time is over."""
        if not self.running:
            return
        self.steps += 1
        if self.steps % self.box.every == 0 and self.box.over():
            self.running = False
            raise DecisionCut


def put_off() -> Refusal:
    """The refusal of a decision that was cut: it waits for the control loop only."""
    return Refusal("engine", PUT_OFF, _NOTE, topics=(PUT_OFF,))
