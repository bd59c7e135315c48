"""The least harmful set of contenders that frees what is missing, by arithmetic alone.

Contenders come least important first. Of all sets that are enough and allowed, the one is wanted whose most important
member is least important, ties by the next one: sets compare like binary numbers with the most important contender as
the highest digit. No subset of the smallest one is enough, because it would be smaller.

*Without allowances* every set that contains one that is enough is enough itself. So the smallest set lies within the
shortest prefix that is enough, and dropping from the most important down whatever can be spared gives exactly it: if
the rest of the prefix is enough without a contender, a smaller number exists without it, and else every set needs it.

*With allowances* (disruption budgets, what a quota may lose before it falls below its min) a larger set may be
forbidden. Then a tree search decides contender by contender, most important first, and leaves each out before it takes
it: the first set that it completes is the smallest. A branch is cut when what it could still reach is too little; what
an allowance still lets through bounds that. Sets and dead ends are counted: at most ``SETS_A_PLACE`` for a place and
``SETS_A_DECISION`` for a decision. If that is not enough, a set is taken that needs no search: each contender in turn
that allowances permit, as long as it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import mypyc_attr

from bursar.engine.time_box import DecisionTime
from bursar.policies.rights import Allowance, Contender

SETS_A_PLACE: Final = 4096
SETS_A_DECISION: Final = 65_536


@final
class JudgedSets:
    """How many sets were judged for a decision, and whether a search was cut short by that."""

    __slots__ = ("cut", "here", "time", "total")

    def __init__(self, time: DecisionTime) -> None:
        self.time: Final = time
        self.total: int = 0
        self.here: int = 0
        self.cut: bool = False

    def next_place(self) -> None:
        self.here = 0

    def judge_one_more(self) -> bool:
        """Whether one more may be judged."""
        self.time.step()
        self.here += 1
        self.total += 1
        if self.here > SETS_A_PLACE or self.total > SETS_A_DECISION:
            self.cut = True
            return False
        return True


@final
class AllowanceBound:
    """What the open contenders of one allowance could free together, given what is left of it."""

    __slots__ = ("best", "left", "sums", "weights")

    def __init__(self, left: int, rows: int) -> None:
        self.left: int = left
        self.sums: Final = [0] * rows
        # By row, the most that a contender frees for its load, as a fraction.
        self.best: Final = [0] * rows
        self.weights: Final = [1] * rows

    def could_free(self, row: int) -> int:
        return min(self.sums[row], self.left * self.best[row] // self.weights[row])


@final
class Reach:
    """What chosen and open contenders could free together at most."""

    __slots__ = ("bounds", "gained", "lefts", "needs", "total")

    def __init__(self, needs: list[int]) -> None:
        self.needs: Final = needs
        self.gained: Final = [0] * len(needs)  # by the chosen ones
        self.total: Final = [0] * len(needs)
        self.bounds: Final[dict[Allowance, AllowanceBound]] = {}
        self.lefts: Final[dict[Allowance, int]] = {}

    def covers(self) -> bool:
        for r in range(len(self.needs)):
            if self.total[r] < self.needs[r]:
                return False
        return True

    def enough(self) -> bool:
        for r in range(len(self.needs)):
            if self.gained[r] < self.needs[r]:
                return False
        return True

    def open(self, contender: Contender) -> None:
        """A contender that may yet be chosen."""
        for allowance in contender.allowances:
            self.lefts.setdefault(allowance, allowance.left)
        bound = self._bound_of(contender)
        for r in range(len(self.needs)):
            relief = max(0, contender.relief[r])
            if bound is None:
                self.total[r] += relief
                continue
            before = bound.could_free(r)
            bound.sums[r] += relief
            if relief * bound.weights[r] > bound.best[r] * contender.loads[0]:
                bound.best[r], bound.weights[r] = relief, contender.loads[0]
            self.total[r] += bound.could_free(r) - before

    def close(self, contender: Contender, sign: int = 1) -> None:
        """It is no longer open; ``sign`` -1 undoes that."""
        bound = self._bound_of(contender)
        for r in range(len(self.needs)):
            relief = sign * max(0, contender.relief[r])
            if bound is None:
                self.total[r] -= relief
                continue
            before = bound.could_free(r)
            bound.sums[r] -= relief
            self.total[r] += bound.could_free(r) - before

    def choose(self, contender: Contender, sign: int = 1) -> None:
        """A contender that is no longer open is chosen; ``sign`` -1 undoes that."""
        for i in range(len(contender.allowances)):
            allowance = contender.allowances[i]
            self.lefts[allowance] -= sign * contender.loads[i]
            bound = self.bounds.get(allowance)
            if bound is not None:
                self._set_left(bound, self.lefts[allowance])
        for r in range(len(self.needs)):
            self.gained[r] += sign * contender.relief[r]
            self.total[r] += sign * contender.relief[r]

    def allowed(self, contender: Contender) -> bool:
        for i in range(len(contender.allowances)):
            if contender.loads[i] > self.lefts[contender.allowances[i]]:
                return False
        return True

    def _set_left(self, bound: AllowanceBound, left: int) -> None:
        for r in range(len(self.needs)):
            self.total[r] -= bound.could_free(r)
        bound.left = left
        for r in range(len(self.needs)):
            self.total[r] += bound.could_free(r)

    def _bound_of(self, contender: Contender) -> AllowanceBound | None:
        """Contenders with several allowances count with the first."""
        if not contender.allowances:
            return None
        allowance = contender.allowances[0]
        found = self.bounds.get(allowance)
        if found is None:
            found = AllowanceBound(allowance.left, len(self.needs))
            self.bounds[allowance] = found
        return found


@mypyc_attr(allow_interpreted_subclasses=True)
class VictimSetCheck:
    """The last word on a set that is enough by its own sums."""

    def accepts(self, chosen: list[Contender]) -> bool:
        return True


def least_set(
    contenders: Iterator[Contender], needs: list[int], judged: JudgedSets, check: VictimSetCheck
) -> list[Contender] | None:
    """The smallest set that is enough and that the check accepts, the least important first; None if there is none."""
    known: list[Contender] = []
    sums = [0] * len(needs)
    for contender in contenders:
        known.append(contender)
        if contender.allowances or contender.returning:
            return _least_allowed(known, contenders, needs, judged, check)
        enough = True
        for r in range(len(needs)):
            sums[r] += contender.relief[r]
            enough = enough and sums[r] >= needs[r]
        if enough:
            return _spared(known, needs)
    return None


def _least_allowed(
    known: list[Contender], contenders: Iterator[Contender], needs: list[int], judged: JudgedSets, check: VictimSetCheck
) -> list[Contender] | None:
    """The same once a contender came that allowances limit, the last one known."""
    reach = Reach(needs)
    for contender in known:
        reach.open(contender)
    after = 0  # how many must be known before it is worth while to search
    if reach.covers():
        found = _search(known, needs, judged, check)
        if found is not None:
            return found
        after = 2 * len(known)
    for contender in contenders:
        known.append(contender)
        reach.open(contender)
        if len(known) >= after and reach.covers():
            found = _search(known, needs, judged, check)
            if found is not None:
                return found
            after = 2 * len(known)
    if len(known) < after and reach.covers():
        found = _search(known, needs, judged, check)
        if found is not None:
            return found
    return _without_search(known, needs, check) if judged.cut else None


def _search(
    known: list[Contender], needs: list[int], judged: JudgedSets, check: VictimSetCheck
) -> list[Contender] | None:
    if _is_free(known):
        found = _spared(known, needs)
        if check.accepts(found):
            return found
    return _tree_search(known, needs, judged, check)


def _is_free(known: list[Contender]) -> bool:
    """Whether all of them together keep every allowance, and nothing returns in their place."""
    loads: dict[Allowance, int] = {}
    for contender in known:
        if contender.returning:
            return False
        for i in range(len(contender.allowances)):
            allowance = contender.allowances[i]
            loads[allowance] = loads.get(allowance, 0) + contender.loads[i]
            if loads[allowance] > allowance.left:
                return False
    return True


def _spared(known: list[Contender], needs: list[int]) -> list[Contender]:
    """Drop from the most important down what is not needed."""
    sums = [0] * len(needs)
    for contender in known:
        for r in range(len(needs)):
            sums[r] += contender.relief[r]
    kept: list[Contender] = []
    for at in range(len(known) - 1, -1, -1):
        relief = known[at].relief
        spare = True
        for r in range(len(needs)):
            spare = spare and sums[r] - relief[r] >= needs[r]
        if not spare:
            kept.append(known[at])
            continue
        for r in range(len(needs)):
            sums[r] -= relief[r]
    kept.reverse()
    return kept


_OPEN: Final = 0
_OUT: Final = 1
_IN: Final = 2
_NOWHERE: Final = -2


def _tree_search(
    known: list[Contender], needs: list[int], judged: JudgedSets, check: VictimSetCheck
) -> list[Contender] | None:
    reach = Reach(needs)
    for contender in known:
        reach.open(contender)
    fate = [_OPEN] * len(known)
    at = len(known) - 1
    changed = True  # a contender was taken since a set was judged
    while True:
        if changed and reach.enough():
            changed = False
            if not judged.judge_one_more():
                return None
            chosen = [known[i] for i in range(len(known)) if fate[i] == _IN]
            if check.accepts(chosen):
                return chosen
        if at >= 0:
            reach.close(known[at])
            if reach.covers():
                fate[at] = _OUT
                at -= 1
                continue
            if _take(known[at], reach):
                fate[at] = _IN
                changed = True
                at -= 1
                continue
            reach.close(known[at], -1)
        at = _turn_back(known, fate, reach, at)
        changed = True
        if at == _NOWHERE or not judged.judge_one_more():
            return None


def _take(contender: Contender, reach: Reach) -> bool:
    """Choose a contender that was just closed, if allowances permit it and enough stays within reach."""
    if reach.allowed(contender):
        reach.choose(contender)
        if reach.covers():
            return True
        reach.choose(contender, -1)
    return False


def _turn_back(known: list[Contender], fate: list[int], reach: Reach, at: int) -> int:
    """Undo up to the last contender that was left out, and take that one instead; returns where to go on."""
    for back in range(at + 1, len(known)):
        contender = known[back]
        if fate[back] == _OUT and _take(contender, reach):
            fate[back] = _IN
            return back - 1
        if fate[back] == _IN:
            reach.choose(contender, -1)
        reach.close(contender, -1)
        fate[back] = _OPEN
    return _NOWHERE


def _without_search(known: list[Contender], needs: list[int], check: VictimSetCheck) -> list[Contender] | None:
    """Take what allowances permit, the least important first, until it is enough; then spare what is not needed."""
    reach = Reach(needs)
    chosen: list[Contender] = []
    for contender in known:
        reach.open(contender)
        reach.close(contender)
        if reach.allowed(contender):
            reach.choose(contender)
            chosen.append(contender)
            if reach.enough():
                found = _spared(chosen, needs)
                return found if check.accepts(found) else None
    return None
