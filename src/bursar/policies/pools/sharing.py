"""How siblings share what their parent has: pure arithmetic over one resource, in exact integers.

Every sibling has a *need*: what it asks for, up to its base (its min, or what is guaranteed to it); one that does not
lend needs its whole base, asked for or not. Two cases:

* the needs fit: each gets its need, and what is left is handed out in rounds by weight to those who ask for more
  than their base, until nobody asks, nothing is left, or nobody left has a weight;
* the needs do not fit: the whole is split in proportion to the needs.

Every proportional split hands out each unit: floors first, then one unit each by largest remainder, ties in the order
of the siblings, which callers keep sorted by name. So runtimes never add up to more than there is.

This is the rule, in integers of any size; ``rounds`` computes the same for everyday numbers, faster.
"""

from __future__ import annotations

from typing import Final, final


@final
class Round:
    """One round of a distribution, for explanations: what there was, and what each sibling was handed."""

    __slots__ = ("handed", "pool")

    def __init__(self, pool: int, handed: dict[int, int]) -> None:
        self.pool: Final = pool
        self.handed: Final = handed  # by position of the sibling


@final
class Trace:
    """How a distribution came about, for explanations."""

    __slots__ = ("needs", "rounds", "scaled")

    def __init__(self) -> None:
        self.needs: list[int] = []
        self.scaled: bool = False  # the needs did not fit and were scaled down
        self.rounds: Final[list[Round]] = []


def needs_of(lims: list[int], bases: list[int], lends: list[bool]) -> list[int]:
    """What each sibling must have before anything is shared out."""
    found: list[int] = []
    for i in range(len(lims)):
        base = bases[i]
        found.append(lims[i] if lends[i] and lims[i] < base else base)
    return found


def distribute(
    total: int,
    lims: list[int],
    bases: list[int],
    weights: list[int],
    lends: list[bool],
    trace: Trace | None = None,
) -> list[int]:
    """The runtime of each sibling; ``lims`` are what they ask for, already capped by their max."""
    granted = needs_of(lims, bases, lends)
    pool = total
    for need in granted:
        pool -= need
    if trace is not None:
        trace.needs = list(granted)
        trace.scaled = pool < 0
    if pool < 0:
        return split(total, granted)
    short = [i for i in range(len(lims)) if lims[i] > granted[i] and weights[i] > 0]
    while pool > 0 and short:
        shares = split(pool, [weights[i] for i in short])
        if trace is not None:
            trace.rounds.append(Round(pool, {short[k]: shares[k] for k in range(len(short))}))
        pool = 0
        still: list[int] = []
        for k in range(len(short)):
            i = short[k]
            now = granted[i] + shares[k]
            if now < lims[i]:
                still.append(i)
            else:
                pool += now - lims[i]
                now = lims[i]
            granted[i] = now
        short = still
    return granted


def split(total: int, weights: list[int]) -> list[int]:
    """The total in proportion to the weights, to the last unit; nothing at all when no weight is positive."""
    whole = 0
    for weight in weights:
        whole += weight
    if whole == 0 or total <= 0:
        return [0] * len(weights)
    shares: list[int] = []
    order: list[tuple[int, int]] = []
    left = total
    for i in range(len(weights)):
        product = weights[i] * total
        share = product // whole
        shares.append(share)
        left -= share
        order.append((share * whole - product, i))  # larger remainder first, then the earlier sibling
    order.sort()
    for k in range(left):
        shares[order[k][1]] += 1
    return shares
