"""Which claims of a quota are in-quota, within its share or beyond it, and which quota lends how much to which.

A walk goes through the claims in order and takes each that fits the caps together with those taken before it. Against
``min`` it separates in-quota from over-quota; against ``min`` + guaranteed, within-share from beyond-share. It is first
fit: a claim that is passed over does not push those behind it over the edge.

Lending is a convention, because no particular GPU changes hands. What borrowers use beyond their min is assigned to the
lenders in proportion to what each leaves unused, to the unit (largest remainder, ties by name). The rest has no lender;
there is one when borrowing is bounded by capacity, or after a min was lowered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from bursar.ledger.claims import Claim
from bursar.policies.elastic.settings import BEYOND_SHARE, IN_MIN, WITHIN_SHARE
from bursar.resources import Vector


@final
class Member:
    """A counted claim of a quota: what it takes of each dimension that min lists, and its place in the order."""

    __slots__ = ("amounts", "claim", "cost", "key")

    def __init__(self, claim: Claim, cost: Vector, amounts: list[int]) -> None:
        self.claim: Final = claim
        self.cost: Final = cost
        self.amounts: Final = amounts
        self.key: tuple[object, ...] = ()  # its place in the order, computed when the order is needed


@final
class Walk:
    """The walk against min. Members before ``tail`` are all in-quota, and sum up to ``base``."""

    __slots__ = ("base", "fits", "tail")

    def __init__(self, base: list[int], tail: list[Member], fits: list[bool]) -> None:
        self.base: Final = base
        self.tail: Final = tail  # from the first over-quota member on
        self.fits: Final = fits  # for each of the tail, whether it is in-quota


@final
class Standing:
    """The classes of the members of one quota, given its share."""

    __slots__ = ("beyond", "ranks", "share", "used", "within")

    def __init__(self, used: list[int], share: list[int], beyond: list[Member], within: list[Member]) -> None:
        self.used: Final = used
        self.share: Final = share  # min + guaranteed
        self.beyond: Final = beyond  # those to be taken away first come first
        self.within: Final = within
        self.ranks: Final[dict[str, int]] = {}
        for member in beyond:
            self.ranks[member.claim.uid] = BEYOND_SHARE
        for member in within:
            self.ranks[member.claim.uid] = WITHIN_SHARE

    def rank(self, uid: str) -> int:
        return self.ranks.get(uid, IN_MIN)


def takes(sums: list[int], amounts: list[int], caps: list[int]) -> bool:
    """Add the amounts to the sums if they fit the caps wherever something is requested."""
    for k in range(len(caps)):
        amount = amounts[k]
        if amount > 0 and sums[k] + amount > caps[k]:
            return False
    for k in range(len(caps)):
        sums[k] += amounts[k]
    return True


def walk_against_min(members: list[Member], floor: list[int]) -> Walk:
    sums = [0] * len(floor)
    at = 0
    while at < len(members) and takes(sums, members[at].amounts, floor):
        at += 1
    base = list(sums)
    tail = members[at:]
    return Walk(base, tail, [takes(sums, member.amounts, floor) for member in tail])


def over_quota(walk: Walk) -> set[str]:
    """The uids of the members that do not fit min."""
    over: set[str] = set()
    for i in range(len(walk.tail)):
        if not walk.fits[i]:
            over.add(walk.tail[i].claim.uid)
    return over


def standing_of(walk: Walk, used: list[int], share: list[int]) -> Standing:
    """The share is at least min, so all members before the tail are within it too."""
    sums = list(walk.base)
    beyond: list[Member] = []
    within: list[Member] = []
    for i in range(len(walk.tail)):
        member = walk.tail[i]
        fits = takes(sums, member.amounts, share)
        if not walk.fits[i]:
            if fits:
                within.append(member)
            else:
                beyond.append(member)
    return Standing(used, share, in_victim_order(beyond), in_victim_order(within))


def in_victim_order(members: list[Member]) -> list[Member]:
    """Lower priority first, then newest, then the last in order. The members are given in order."""
    members.reverse()
    members.sort(key=victim_key)  # stable: of ties, the last in order comes first
    return members


def victim_key(member: Member) -> tuple[int, int]:
    claim = member.claim
    return (claim.spec.priority, -claim.created)


def first_victim(walk: Walk) -> tuple[int, int] | None:
    """The victim key of the over-quota member that would have to go first, whatever the share is."""
    found: tuple[int, int] | None = None
    for i in range(len(walk.tail)):
        if not walk.fits[i]:
            key = victim_key(walk.tail[i])
            if found is None or key < found:
                found = key
    return found


def guaranteed(pool: int, floor: int, total: int) -> int:
    """The over-quota of one dimension that a quota is guaranteed; the remainder of the division is not guaranteed."""
    return pool * floor // total if total > 0 else 0


@final
@dataclass
class Loan:
    """An amount of one dimension that one quota uses of the min of another; without a lender, of spare capacity."""

    lender: str
    borrower: str
    amount: int

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
            found.append(Loan("", borrower, beyond))
    return found


def divide(amount: int, weights: dict[str, int]) -> dict[str, int]:
    """The amount in proportion to the weights, to the unit; no part exceeds its weight if the sum is enough."""
    total = sum(weights.values())
    if total == 0:
        return dict.fromkeys(weights, 0)
    parts = {name: amount * weight // total for name, weight in weights.items()}
    missing = amount - sum(parts.values())
    by_remainder = sorted(weights, key=lambda name: (-(amount * weights[name] % total), name))
    for name in by_remainder[:missing]:
        parts[name] += 1
    return parts
