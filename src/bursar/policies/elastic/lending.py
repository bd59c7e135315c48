"""Who lends how much to whom: a view over minimums and use, one dimension at a time. Pure, exact, deterministic.

Nobody hands a particular GPU to anybody, so the view is a convention: what borrowers use beyond their min is laid on
the lenders in proportion to what each leaves unused, to the unit (largest remainder, ties by name). What goes beyond
all that is left unused (possible when borrowing is bounded by capacity, or after a min was lowered) is lent by nobody.
"""

from __future__ import annotations

from typing import Final, final

NOBODY: Final = ""


@final
class Loan:
    """An amount of one dimension that one quota uses of another one's min; ``lender`` "": of nobody's."""

    __slots__ = ("amount", "borrower", "lender")

    def __init__(self, lender: str, borrower: str, amount: int) -> None:
        self.lender: Final = lender
        self.borrower: Final = borrower
        self.amount: Final = amount

    def record(self) -> list[object]:
        return [self.lender, self.borrower, self.amount]


def loans(standing: dict[str, tuple[int, int]]) -> list[Loan]:
    """The loans of one dimension from (min, used) by name of quota, sorted by borrower, then lender."""
    idle = {name: least - used for name, (least, used) in sorted(standing.items()) if used < least}
    needs = {name: used - least for name, (least, used) in sorted(standing.items()) if used > least}
    total = sum(needs.values())
    left = divide(min(total, sum(idle.values())), idle)
    found: list[Loan] = []
    for borrower, need in needs.items():
        lent = divide(min(need, sum(left.values())), left)
        for lender, amount in lent.items():
            left[lender] -= amount
            if amount:
                found.append(Loan(lender, borrower, amount))
        beyond = need - sum(lent.values())
        if beyond:
            found.append(Loan(NOBODY, borrower, beyond))
    return found


def divide(amount: int, weights: dict[str, int]) -> dict[str, int]:
    """The amount in proportion to the weights, to the unit; nobody gets more than its weight if the sum is enough."""
    total = sum(weights.values())
    if total == 0:
        return dict.fromkeys(weights, 0)
    parts = {name: amount * weight // total for name, weight in weights.items()}
    missing = amount - sum(parts.values())
    by_remainder = sorted(weights, key=lambda name: (-(amount * weights[name] % total), name))
    for name in by_remainder[:missing]:
        parts[name] += 1
    return parts
